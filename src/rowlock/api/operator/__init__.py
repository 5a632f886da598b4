"""Routes of operators, which dashboards use: look at everything, and do what the command line can do.

An operator's token opens them, one of scope `operator:read` only for GET. Records come as the library has them, with
their names in camelCase. Reads have separate connections and two seconds (`Service.look`); changes are written into the
audit.
"""

from __future__ import annotations

from rowlock.api.operator import actions, batches, charts, jobs, now, queues, schedules, settings, sources, tasks

# A path with a name in it comes after the paths that it would take: jobs/counts before jobs/{jobId}.
PARTS = (now, jobs, actions, queues, charts, schedules, sources, batches, tasks, settings)

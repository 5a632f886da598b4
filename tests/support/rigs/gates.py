"""Gates of sources: one that lets everything in, from which a test makes its own with `_replace`."""

from rowlock.core.sources.admission import Gate

NO_LIMIT = dict.fromkeys(("concurrency", "total", "rate", "burst", "tokens", "elapsed", "paused_for"))
HEALTHY = {"enabled": True, "opened": False, "probing": False, "epoch": 0}
OPEN = Gate(**NO_LIMIT, **HEALTHY, running=0, class_running=0, has_row=True)

TABLE rowlock_alert_lease
    expires_at REAL NOT NULL
    holder TEXT NOT NULL
    one INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1)
    token TEXT NOT NULL

TABLE rowlock_alert_messages
    attempts INTEGER NOT NULL DEFAULT 0
    body TEXT NOT NULL
    created_at REAL NOT NULL
    id TEXT PRIMARY KEY NOT NULL
    last_error TEXT
    send_after REAL NOT NULL
    type TEXT NOT NULL

TABLE rowlock_alerts
    PRIMARY KEY (rule, subject)
    false_since REAL
    fired_at REAL
    repeats INTEGER NOT NULL DEFAULT 0
    rule TEXT NOT NULL
    subject TEXT NOT NULL
    text TEXT NOT NULL
    told_at REAL
    true_since REAL NOT NULL
    value REAL NOT NULL

TABLE rowlock_app_migrations
    PRIMARY KEY (app, number)
    app TEXT NOT NULL
    applied_at REAL NOT NULL
    name TEXT NOT NULL
    number INTEGER NOT NULL

TABLE rowlock_attempts
    PRIMARY KEY (job_id, attempt)
    attempt INTEGER NOT NULL
    error_code TEXT
    error_message TEXT
    finished_at REAL NOT NULL
    job_id TEXT NOT NULL
    outcome TEXT NOT NULL CHECK (outcome IN ('failed', 'timed_out', 'lost', 'cancelled', 'released'))
    queue TEXT
    source TEXT
    started_at REAL
    task TEXT
    traceback TEXT
    worker TEXT

CREATE INDEX rowlock_attempts_age ON rowlock_attempts (finished_at)

CREATE TRIGGER rowlock_attempts_tally AFTER INSERT ON rowlock_attempts BEGIN UPDATE rowlock_attempts SET task = j.task, queue = j.queue, source = j.source FROM rowlock_jobs_live j WHERE rowlock_attempts.rowid = NEW.rowid AND NEW.task IS NULL AND j.id = NEW.job_id; INSERT INTO rowlock_tallies SELECT CAST(finished_at AS INTEGER) / 60 * 60, coalesce(queue, ''), coalesce(task, ''), 'attempt.' || outcome, CASE WHEN ran < 1 THEN CASE WHEN ran < 0.005 THEN 0 WHEN ran < 0.01 THEN 1 WHEN ran < 0.025 THEN 2 WHEN ran < 0.05 THEN 3 WHEN ran < 0.1 THEN 4 WHEN ran < 0.25 THEN 5 WHEN ran < 0.5 THEN 6 ELSE 7 END WHEN ran IS NULL THEN -1 ELSE CASE WHEN ran < 2.5 THEN 8 WHEN ran < 5 THEN 9 WHEN ran < 10 THEN 10 WHEN ran < 30 THEN 11 WHEN ran < 60 THEN 12 WHEN ran < 300 THEN 13 WHEN ran < 900 THEN 14 WHEN ran < 3600 THEN 15 ELSE 16 END END, -1, 1, max(coalesce(ran, 0), 0), 0 FROM (SELECT a.*, a.finished_at - a.started_at AS ran FROM rowlock_attempts a WHERE a.rowid = NEW.rowid) WHERE TRUE ON CONFLICT DO UPDATE SET number = number + 1, run_seconds = run_seconds + excluded.run_seconds; END

TABLE rowlock_audit
    action TEXT NOT NULL
    address TEXT
    at REAL NOT NULL
    details TEXT
    id INTEGER PRIMARY KEY AUTOINCREMENT
    number INTEGER NOT NULL
    target TEXT
    via TEXT NOT NULL
    who TEXT NOT NULL

CREATE VIEW rowlock_backlog AS WITH RECURSIVE lanes (queue, task, priority, run_after, nth) AS ( SELECT * FROM ( SELECT j.queue, j.task, j.priority, j.run_after, 1 FROM rowlock_jobs_live j WHERE j.ready AND j.source IS NULL ORDER BY j.queue, j.task, j.priority, j.id LIMIT 1) UNION ALL SELECT j.queue, j.task, j.priority, j.run_after, l.nth + 1 FROM lanes l JOIN rowlock_jobs_live j ON j.id = ( SELECT n.id FROM rowlock_jobs_live n WHERE n.ready AND n.source IS NULL AND (n.queue, n.task, n.priority, n.id) > (+l.queue, +l.task, +l.priority, 'ffffffff-ffff-ffff-ffff-ffffffffffff') ORDER BY n.queue, n.task, n.priority, n.id LIMIT 1) WHERE l.nth < 10000 ), heads (queue, task, priority, source, run_after, nth) AS ( SELECT * FROM ( SELECT j.queue, j.task, j.priority, j.source, j.run_after, 1 FROM rowlock_jobs_live j WHERE j.ready AND j.source IS NOT NULL ORDER BY j.queue, j.task, j.priority, j.source, j.id LIMIT 1) UNION ALL SELECT j.queue, j.task, j.priority, j.source, j.run_after, h.nth + 1 FROM heads h JOIN rowlock_jobs_live j ON j.id = ( SELECT n.id FROM rowlock_jobs_live n WHERE n.ready AND n.source IS NOT NULL AND (n.queue, n.task, n.priority, n.source, n.id) > (+h.queue, +h.task, +h.priority, +h.source, 'ffffffff-ffff-ffff-ffff-ffffffffffff') ORDER BY n.queue, n.task, n.priority, n.source, n.id LIMIT 1) WHERE h.nth < 10000 ), due AS ( SELECT j.queue, j.source, j.run_after FROM rowlock_jobs_live j WHERE NOT j.ready AND j.state <> 'running' AND j.run_after <= unixepoch('subsec') AND NOT EXISTS (SELECT 1 FROM rowlock_set_aside a WHERE a.id = j.id) ORDER BY j.run_after LIMIT 10000 ), plain AS ( SELECT q.queue, (SELECT count(*) FROM ( SELECT 1 FROM rowlock_jobs_live j WHERE j.ready AND j.source IS NULL AND j.queue = q.queue ORDER BY j.task, j.priority, j.id LIMIT 10000)) AS number, q.oldest FROM (SELECT queue, min(run_after) AS oldest FROM lanes GROUP BY queue) q UNION ALL SELECT queue, count(*), min(run_after) FROM due WHERE source IS NULL GROUP BY queue ), sourced AS ( SELECT queue, source, sum(number) AS number, min(oldest) AS oldest FROM ( SELECT h.queue, h.source, h.run_after AS oldest, (SELECT count(*) FROM ( SELECT 1 FROM rowlock_jobs_live j WHERE j.ready AND j.source IS NOT NULL AND j.queue = h.queue AND j.task = h.task AND j.priority = h.priority AND j.source = h.source ORDER BY j.id LIMIT 1000)) AS number FROM heads h UNION ALL SELECT queue, source, min(run_after), count(*) FROM due WHERE source IS NOT NULL GROUP BY queue, source) GROUP BY queue, source ), room AS ( SELECT o.queue, substr(o.source, 1, instr(o.source || ':', ':') - 1) AS class, o.number, o.oldest, CASE WHEN NOT (coalesce(s.enabled, 1) AND coalesce(c.class_enabled, 1)) THEN 0 WHEN s.paused_until > unixepoch('subsec') OR c.class_paused_until > unixepoch('subsec') THEN 0 WHEN s.opened_at IS NOT NULL THEN CASE WHEN EXISTS ( SELECT 1 FROM rowlock_jobs_live p WHERE p.id = s.probe_job AND p.lease_token = s.probe_token AND p.state = 'running') THEN 0 ELSE 1 END ELSE min( coalesce(coalesce(s.concurrency, c.concurrency) - ( SELECT count(*) FROM rowlock_jobs_live r WHERE r.state = 'running' AND r.source IS NOT NULL AND substr(r.source, 1, instr(r.source || ':', ':') - 1) = substr(o.source, 1, instr(o.source || ':', ':') - 1) AND r.source = o.source), 1000000), coalesce(max(1, ceil(coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) / 2)), 1000000)) END AS room, c.total FROM sourced o LEFT JOIN rowlock_sources s ON s.name = o.source LEFT JOIN rowlock_sources c ON c.name = substr(o.source, 1, instr(o.source || ':', ':') - 1) ), startable AS ( SELECT queue, number, oldest FROM plain UNION ALL SELECT r.queue, max(0, min( sum(max(0, min(r.number, r.room))), coalesce(r.total - (SELECT count(*) FROM rowlock_jobs_live j WHERE j.state = 'running' AND j.source IS NOT NULL AND substr(j.source, 1, instr(j.source || ':', ':') - 1) = r.class), 1000000))), min(r.oldest) FILTER (WHERE r.room > 0) FROM room r GROUP BY r.queue, r.class, r.total ), running AS ( SELECT queue, count(*) AS number FROM rowlock_jobs_live WHERE state = 'running' AND published IS NOT 'unread' GROUP BY queue ), took AS ( SELECT queue, avg(finished_at - started_at) AS seconds FROM ( SELECT f.queue, f.state, f.started_at, f.finished_at FROM rowlock_jobs_finished f ORDER BY f.rowid DESC LIMIT 1000) WHERE state = 'succeeded' GROUP BY queue ), counted AS ( SELECT queue, sum(number) AS runnable, min(oldest) FILTER (WHERE number > 0) AS oldest FROM startable WHERE NOT EXISTS (SELECT 1 FROM rowlock_queues q WHERE q.name = startable.queue AND q.paused_at IS NOT NULL) GROUP BY queue ) SELECT coalesce(b.queue, r.queue) AS queue, CAST(coalesce(b.runnable, 0) AS INTEGER) AS runnable, coalesce(r.number, 0) AS running, coalesce(max(0, unixepoch('subsec') - b.oldest), 0) AS oldest_age_seconds, t.seconds AS mean_run_seconds, CAST(coalesce(r.number, 0) + coalesce(min(b.runnable, max(1, ceil(b.runnable * coalesce(t.seconds, 1) / 30))), 0) AS INTEGER) AS wanted_slots FROM counted b FULL JOIN running r ON r.queue = b.queue LEFT JOIN took t ON t.queue = coalesce(b.queue, r.queue) ORDER BY 1

TABLE rowlock_batch_counts
    PRIMARY KEY (batch_id, shard)
    batch_id TEXT NOT NULL REFERENCES rowlock_batches (id) ON DELETE CASCADE
    cancelled INTEGER NOT NULL DEFAULT 0
    expired INTEGER NOT NULL DEFAULT 0
    failed INTEGER NOT NULL DEFAULT 0
    last_error TEXT
    last_error_at REAL
    processed INTEGER NOT NULL DEFAULT 0
    shard INTEGER NOT NULL
    total INTEGER NOT NULL DEFAULT 0

TABLE rowlock_batches
    cancelled_at REAL
    created_at REAL NOT NULL
    end_job TEXT
    ended_once INTEGER NOT NULL DEFAULT 0
    finished_at REAL
    id TEXT PRIMARY KEY
    name TEXT NOT NULL
    on_end TEXT
    owner TEXT
    parent_id TEXT
    reopened_at REAL
    sealed_at REAL
    started_at REAL
    state TEXT NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled'))

CREATE INDEX rowlock_batches_done ON rowlock_batches (finished_at) WHERE finished_at IS NOT NULL

CREATE INDEX rowlock_batches_open ON rowlock_batches (id) WHERE finished_at IS NULL

TABLE rowlock_counters WITHOUT ROWID
    PRIMARY KEY (queue, task, what, run_bucket, wait_bucket)
    number INTEGER NOT NULL
    queue TEXT NOT NULL
    run_bucket INTEGER NOT NULL
    run_seconds REAL NOT NULL
    task TEXT NOT NULL
    wait_bucket INTEGER NOT NULL
    wait_seconds REAL NOT NULL
    what TEXT NOT NULL

TABLE rowlock_deleted_events
    last_id INTEGER NOT NULL
    one INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1)

TABLE rowlock_dispatchers
    bell TEXT
    declares TEXT NOT NULL
    expires_at REAL NOT NULL
    id TEXT PRIMARY KEY
    seen_at REAL NOT NULL
    started_at REAL NOT NULL

TABLE rowlock_event_listeners
    expires_at REAL NOT NULL
    id TEXT PRIMARY KEY NOT NULL

TABLE rowlock_events
    at REAL NOT NULL
    attempt INTEGER NOT NULL
    error_code TEXT
    error_message TEXT
    id INTEGER PRIMARY KEY AUTOINCREMENT
    job_id TEXT NOT NULL
    message TEXT
    owner TEXT NOT NULL
    phase TEXT
    progress INTEGER
    result_checksum TEXT
    result_uri TEXT
    state TEXT NOT NULL
    task TEXT NOT NULL
    type TEXT NOT NULL

CREATE INDEX rowlock_events_owner ON rowlock_events (owner, id)

CREATE TRIGGER rowlock_events_deleted AFTER DELETE ON rowlock_events BEGIN INSERT INTO rowlock_deleted_events (one, last_id) VALUES (1, OLD.id) ON CONFLICT (one) DO UPDATE SET last_id = max(last_id, excluded.last_id); END

TABLE rowlock_job_keys
    PRIMARY KEY (scope, key)
    expires_at REAL
    job_id TEXT NOT NULL
    key TEXT NOT NULL
    mode TEXT NOT NULL
    scope TEXT NOT NULL

CREATE INDEX rowlock_job_keys_expiry ON rowlock_job_keys (expires_at) WHERE expires_at IS NOT NULL

CREATE INDEX rowlock_job_keys_job ON rowlock_job_keys (job_id)

TABLE rowlock_job_logs WITHOUT ROWID
    PRIMARY KEY (job_id, seq)
    at REAL NOT NULL
    attempt INTEGER NOT NULL
    job_id TEXT NOT NULL
    level TEXT NOT NULL
    message TEXT NOT NULL
    seq INTEGER NOT NULL

CREATE INDEX rowlock_job_logs_age ON rowlock_job_logs (at)

CREATE VIEW rowlock_jobs AS SELECT id, task, queue, CASE WHEN published = 'unread' THEN 'queued' ELSE state END AS state, priority, args, owner, source, tags, batch_id, schedule_id, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', tick, 'unixepoch'), tick) AS tick, attempt, max_attempts, releases, losses, backoff, timeout_seconds, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', run_after, 'unixepoch'), run_after) AS run_after, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', expires_at, 'unixepoch'), expires_at) AS expires_at, lease_token, locked_by, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', locked_at, 'unixepoch'), locked_at) AS locked_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', heartbeat_at, 'unixepoch'), heartbeat_at) AS heartbeat_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', lease_expires_at, 'unixepoch'), lease_expires_at) AS lease_expires_at, settled_token, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', cancel_requested_at, 'unixepoch'), cancel_requested_at) AS cancel_requested_at, progress, phase, message, NULL AS result, result_uri, result_checksum, error_code, error_message, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', created_at, 'unixepoch'), created_at) AS created_at, CASE WHEN published = 'unread' THEN NULL ELSE coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', started_at, 'unixepoch'), started_at) END AS started_at, NULL AS finished_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', updated_at, 'unixepoch'), updated_at) AS updated_at FROM rowlock_jobs_live UNION ALL SELECT id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', tick, 'unixepoch'), tick) AS tick, attempt, max_attempts, releases, losses, backoff, timeout_seconds, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', run_after, 'unixepoch'), run_after) AS run_after, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', expires_at, 'unixepoch'), expires_at) AS expires_at, NULL AS lease_token, last_worker AS locked_by, NULL AS locked_at, NULL AS heartbeat_at, NULL AS lease_expires_at, settled_token, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', cancel_requested_at, 'unixepoch'), cancel_requested_at) AS cancel_requested_at, progress, phase, message, result, result_uri, result_checksum, error_code, error_message, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', created_at, 'unixepoch'), created_at) AS created_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', started_at, 'unixepoch'), started_at) AS started_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', finished_at, 'unixepoch'), finished_at) AS finished_at, coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', updated_at, 'unixepoch'), updated_at) AS updated_at FROM rowlock_jobs_finished

TABLE rowlock_jobs_finished
    CONSTRAINT jobs_finished_state CHECK (state IN ('succeeded', 'dead', 'cancelled'))
    args TEXT NOT NULL
    attempt INTEGER NOT NULL
    backoff TEXT
    batch_id TEXT
    cancel_requested_at REAL
    convictions INTEGER NOT NULL
    created_at REAL NOT NULL
    drop_on TEXT NOT NULL
    error_code TEXT
    error_message TEXT
    expires_at REAL
    finished_at REAL NOT NULL
    id TEXT PRIMARY KEY NOT NULL
    keep_seconds REAL
    last_worker TEXT
    losses INTEGER NOT NULL
    max_attempts INTEGER NOT NULL
    message TEXT
    on_dead TEXT
    on_lost TEXT
    on_success TEXT
    owner TEXT
    parent_id TEXT
    phase TEXT
    priority INTEGER NOT NULL
    progress INTEGER
    queue TEXT NOT NULL
    releases INTEGER NOT NULL
    result TEXT
    result_checksum TEXT
    result_uri TEXT
    run_after REAL NOT NULL
    schedule_id TEXT
    settled_token TEXT
    source TEXT
    started_at REAL
    state TEXT NOT NULL
    tags TEXT
    task TEXT NOT NULL
    tick REAL
    timeout_seconds REAL
    traceparent TEXT
    unique_key TEXT
    unique_mode TEXT
    updated_at REAL NOT NULL

CREATE INDEX rowlock_jobs_finished_batch ON rowlock_jobs_finished (batch_id, id) WHERE batch_id IS NOT NULL

CREATE INDEX rowlock_jobs_finished_drop ON rowlock_jobs_finished (drop_on)

CREATE INDEX rowlock_jobs_finished_owner ON rowlock_jobs_finished (owner, id) WHERE owner IS NOT NULL

CREATE INDEX rowlock_jobs_finished_owner_trouble ON rowlock_jobs_finished (owner, state, id) WHERE owner IS NOT NULL AND state <> 'succeeded'

CREATE INDEX rowlock_jobs_finished_parent ON rowlock_jobs_finished (parent_id, id) WHERE parent_id IS NOT NULL

CREATE INDEX rowlock_jobs_finished_schedule ON rowlock_jobs_finished (schedule_id, id) WHERE schedule_id IS NOT NULL

CREATE INDEX rowlock_jobs_finished_trouble ON rowlock_jobs_finished (state, id) WHERE state <> 'succeeded'

CREATE TRIGGER rowlock_jobs_finished_end AFTER INSERT ON rowlock_jobs_finished WHEN NEW.owner IS NOT NULL BEGIN INSERT INTO rowlock_events (job_id, owner, type, task, state, attempt, progress, phase, message, result_uri, result_checksum, error_code, error_message, at) VALUES (NEW.id, NEW.owner, CASE NEW.state WHEN 'succeeded' THEN 'job.completed' WHEN 'dead' THEN 'job.failed' ELSE 'job.cancelled' END, NEW.task, NEW.state, NEW.attempt, NEW.progress, NEW.phase, NEW.message, NEW.result_uri, NEW.result_checksum, NEW.error_code, NEW.error_message, NEW.finished_at); END

CREATE TRIGGER rowlock_jobs_finished_tally AFTER INSERT ON rowlock_jobs_finished BEGIN INSERT INTO rowlock_tallies SELECT CAST(NEW.finished_at AS INTEGER) / 60 * 60, NEW.queue, NEW.task, NEW.state, CASE WHEN ran < 1 THEN CASE WHEN ran < 0.005 THEN 0 WHEN ran < 0.01 THEN 1 WHEN ran < 0.025 THEN 2 WHEN ran < 0.05 THEN 3 WHEN ran < 0.1 THEN 4 WHEN ran < 0.25 THEN 5 WHEN ran < 0.5 THEN 6 ELSE 7 END WHEN ran IS NULL THEN -1 ELSE CASE WHEN ran < 2.5 THEN 8 WHEN ran < 5 THEN 9 WHEN ran < 10 THEN 10 WHEN ran < 30 THEN 11 WHEN ran < 60 THEN 12 WHEN ran < 300 THEN 13 WHEN ran < 900 THEN 14 WHEN ran < 3600 THEN 15 ELSE 16 END END, CASE WHEN waited < 1 THEN CASE WHEN waited < 0.005 THEN 0 WHEN waited < 0.01 THEN 1 WHEN waited < 0.025 THEN 2 WHEN waited < 0.05 THEN 3 WHEN waited < 0.1 THEN 4 WHEN waited < 0.25 THEN 5 WHEN waited < 0.5 THEN 6 ELSE 7 END WHEN waited IS NULL THEN -1 ELSE CASE WHEN waited < 2.5 THEN 8 WHEN waited < 5 THEN 9 WHEN waited < 10 THEN 10 WHEN waited < 30 THEN 11 WHEN waited < 60 THEN 12 WHEN waited < 300 THEN 13 WHEN waited < 900 THEN 14 WHEN waited < 3600 THEN 15 ELSE 16 END END, 1, max(coalesce(ran, 0), 0), max(coalesce(waited, 0), 0) FROM (SELECT CASE WHEN NEW.state = 'succeeded' THEN NEW.finished_at - NEW.started_at END AS ran, CASE WHEN NEW.state = 'succeeded' THEN NEW.started_at - NEW.run_after END AS waited) WHERE TRUE ON CONFLICT DO UPDATE SET number = number + 1, run_seconds = run_seconds + excluded.run_seconds, wait_seconds = wait_seconds + excluded.wait_seconds; END

CREATE TRIGGER rowlock_jobs_finished_webhook AFTER INSERT ON rowlock_jobs_finished WHEN NEW.owner IS NOT NULL AND EXISTS (SELECT 1 FROM rowlock_webhooks WHERE job_id = NEW.id) BEGIN UPDATE rowlock_webhooks SET drop_on = NEW.drop_on WHERE job_id = NEW.id; INSERT INTO rowlock_webhook_deliveries (job_id, delivery_id) SELECT NEW.id, printf('%08x-%04x-7%03x-%04x-%012x', ms >> 16, ms & 65535, random() & 4095, 32768 | (random() & 16383), random() & 281474976710655) FROM (SELECT CAST(NEW.finished_at * 1000 AS INTEGER) AS ms); INSERT INTO rowlock_jobs_live (id, task, queue, ready, args, source, max_attempts, backoff, timeout_seconds, run_after, created_at, updated_at) SELECT delivery.delivery_id, 'rowlock.webhook', hook.queue, 1, json_object( 'url', hook.url, 'owner', hook.owner, 'event', json_object( 'job_id', NEW.id, 'task', NEW.task, 'state', NEW.state, 'attempt', NEW.attempt, 'progress', NEW.progress, 'phase', NEW.phase, 'message', NEW.message, 'result_uri', NEW.result_uri, 'result_checksum', NEW.result_checksum, 'error_code', NEW.error_code, 'error_message', NEW.error_message, 'at', NEW.finished_at)), hook.source, hook.max_attempts, hook.backoff, hook.timeout_seconds, NEW.finished_at, NEW.finished_at, NEW.finished_at FROM rowlock_webhooks hook JOIN rowlock_webhook_deliveries delivery ON delivery.rowid = last_insert_rowid() WHERE hook.job_id = NEW.id; END

TABLE rowlock_jobs_live
    CONSTRAINT jobs_live_counts CHECK (attempt >= 0 AND releases >= 0 AND losses >= 0 AND max_attempts >= 1)
    CONSTRAINT jobs_live_lease CHECK ( CASE WHEN state = 'running' THEN lease_token IS NOT NULL AND locked_by IS NOT NULL AND locked_at IS NOT NULL AND lease_expires_at IS NOT NULL ELSE lease_token IS NULL AND locked_by IS NULL AND locked_at IS NULL AND lease_expires_at IS NULL AND heartbeat_at IS NULL END)
    CONSTRAINT jobs_live_priority CHECK (priority BETWEEN -100 AND 100)
    CONSTRAINT jobs_live_ready CHECK (NOT (ready AND state = 'running'))
    CONSTRAINT jobs_live_state CHECK (state IN ('queued', 'running', 'retryable'))
    args TEXT NOT NULL
    attempt INTEGER NOT NULL DEFAULT 0
    backoff TEXT
    batch_id TEXT
    cancel_requested_at REAL
    convictions INTEGER NOT NULL DEFAULT 0
    created_at REAL NOT NULL
    disconnects_in_row INTEGER NOT NULL DEFAULT 0 CHECK (typeof(disconnects_in_row) = 'integer' AND disconnects_in_row >= 0)
    error_code TEXT
    error_message TEXT
    expires_at REAL
    heartbeat_at REAL
    id TEXT PRIMARY KEY NOT NULL
    keep_seconds REAL
    lease_expires_at REAL
    lease_token TEXT
    locked_at REAL
    locked_by TEXT
    losses INTEGER NOT NULL DEFAULT 0
    losses_in_row INTEGER NOT NULL DEFAULT 0 CHECK (typeof(losses_in_row) = 'integer' AND losses_in_row >= 0)
    max_attempts INTEGER NOT NULL
    message TEXT
    on_dead TEXT
    on_lost TEXT
    on_success TEXT
    owner TEXT
    parent_id TEXT
    phase TEXT
    priority INTEGER NOT NULL DEFAULT 0
    probation INTEGER NOT NULL DEFAULT 0 CHECK (typeof(probation) = 'integer' AND probation >= 0)
    progress INTEGER
    published TEXT
    queue TEXT NOT NULL
    ready INTEGER NOT NULL
    releases INTEGER NOT NULL DEFAULT 0
    result_checksum TEXT
    result_uri TEXT
    run_after REAL NOT NULL
    schedule_id TEXT
    settled_token TEXT
    sigterms_in_row INTEGER NOT NULL DEFAULT 0 CHECK (typeof(sigterms_in_row) = 'integer' AND sigterms_in_row >= 0)
    source TEXT
    source_epoch INTEGER
    started_at REAL
    state TEXT NOT NULL DEFAULT 'queued'
    tags TEXT
    task TEXT NOT NULL
    tick REAL
    timeout_seconds REAL
    traceparent TEXT
    unique_key TEXT
    unique_mode TEXT CHECK (unique_mode IN ('until_done', 'while_queued', 'forever', 'window'))
    updated_at REAL NOT NULL

CREATE INDEX rowlock_jobs_live_batch ON rowlock_jobs_live (batch_id, id) WHERE batch_id IS NOT NULL

CREATE INDEX rowlock_jobs_live_claim ON rowlock_jobs_live (queue, task, priority, id) WHERE ready AND source IS NULL

CREATE INDEX rowlock_jobs_live_due ON rowlock_jobs_live (run_after) WHERE NOT ready AND state <> 'running'

CREATE INDEX rowlock_jobs_live_expiry ON rowlock_jobs_live (expires_at) WHERE expires_at IS NOT NULL AND state <> 'running'

CREATE INDEX rowlock_jobs_live_owner ON rowlock_jobs_live (owner, id) WHERE owner IS NOT NULL

CREATE INDEX rowlock_jobs_live_parent ON rowlock_jobs_live (parent_id, id) WHERE parent_id IS NOT NULL

CREATE INDEX rowlock_jobs_live_running ON rowlock_jobs_live (id) WHERE state = 'running'

CREATE INDEX rowlock_jobs_live_schedule ON rowlock_jobs_live (schedule_id) WHERE schedule_id IS NOT NULL

CREATE INDEX rowlock_jobs_live_slots ON rowlock_jobs_live (substr(source, 1, instr(source || ':', ':') - 1), source) WHERE state = 'running' AND source IS NOT NULL

CREATE INDEX rowlock_jobs_live_turns ON rowlock_jobs_live (queue, task, priority, source, id) WHERE ready AND source IS NOT NULL

CREATE TRIGGER rowlock_jobs_live_progress AFTER UPDATE OF progress, phase, message ON rowlock_jobs_live WHEN NEW.owner IS NOT NULL AND NEW.state = 'running' AND (NEW.progress IS NOT OLD.progress OR NEW.phase IS NOT OLD.phase OR NEW.message IS NOT OLD.message) BEGIN INSERT INTO rowlock_events (job_id, owner, type, task, state, attempt, progress, phase, message, at) VALUES (NEW.id, NEW.owner, 'job.progress', NEW.task, NEW.state, NEW.attempt, NEW.progress, NEW.phase, NEW.message, NEW.updated_at); END

CREATE TRIGGER rowlock_jobs_live_readable BEFORE INSERT ON rowlock_jobs_live WHEN typeof(NEW.id) <> 'text' OR typeof(NEW.run_after) <> 'real' OR NEW.run_after NOT BETWEEN 0 AND 7258118399.999 OR NEW.expires_at NOT BETWEEN 0 AND 7258118399.999 OR typeof(NEW.priority) <> 'integer' OR typeof(NEW.attempt) <> 'integer' OR typeof(NEW.max_attempts) <> 'integer' OR NOT json_valid(NEW.args) OR length(NEW.args) > 4300 BEGIN SELECT RAISE(ABORT, 'rowlock: id must be text (constraint)') WHERE typeof(NEW.id) <> 'text'; SELECT RAISE(ABORT, 'rowlock: run_after and expires_at must be from 1970 to 2199 (constraint)') WHERE typeof(NEW.run_after) <> 'real' OR NEW.run_after NOT BETWEEN 0 AND 7258118399.999 OR NEW.expires_at NOT BETWEEN 0 AND 7258118399.999; SELECT RAISE(ABORT, 'rowlock: priority, attempt and max_attempts must be whole numbers (constraint)') WHERE typeof(NEW.priority) <> 'integer' OR typeof(NEW.attempt) <> 'integer' OR typeof(NEW.max_attempts) <> 'integer'; SELECT RAISE(ABORT, 'rowlock: args must be JSON (constraint)') WHERE NOT json_valid(NEW.args); SELECT RAISE(ABORT, 'rowlock: args hold a number of more than 4300 digits; pass it as text (constraint)') WHERE length(NEW.args) > 4300 AND NEW.args GLOB '*' || replace(substr(hex(zeroblob(2151)), 2), '0', '[0-9]') || '*' AND EXISTS (SELECT 1 FROM json_tree(NEW.args) WHERE type = 'integer' AND typeof(atom) = 'real' AND abs(atom) > 1e308); END

CREATE TRIGGER rowlock_jobs_live_stays_readable BEFORE UPDATE OF run_after, expires_at, args ON rowlock_jobs_live WHEN (NEW.run_after IS NOT OLD.run_after AND (typeof(NEW.run_after) <> 'real' OR NEW.run_after NOT BETWEEN 0 AND 7258118399.999)) OR (NEW.expires_at IS NOT OLD.expires_at AND NEW.expires_at NOT BETWEEN 0 AND 7258118399.999) OR (NEW.args IS NOT OLD.args AND NOT json_valid(NEW.args)) BEGIN SELECT RAISE(ABORT, 'rowlock: run_after and expires_at must be from 1970 to 2199, and args JSON (constraint)'); END

TABLE rowlock_migrations
    applied_at REAL NOT NULL DEFAULT (unixepoch('subsec'))
    breaking INTEGER NOT NULL
    name TEXT NOT NULL
    number INTEGER PRIMARY KEY

TABLE rowlock_outbox
    CHECK ((token IS NOT NULL) = (kind = 'request'))
    entry TEXT
    id INTEGER PRIMARY KEY AUTOINCREMENT
    job_id TEXT NOT NULL
    kind TEXT NOT NULL CHECK (kind IN ('request', 'cancel'))
    sent_at REAL
    take_at REAL NOT NULL
    token TEXT

CREATE INDEX rowlock_outbox_job ON rowlock_outbox (job_id)

CREATE INDEX rowlock_outbox_unsent ON rowlock_outbox (take_at) WHERE sent_at IS NULL

TABLE rowlock_previews
    action TEXT NOT NULL
    audit_id INTEGER
    changed INTEGER NOT NULL DEFAULT 0
    expires_at REAL NOT NULL
    filter TEXT NOT NULL
    ids TEXT
    looked INTEGER NOT NULL DEFAULT 0
    made_at REAL NOT NULL
    next_id TEXT
    token_hash TEXT PRIMARY KEY NOT NULL
    who TEXT NOT NULL

CREATE INDEX rowlock_previews_expiry ON rowlock_previews (expires_at)

TABLE rowlock_queue_samples WITHOUT ROWID
    PRIMARY KEY (at, queue)
    at REAL NOT NULL
    oldest_seconds REAL
    queue TEXT NOT NULL
    ready INTEGER NOT NULL
    running INTEGER NOT NULL
    waiting INTEGER NOT NULL

TABLE rowlock_queues
    name TEXT PRIMARY KEY
    paused_at REAL

CREATE VIEW rowlock_recent_jobs AS SELECT id, task, queue, state, attempt, locked_by, heartbeat_at, created_at, started_at, finished_at, error_code, error_message FROM rowlock_jobs WHERE id IN ( SELECT id FROM (SELECT id FROM rowlock_jobs_live ORDER BY id DESC LIMIT 20) live UNION ALL SELECT id FROM (SELECT id FROM rowlock_jobs_finished ORDER BY id DESC LIMIT 20) finished) ORDER BY created_at DESC, id DESC LIMIT 20

TABLE rowlock_requests
    PRIMARY KEY (owner, key)
    body_hash TEXT NOT NULL
    claim TEXT
    claimed_until REAL
    expires_at REAL NOT NULL
    job_id TEXT
    key TEXT NOT NULL
    owner TEXT NOT NULL

TABLE rowlock_rollups WITHOUT ROWID
    PRIMARY KEY (seconds, at, queue, task, what, run_bucket, wait_bucket)
    at REAL NOT NULL
    number INTEGER NOT NULL
    queue TEXT NOT NULL
    run_bucket INTEGER NOT NULL
    run_seconds REAL NOT NULL
    seconds INTEGER NOT NULL
    task TEXT NOT NULL
    wait_bucket INTEGER NOT NULL
    wait_seconds REAL NOT NULL
    what TEXT NOT NULL

TABLE rowlock_schedules
    args TEXT NOT NULL
    backoff TEXT
    created_at REAL NOT NULL
    declared_at REAL NOT NULL
    ends_at REAL
    id TEXT PRIMARY KEY
    jitter_seconds REAL NOT NULL DEFAULT 0 CHECK (jitter_seconds >= 0)
    keep_seconds REAL
    last_job TEXT
    last_tick REAL
    max_attempts INTEGER NOT NULL
    missed TEXT NOT NULL DEFAULT 'latest' CHECK (missed IN ('latest', 'skip', 'all'))
    missed_most INTEGER NOT NULL DEFAULT 100 CHECK (missed_most >= 1)
    missed_seconds REAL NOT NULL DEFAULT 3600 CHECK (missed_seconds >= 0)
    next_tick REAL
    on_dead TEXT
    on_lost TEXT
    on_success TEXT
    origin TEXT NOT NULL CHECK (origin IN ('code', 'config', 'runtime'))
    overlap TEXT NOT NULL DEFAULT 'allow' CHECK (overlap IN ('allow', 'skip'))
    owner TEXT
    paused_at REAL
    priority INTEGER NOT NULL DEFAULT 0
    problem TEXT
    queue TEXT NOT NULL
    retired_at REAL
    rule TEXT NOT NULL
    source TEXT
    starts_at REAL
    task TEXT NOT NULL
    timeout_seconds REAL
    updated_at REAL NOT NULL
    writer_started_at REAL NOT NULL
    zone TEXT NOT NULL

CREATE INDEX rowlock_schedules_due ON rowlock_schedules (next_tick) WHERE next_tick IS NOT NULL AND paused_at IS NULL AND retired_at IS NULL

CREATE INDEX rowlock_schedules_problem ON rowlock_schedules (id) WHERE problem IS NOT NULL AND retired_at IS NULL

TABLE rowlock_schema_files
    applied_at REAL NOT NULL DEFAULT (unixepoch('subsec'))
    checksum TEXT NOT NULL
    name TEXT PRIMARY KEY NOT NULL

TABLE rowlock_set_aside
    again_at REAL
    doing TEXT NOT NULL
    error TEXT NOT NULL
    id TEXT PRIMARY KEY NOT NULL
    since REAL NOT NULL
    times INTEGER NOT NULL DEFAULT 1

CREATE VIEW rowlock_source_health AS SELECT name, CASE WHEN NOT enabled THEN 'disabled' WHEN paused > unixepoch('subsec') THEN CASE WHEN opened_at IS NULL THEN 'paused' ELSE 'broken' END WHEN opened_at IS NOT NULL THEN 'half-open' ELSE 'open' END AS state, enabled, failure_streak, strftime('%Y-%m-%dT%H:%M:%fZ', last_success_at, 'unixepoch') AS last_success_at, strftime('%Y-%m-%dT%H:%M:%fZ', last_failure_at, 'unixepoch') AS last_failure_at, strftime('%Y-%m-%dT%H:%M:%fZ', paused, 'unixepoch') AS paused_until, last_error FROM ( SELECT s.name, s.enabled AND coalesce(c.class_enabled, 1) AS enabled, s.opened_at, s.failure_streak, s.last_success_at, s.last_failure_at, s.last_error, max(coalesce(s.paused_until, c.class_paused_until), coalesce(c.class_paused_until, s.paused_until)) AS paused FROM rowlock_sources s LEFT JOIN rowlock_sources c ON c.name = substr(s.name, 1, instr(s.name || ':', ':') - 1)) ORDER BY name

TABLE rowlock_sources
    block_after INTEGER CHECK (block_after >= 1)
    burst INTEGER CHECK (burst >= 1)
    class_enabled INTEGER NOT NULL DEFAULT 1
    class_paused_at REAL
    class_paused_until REAL
    concurrency INTEGER CHECK (concurrency >= 0)
    cooldown_factor REAL CHECK (cooldown_factor >= 1)
    cooldown_seconds REAL CHECK (cooldown_seconds > 0)
    created_at REAL NOT NULL DEFAULT (unixepoch('subsec'))
    enabled INTEGER NOT NULL DEFAULT 1
    epoch INTEGER NOT NULL DEFAULT 0
    failure_streak INTEGER NOT NULL DEFAULT 0
    failure_threshold INTEGER CHECK (failure_threshold >= 1)
    last_error TEXT
    last_failure_at REAL
    last_success_at REAL
    name TEXT PRIMARY KEY
    opened_at REAL
    opens INTEGER NOT NULL DEFAULT 0
    paused_at REAL
    paused_until REAL
    probe_job TEXT
    probe_token TEXT
    rate_limit_per_minute REAL CHECK (rate_limit_per_minute > 0)
    refusal_code TEXT
    refusals INTEGER NOT NULL DEFAULT 0
    refused_at REAL
    set_by TEXT
    tokens REAL
    tokens_at REAL
    total INTEGER CHECK (total >= 0)

CREATE INDEX rowlock_sources_closed ON rowlock_sources (name) WHERE opened_at IS NOT NULL OR NOT enabled OR paused_until IS NOT NULL

CREATE INDEX rowlock_sources_refused ON rowlock_sources (name) WHERE refusals > 0

CREATE VIEW rowlock_stuck_jobs AS SELECT id, task, queue, locked_by, attempt, strftime('%Y-%m-%dT%H:%M:%fZ', locked_at, 'unixepoch') AS locked_at, strftime('%Y-%m-%dT%H:%M:%fZ', heartbeat_at, 'unixepoch') AS heartbeat_at, strftime('%Y-%m-%dT%H:%M:%fZ', lease_expires_at, 'unixepoch') AS lease_expires_at, unixepoch('subsec') - coalesce(heartbeat_at, locked_at) AS time_since_heartbeat FROM rowlock_jobs_live WHERE state = 'running' AND published IS NOT 'unread' AND coalesce(heartbeat_at, locked_at) < unixepoch('subsec') - 300 ORDER BY time_since_heartbeat DESC

TABLE rowlock_tallies WITHOUT ROWID
    PRIMARY KEY (at, queue, task, what, run_bucket, wait_bucket)
    at REAL NOT NULL
    number INTEGER NOT NULL
    queue TEXT NOT NULL
    run_bucket INTEGER NOT NULL
    run_seconds REAL NOT NULL
    task TEXT NOT NULL
    wait_bucket INTEGER NOT NULL
    wait_seconds REAL NOT NULL
    what TEXT NOT NULL

TABLE rowlock_tasks
    arguments TEXT
    description TEXT
    name TEXT NOT NULL PRIMARY KEY
    options TEXT NOT NULL
    source_derived INTEGER NOT NULL
    updated_at REAL NOT NULL

TABLE rowlock_ticks
    PRIMARY KEY (schedule_id, tick)
    fired_at REAL NOT NULL
    job_id TEXT
    schedule_id TEXT NOT NULL
    tick REAL NOT NULL

CREATE INDEX rowlock_ticks_age ON rowlock_ticks (fired_at)

TABLE rowlock_tokens
    CHECK ( (kind = 'token' AND uses IS NULL) OR (kind = 'session' AND uses IS NULL AND job_id IS NULL AND expires_at IS NOT NULL) OR (kind IN ('link', 'ticket') AND uses >= 0 AND uses IS NOT NULL AND expires_at IS NOT NULL))
    CHECK ((owner IS NULL) = (scope <> 'jobs'))
    created_at REAL NOT NULL
    expires_at REAL
    good_until REAL
    hash TEXT NOT NULL UNIQUE
    hint TEXT NOT NULL
    id TEXT PRIMARY KEY NOT NULL
    job_id TEXT
    kind TEXT NOT NULL DEFAULT 'token'
    made_from TEXT
    owner TEXT
    revoked_at REAL
    scope TEXT NOT NULL CHECK (scope IN ('jobs', 'operator', 'operator:read'))
    uses INTEGER

TABLE rowlock_webhook_deliveries
    PRIMARY KEY (job_id, delivery_id)
    delivery_id TEXT NOT NULL
    job_id TEXT NOT NULL REFERENCES rowlock_webhooks (job_id) ON DELETE CASCADE

TABLE rowlock_webhook_secrets
    created_at REAL NOT NULL
    expires_at REAL
    hint TEXT NOT NULL
    id TEXT PRIMARY KEY NOT NULL
    owner TEXT NOT NULL
    secret TEXT NOT NULL

CREATE INDEX rowlock_webhook_secrets_owner ON rowlock_webhook_secrets (owner, created_at)

TABLE rowlock_webhooks
    backoff TEXT NOT NULL
    drop_on TEXT
    job_id TEXT PRIMARY KEY NOT NULL
    max_attempts INTEGER NOT NULL
    owner TEXT NOT NULL
    queue TEXT NOT NULL
    source TEXT NOT NULL
    timeout_seconds REAL NOT NULL
    url TEXT NOT NULL

CREATE INDEX rowlock_webhooks_drop ON rowlock_webhooks (drop_on) WHERE drop_on IS NOT NULL

TABLE rowlock_workers
    bell TEXT
    expires_at REAL NOT NULL
    hostname TEXT NOT NULL
    id TEXT PRIMARY KEY
    idle INTEGER NOT NULL DEFAULT 0
    memory_bytes INTEGER
    pid INTEGER NOT NULL
    pool_size INTEGER NOT NULL
    queues TEXT NOT NULL
    running INTEGER NOT NULL DEFAULT 0
    seen_at REAL NOT NULL
    started_at REAL NOT NULL
    stop_requested TEXT CHECK (stop_requested IN ('drain', 'stop'))
    stop_requested_at REAL
    tasks TEXT NOT NULL
    version TEXT NOT NULL

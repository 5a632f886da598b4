TABLE alert_lease
    expires_at timestamp with time zone NOT NULL
    holder text NOT NULL
    one integer DEFAULT 1 NOT NULL
    token uuid NOT NULL
    CHECK ((one = 1))
    PRIMARY KEY (one)
CREATE UNIQUE INDEX alert_lease_pkey ON rowlock.alert_lease USING btree (one)

TABLE alert_messages
    attempts integer DEFAULT 0 NOT NULL
    body json NOT NULL
    created_at timestamp with time zone NOT NULL
    id uuid NOT NULL
    last_error text
    send_after timestamp with time zone NOT NULL
    type text NOT NULL
    PRIMARY KEY (id)
CREATE UNIQUE INDEX alert_messages_pkey ON rowlock.alert_messages USING btree (id)

TABLE alerts
    false_since timestamp with time zone
    fired_at timestamp with time zone
    repeats integer DEFAULT 0 NOT NULL
    rule text NOT NULL
    subject text NOT NULL
    text text NOT NULL
    told_at timestamp with time zone
    true_since timestamp with time zone NOT NULL
    value double precision NOT NULL
    PRIMARY KEY (rule, subject)
CREATE UNIQUE INDEX alerts_pkey ON rowlock.alerts USING btree (rule, subject)

TABLE app_migrations
    app text NOT NULL
    applied_at timestamp with time zone NOT NULL
    name text NOT NULL
    number integer NOT NULL
    PRIMARY KEY (app, number)
CREATE UNIQUE INDEX app_migrations_pkey ON rowlock.app_migrations USING btree (app, number)

TABLE attempts
    attempt integer NOT NULL
    error_code text
    error_message text
    finished_at timestamp with time zone NOT NULL
    job_id uuid NOT NULL
    outcome text NOT NULL
    queue text
    source text
    started_at timestamp with time zone
    task text
    traceback text
    worker text
    CHECK ((outcome = ANY (ARRAY['failed'::text, 'timed_out'::text, 'lost'::text, 'cancelled'::text, 'released'::text])))
    PRIMARY KEY (job_id, attempt)
CREATE INDEX attempts_age ON rowlock.attempts USING btree (finished_at)
CREATE UNIQUE INDEX attempts_pkey ON rowlock.attempts USING btree (job_id, attempt)
CREATE TRIGGER attempts_tallies AFTER INSERT ON rowlock.attempts REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION rowlock.tell_attempts()
CREATE TRIGGER attempts_task BEFORE INSERT ON rowlock.attempts FOR EACH ROW EXECUTE FUNCTION rowlock.tell_attempt_task()

TABLE audit
    action text NOT NULL
    address text
    at timestamp with time zone NOT NULL
    details json
    id bigint IDENTITY a NOT NULL
    number bigint NOT NULL
    target text
    via text NOT NULL
    who text NOT NULL
    PRIMARY KEY (id)
CREATE UNIQUE INDEX audit_pkey ON rowlock.audit USING btree (id)

VIEW backlog
 WITH RECURSIVE lanes(queue, task, priority, run_after, nth) AS (
        ( SELECT j.queue,
            j.task,
            j.priority,
            j.run_after,
            1 AS "?column?"
           FROM rowlock.jobs_live j
          WHERE (j.ready AND (j.source IS NULL))
          ORDER BY j.queue, j.task, j.priority, j.id
         LIMIT 1)
        UNION ALL
         SELECT j.queue,
            j.task,
            j.priority,
            j.run_after,
            (l.nth + 1)
           FROM (lanes l
             CROSS JOIN LATERAL ( SELECT n.queue,
                    n.task,
                    n.priority,
                    n.run_after
                   FROM rowlock.jobs_live n
                  WHERE (n.ready AND (n.source IS NULL) AND (ROW(n.queue, n.task, n.priority, n.id) > ROW(l.queue, l.task, l.priority, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)))
                  ORDER BY n.queue, n.task, n.priority, n.id
                 LIMIT 1) j)
          WHERE (l.nth < 10000)
        ), heads(queue, task, priority, source, run_after, nth) AS (
        ( SELECT j.queue,
            j.task,
            j.priority,
            j.source,
            j.run_after,
            1 AS "?column?"
           FROM rowlock.jobs_live j
          WHERE (j.ready AND (j.source IS NOT NULL))
          ORDER BY j.queue, j.task, j.priority, j.source, j.id
         LIMIT 1)
        UNION ALL
         SELECT j.queue,
            j.task,
            j.priority,
            j.source,
            j.run_after,
            (h.nth + 1)
           FROM (heads h
             CROSS JOIN LATERAL ( SELECT n.queue,
                    n.task,
                    n.priority,
                    n.source,
                    n.run_after
                   FROM rowlock.jobs_live n
                  WHERE (n.ready AND (n.source IS NOT NULL) AND (ROW(n.queue, n.task, n.priority, n.source, n.id) > ROW(h.queue, h.task, h.priority, h.source, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)))
                  ORDER BY n.queue, n.task, n.priority, n.source, n.id
                 LIMIT 1) j)
          WHERE (h.nth < 10000)
        ), due AS (
         SELECT j.queue,
            j.source,
            j.run_after
           FROM rowlock.jobs_live j
          WHERE ((NOT j.ready) AND (j.state <> 'running'::text) AND (j.run_after <= statement_timestamp()) AND (NOT (EXISTS ( SELECT 1
                   FROM rowlock.set_aside a
                  WHERE (a.id = j.id)))))
          ORDER BY j.run_after
         LIMIT 10000
        ), plain AS (
         SELECT q.queue,
            ( SELECT count(*) AS count
                   FROM ( SELECT 1 AS "?column?"
                           FROM rowlock.jobs_live j
                          WHERE (j.ready AND (j.source IS NULL) AND (j.queue = q.queue))
                          ORDER BY j.task, j.priority, j.id
                         LIMIT 10000) first) AS number,
            q.oldest
           FROM ( SELECT lanes.queue,
                    min(lanes.run_after) AS oldest
                   FROM lanes
                  GROUP BY lanes.queue) q
        UNION ALL
         SELECT due.queue,
            count(*) AS count,
            min(due.run_after) AS min
           FROM due
          WHERE (due.source IS NULL)
          GROUP BY due.queue
        ), sourced AS (
         SELECT found.queue,
            found.source,
            sum(found.number) AS number,
            min(found.oldest) AS oldest
           FROM ( SELECT h.queue,
                    h.source,
                    h.run_after AS oldest,
                    ( SELECT count(*) AS count
                           FROM ( SELECT 1 AS "?column?"
                                   FROM rowlock.jobs_live j
                                  WHERE (j.ready AND (j.source IS NOT NULL) AND (j.queue = h.queue) AND (j.task = h.task) AND (j.priority = h.priority) AND (j.source = h.source))
                                  ORDER BY j.id
                                 LIMIT 1000) first) AS number
                   FROM heads h
                UNION ALL
                 SELECT due.queue,
                    due.source,
                    min(due.run_after) AS min,
                    count(*) AS count
                   FROM due
                  WHERE (due.source IS NOT NULL)
                  GROUP BY due.queue, due.source) found
          GROUP BY found.queue, found.source
        ), room AS (
         SELECT o.queue,
            split_part(o.source, ':'::text, 1) AS class,
            o.number,
            o.oldest,
                CASE
                    WHEN (NOT (COALESCE(s.enabled, true) AND COALESCE(c.class_enabled, true))) THEN (0)::double precision
                    WHEN (GREATEST(s.paused_until, c.class_paused_until) > statement_timestamp()) THEN (0)::double precision
                    WHEN (s.opened_at IS NOT NULL) THEN (
                    CASE
                        WHEN (EXISTS ( SELECT 1
                           FROM rowlock.jobs_live p
                          WHERE ((p.id = s.probe_job) AND (p.lease_token = s.probe_token) AND (p.state = 'running'::text)))) THEN 0
                        ELSE 1
                    END)::double precision
                    ELSE LEAST(((COALESCE(s.concurrency, c.concurrency) - ( SELECT count(*) AS count
                       FROM rowlock.jobs_live r_1
                      WHERE ((r_1.state = 'running'::text) AND (r_1.source IS NOT NULL) AND (split_part(r_1.source, ':'::text, 1) = split_part(o.source, ':'::text, 1)) AND (r_1.source = o.source)))))::double precision,
                    CASE
                        WHEN (COALESCE(s.rate_limit_per_minute, c.rate_limit_per_minute) IS NOT NULL) THEN GREATEST((1)::double precision, ceil((COALESCE(s.rate_limit_per_minute, c.rate_limit_per_minute) / (2)::double precision)))
                        ELSE NULL::double precision
                    END, (1000000)::double precision)
                END AS room,
            c.total
           FROM ((sourced o
             LEFT JOIN rowlock.sources s ON ((s.name = o.source)))
             LEFT JOIN rowlock.sources c ON ((c.name = split_part(o.source, ':'::text, 1))))
        ), startable AS (
         SELECT plain.queue,
            plain.number,
            plain.oldest
           FROM plain
        UNION ALL
         SELECT r_1.queue,
            GREATEST((0)::double precision, LEAST(sum(GREATEST((0)::double precision, LEAST((r_1.number)::double precision, r_1.room))), ((r_1.total - ( SELECT count(*) AS count
                   FROM rowlock.jobs_live j
                  WHERE ((j.state = 'running'::text) AND (j.source IS NOT NULL) AND (split_part(j.source, ':'::text, 1) = r_1.class)))))::double precision)) AS "greatest",
            min(r_1.oldest) FILTER (WHERE (r_1.room > (0)::double precision)) AS min
           FROM room r_1
          GROUP BY r_1.queue, r_1.class, r_1.total
        ), running AS (
         SELECT jobs_live.queue,
            count(*) AS number
           FROM rowlock.jobs_live
          WHERE ((jobs_live.state = 'running'::text) AND (jobs_live.published IS DISTINCT FROM 'unread'::text))
          GROUP BY jobs_live.queue
        ), took AS (
         SELECT newest.queue,
            avg(date_part('epoch'::text, (newest.finished_at - newest.started_at))) AS seconds
           FROM ( SELECT f.queue,
                    f.state,
                    f.started_at,
                    f.finished_at
                   FROM rowlock.jobs_finished f
                  ORDER BY f.id DESC
                 LIMIT 1000) newest
          WHERE (newest.state = 'succeeded'::text)
          GROUP BY newest.queue
        ), counted AS (
         SELECT startable.queue,
            sum(startable.number) AS runnable,
            min(startable.oldest) FILTER (WHERE (startable.number > (0)::double precision)) AS oldest
           FROM startable
          WHERE (NOT (EXISTS ( SELECT 1
                   FROM rowlock.queues q
                  WHERE ((q.name = startable.queue) AND (q.paused_at IS NOT NULL)))))
          GROUP BY startable.queue
        )
 SELECT COALESCE(b.queue, r.queue) AS queue,
    (COALESCE(b.runnable, (0)::double precision))::bigint AS runnable,
    COALESCE(r.number, (0)::bigint) AS running,
    COALESCE(GREATEST((0)::double precision, date_part('epoch'::text, (statement_timestamp() - b.oldest))), (0)::double precision) AS oldest_age_seconds,
    t.seconds AS mean_run_seconds,
    (((COALESCE(r.number, (0)::bigint))::double precision + LEAST(COALESCE(b.runnable, (0)::double precision), GREATEST((1)::double precision, ceil(((b.runnable * COALESCE(t.seconds, (1)::double precision)) / (30)::double precision))))))::bigint AS wanted_slots
   FROM ((counted b
     FULL JOIN running r ON ((r.queue = b.queue)))
     LEFT JOIN took t ON ((t.queue = COALESCE(b.queue, r.queue))))
  ORDER BY COALESCE(b.queue, r.queue);

TABLE batch_counts WITH (fillfactor=50)
    batch_id uuid NOT NULL
    cancelled bigint DEFAULT 0 NOT NULL
    expired bigint DEFAULT 0 NOT NULL
    failed bigint DEFAULT 0 NOT NULL
    last_error text
    last_error_at timestamp with time zone
    processed bigint DEFAULT 0 NOT NULL
    shard smallint NOT NULL
    total bigint DEFAULT 0 NOT NULL
    FOREIGN KEY (batch_id) REFERENCES rowlock.batches(id) ON DELETE CASCADE
    PRIMARY KEY (batch_id, shard)
CREATE UNIQUE INDEX batch_counts_pkey ON rowlock.batch_counts USING btree (batch_id, shard)

TABLE batches
    cancelled_at timestamp with time zone
    created_at timestamp with time zone NOT NULL
    end_job uuid
    ended_once boolean DEFAULT false NOT NULL
    finished_at timestamp with time zone
    id uuid NOT NULL
    name text NOT NULL
    on_end json
    owner text
    parent_id uuid
    reopened_at timestamp with time zone
    sealed_at timestamp with time zone
    started_at timestamp with time zone
    state text DEFAULT 'queued'::text NOT NULL
    CHECK ((state = ANY (ARRAY['queued'::text, 'running'::text, 'succeeded'::text, 'failed'::text, 'cancelled'::text])))
    PRIMARY KEY (id)
CREATE INDEX batches_done ON rowlock.batches USING btree (finished_at) WHERE (finished_at IS NOT NULL)
CREATE INDEX batches_open ON rowlock.batches USING btree (id) WHERE (finished_at IS NULL)
CREATE UNIQUE INDEX batches_pkey ON rowlock.batches USING btree (id)

TABLE counters
    number bigint NOT NULL
    queue text NOT NULL
    run_bucket smallint NOT NULL
    run_seconds double precision NOT NULL
    task text NOT NULL
    wait_bucket smallint NOT NULL
    wait_seconds double precision NOT NULL
    what text NOT NULL
    PRIMARY KEY (queue, task, what, run_bucket, wait_bucket)
CREATE UNIQUE INDEX counters_pkey ON rowlock.counters USING btree (queue, task, what, run_bucket, wait_bucket)

TABLE deleted_events
    last_id bigint NOT NULL
    one boolean DEFAULT true NOT NULL
    CHECK (one)
    PRIMARY KEY (one)
CREATE UNIQUE INDEX deleted_events_pkey ON rowlock.deleted_events USING btree (one)

TABLE dispatchers
    bell text
    declares json NOT NULL
    expires_at timestamp with time zone NOT NULL
    id text NOT NULL
    seen_at timestamp with time zone NOT NULL
    started_at timestamp with time zone NOT NULL
    PRIMARY KEY (id)
CREATE UNIQUE INDEX dispatchers_pkey ON rowlock.dispatchers USING btree (id)

TABLE event_listeners
    expires_at timestamp with time zone NOT NULL
    id text NOT NULL
    PRIMARY KEY (id)
CREATE UNIQUE INDEX event_listeners_pkey ON rowlock.event_listeners USING btree (id)

TABLE events
    at timestamp with time zone NOT NULL
    attempt integer NOT NULL
    error_code text
    error_message text
    id bigint IDENTITY a NOT NULL
    job_id uuid NOT NULL
    message text
    owner text NOT NULL
    phase text
    progress smallint
    result_checksum text
    result_uri text
    state text NOT NULL
    task text NOT NULL
    type text NOT NULL
    PRIMARY KEY (id)
CREATE INDEX events_owner ON rowlock.events USING btree (owner, id)
CREATE UNIQUE INDEX events_pkey ON rowlock.events USING btree (id)
CREATE TRIGGER events_deleted AFTER DELETE ON rowlock.events REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION rowlock.tell_deleted_events()

TABLE job_keys
    expires_at timestamp with time zone
    job_id uuid NOT NULL
    key text NOT NULL
    mode text NOT NULL
    scope text NOT NULL
    PRIMARY KEY (scope, key)
CREATE INDEX job_keys_expiry ON rowlock.job_keys USING btree (expires_at) WHERE (expires_at IS NOT NULL)
CREATE INDEX job_keys_job ON rowlock.job_keys USING btree (job_id)
CREATE UNIQUE INDEX job_keys_pkey ON rowlock.job_keys USING btree (scope, key)

TABLE job_logs
    at timestamp with time zone NOT NULL
    attempt integer NOT NULL
    job_id uuid NOT NULL
    level text NOT NULL
    message text NOT NULL
    seq bigint NOT NULL
    PRIMARY KEY (job_id, seq)
CREATE INDEX job_logs_age ON rowlock.job_logs USING btree (at)
CREATE UNIQUE INDEX job_logs_pkey ON rowlock.job_logs USING btree (job_id, seq)

VIEW jobs
 SELECT jobs_live.id,
    jobs_live.task,
    jobs_live.queue,
        CASE
            WHEN (jobs_live.published = 'unread'::text) THEN 'queued'::text
            ELSE jobs_live.state
        END AS state,
    jobs_live.priority,
    jobs_live.args,
    jobs_live.owner,
    jobs_live.source,
    jobs_live.tags,
    jobs_live.batch_id,
    jobs_live.schedule_id,
    jobs_live.tick,
    jobs_live.attempt,
    jobs_live.max_attempts,
    jobs_live.releases,
    jobs_live.losses,
    jobs_live.backoff,
    jobs_live.timeout_seconds,
    jobs_live.run_after,
    jobs_live.expires_at,
        CASE
            WHEN has_column_privilege('rowlock.jobs_live'::text, 'lease_token'::text, 'SELECT'::text) THEN jobs_live.lease_token
            ELSE NULL::uuid
        END AS lease_token,
    jobs_live.locked_by,
    jobs_live.locked_at,
    jobs_live.heartbeat_at,
    jobs_live.lease_expires_at,
        CASE
            WHEN has_column_privilege('rowlock.jobs_live'::text, 'settled_token'::text, 'SELECT'::text) THEN jobs_live.settled_token
            ELSE NULL::uuid
        END AS settled_token,
    jobs_live.cancel_requested_at,
    jobs_live.progress,
    jobs_live.phase,
    jobs_live.message,
    NULL::json AS result,
    jobs_live.result_uri,
    jobs_live.result_checksum,
    jobs_live.error_code,
    jobs_live.error_message,
    jobs_live.created_at,
        CASE
            WHEN (jobs_live.published = 'unread'::text) THEN NULL::timestamp with time zone
            ELSE jobs_live.started_at
        END AS started_at,
    NULL::timestamp with time zone AS finished_at,
    jobs_live.updated_at
   FROM rowlock.jobs_live
UNION ALL
 SELECT jobs_finished.id,
    jobs_finished.task,
    jobs_finished.queue,
    jobs_finished.state,
    jobs_finished.priority,
    jobs_finished.args,
    jobs_finished.owner,
    jobs_finished.source,
    jobs_finished.tags,
    jobs_finished.batch_id,
    jobs_finished.schedule_id,
    jobs_finished.tick,
    jobs_finished.attempt,
    jobs_finished.max_attempts,
    jobs_finished.releases,
    jobs_finished.losses,
    jobs_finished.backoff,
    jobs_finished.timeout_seconds,
    jobs_finished.run_after,
    jobs_finished.expires_at,
    NULL::uuid AS lease_token,
    jobs_finished.last_worker AS locked_by,
    NULL::timestamp with time zone AS locked_at,
    NULL::timestamp with time zone AS heartbeat_at,
    NULL::timestamp with time zone AS lease_expires_at,
        CASE
            WHEN has_column_privilege('rowlock.jobs_finished'::text, 'settled_token'::text, 'SELECT'::text) THEN jobs_finished.settled_token
            ELSE NULL::uuid
        END AS settled_token,
    jobs_finished.cancel_requested_at,
    jobs_finished.progress,
    jobs_finished.phase,
    jobs_finished.message,
    jobs_finished.result,
    jobs_finished.result_uri,
    jobs_finished.result_checksum,
    jobs_finished.error_code,
    jobs_finished.error_message,
    jobs_finished.created_at,
    jobs_finished.started_at,
    jobs_finished.finished_at,
    jobs_finished.updated_at
   FROM rowlock.jobs_finished;

PARTITIONED TABLE jobs_finished PARTITION BY RANGE (drop_on)
    args json NOT NULL
    attempt integer NOT NULL
    backoff json
    batch_id uuid
    cancel_requested_at timestamp with time zone
    convictions integer NOT NULL
    created_at timestamp with time zone NOT NULL
    drop_on date NOT NULL
    error_code text
    error_message text
    expires_at timestamp with time zone
    finished_at timestamp with time zone NOT NULL
    id uuid NOT NULL
    keep_seconds double precision
    last_worker text
    losses integer NOT NULL
    max_attempts integer NOT NULL
    message text
    on_dead json
    on_lost text
    on_success json
    owner text
    parent_id uuid
    phase text
    priority smallint NOT NULL
    progress smallint
    queue text NOT NULL
    releases integer NOT NULL
    result json
    result_checksum text
    result_uri text
    run_after timestamp with time zone NOT NULL
    schedule_id text
    settled_token uuid
    source text
    started_at timestamp with time zone
    state text NOT NULL
    tags json
    task text NOT NULL
    tick timestamp with time zone
    timeout_seconds double precision
    traceparent text
    unique_key text
    unique_mode text
    updated_at timestamp with time zone NOT NULL
    CHECK ((state = ANY (ARRAY['succeeded'::text, 'dead'::text, 'cancelled'::text])))
    PRIMARY KEY (id, drop_on)
CREATE INDEX jobs_finished_batch ON ONLY rowlock.jobs_finished USING btree (batch_id, id) WHERE (batch_id IS NOT NULL)
CREATE INDEX jobs_finished_owner ON ONLY rowlock.jobs_finished USING btree (owner, id) WHERE (owner IS NOT NULL)
CREATE INDEX jobs_finished_owner_trouble ON ONLY rowlock.jobs_finished USING btree (owner, state, id) WHERE ((owner IS NOT NULL) AND (state <> 'succeeded'::text))
CREATE INDEX jobs_finished_parent ON ONLY rowlock.jobs_finished USING btree (parent_id, id) WHERE (parent_id IS NOT NULL)
CREATE INDEX jobs_finished_schedule ON ONLY rowlock.jobs_finished USING btree (schedule_id, id) WHERE (schedule_id IS NOT NULL)
CREATE INDEX jobs_finished_trouble ON ONLY rowlock.jobs_finished USING btree (state, id) WHERE (state <> 'succeeded'::text)
CREATE UNIQUE INDEX jobs_finished_pkey ON ONLY rowlock.jobs_finished USING btree (id, drop_on)
CREATE TRIGGER jobs_finished_end AFTER INSERT ON rowlock.jobs_finished FOR EACH ROW WHEN ((new.owner IS NOT NULL)) EXECUTE FUNCTION rowlock.tell_end()
CREATE TRIGGER jobs_finished_tallies AFTER INSERT ON rowlock.jobs_finished REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION rowlock.tell_tallies()
CREATE TRIGGER jobs_finished_webhook AFTER INSERT ON rowlock.jobs_finished FOR EACH ROW WHEN ((new.owner IS NOT NULL)) EXECUTE FUNCTION rowlock.tell_webhook()

TABLE jobs_live WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_limit=2000)
    args json NOT NULL
    attempt integer DEFAULT 0 NOT NULL
    backoff json
    batch_id uuid
    cancel_requested_at timestamp with time zone
    convictions integer DEFAULT 0 NOT NULL
    created_at timestamp with time zone NOT NULL
    disconnects_in_row integer DEFAULT 0 NOT NULL
    error_code text
    error_message text
    expires_at timestamp with time zone
    heartbeat_at timestamp with time zone
    id uuid NOT NULL
    keep_seconds double precision
    lease_expires_at timestamp with time zone
    lease_token uuid
    locked_at timestamp with time zone
    locked_by text
    losses integer DEFAULT 0 NOT NULL
    losses_in_row integer DEFAULT 0 NOT NULL
    max_attempts integer NOT NULL
    message text
    on_dead json
    on_lost text
    on_success json
    owner text
    parent_id uuid
    phase text
    priority smallint DEFAULT 0 NOT NULL
    probation integer DEFAULT 0 NOT NULL
    progress smallint
    published text
    queue text NOT NULL
    ready boolean NOT NULL
    releases integer DEFAULT 0 NOT NULL
    result_checksum text
    result_uri text
    run_after timestamp with time zone NOT NULL
    schedule_id text
    settled_token uuid
    sigterms_in_row integer DEFAULT 0 NOT NULL
    source text
    source_epoch integer
    started_at timestamp with time zone
    state text DEFAULT 'queued'::text NOT NULL
    tags json
    task text NOT NULL
    tick timestamp with time zone
    timeout_seconds double precision
    traceparent text
    unique_key text
    unique_mode text
    updated_at timestamp with time zone NOT NULL
    CHECK (((num_nulls(lease_token, locked_by, locked_at, lease_expires_at) =
CASE
    WHEN (state <> 'running'::text) THEN 4
    WHEN ready THEN '-1'::integer
    ELSE 0
END) AND (abs(priority) <= 100)))
    PRIMARY KEY (id)
CREATE INDEX jobs_live_batch ON rowlock.jobs_live USING btree (batch_id, id) WHERE (batch_id IS NOT NULL)
CREATE INDEX jobs_live_claim ON rowlock.jobs_live USING btree (queue, task, priority, id) WHERE (ready AND (source IS NULL))
CREATE INDEX jobs_live_due ON rowlock.jobs_live USING btree (run_after) WHERE ((NOT ready) AND (state <> 'running'::text))
CREATE INDEX jobs_live_expiry ON rowlock.jobs_live USING btree (expires_at) WHERE ((expires_at IS NOT NULL) AND (state <> 'running'::text))
CREATE INDEX jobs_live_owner ON rowlock.jobs_live USING btree (owner, id) WHERE (owner IS NOT NULL)
CREATE INDEX jobs_live_parent ON rowlock.jobs_live USING btree (parent_id, id) WHERE (parent_id IS NOT NULL)
CREATE INDEX jobs_live_running ON rowlock.jobs_live USING btree (id) WHERE (state = 'running'::text)
CREATE INDEX jobs_live_schedule ON rowlock.jobs_live USING btree (schedule_id) WHERE (schedule_id IS NOT NULL)
CREATE INDEX jobs_live_slots ON rowlock.jobs_live USING btree (split_part(source, ':'::text, 1), source) WHERE ((state = 'running'::text) AND (source IS NOT NULL))
CREATE INDEX jobs_live_turns ON rowlock.jobs_live USING btree (queue, task, priority, source, id) WHERE (ready AND (source IS NOT NULL))
CREATE UNIQUE INDEX jobs_live_pkey ON rowlock.jobs_live USING btree (id)
CREATE TRIGGER jobs_live_progress AFTER UPDATE OF progress, phase, message ON rowlock.jobs_live FOR EACH ROW WHEN (((new.owner IS NOT NULL) AND (new.state = 'running'::text) AND (((new.progress IS DISTINCT FROM old.progress) OR (new.phase IS DISTINCT FROM old.phase)) OR (new.message IS DISTINCT FROM old.message)))) EXECUTE FUNCTION rowlock.tell_progress()
CREATE TRIGGER jobs_live_readable BEFORE INSERT ON rowlock.jobs_live FOR EACH ROW EXECUTE FUNCTION rowlock.refuse_unreadable()
CREATE TRIGGER jobs_live_state BEFORE UPDATE OF state ON rowlock.jobs_live FOR EACH ROW WHEN ((new.state <> ALL (ARRAY['queued'::text, 'running'::text, 'retryable'::text]))) EXECUTE FUNCTION rowlock.refuse_unreadable()
CREATE TRIGGER jobs_live_stays_readable BEFORE UPDATE OF run_after, expires_at, args ON rowlock.jobs_live FOR EACH ROW WHEN (((LEAST(new.run_after, new.expires_at) < '1970-01-01 00:00:00+00'::timestamp with time zone) OR (GREATEST(new.run_after, new.expires_at) >= '2200-01-01 00:00:00+00'::timestamp with time zone) OR (pg_column_size(new.args) > 4300))) EXECUTE FUNCTION rowlock.refuse_unreadable()

TABLE migrations
    applied_at timestamp with time zone DEFAULT now() NOT NULL
    breaking boolean NOT NULL
    name text NOT NULL
    number integer NOT NULL
    PRIMARY KEY (number)
CREATE UNIQUE INDEX migrations_pkey ON rowlock.migrations USING btree (number)

TABLE outbox
    entry text
    id bigint IDENTITY a NOT NULL
    job_id uuid NOT NULL
    kind text NOT NULL
    sent_at timestamp with time zone
    take_at timestamp with time zone NOT NULL
    token uuid
    CHECK (((token IS NOT NULL) = (kind = 'request'::text)))
    CHECK ((kind = ANY (ARRAY['request'::text, 'cancel'::text])))
    PRIMARY KEY (id)
CREATE INDEX outbox_job ON rowlock.outbox USING btree (job_id)
CREATE INDEX outbox_unsent ON rowlock.outbox USING btree (take_at) WHERE (sent_at IS NULL)
CREATE UNIQUE INDEX outbox_pkey ON rowlock.outbox USING btree (id)

TABLE previews
    action text NOT NULL
    audit_id bigint
    changed bigint DEFAULT 0 NOT NULL
    expires_at timestamp with time zone NOT NULL
    filter json NOT NULL
    ids json
    looked bigint DEFAULT 0 NOT NULL
    made_at timestamp with time zone NOT NULL
    next_id uuid
    token_hash text NOT NULL
    who text NOT NULL
    PRIMARY KEY (token_hash)
CREATE INDEX previews_expiry ON rowlock.previews USING btree (expires_at)
CREATE UNIQUE INDEX previews_pkey ON rowlock.previews USING btree (token_hash)

TABLE queue_samples
    at timestamp with time zone NOT NULL
    oldest_seconds double precision
    queue text NOT NULL
    ready integer NOT NULL
    running integer NOT NULL
    waiting integer NOT NULL
    PRIMARY KEY (at, queue)
CREATE UNIQUE INDEX queue_samples_pkey ON rowlock.queue_samples USING btree (at, queue)

TABLE queues
    name text NOT NULL
    paused_at timestamp with time zone
    PRIMARY KEY (name)
CREATE UNIQUE INDEX queues_pkey ON rowlock.queues USING btree (name)

VIEW recent_jobs
 SELECT id,
    task,
    queue,
    state,
    attempt,
    locked_by,
    heartbeat_at,
    created_at,
    started_at,
    finished_at,
    error_code,
    error_message
   FROM rowlock.jobs
  WHERE (id = ANY (ARRAY( SELECT live.id
           FROM ( SELECT jobs_live.id
                   FROM rowlock.jobs_live
                  ORDER BY jobs_live.id DESC
                 LIMIT 20) live
        UNION ALL
         SELECT finished.id
           FROM ( SELECT jobs_finished.id
                   FROM rowlock.jobs_finished
                  ORDER BY jobs_finished.id DESC
                 LIMIT 20) finished)))
  ORDER BY created_at DESC, id DESC
 LIMIT 20;

TABLE requests
    body_hash text NOT NULL
    claim uuid
    claimed_until timestamp with time zone
    expires_at timestamp with time zone NOT NULL
    job_id uuid
    key text NOT NULL
    owner text NOT NULL
    PRIMARY KEY (owner, key)
CREATE UNIQUE INDEX requests_pkey ON rowlock.requests USING btree (owner, key)

TABLE rollups
    at timestamp with time zone NOT NULL
    number bigint NOT NULL
    queue text NOT NULL
    run_bucket smallint NOT NULL
    run_seconds double precision NOT NULL
    seconds integer NOT NULL
    task text NOT NULL
    wait_bucket smallint NOT NULL
    wait_seconds double precision NOT NULL
    what text NOT NULL
    PRIMARY KEY (seconds, at, queue, task, what, run_bucket, wait_bucket)
CREATE UNIQUE INDEX rollups_pkey ON rowlock.rollups USING btree (seconds, at, queue, task, what, run_bucket, wait_bucket)

TABLE schedules WITH (fillfactor=70)
    args json NOT NULL
    backoff json
    created_at timestamp with time zone NOT NULL
    declared_at timestamp with time zone NOT NULL
    ends_at timestamp with time zone
    id text NOT NULL
    jitter_seconds double precision DEFAULT 0 NOT NULL
    keep_seconds double precision
    last_job uuid
    last_tick timestamp with time zone
    max_attempts integer NOT NULL
    missed text DEFAULT 'latest'::text NOT NULL
    missed_most integer DEFAULT 100 NOT NULL
    missed_seconds double precision DEFAULT 3600 NOT NULL
    next_tick timestamp with time zone
    on_dead json
    on_lost text
    on_success json
    origin text NOT NULL
    overlap text DEFAULT 'allow'::text NOT NULL
    owner text
    paused_at timestamp with time zone
    priority smallint DEFAULT 0 NOT NULL
    problem text
    queue text NOT NULL
    retired_at timestamp with time zone
    rule text NOT NULL
    source text
    starts_at timestamp with time zone
    task text NOT NULL
    timeout_seconds double precision
    updated_at timestamp with time zone NOT NULL
    writer_started_at timestamp with time zone NOT NULL
    zone text NOT NULL
    CHECK ((jitter_seconds >= (0)::double precision))
    CHECK ((missed = ANY (ARRAY['latest'::text, 'skip'::text, 'all'::text])))
    CHECK ((missed_most >= 1))
    CHECK ((missed_seconds >= (0)::double precision))
    CHECK ((origin = ANY (ARRAY['code'::text, 'config'::text, 'runtime'::text])))
    CHECK ((overlap = ANY (ARRAY['allow'::text, 'skip'::text])))
    PRIMARY KEY (id)
CREATE INDEX schedules_due ON rowlock.schedules USING btree (next_tick) WHERE ((next_tick IS NOT NULL) AND (paused_at IS NULL) AND (retired_at IS NULL))
CREATE INDEX schedules_problem ON rowlock.schedules USING btree (id) WHERE ((problem IS NOT NULL) AND (retired_at IS NULL))
CREATE UNIQUE INDEX schedules_pkey ON rowlock.schedules USING btree (id)

TABLE schema_files
    applied_at timestamp with time zone DEFAULT now() NOT NULL
    checksum text NOT NULL
    name text NOT NULL
    PRIMARY KEY (name)
CREATE UNIQUE INDEX schema_files_pkey ON rowlock.schema_files USING btree (name)

TABLE set_aside
    again_at timestamp with time zone
    doing text NOT NULL
    error text NOT NULL
    id uuid NOT NULL
    since timestamp with time zone NOT NULL
    times integer DEFAULT 1 NOT NULL
    PRIMARY KEY (id)
CREATE UNIQUE INDEX set_aside_pkey ON rowlock.set_aside USING btree (id)

VIEW source_health
 SELECT s.name,
        CASE
            WHEN (NOT (s.enabled AND COALESCE(c.class_enabled, true))) THEN 'disabled'::text
            WHEN (GREATEST(s.paused_until, c.class_paused_until) > statement_timestamp()) THEN
            CASE
                WHEN (s.opened_at IS NULL) THEN 'paused'::text
                ELSE 'broken'::text
            END
            WHEN (s.opened_at IS NOT NULL) THEN 'half-open'::text
            ELSE 'open'::text
        END AS state,
    (s.enabled AND COALESCE(c.class_enabled, true)) AS enabled,
    s.failure_streak,
    s.last_success_at,
    s.last_failure_at,
    GREATEST(s.paused_until, c.class_paused_until) AS paused_until,
    s.last_error
   FROM (rowlock.sources s
     LEFT JOIN rowlock.sources c ON ((c.name = split_part(s.name, ':'::text, 1))))
  ORDER BY s.name;

TABLE sources WITH (fillfactor=50)
    block_after integer
    burst integer
    class_enabled boolean DEFAULT true NOT NULL
    class_paused_at timestamp with time zone
    class_paused_until timestamp with time zone
    concurrency integer
    cooldown_factor double precision
    cooldown_seconds double precision
    created_at timestamp with time zone DEFAULT now() NOT NULL
    enabled boolean DEFAULT true NOT NULL
    epoch integer DEFAULT 0 NOT NULL
    failure_streak integer DEFAULT 0 NOT NULL
    failure_threshold integer
    last_error text
    last_failure_at timestamp with time zone
    last_success_at timestamp with time zone
    name text NOT NULL
    opened_at timestamp with time zone
    opens integer DEFAULT 0 NOT NULL
    paused_at timestamp with time zone
    paused_until timestamp with time zone
    probe_job uuid
    probe_token uuid
    rate_limit_per_minute double precision
    refusal_code text
    refusals integer DEFAULT 0 NOT NULL
    refused_at timestamp with time zone
    set_by text
    tokens double precision
    tokens_at timestamp with time zone
    total integer
    CHECK ((block_after >= 1))
    CHECK ((burst >= 1))
    CHECK ((concurrency >= 0))
    CHECK ((cooldown_factor >= (1)::double precision))
    CHECK ((cooldown_seconds > (0)::double precision))
    CHECK ((failure_threshold >= 1))
    CHECK ((rate_limit_per_minute > (0)::double precision))
    CHECK ((total >= 0))
    PRIMARY KEY (name)
CREATE INDEX sources_closed ON rowlock.sources USING btree (name) WHERE ((opened_at IS NOT NULL) OR (NOT enabled) OR (paused_until IS NOT NULL))
CREATE INDEX sources_refused ON rowlock.sources USING btree (name) WHERE (refusals > 0)
CREATE UNIQUE INDEX sources_pkey ON rowlock.sources USING btree (name)

VIEW stuck_jobs
 SELECT id,
    task,
    queue,
    locked_by,
    attempt,
    locked_at,
    heartbeat_at,
    lease_expires_at,
    (statement_timestamp() - COALESCE(heartbeat_at, locked_at)) AS time_since_heartbeat
   FROM rowlock.jobs_live
  WHERE ((state = 'running'::text) AND (published IS DISTINCT FROM 'unread'::text) AND (COALESCE(heartbeat_at, locked_at) < (statement_timestamp() - '00:05:00'::interval)))
  ORDER BY COALESCE(heartbeat_at, locked_at);

TABLE tallies WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000, vacuum_truncate=off)
    at timestamp with time zone NOT NULL
    number bigint NOT NULL
    queue text NOT NULL
    run_bucket smallint NOT NULL
    run_seconds double precision NOT NULL
    task text NOT NULL
    wait_bucket smallint NOT NULL
    wait_seconds double precision NOT NULL
    what text NOT NULL

TABLE tasks
    arguments json
    description text
    name text NOT NULL
    options json NOT NULL
    source_derived boolean NOT NULL
    updated_at timestamp with time zone NOT NULL
    PRIMARY KEY (name)
CREATE UNIQUE INDEX tasks_pkey ON rowlock.tasks USING btree (name)

TABLE ticks
    fired_at timestamp with time zone NOT NULL
    job_id uuid
    schedule_id text NOT NULL
    tick timestamp with time zone NOT NULL
    PRIMARY KEY (schedule_id, tick)
CREATE INDEX ticks_age ON rowlock.ticks USING btree (fired_at)
CREATE UNIQUE INDEX ticks_pkey ON rowlock.ticks USING btree (schedule_id, tick)

TABLE tokens
    created_at timestamp with time zone NOT NULL
    expires_at timestamp with time zone
    good_until double precision
    hash text NOT NULL
    hint text NOT NULL
    id uuid NOT NULL
    job_id uuid
    kind text DEFAULT 'token'::text NOT NULL
    made_from uuid
    owner text
    revoked_at timestamp with time zone
    scope text NOT NULL
    uses integer
    CHECK ((((kind = 'token'::text) AND (uses IS NULL)) OR ((kind = 'session'::text) AND (uses IS NULL) AND (job_id IS NULL) AND (expires_at IS NOT NULL)) OR ((kind = ANY (ARRAY['link'::text, 'ticket'::text])) AND (uses >= 0) AND (uses IS NOT NULL) AND (expires_at IS NOT NULL))))
    CHECK (((owner IS NULL) = (scope <> 'jobs'::text)))
    CHECK ((scope = ANY (ARRAY['jobs'::text, 'operator'::text, 'operator:read'::text])))
    PRIMARY KEY (id)
    UNIQUE (hash)
CREATE UNIQUE INDEX tokens_hash_key ON rowlock.tokens USING btree (hash)
CREATE UNIQUE INDEX tokens_pkey ON rowlock.tokens USING btree (id)

TABLE webhook_deliveries
    delivery_id uuid NOT NULL
    job_id uuid NOT NULL
    FOREIGN KEY (job_id) REFERENCES rowlock.webhooks(job_id) ON DELETE CASCADE
    PRIMARY KEY (job_id, delivery_id)
CREATE UNIQUE INDEX webhook_deliveries_pkey ON rowlock.webhook_deliveries USING btree (job_id, delivery_id)

TABLE webhook_secrets
    created_at timestamp with time zone NOT NULL
    expires_at timestamp with time zone
    hint text NOT NULL
    id uuid NOT NULL
    owner text NOT NULL
    secret text NOT NULL
    PRIMARY KEY (id)
CREATE INDEX webhook_secrets_owner ON rowlock.webhook_secrets USING btree (owner, created_at)
CREATE UNIQUE INDEX webhook_secrets_pkey ON rowlock.webhook_secrets USING btree (id)

TABLE webhooks
    backoff json NOT NULL
    drop_on date
    job_id uuid NOT NULL
    max_attempts integer NOT NULL
    owner text NOT NULL
    queue text NOT NULL
    source text NOT NULL
    timeout_seconds double precision NOT NULL
    url text NOT NULL
    PRIMARY KEY (job_id)
CREATE INDEX webhooks_drop ON rowlock.webhooks USING btree (drop_on) WHERE (drop_on IS NOT NULL)
CREATE UNIQUE INDEX webhooks_pkey ON rowlock.webhooks USING btree (job_id)

TABLE workers
    bell text
    expires_at timestamp with time zone NOT NULL
    hostname text NOT NULL
    id text NOT NULL
    idle boolean DEFAULT false NOT NULL
    memory_bytes bigint
    pid integer NOT NULL
    pool_size integer NOT NULL
    queues json NOT NULL
    running integer DEFAULT 0 NOT NULL
    seen_at timestamp with time zone NOT NULL
    started_at timestamp with time zone NOT NULL
    stop_requested text
    stop_requested_at timestamp with time zone
    tasks json NOT NULL
    version text NOT NULL
    CHECK ((stop_requested = ANY (ARRAY['drain'::text, 'stop'::text])))
    PRIMARY KEY (id)
CREATE UNIQUE INDEX workers_pkey ON rowlock.workers USING btree (id)

TYPE _admission c source text, room integer, class_room integer, epoch integer, level double precision, probe boolean, turn double precision

TYPE _ending c nth integer, job_id uuid, token uuid, outcome text, error_code text, error_message text, after double precision, permanent boolean, backoff jsonb, fault text, retry_after double precision

TYPE _head c queue text, task text, priority integer, source text, last boolean

TYPE _new_row c id uuid, args json, key text, source text

TYPE _step c id uuid, token uuid, state text, outcome text, delay double precision, error_code text, error_message text, released integer, lost integer, convicted integer, fault text, retry_after double precision, attempt integer, worker text, locked_at timestamp with time zone, source text, source_epoch integer, batch_id uuid, unique_mode text, follow_up json

TYPE _success c nth integer, job_id uuid, token uuid, result json, result_uri text, result_checksum text

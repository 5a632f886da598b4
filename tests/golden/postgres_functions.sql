CREATE OR REPLACE FUNCTION rowlock._add_follow_up(stored json, inherited jsonb, args json, ended text)
RETURNS uuid
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE o jsonb := rowlock._read_follow_up(stored, args, ended);
made uuid;
BEGIN IF o IS NULL THEN
RETURN NULL;
END IF;
made := rowlock.new_id();
PERFORM rowlock._insert(o ->> 'task', inherited || o, ARRAY[CAST(ROW(made, CASE WHEN o -> 'bare' = 'true' THEN json '{}'
ELSE args END, NULL, o ->> 'source') AS rowlock._new_row)]);
RETURN made;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._admit(names text[], waits boolean, OUT admissions rowlock._admission[], OUT at timestamp with time zone)
RETURNS record
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE classes text[] := ARRAY(SELECT DISTINCT split_part(u, ':', 1)
FROM unnest(names) u);
locked text[];
ours text[];
BEGIN
PERFORM rowlock._make_sources(names);
IF waits THEN locked := ARRAY(SELECT c.name
FROM rowlock.sources c
WHERE c.name = ANY (classes) AND c.total IS NOT NULL
ORDER BY c.name FOR
UPDATE);
ELSE locked := ARRAY(SELECT c.name
FROM rowlock.sources c
WHERE c.name = ANY (classes) AND c.total IS NOT NULL
ORDER BY c.name FOR
UPDATE SKIP LOCKED);
END IF;
ours := ARRAY(SELECT s.name
FROM rowlock.sources s
LEFT JOIN rowlock.sources c ON c.name = split_part(s.name, ':', 1)
WHERE s.name = ANY (names) AND (s.opened_at IS NOT NULL OR coalesce(s.concurrency, c.concurrency, c.total) IS NOT NULL OR coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) IS NOT NULL)
ORDER BY s.name FOR
UPDATE OF s SKIP LOCKED);
at := rowlock._clock();
admissions := ARRAY(SELECT CAST(ROW(g.source, least(CASE WHEN g.opened THEN 1
ELSE 2147483647 END, coalesce(g.concurrency - g.running, 2147483647), coalesce(floor(b.level + 1e-9), 2147483647)), coalesce(g.total - g.class_running, 2147483647), g.epoch, b.level, g.opened, rowlock._draw()) AS rowlock._admission)
FROM (SELECT named.source, split_part(named.source, ':', 1) AS class, coalesce(s.concurrency, c.concurrency) AS concurrency, c.total, coalesce(s.rate_limit_per_minute, c.rate_limit_per_minute) AS rate, CASE WHEN s.rate_limit_per_minute IS NULL THEN coalesce(s.burst, c.burst)
ELSE s.burst END AS burst, coalesce(s.enabled, TRUE) AND coalesce(c.class_enabled, TRUE) AS enabled, coalesce(greatest(s.paused_until, c.class_paused_until) > at, FALSE) AS paused, s.opened_at IS NOT NULL AS opened, EXISTS (SELECT 1
FROM rowlock.jobs_live p
WHERE p.id = s.probe_job AND p.lease_token = s.probe_token AND p.state = 'running' AND (SELECT 1
FROM rowlock.set_aside a
WHERE a.id = p.id AND coalesce(a.again_at > at, TRUE)) IS NULL) AS probing, s.tokens, extract(epoch
FROM at) - extract(epoch
FROM s.tokens_at) AS elapsed, coalesce(s.epoch, 0) AS epoch, CASE WHEN coalesce(s.concurrency, c.concurrency) IS NOT NULL THEN (SELECT count(*)
FROM rowlock.jobs_live r
WHERE r.state = 'running' AND r.source IS NOT NULL AND split_part(r.source, ':', 1) = c.name AND r.source = named.source AND (SELECT 1
FROM rowlock.set_aside a
WHERE a.id = r.id AND coalesce(a.again_at > at, TRUE)) IS NULL) END AS running, CASE WHEN c.total IS NOT NULL THEN (SELECT count(*)
FROM rowlock.jobs_live r
WHERE r.state = 'running' AND r.source IS NOT NULL AND split_part(r.source, ':', 1) = c.name AND (SELECT 1
FROM rowlock.set_aside a
WHERE a.id = r.id AND coalesce(a.again_at > at, TRUE)) IS NULL) END AS class_running
FROM unnest(names) AS named (source)
LEFT JOIN LATERAL (SELECT *
FROM rowlock.sources x
WHERE x.name = named.source LIMIT 1) s ON TRUE
LEFT JOIN LATERAL (SELECT *
FROM rowlock.sources x
WHERE x.name = split_part(named.source, ':', 1) LIMIT 1) c ON TRUE) g
CROSS JOIN LATERAL (SELECT CASE WHEN g.rate IS NULL THEN NULL WHEN g.tokens IS NULL THEN coalesce(g.burst, greatest(1, floor(g.rate / 60)))
ELSE least(coalesce(g.burst, greatest(1, floor(g.rate / 60))), g.tokens + g.rate / 60 * greatest(0, coalesce(g.elapsed, 0))) END AS level) b
WHERE g.enabled AND NOT g.paused AND NOT (g.opened AND g.probing) AND coalesce(g.running < g.concurrency, TRUE) AND coalesce(g.class_running < g.total, TRUE) AND coalesce(floor(b.level + 1e-9) >= 1, TRUE) AND (g.source = ANY (ours) OR NOT (g.opened OR coalesce(g.concurrency, g.total) IS NOT NULL OR g.rate IS NOT NULL)) AND (g.total IS NULL OR g.class = ANY (locked)));
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._backoff(value jsonb)
RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE backoff jsonb := value;
BEGIN IF jsonb_typeof(value) = 'string' THEN backoff := CAST(value #>> '{}' AS jsonb);
END IF;
IF jsonb_typeof(backoff) = 'object' AND backoff - ARRAY['kind', 'base', 'cap', 'factor'] = '{}' AND coalesce(backoff @@ '
            $.kind.type() == "string" && ($.kind == "fixed" || $.kind == "exponential")
            && $.base.type() == "number" && $.base >= 0 && $.base <= 3200000000
            && (!exists($.cap) || $.cap.type() == "number" && $.cap >= 0 && $.cap <= 3200000000)
            && (!exists($.factor) || $.factor.type() == "number" && $.factor >= 1 && $.factor <= 100)', FALSE) THEN
RETURN backoff;
END IF;
RETURN NULL;
EXCEPTION WHEN invalid_text_representation THEN
RETURN NULL;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._cancelled(j rowlock.jobs_live, code text, message text)
RETURNS rowlock._step
LANGUAGE plpgsql IMMUTABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
RETURN CAST(ROW(j.id, j.lease_token, 'cancelled', 'cancelled', 0, code, message, 0, 0, 0, NULL, NULL, j.attempt, j.locked_by, j.locked_at, j.source, coalesce(j.source_epoch, 0), j.batch_id, j.unique_mode, NULL) AS rowlock._step);
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._check_task(doing text, task text)
RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN IF NOT rowlock._is_name(task) THEN
PERFORM rowlock._refuse(format('%s: task must have 1–200 characters without control characters, not %s', doing, rowlock._shown(task)), 'Give the name under which a worker has registered the task.');
ELSIF starts_with(task, 'rowlock.') THEN
PERFORM rowlock._refuse(format('%s: task %s: names that begin with rowlock. are for the tasks of Rowlock itself', doing, rowlock._shown(task)), 'Give the task another name.');
END IF;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._check_worker(doing text, worker text, lease double precision)
RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN IF NOT rowlock._is_name(worker) THEN
PERFORM rowlock._refuse(format('%s: worker must have 1–200 characters without control characters, not %s', doing, rowlock._shown(worker)), 'Make up a name when the worker starts, such as host name, process id and time.');
END IF;
IF lease IS NULL OR NOT lease BETWEEN 1 AND 86400 THEN
PERFORM rowlock._refuse(format('%s: lease_seconds must be from 1 to 86400, not %s', doing, rowlock._shown(CAST(lease AS text))), 'Beat at least four times in this time.');
END IF;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._clear_keys(scope text, keys text[], at timestamp with time zone)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ #variable_conflict use_column
BEGIN
DELETE
FROM rowlock.job_keys k
WHERE k.scope = _clear_keys.scope AND k.key = ANY (keys) AND k.expires_at <= least(at, clock_timestamp());
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._clock()
RETURNS timestamp with time zone
LANGUAGE sql
AS $function$SELECT pg_catalog.clock_timestamp()$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._cut(value text, most integer)
RETURNS text
LANGUAGE sql IMMUTABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT CASE WHEN octet_length(value) <= most THEN value
ELSE left(value, CASE WHEN octet_length(left(value, most - 20)) <= most - 20 THEN most - 20
ELSE (most - 20) / 4 END) || ' …(cut)' END $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._decide(j rowlock.jobs_live, e rowlock._ending, by_holder boolean)
RETURNS rowlock._step
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE s rowlock._step := rowlock._cancelled(j, e.error_code, e.error_message);
draw double precision := rowlock._draw();
used integer := j.attempt - j.releases - j.losses;
cancel boolean := j.cancel_requested_at IS NOT NULL;
BEGIN s.outcome := e.outcome;
CASE e.outcome WHEN 'failed', 'timed_out' THEN s.fault := e.fault;
s.retry_after := e.retry_after;
IF e.permanent OR used >= j.max_attempts THEN s.state := 'dead';
ELSE s.state := 'retryable';
s.delay := coalesce(e.after * (1 + 0.2 * draw), rowlock._delay(coalesce(e.backoff, rowlock._readable(j.backoff)), used, draw));
s.delay := greatest(s.delay, e.retry_after * (1 + 0.2 * draw));
END IF;
WHEN 'released' THEN s.state := 'queued';
s.delay := e.after;
s.released := 1;
WHEN 'cancelled' THEN s := rowlock._cancelled(j, 'CANCELLED', NULL);
WHEN 'lost' THEN s.lost := 1;
s.convicted := CAST(by_holder AS integer);
s.error_code := CASE WHEN by_holder THEN 'CHILD_DIED'
ELSE 'WORKER_LOST' END;
s.error_message := coalesce(e.error_message, CASE WHEN by_holder THEN format('attempt %s ended with the death of its quarantine process', j.attempt)
ELSE format('%s stopped sending heartbeats during attempt %s', j.locked_by, j.attempt) END);
IF cancel AND NOT by_holder THEN s.state := 'cancelled';
s.error_code := 'CANCELLED';
ELSIF by_holder AND j.convictions + 1 >= 2 THEN s.state := 'dead';
s.error_code := 'POISON';
ELSIF coalesce(j.on_lost, '') = 'dead' OR j.losses_in_row + 1 >= 10 THEN s.state := 'dead';
ELSE s.state := 'retryable';
s.delay := draw * power(2, least(j.losses_in_row, 6));
END IF;
END CASE;
IF cancel AND s.state IN ('queued', 'retryable') THEN s := rowlock._cancelled(j, 'CANCELLED', NULL);
END IF;
s.follow_up := CASE WHEN s.state = 'dead' THEN j.on_dead END;
RETURN s;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._delay(backoff jsonb, tries integer, draw double precision)
RETURNS double precision
LANGUAGE plpgsql IMMUTABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE usable jsonb := coalesce(CASE WHEN jsonb_typeof(backoff) = 'object' THEN rowlock._backoff(backoff) END, '{"kind": "exponential", "base": 10}');
base double precision := CAST(usable ->> 'base' AS double precision);
BEGIN IF usable ->> 'kind' = 'fixed' THEN
RETURN base * (1 + 0.2 * draw);
END IF;
RETURN least(coalesce(CAST(usable ->> 'cap' AS double precision), 86400), base * power(coalesce(CAST(usable ->> 'factor' AS double precision), 2), least(greatest(tries, 1) - 1, 20))) * (0.5 + 0.5 * draw);
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._draw()
RETURNS double precision
LANGUAGE sql
AS $function$SELECT pg_catalog.random()$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._elements(doing text, jobs jsonb, known text[])
RETURNS SETOF jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE other text;
BEGIN IF coalesce(jsonb_typeof(jobs), 'null') <> 'array' THEN
PERFORM rowlock._refuse(format('%s: a JSON array is needed, not %s', doing, rowlock._shown(CAST(jobs AS text))), 'Write it like [{"job_id": "…", "token": "…"}].');
END IF;
IF jsonb_array_length(jobs) > 1000 THEN
PERFORM rowlock._refuse(format('%s: %s jobs are too many for one call', doing, jsonb_array_length(jobs)), 'Give at most 1000; a hundred at a time is enough.', 'RL003');
END IF;
SELECT min(k) INTO other
FROM jsonb_array_elements(jobs) one
CROSS JOIN LATERAL jsonb_object_keys(CASE WHEN jsonb_typeof(one) = 'object' THEN one
ELSE '{}' END) k
WHERE k <> ALL (known);
IF other IS NOT NULL THEN
PERFORM rowlock._refuse(format('%s: no option %s', doing, quote_ident(other)), 'There are ' || array_to_string(known, ', ') || '.', 'RL002');
END IF;
RETURN QUERY
SELECT *
FROM jsonb_array_elements(jobs);
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._end_batches(ids uuid[])
RETURNS integer
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE at timestamptz := rowlock._clock();
held uuid[];
ended integer := 0;
batch record;
made uuid;
BEGIN IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
RETURN 0;
END IF;
held := ARRAY(SELECT b.id
FROM rowlock.batches b
WHERE b.id = ANY (ids) AND b.finished_at IS NULL AND b.sealed_at IS NOT NULL AND (SELECT coalesce(sum(c.total - c.processed), 0)
FROM rowlock.batch_counts c
WHERE c.batch_id = b.id) <= 0
ORDER BY b.id FOR
UPDATE SKIP LOCKED);
IF cardinality(held) = 0 THEN
RETURN 0;
END IF;
FOR batch IN WITH counts AS (SELECT c.batch_id, sum(c.total) AS total, sum(c.processed) AS processed, sum(c.failed) AS failed, sum(c.cancelled) AS cancelled, sum(c.expired) AS expired
FROM rowlock.batch_counts c
WHERE c.batch_id = ANY (held) GROUP BY c.batch_id), ending AS (SELECT b.id, b.ended_once, coalesce(c.total, 0) AS total, coalesce(c.processed, 0) AS processed, coalesce(c.failed, 0) AS failed, coalesce(c.cancelled, 0) AS cancelled, coalesce(c.expired, 0) AS expired, CASE WHEN b.cancelled_at IS NOT NULL THEN 'cancelled' WHEN c.failed > 0 THEN 'failed' WHEN c.cancelled > 0 THEN 'cancelled'
ELSE 'succeeded' END AS state
FROM rowlock.batches b
LEFT JOIN counts c ON c.batch_id = b.id
WHERE b.id = ANY (held) AND coalesce(c.total, 0) <= coalesce(c.processed, 0))
UPDATE rowlock.batches b SET state = e.state, started_at = coalesce(b.started_at, at), finished_at = at, reopened_at = NULL, ended_once = TRUE
FROM ending e
WHERE b.id = e.id
RETURNING b.id, b.name, b.owner, b.on_end, b.parent_id, e.ended_once AS again, e.state, e.total, e.processed, e.failed, e.cancelled, e.expired LOOP ended := ended + 1;
CONTINUE WHEN batch.on_end IS NULL OR batch.again;
made := rowlock._add_follow_up(batch.on_end, jsonb_build_object('owner', batch.owner, 'parent_id', batch.parent_id), json_build_object('batch', json_build_object('batch_id', batch.id, 'name', batch.name, 'owner', batch.owner, 'state', batch.state, 'total', batch.total, 'processed', batch.processed, 'failed', batch.failed, 'succeeded', batch.processed - batch.failed - batch.cancelled, 'dead', batch.failed - batch.expired, 'cancelled', batch.cancelled, 'expired', batch.expired, 'last_error', (SELECT c.last_error
FROM rowlock.batch_counts c
WHERE c.batch_id = batch.id AND c.last_error IS NOT NULL
ORDER BY c.last_error_at DESC LIMIT 1))), format('batch %s', batch.id));
UPDATE rowlock.batches b SET end_job = made
WHERE b.id = batch.id AND made IS NOT NULL;
END LOOP;
RETURN ended;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._end_rows(what text, ids uuid[])
RETURNS integer
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE middle integer := cardinality(ids) / 2;
steps rowlock._step[];
BEGIN IF cardinality(ids) = 0 THEN
RETURN 0;
ELSIF what = 'lease' THEN
RETURN (SELECT count(*)
FROM rowlock._settle(ARRAY(SELECT CAST(ROW(1, j.id, j.lease_token, 'lost', NULL, NULL, NULL, NULL, NULL, NULL, NULL) AS rowlock._ending)
FROM rowlock.jobs_live j
WHERE j.id = ANY (ids)), FALSE) s
WHERE s.answer = 'applied');
ELSIF what = 'start' THEN steps := ARRAY(SELECT rowlock._cancelled(j, 'EXPIRED', 'not started before expires_at')
FROM rowlock.jobs_live j
WHERE j.id = ANY (ids));
PERFORM rowlock._finish(steps, FALSE);
RETURN cardinality(steps);
END IF;
RETURN rowlock._end_batches(ids);
EXCEPTION WHEN insufficient_resources OR transaction_rollback OR insufficient_privilege THEN RAISE;
WHEN OTHERS THEN IF middle = 0 THEN RAISE WARNING 'rowlock: %: %', format(CASE what WHEN 'lease' THEN 'the lease of job %s ran out and cannot be ended' WHEN 'start' THEN 'job %s has not started in time and cannot be cancelled'
ELSE 'batch %s is complete and cannot be ended' END, ids[1]), SQLERRM;
RETURN 0;
END IF;
RETURN rowlock._end_rows(what, ids[:middle]) + rowlock._end_rows(what, ids[middle + 1:]);
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._enqueue(doing text, task text, jobs jsonb, options jsonb)
RETURNS TABLE(job_id uuid, created boolean)
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE known rowlock.tasks;
o jsonb;
own jsonb := options -> 'under';
mine uuid;
job jsonb;
strange text;
rows rowlock._new_row[] := '{}';
fresh rowlock._new_row[];
wanted rowlock._new_row[];
ids uuid[];
chosen uuid[];
free uuid[] := '{}';
lost uuid[] := '{}';
twice text;
keyed boolean;
holders jsonb := '{}';
inside boolean := FALSE;
BEGIN
PERFORM rowlock._check_task(doing, task);
SELECT * INTO known
FROM rowlock.tasks t
WHERE t.name = _enqueue.task;
strange := (SELECT min(given)
FROM json_object_keys(coalesce(known.options, '{}')) given
WHERE given NOT IN ('queue', 'priority', 'max_attempts', 'backoff', 'timeout_seconds', 'source', 'on_success', 'on_dead', 'on_lost', 'keep_seconds'));
IF strange IS NOT NULL THEN
PERFORM rowlock._refuse(format('%s: task %s has the option %s, which this function cannot give to a job', doing, task, strange), 'Run rowlock migrate of the version whose worker registered the task.', 'RL002');
END IF;
o := coalesce(CAST(known.options AS jsonb), '{}') || rowlock._options(doing, CASE WHEN jsonb_typeof(options) = 'object' THEN options - 'under'
ELSE options END);
keyed := (SELECT bool_or(one ? 'key' AND one -> 'key' <> 'null')
FROM jsonb_array_elements(jobs) one);
IF o ? 'unique' AND NOT coalesce(keyed, FALSE) THEN
PERFORM rowlock._refuse(format('%s: unique says how a key holds, and there is no key', doing), 'Give key as well.');
ELSIF keyed AND NOT o ? 'unique' THEN o := o || '{"unique": "until_done"}';
END IF;
ids := ARRAY(SELECT rowlock.new_id() AS new
FROM jsonb_array_elements(jobs)
ORDER BY new);
FOR i IN 1..jsonb_array_length(jobs) LOOP job := jobs -> (i - 1);
rows := rows || rowlock._job_row(doing, task, job, ids[i], coalesce(keyed, FALSE), o, known.source_derived);
END LOOP;
IF own IS NOT NULL AND own <> 'null' THEN
SELECT j.batch_id INTO mine
FROM rowlock.jobs_live j
WHERE j.id = rowlock._uuid(own ->> 'job_id') AND j.lease_token = rowlock._uuid(own ->> 'token') AND j.state = 'running' FOR
UPDATE;
IF NOT FOUND THEN
PERFORM rowlock._refuse(format('%s: job %s is no longer held under this token; nothing was enqueued', doing, rowlock._shown(own ->> 'job_id')), 'Stop working on that job: another worker may have it.', 'RL006');
END IF;
o := jsonb_build_object('parent_id', own ->> 'job_id') || o;
inside := mine IS NOT NULL AND mine = CAST(o ->> 'batch_id' AS uuid);
END IF;
fresh := rows;
chosen := ARRAY(SELECT r.id
FROM unnest(rows) WITH ORDINALITY AS r (id, args, key, source, nth)
WHERE coalesce(jobs -> CAST(r.nth - 1 AS integer) ->> 'job_id', '') <> '');
IF cardinality(chosen) > 0 THEN twice := (SELECT CAST(r.id AS text)
FROM unnest(rows) r GROUP BY r.id HAVING count(DISTINCT r.key) > 1
ORDER BY r.id LIMIT 1);
IF twice IS NOT NULL THEN
PERFORM rowlock._refuse(format('%s: job_id %s is given to jobs with different keys', doing, twice), 'Give each job an id of its own, or leave it out.');
END IF;
chosen := ARRAY(SELECT DISTINCT c
FROM unnest(chosen) c);
free := ARRAY(SELECT t
FROM rowlock._take_ids(chosen) t);
fresh := ARRAY(SELECT CAST(ROW(first.id, first.args, first.key, first.source) AS rowlock._new_row)
FROM (SELECT DISTINCT ON (r.id) r.*
FROM unnest(rows) WITH ORDINALITY AS r (id, args, key, source, nth)
ORDER BY r.id, r.nth) first
LEFT JOIN unnest(chosen) c ON c = first.id
LEFT JOIN unnest(free) f ON f = first.id
WHERE c IS NULL OR f IS NOT NULL
ORDER BY first.nth);
END IF;
IF keyed AND cardinality(fresh) > 0 THEN wanted := ARRAY(SELECT CAST(ROW(first.id, first.args, first.key, first.source) AS rowlock._new_row)
FROM (SELECT DISTINCT ON (f.key) f.*
FROM unnest(fresh) WITH ORDINALITY AS f (id, args, key, source, nth)
ORDER BY f.key, f.nth) first);
SELECT jsonb_object_agg(t.key, t.job_id) INTO holders
FROM rowlock._take_keys(task || chr(31) || coalesce(o ->> 'owner', ''), o, wanted) t;
lost := ARRAY(SELECT f.id
FROM unnest(fresh) f
WHERE CAST(holders ->> f.key AS uuid) <> f.id);
fresh := ARRAY(SELECT f
FROM unnest(fresh) f
WHERE f.id <> ALL (lost));
IF lost && chosen THEN
PERFORM rowlock._give_ids_back(ARRAY(SELECT l
FROM unnest(lost) l
WHERE l = ANY (chosen)));
END IF;
END IF;
IF cardinality(fresh) > 0 THEN IF o ? 'batch_id' THEN
PERFORM rowlock._join_batch(doing, CAST(o ->> 'batch_id' AS uuid), cardinality(fresh), inside);
END IF;
PERFORM rowlock._insert(task, o, fresh);
END IF;
RETURN QUERY
SELECT CASE WHEN r.id = ANY (lost) THEN CAST(holders ->> r.key AS uuid)
ELSE r.id END, made.id IS NOT NULL AND r.nth = min(r.nth) OVER (PARTITION BY r.id)
FROM unnest(rows) WITH ORDINALITY AS r (id, args, key, source, nth)
LEFT JOIN unnest(fresh) AS made ON made.id = r.id
ORDER BY r.nth;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._finish(steps rowlock._step[], by_holder boolean)
RETURNS void
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE at timestamptz := rowlock._clock();
ids uuid[] := ARRAY(SELECT s.id
FROM unnest(steps) s);
BEGIN IF cardinality(ids) = 0 THEN
RETURN;
END IF;
WITH gone AS (DELETE
FROM rowlock.jobs_live j
WHERE j.id = ANY (ids)
RETURNING j.*)
INSERT INTO rowlock.jobs_finished (id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id, tick, unique_key, unique_mode, attempt, max_attempts, releases, losses, convictions, backoff, timeout_seconds, run_after, expires_at, settled_token, cancel_requested_at, progress, phase, message, result_uri, result_checksum, error_code, error_message, on_success, on_dead, on_lost, keep_seconds, last_worker, traceparent, parent_id, created_at, started_at, finished_at, updated_at, drop_on)
SELECT g.id, g.task, g.queue, s.state, g.priority, g.args, g.owner, g.source, g.tags, g.batch_id, g.schedule_id, g.tick, g.unique_key, g.unique_mode, g.attempt, g.max_attempts, g.releases + s.released, g.losses + s.lost, g.convictions + s.convicted, g.backoff, g.timeout_seconds, g.run_after, g.expires_at, CASE WHEN by_holder THEN g.lease_token
ELSE g.settled_token END, g.cancel_requested_at, g.progress, g.phase, g.message, g.result_uri, g.result_checksum, s.error_code, s.error_message, g.on_success, g.on_dead, g.on_lost, g.keep_seconds, g.locked_by, g.traceparent, g.parent_id, g.created_at, g.started_at, at, at, CAST((at + least(greatest(coalesce(g.keep_seconds, 2592000), 0), 3155760000) * interval '1 second') AT TIME ZONE 'UTC' AS date) + 1
FROM gone g JOIN unnest(steps) s ON s.id = g.id;
PERFORM rowlock._tell_end(steps);
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._follow_up(doing text, option text, value jsonb)
RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE stored jsonb := value;
other text;
BEGIN IF jsonb_typeof(value) = 'string' THEN stored := jsonb_build_object('task', value) || coalesce((SELECT CAST(t.options AS jsonb)
FROM rowlock.tasks t
WHERE t.name = value #>> '{}'), '{}');
ELSIF jsonb_typeof(value) = 'object' THEN
SELECT min(k) INTO other
FROM jsonb_object_keys(value - 'task' - 'bare') k
WHERE k <> ALL (rowlock._follow_up_options()) AND value -> k <> 'null';
IF other IS NOT NULL THEN
PERFORM rowlock._refuse(format('%s: %s: a follow-up has no option %s', doing, option, quote_ident(other)), 'There are ' || array_to_string(rowlock._follow_up_options(), ', ') || '.', 'RL002');
END IF;
stored := rowlock._options(doing, value - 'task' - 'bare') || jsonb_build_object('task', value -> 'task') || CASE WHEN value -> 'bare' = 'true' THEN jsonb '{"bare": true}'
ELSE '{}' END;
END IF;
IF jsonb_typeof(stored -> 'task') IS DISTINCT
FROM 'string' OR NOT rowlock._is_name(stored ->> 'task') THEN
PERFORM rowlock._refuse(format('%s: %s must name a task, not %s', doing, option, rowlock._shown(CAST(value AS text))), 'Give the name of a task, or {"task": "name", …} with the options of its job.');
END IF;
PERFORM rowlock._check_task(format('%s: %s', doing, option), stored ->> 'task');
IF octet_length(CAST(stored AS text)) > 16384 THEN
PERFORM rowlock._refuse(format('%s: %s takes %s bytes in each job, more than 16384', doing, option, octet_length(CAST(stored AS text))), 'Give follow-ups by their names.', 'RL003');
END IF;
RETURN stored;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._follow_up_options()
RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT ARRAY['queue', 'priority', 'max_attempts', 'backoff', 'timeout_seconds', 'source', 'on_success', 'on_dead', 'on_lost', 'keep_seconds', 'owner', 'tags', 'delay', 'run_after', 'expires_at', 'traceparent'] $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._give_ids_back(ids uuid[])
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE mine CONSTANT bigint := CAST(CAST(pg_current_xact_id() AS text) AS bigint);
BEGIN
DELETE
FROM rowlock.job_keys k
WHERE k.scope = 'id' AND k.key = ANY (CAST(ids AS text[])) AND k.job_id NOT IN (SELECT known
FROM rowlock._known_ids(ids) known) AND pg_xact_status(CAST(CAST(greatest(mine - age(k.xmin), 3) AS text) AS xid8)) = 'in progress';
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._has_long_number(value json)
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN IF octet_length(CAST(value AS text)) <= 4300 OR strpos(translate(CAST(value AS text), '123456789', '000000000'), repeat('0', 4301)) = 0 THEN
RETURN FALSE;
END IF;
RETURN EXISTS (SELECT 1
FROM jsonb_path_query(CAST(value AS jsonb), 'strict $.** ? (@.type() == "number")') AS found (number)
WHERE length(split_part(CAST(number AS text), '.', 1)) > 4300);
EXCEPTION WHEN untranslatable_character THEN
RETURN FALSE;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._heads(queues text[], tasks text[], after_priority integer, after_source text, most integer)
RETURNS SETOF rowlock._head
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ #variable_conflict use_column
BEGIN
RETURN QUERY WITH RECURSIVE head (queue, task, nth, priority, source) AS (SELECT lane.queue, lane.task, 0, after_priority, after_source
FROM unnest(_heads.queues, _heads.tasks) AS lane (queue, task)
UNION ALL
SELECT head.queue, head.task, head.nth + 1, CAST(following.priority AS integer), following.source
FROM head
CROSS JOIN LATERAL (SELECT f.priority, f.source
FROM rowlock.jobs_live f
WHERE f.id = coalesce((SELECT j.id
FROM rowlock.jobs_live j
WHERE j.ready AND j.source IS NOT NULL AND j.queue = head.queue AND j.task = head.task AND j.priority = head.priority AND j.source > head.source
ORDER BY j.priority, j.source, j.id LIMIT 1), (SELECT j.id
FROM rowlock.jobs_live j
WHERE j.ready AND j.source IS NOT NULL AND j.queue = head.queue AND j.task = head.task AND j.priority > head.priority
ORDER BY j.priority, j.source, j.id LIMIT 1)) LIMIT 1) following
WHERE head.nth < most)
SELECT head.queue, head.task, head.priority, head.source, head.nth = most
FROM head
WHERE head.nth > 0;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._hold_keys(scope text, keys text[], job_ids uuid[], mode text, ends timestamp with time zone)
RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN IF coalesce(scope, 'id') = 'id' OR coalesce(mode, '') NOT IN ('until_done', 'while_queued', 'forever', 'window') THEN
PERFORM rowlock._refuse(format('enqueue: keys of scope %s cannot be held in mode %s', rowlock._shown(scope), rowlock._shown(mode)), 'Call rowlock.enqueue.');
END IF;
RETURN QUERY
INSERT INTO rowlock.job_keys (scope, key, job_id, mode, expires_at)
SELECT _hold_keys.scope, u.key, u.job_id, _hold_keys.mode, ends
FROM unnest(keys, job_ids) WITH ORDINALITY AS u (key, job_id, nth)
ORDER BY u.nth
ON CONFLICT ON CONSTRAINT job_keys_pkey DO NOTHING
RETURNING job_keys.key;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._insert(task text, o jsonb, rows rowlock._new_row[])
RETURNS void
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE at timestamptz := rowlock._clock();
due timestamptz := coalesce(CAST(o ->> 'run_after' AS timestamptz), at + coalesce(CAST(o ->> 'delay' AS double precision), 0) * interval '1 second');
BEGIN
INSERT INTO rowlock.jobs_live (id, args, source, unique_key, task, ready, run_after, queue, priority, max_attempts, backoff, timeout_seconds, on_success, on_dead, on_lost, keep_seconds, owner, tags, batch_id, unique_mode, expires_at, traceparent, parent_id, created_at, updated_at)
SELECT added.id, added.args, added.source, added.key, _insert.task, due <= at, due, coalesce(o ->> 'queue', 'default'), coalesce(CAST(o ->> 'priority' AS numeric), 0), coalesce(CAST(o ->> 'max_attempts' AS numeric), 5), CAST(o ->> 'backoff' AS json), CAST(o ->> 'timeout_seconds' AS double precision), CAST(o ->> 'on_success' AS json), CAST(o ->> 'on_dead' AS json), o ->> 'on_lost', CAST(o ->> 'keep_seconds' AS double precision), o ->> 'owner', CAST(o ->> 'tags' AS json), CAST(o ->> 'batch_id' AS uuid), o ->> 'unique', CAST(o ->> 'expires_at' AS timestamptz), o ->> 'traceparent', CAST(o ->> 'parent_id' AS uuid), at, at
FROM unnest(rows) AS added;
PERFORM pg_notify('rowlock', 'work')
WHERE EXISTS (SELECT 1
FROM rowlock.workers w
WHERE w.idle AND w.expires_at > at) AND current_setting('rowlock.wakeups', TRUE) IS DISTINCT
FROM 'off';
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._is_name(value text)
RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT coalesce(value ~ '^[^\u0001-\u001f\u007f]{1,200}$', FALSE) $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._is_source(value text)
RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT coalesce(value ~ '^[^\s:\u0001-\u001f\u007f][^\u0001-\u001f\u007f]{0,199}$' AND value !~ ':$', FALSE) $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._job_row(doing text, task text, job jsonb, new_id uuid, keyed boolean, o jsonb, source_derived boolean)
RETURNS rowlock._new_row
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE args jsonb := job -> 'args';
key text := job ->> 'key';
chosen text := job ->> 'job_id';
source text := coalesce(job ->> 'source', o ->> 'source');
size integer := octet_length(CAST(args AS text));
other text;
BEGIN
SELECT min(k) INTO other
FROM jsonb_object_keys(CASE WHEN jsonb_typeof(job) = 'object' THEN job
ELSE '{}' END) k
WHERE k NOT IN ('args', 'key', 'source', 'job_id');
IF other IS NOT NULL THEN
PERFORM rowlock._refuse(format('%s: no option %s of a single job', doing, quote_ident(other)), 'Each element of jobs is like {"args": {…}}, with key, source and job_id if wanted; other options are shared.', 'RL002');
END IF;
IF coalesce(jsonb_typeof(args), 'null') <> 'object' THEN
PERFORM rowlock._refuse(format('%s: args must be a JSON object, the arguments of task %s, not %s', doing, task, rowlock._shown(CAST(args AS text))), 'Write arguments by their names, like {"url": "https://example.com"}.');
END IF;
IF size > 262144 THEN
PERFORM rowlock._refuse(format('%s: args of task %s have %s bytes, more than 262144', doing, task, size), 'Store them elsewhere and pass a reference.', 'RL003');
END IF;
IF keyed AND (coalesce(key, '') = '' OR jsonb_typeof(job -> 'key') <> 'string' OR octet_length(key) > 512) THEN
PERFORM rowlock._refuse(format('%s: key must be a string of 1–512 bytes, not %s', doing, rowlock._shown(CAST(job -> 'key' AS text))), 'Of jobs that are enqueued together, either all have a key or none; hash a longer one.');
END IF;
IF chosen IS NOT NULL AND rowlock._uuid(chosen) IS NULL THEN
PERFORM rowlock._refuse(format('%s: job_id must be a UUID, not %s', doing, rowlock._shown(chosen)), 'Leave it out, or give a UUID, best of version 7.');
END IF;
IF job ? 'source' AND job -> 'source' <> 'null' AND (jsonb_typeof(job -> 'source') <> 'string' OR NOT rowlock._is_source(source)) THEN
PERFORM rowlock._refuse(format('%s: source must be named like api:ebay or domain:example.com; not %s', doing, rowlock._shown(source)), 'The part before the colon is the class, whose limits hold for each of its sources.');
END IF;
IF source_derived AND source IS NULL THEN RAISE WARNING 'rowlock.%: task % derives its source from its arguments in Python; this job has none, so no limit of' ' a source holds for it: give the option source', doing, task;
END IF;
RETURN ROW(coalesce(rowlock._uuid(chosen), new_id), CAST(args AS json), key, source);
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._join_batch(doing text, batch uuid, number integer, own boolean)
RETURNS void
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE this record;
BEGIN
PERFORM rowlock._require_read_committed(format('%s: batch_id', doing));
SELECT b.name, b.sealed_at, b.finished_at, b.cancelled_at IS NOT NULL AND b.reopened_at IS NULL AS cancelled INTO this
FROM rowlock.batches b
WHERE b.id = batch FOR KEY SHARE;
IF this.name IS NULL THEN
PERFORM rowlock._refuse(format('%s: there is no batch %s', doing, batch), 'Give the id of an open batch.', 'RL004');
ELSIF this.finished_at IS NOT NULL OR this.cancelled THEN
PERFORM rowlock._refuse(format('%s: batch %s (%s) %s: no job was added', doing, quote_literal(this.name), batch, CASE WHEN this.finished_at IS NULL THEN 'is cancelled'
ELSE 'has ended' END), 'Make a new batch.', 'RL004');
ELSIF this.sealed_at IS NOT NULL AND NOT own THEN
PERFORM rowlock._refuse(format('%s: batch %s (%s) is sealed', doing, quote_literal(this.name), batch), 'Only its own running jobs may add to it: give {"under": {"job_id": …, "token": …}}.', 'RL004');
END IF;
INSERT INTO rowlock.batch_counts (batch_id, shard, total)
VALUES (batch, 16 + floor(random() * 16), number)
ON CONFLICT (batch_id, shard) DO
UPDATE SET total = batch_counts.total + excluded.total;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._key_holders(scope text, keys text[], at timestamp with time zone)
RETURNS TABLE(key text, job_id uuid, over boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ #variable_conflict use_column
BEGIN
RETURN QUERY
SELECT k.key, k.job_id, k.expires_at IS NOT NULL AND k.expires_at <= at
FROM rowlock.job_keys k
WHERE k.scope = _key_holders.scope AND k.key = ANY (keys);
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._known_ids(ids uuid[])
RETURNS SETOF uuid
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
RETURN QUERY
SELECT u
FROM unnest(ids) u
WHERE EXISTS (SELECT 1
FROM rowlock.jobs_live j
WHERE j.id = u) OR EXISTS (SELECT 1
FROM rowlock.jobs_finished f
WHERE f.id = u) OR EXISTS (SELECT 1
FROM rowlock.job_keys k
WHERE k.job_id = u AND k.scope <> 'id');
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._lease_part(doing text, given jsonb, part text)
RETURNS uuid
LANGUAGE plpgsql IMMUTABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE found uuid := rowlock._uuid(given ->> part);
BEGIN IF found IS NULL THEN
PERFORM rowlock._refuse(format('%s: each element needs %s, a UUID; not %s', doing, part, rowlock._shown(CAST(given AS text))), 'Write it like {"job_id": "…", "token": "…"}, as rowlock.claim answered them.');
END IF;
RETURN found;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._make_sources(names text[])
RETURNS void
LANGUAGE sql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
INSERT INTO rowlock.sources (name, created_at)
SELECT wanted.name, rowlock._clock()
FROM (SELECT n AS name
FROM unnest(names) n
UNION
SELECT split_part(n, ':', 1)
FROM unnest(names) n) wanted
WHERE NOT EXISTS (SELECT 1
FROM rowlock.sources s
WHERE s.name = wanted.name)
ORDER BY wanted.name
ON CONFLICT (name) DO NOTHING;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._moment(value text)
RETURNS timestamp with time zone
LANGUAGE plpgsql STABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE found timestamptz;
BEGIN IF value !~* '^\d{4}-\d\d-\d\d[T ].*(Z|[+-]\d\d(:?\d\d)?)$' THEN
RETURN NULL;
END IF;
found := CAST(value AS timestamptz);
RETURN CASE WHEN found >= '1970-01-01Z' AND found < '2200-01-01Z' THEN found END;
EXCEPTION WHEN data_exception THEN
RETURN NULL;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._new_token()
RETURNS uuid
LANGUAGE sql
AS $function$SELECT pg_catalog.gen_random_uuid()$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._options(doing text, given jsonb)
RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE kept jsonb := '{}';
option text;
value jsonb;
kind text;
plain text;
number numeric;
fits boolean;
wanted text;
BEGIN IF jsonb_typeof(given) IS DISTINCT
FROM 'object' THEN
PERFORM rowlock._refuse(format('%s: options must be a JSON object, not %s', doing, rowlock._shown(CAST(given AS text))), 'Write them like {"queue": "mail", "delay": 60}.');
END IF;
FOR option, value IN
SELECT *
FROM jsonb_each(given) LOOP CONTINUE WHEN value = 'null';
kind := jsonb_typeof(value);
plain := CASE WHEN kind = 'string' THEN value #>> '{}' END;
number := CASE WHEN kind = 'number' THEN CAST(value #>> '{}' AS numeric) END;
fits := TRUE;
CASE option WHEN 'queue', 'owner' THEN fits := rowlock._is_name(plain);
wanted := 'a string of 1–200 characters without control characters';
WHEN 'priority' THEN fits := number = trunc(number) AND number BETWEEN -100 AND 100;
wanted := 'a whole number from -100 (first) to 100';
WHEN 'max_attempts' THEN fits := number = trunc(number) AND number BETWEEN 1 AND 1000000;
wanted := 'a whole number from 1 to 1000000';
WHEN 'timeout_seconds', 'keep_seconds', 'delay', 'window' THEN fits := number BETWEEN 0 AND 3200000000;
wanted := 'a number of seconds from 0 to 3200000000 (100 years)';
WHEN 'backoff' THEN value := rowlock._backoff(value);
fits := value IS NOT NULL;
wanted := 'like {"kind": "fixed", "base": 60} or {"kind": "exponential", "base": 10, "cap": 86400,' ' "factor": 2}, in seconds up to 100 years and with a factor from 1 to 100';
WHEN 'source' THEN fits := rowlock._is_source(plain);
wanted := 'named like api:ebay or domain:example.com';
WHEN 'on_success', 'on_dead' THEN value := rowlock._follow_up(doing, option, value);
WHEN 'on_lost' THEN CONTINUE WHEN plain = 'retry';
fits := plain = 'dead';
wanted := '"retry" or "dead"';
WHEN 'tags' THEN CONTINUE WHEN value = '[]';
fits := kind = 'array' AND NOT EXISTS (SELECT 1
FROM jsonb_array_elements(CASE WHEN kind = 'array' THEN value
ELSE '[]' END) one
WHERE jsonb_typeof(one) <> 'string' OR NOT rowlock._is_name(one #>> '{}'));
wanted := 'a list of strings of 1–200 characters without control characters';
WHEN 'batch_id' THEN fits := rowlock._uuid(plain) IS NOT NULL;
wanted := 'the id of a batch, a UUID';
WHEN 'parent_id' THEN fits := rowlock._uuid(plain) IS NOT NULL;
wanted := 'the id of the job that makes it, a UUID';
WHEN 'unique' THEN fits := plain IN ('until_done', 'while_queued', 'forever', 'window');
wanted := '"until_done", "while_queued", "forever", or "window" together with "window": seconds';
WHEN 'run_after', 'expires_at' THEN fits := rowlock._moment(plain) IS NOT NULL;
wanted := 'a time with its zone in the years from 1970 to 2199, like "2031-05-01T12:00:00Z"';
WHEN 'traceparent' THEN fits := plain ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$';
wanted := 'a W3C traceparent, like "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"';
ELSE
PERFORM rowlock._refuse(format('%s: no option %s', doing, quote_ident(option)), 'There are queue, priority, max_attempts, backoff, timeout_seconds, source, on_success, on_dead,' ' on_lost, keep_seconds, owner, tags, batch_id, unique, window, delay, run_after, expires_at, traceparent, parent_id; for' ' one job also key, job_id and under.', 'RL002');
END CASE;
IF fits IS NOT TRUE THEN
PERFORM rowlock._refuse(format('%s: %s must be %s; not %s', doing, option, wanted, rowlock._shown(CAST(given -> option AS text))), 'See the options of rowlock.enqueue in the reference of the SQL functions.');
END IF;
kept := kept || jsonb_build_object(option, value);
END LOOP;
IF kept ? 'delay' AND kept ? 'run_after' THEN
PERFORM rowlock._refuse(format('%s: delay and run_after are both given', doing), 'Give one of them: both say when the job may start.');
END IF;
IF coalesce(kept ->> 'unique' = 'window', FALSE) <> (coalesce(CAST(kept ->> 'window' AS numeric), 0) > 0) THEN
PERFORM rowlock._refuse(format('%s: unique "window" and the option window belong together', doing), 'Give {"unique": "window", "window": seconds}, with more than 0 seconds.');
END IF;
RETURN kept;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._probes(source text, at timestamp with time zone)
RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
RETURN EXISTS (SELECT 1
FROM rowlock.sources s JOIN rowlock.jobs_live j ON j.id = s.probe_job
WHERE s.name = _probes.source AND j.lease_token = s.probe_token AND j.state = 'running' AND (SELECT 1
FROM rowlock.set_aside a
WHERE a.id = j.id AND coalesce(a.again_at > at, TRUE)) IS NULL);
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._promote(n integer)
RETURNS integer
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE at timestamptz := rowlock._clock();
promoted integer;
BEGIN
UPDATE rowlock.jobs_live l SET ready = TRUE, updated_at = at
WHERE l.id = ANY (ARRAY(SELECT j.id
FROM rowlock.jobs_live j
WHERE NOT j.ready AND j.state <> 'running' AND j.run_after <= at AND (SELECT 1
FROM rowlock.set_aside a
WHERE a.id = j.id AND coalesce(a.again_at > at, TRUE)) IS NULL
ORDER BY j.run_after LIMIT n FOR
UPDATE SKIP LOCKED));
GET DIAGNOSTICS promoted = ROW_COUNT;
RETURN promoted;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._read_follow_up(stored json, args json, ended text)
RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE o jsonb;
BEGIN o := CAST(stored AS jsonb);
IF jsonb_typeof(o) <> 'object' OR jsonb_typeof(o -> 'task') IS DISTINCT
FROM 'string' THEN
PERFORM rowlock._refuse('enqueue: it names no task', 'Store {"task": "name"}.');
ELSIF jsonb_strip_nulls(o) ?| ARRAY['batch_id', 'unique', 'window', 'parent_id'] THEN
PERFORM rowlock._refuse('enqueue: it has an option that no follow-up has', 'Leave that option out.');
ELSIF jsonb_path_exists(o, '$.**.on_success ? (@.type() == "string")') OR jsonb_path_exists(o, '$.**.on_dead ? (@.type() == "string")') THEN
PERFORM rowlock._refuse('enqueue: a follow-up of its own is stored as text', 'Store {"task": "name"}.');
ELSIF rowlock._has_long_number(args) THEN
PERFORM rowlock._refuse('enqueue: it would be given a number of more than 4300 digits', 'Give it as text.');
END IF;
PERFORM rowlock._check_task('enqueue', o ->> 'task');
IF o - 'task' - 'bare' = '{}' THEN o := coalesce((SELECT CAST(t.options AS jsonb)
FROM rowlock.tasks t
WHERE t.name = o ->> 'task'), '{}') || o;
END IF;
RETURN rowlock._options('enqueue', o - 'task' - 'bare') || jsonb_build_object('task', o -> 'task', 'bare', coalesce(o -> 'bare' = 'true', FALSE));
EXCEPTION WHEN data_exception OR program_limit_exceeded OR statement_too_complex OR SQLSTATE 'RL001' OR SQLSTATE 'RL002' OR SQLSTATE 'RL003' THEN RAISE WARNING 'rowlock: % has a follow-up that cannot be understood, and gets none: %', ended, SQLERRM;
RETURN NULL;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._readable(value json)
RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
RETURN CAST(value AS jsonb);
EXCEPTION WHEN data_exception THEN
RETURN NULL;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._ready_tasks(of_queue text)
RETURNS SETOF text
LANGUAGE sql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ WITH RECURSIVE plain (task) AS (SELECT ''
UNION ALL
SELECT (SELECT j.task
FROM rowlock.jobs_live j
WHERE j.ready AND j.source IS NULL AND j.queue = of_queue AND j.task > plain.task
ORDER BY j.queue, j.task, j.priority, j.id LIMIT 1)
FROM plain
WHERE plain.task IS NOT NULL), sourced (task) AS (SELECT ''
UNION ALL
SELECT (SELECT j.task
FROM rowlock.jobs_live j
WHERE j.ready AND j.source IS NOT NULL AND j.queue = of_queue AND j.task > sourced.task
ORDER BY j.queue, j.task, j.priority, j.source, j.id LIMIT 1)
FROM sourced
WHERE sourced.task IS NOT NULL)
SELECT task
FROM plain
WHERE task <> ''
UNION
SELECT task
FROM sourced
WHERE task <> '' $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._refuse(message text, hint text, code text DEFAULT 'RL001'::text)
RETURNS void
LANGUAGE plpgsql
AS $function$
BEGIN RAISE
EXCEPTION USING MESSAGE = 'rowlock.' || message, HINT = hint, ERRCODE = code;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._require_read_committed(what text)
RETURNS void
LANGUAGE plpgsql STABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
PERFORM rowlock._refuse(format('%s: the transaction is %s', what, current_setting('transaction_isolation')), 'Call it under READ COMMITTED: what it counts must be younger than its locks.');
END IF;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._seconds(doing text, given jsonb, option text)
RETURNS double precision
LANGUAGE plpgsql IMMUTABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE value jsonb := given -> option;
BEGIN IF value IS NULL OR value = 'null' THEN
RETURN NULL;
END IF;
IF jsonb_typeof(value) <> 'number' OR CAST(value #>> '{}' AS numeric) NOT BETWEEN 0 AND 3200000000 THEN
PERFORM rowlock._refuse(format('%s: %s must be a number of seconds from 0 to 3200000000 (100 years); not %s', doing, option, rowlock._shown(CAST(value AS text))), 'Give seconds as a JSON number.');
END IF;
RETURN CAST(value #>> '{}' AS double precision);
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._seen(worker text, tasks text[], queues text[], lease double precision)
RETURNS void
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE moment timestamptz := rowlock._clock();
BEGIN IF EXISTS (SELECT 1
FROM rowlock.workers w
WHERE w.id = worker AND w.seen_at BETWEEN moment - interval '10 seconds' AND moment) THEN
RETURN;
END IF;
INSERT INTO rowlock.workers (id, hostname, pid, version, queues, tasks, pool_size, started_at, seen_at, expires_at)
VALUES (worker, coalesce(host(inet_client_addr()), 'local'), pg_backend_pid(), 'sql', to_json(coalesce(queues, '{}')), to_json(coalesce(tasks, '{}')), 1, moment, moment, moment + greatest(lease, 60) * interval '1 second')
ON CONFLICT (id) DO
UPDATE SET seen_at = excluded.seen_at, expires_at = excluded.expires_at, queues = CASE WHEN _seen.queues IS NULL THEN workers.queues
ELSE excluded.queues END, tasks = CASE WHEN _seen.tasks IS NULL THEN workers.tasks
ELSE excluded.tasks END;
IF current_setting('transaction_isolation') <> 'read committed' THEN
RETURN;
END IF;
BEGIN IF rowlock._sum_up(5000) > 0 THEN
DELETE
FROM rowlock.rollups
WHERE ctid = ANY (ARRAY((SELECT r.ctid
FROM rowlock.rollups r
WHERE r.seconds = 60 AND r.at < moment - interval '26 hours' LIMIT 1000)
UNION ALL (SELECT r.ctid
FROM rowlock.rollups r
WHERE r.seconds = 3600 AND r.at < moment - interval '35 days' LIMIT 1000)));
END IF;
EXCEPTION WHEN insufficient_privilege THEN NULL;
END;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._settle(ends rowlock._ending[], by_holder boolean)
RETURNS TABLE(job_id uuid, answer text)
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ #variable_conflict use_column
DECLARE at timestamptz := rowlock._clock();
steps rowlock._step[];
back rowlock._step[];
BEGIN steps := ARRAY(SELECT rowlock._decide(held.j, e.e, by_holder)
FROM (SELECT DISTINCT ON (u.job_id, u.token) CAST(u AS rowlock._ending) AS e
FROM unnest(ends) u
ORDER BY u.job_id, u.token, u.nth) e
CROSS JOIN LATERAL (SELECT j
FROM rowlock.jobs_live j
WHERE j.id = (e.e).job_id AND j.lease_token = (e.e).token AND j.state = 'running' LIMIT 1 FOR
UPDATE) held);
IF cardinality(steps) > 0 THEN
INSERT INTO rowlock.attempts (job_id, attempt, outcome, worker, started_at, finished_at, error_code, error_message)
SELECT s.id, s.attempt, s.outcome, s.worker, s.locked_at, at, s.error_code, s.error_message
FROM unnest(steps) s
WHERE s.attempt > 0
ON CONFLICT (job_id, attempt) DO NOTHING;
back := ARRAY(SELECT s
FROM unnest(steps) s
WHERE s.state IN ('queued', 'retryable'));
IF cardinality(back) > 0 THEN
UPDATE rowlock.jobs_live j SET state = s.state, ready = s.delay <= 0, run_after = at + s.delay * interval '1 second', releases = j.releases + s.released, losses = j.losses + s.lost, convictions = j.convictions + s.convicted, losses_in_row = CASE WHEN s.lost > 0 THEN j.losses_in_row + 1
ELSE 0 END, probation = CASE WHEN s.lost = 0 THEN greatest(j.probation - 1, 0) WHEN j.losses_in_row > 0 THEN j.probation WHEN j.probation > 0 THEN 200
ELSE 100 END, sigterms_in_row = CASE WHEN s.lost > 0 THEN j.sigterms_in_row
ELSE 0 END, disconnects_in_row = CASE WHEN s.lost > 0 THEN j.disconnects_in_row
ELSE 0 END, error_code = s.error_code, error_message = s.error_message, settled_token = CASE WHEN by_holder THEN j.lease_token
ELSE j.settled_token END, lease_token = NULL, locked_by = NULL, locked_at = NULL, heartbeat_at = NULL, lease_expires_at = NULL, published = NULL, progress = NULL, phase = NULL, message = NULL, result_uri = NULL, result_checksum = NULL, updated_at = at
FROM unnest(back) s
WHERE j.id = s.id AND j.id = ANY (ARRAY(SELECT b.id
FROM unnest(back) b));
END IF;
PERFORM rowlock._finish(ARRAY(SELECT s
FROM unnest(steps) s
WHERE s.state NOT IN ('queued', 'retryable')), by_holder);
PERFORM rowlock._tell_failures(steps);
END IF;
RETURN QUERY
SELECT e.job_id, CASE WHEN s.id IS NOT NULL THEN 'applied'
ELSE rowlock._why_not(e.job_id, e.token) END
FROM unnest(ends) e
LEFT JOIN unnest(steps) s ON s.id = e.job_id AND s.token = e.token;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._shown(value text)
RETURNS text
LANGUAGE sql IMMUTABLE
AS $function$
SELECT coalesce(pg_catalog.left(value, 200), 'NULL') $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._sum_up(n integer)
RETURNS integer
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE moved integer;
BEGIN IF NOT pg_try_advisory_xact_lock(hashtext('rowlock.tallies')) THEN
RETURN 0;
END IF;
WITH taken AS (DELETE
FROM rowlock.tallies
WHERE ctid = ANY (ARRAY(SELECT y.ctid
FROM rowlock.tallies y LIMIT n FOR
UPDATE SKIP LOCKED))
RETURNING *), minutes_and_hours AS (INSERT INTO rowlock.rollups AS r
SELECT p.seconds, date_bin(p.seconds * interval '1 second', t.at, '2000-01-01Z') AS began, t.queue, t.task, t.what, t.run_bucket, t.wait_bucket, sum(t.number), sum(t.run_seconds), sum(t.wait_seconds)
FROM taken t
CROSS JOIN (VALUES (60), (3600)) AS p (seconds) GROUP BY p.seconds, began, t.queue, t.task, t.what, t.run_bucket, t.wait_bucket
ON CONFLICT (seconds, at, queue, task, what, run_bucket, wait_bucket) DO
UPDATE SET number = r.number + excluded.number, run_seconds = r.run_seconds + excluded.run_seconds, wait_seconds = r.wait_seconds + excluded.wait_seconds), totals AS (INSERT INTO rowlock.counters AS c
SELECT t.queue, t.task, t.what, t.run_bucket, t.wait_bucket, sum(t.number), sum(t.run_seconds), sum(t.wait_seconds)
FROM taken t GROUP BY t.queue, t.task, t.what, t.run_bucket, t.wait_bucket
ON CONFLICT (queue, task, what, run_bucket, wait_bucket) DO
UPDATE SET number = c.number + excluded.number, run_seconds = c.run_seconds + excluded.run_seconds, wait_seconds = c.wait_seconds + excluded.wait_seconds)
SELECT count(*) INTO moved
FROM taken;
RETURN moved;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._sweep_if_needed(guard double precision)
RETURNS void
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE at timestamptz := rowlock._clock();
BEGIN IF (SELECT 1
FROM rowlock.jobs_live j
WHERE j.state = 'running' AND j.lease_expires_at < at
ORDER BY j.id LIMIT 1) IS NOT NULL OR (SELECT 1
FROM rowlock.jobs_live j
WHERE j.expires_at IS NOT NULL AND j.state <> 'running' AND j.expires_at <= at
ORDER BY j.expires_at LIMIT 1) IS NOT NULL OR (SELECT 1
FROM rowlock.batches b
WHERE b.finished_at IS NULL AND b.sealed_at IS NOT NULL
ORDER BY b.id LIMIT 1) IS NOT NULL THEN
PERFORM rowlock.sweep(100, guard);
ELSE
PERFORM rowlock._promote(1000);
END IF;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._take(picked uuid[], admissions rowlock._admission[], worker text, token uuid, lease double precision, at timestamp with time zone)
RETURNS void
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE queued uuid[];
batches uuid[];
sources text[];
BEGIN WITH claimed AS (UPDATE rowlock.jobs_live j SET state = 'running', ready = FALSE, attempt = j.attempt + 1, lease_token = token, locked_by = worker, locked_at = at, heartbeat_at = at, lease_expires_at = at + lease * interval '1 second', started_at = at, updated_at = at, source_epoch = CASE WHEN j.source IS NULL THEN j.source_epoch
ELSE (SELECT a.epoch
FROM unnest(admissions) a
WHERE a.source = j.source) END
WHERE j.id = ANY (picked) AND j.ready
RETURNING j.id, j.unique_mode, j.batch_id, j.source)
SELECT array_agg(c.id) FILTER (WHERE c.unique_mode = 'while_queued'), array_agg(DISTINCT c.batch_id) FILTER (WHERE c.batch_id IS NOT NULL), array_agg(c.source) FILTER (WHERE c.source IS NOT NULL) INTO queued, batches, sources
FROM claimed c;
IF sources IS NOT NULL THEN
UPDATE rowlock.sources s SET tokens = CASE WHEN spent.level IS NULL THEN s.tokens
ELSE spent.level - spent.count END, tokens_at = CASE WHEN spent.level IS NULL THEN s.tokens_at
ELSE greatest(coalesce(s.tokens_at, at), at) END, probe_job = CASE WHEN spent.probe THEN (SELECT j.id
FROM rowlock.jobs_live j
WHERE j.id = ANY (picked) AND j.source = s.name AND j.lease_token = token LIMIT 1)
ELSE s.probe_job END, probe_token = CASE WHEN spent.probe THEN token
ELSE s.probe_token END
FROM (SELECT a.source, a.level, a.probe, count(*) AS count
FROM unnest(admissions) a JOIN unnest(sources) u ON u = a.source
WHERE a.level IS NOT NULL OR a.probe GROUP BY a.source, a.level, a.probe) spent
WHERE s.name = spent.source AND s.name = ANY (sources);
END IF;
IF queued IS NOT NULL THEN
DELETE
FROM rowlock.job_keys k
WHERE k.mode = 'while_queued' AND k.job_id = ANY (queued);
END IF;
IF batches IS NOT NULL THEN
UPDATE rowlock.batches b SET state = 'running', started_at = coalesce(b.started_at, at)
WHERE b.id = ANY (batches) AND b.state = 'queued';
END IF;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._take_ids(ids uuid[])
RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE taken uuid[];
BEGIN WITH reserved AS (INSERT INTO rowlock.job_keys (scope, key, job_id, mode)
SELECT 'id', CAST(u.id AS text), u.id, 'id'
FROM unnest(ids) AS u (id)
ORDER BY u.id
ON CONFLICT ON CONSTRAINT job_keys_pkey DO NOTHING
RETURNING job_keys.job_id)
SELECT array_agg(r.job_id) INTO taken
FROM reserved r;
RETURN QUERY
SELECT t
FROM unnest(taken) t
WHERE t NOT IN (SELECT known
FROM rowlock._known_ids(taken) known);
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._take_keys(scope text, o jsonb, rows rowlock._new_row[])
RETURNS TABLE(key text, job_id uuid)
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ #variable_conflict use_column
DECLARE wanted rowlock._new_row[] := rows;
held jsonb := '{}';
at timestamptz := rowlock._clock();
ends timestamptz := at + CAST(o ->> 'window' AS double precision) * interval '1 second';
BEGIN FOR try IN 1..5 LOOP WITH taken AS (SELECT t AS key
FROM rowlock._hold_keys(scope, ARRAY(SELECT w.key
FROM unnest(wanted) w
ORDER BY w.key), ARRAY(SELECT w.id
FROM unnest(wanted) w
ORDER BY w.key), o ->> 'unique', ends) t)
SELECT held || coalesce(jsonb_object_agg(w.key, w.id), '{}') INTO held
FROM unnest(wanted) w JOIN taken ON taken.key = w.key;
wanted := ARRAY(SELECT w
FROM unnest(wanted) w
WHERE NOT held ? w.key);
EXIT WHEN cardinality(wanted) = 0;
SELECT held || coalesce(jsonb_object_agg(k.key, k.job_id), '{}') INTO held
FROM rowlock._key_holders(scope, ARRAY(SELECT w.key
FROM unnest(wanted) w), at) k
WHERE NOT k.over;
wanted := ARRAY(SELECT w
FROM unnest(wanted) w
WHERE NOT held ? w.key);
EXIT WHEN cardinality(wanted) = 0;
PERFORM rowlock._clear_keys(scope, ARRAY(SELECT w.key
FROM unnest(wanted) w), at);
END LOOP;
IF cardinality(wanted) > 0 THEN
PERFORM rowlock._refuse(format('enqueue: key %s is taken and let go all the time', quote_literal(wanted[1].key)), 'Try again.', 'RL005');
END IF;
RETURN QUERY
SELECT h.key, CAST(h.value AS uuid)
FROM jsonb_each_text(held) h;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._tell_end(steps rowlock._step[])
RETURNS void
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE at timestamptz := rowlock._clock();
ids uuid[] := ARRAY(SELECT s.id
FROM unnest(steps) s
WHERE s.unique_mode IS NOT NULL);
batches uuid[] := ARRAY(SELECT DISTINCT s.batch_id
FROM unnest(steps) s
WHERE s.batch_id IS NOT NULL);
one rowlock._step;
job rowlock.jobs_finished;
BEGIN IF cardinality(ids) > 0 THEN
DELETE
FROM rowlock.job_keys k
WHERE k.job_id = ANY (ids) AND (k.mode IN ('until_done', 'while_queued') OR k.mode = 'forever' AND steps[1].state <> 'succeeded');
END IF;
IF cardinality(batches) > 0 THEN
INSERT INTO rowlock.batch_counts (batch_id, shard, processed, failed, cancelled, expired, last_error, last_error_at)
SELECT c.batch_id, pg_backend_pid() % 16, count(*), count(*) FILTER (WHERE c.failed), count(*) FILTER (WHERE c.state = 'cancelled' AND NOT c.expired), count(*) FILTER (WHERE c.expired), (array_agg(c.error
ORDER BY c.nth DESC) FILTER (WHERE c.failed AND c.error IS NOT NULL))[1], CASE WHEN bool_or(c.failed AND c.error IS NOT NULL) THEN at END
FROM (SELECT s.batch_id, s.state, row_number() OVER () AS nth, s.state = 'cancelled' AND coalesce(s.error_code = 'EXPIRED', FALSE) AS expired, s.state = 'dead' OR s.state = 'cancelled' AND coalesce(s.error_code = 'EXPIRED', FALSE) AS failed, nullif(concat_ws(': ', s.error_code, s.error_message), '') AS error
FROM unnest(steps) s
WHERE s.batch_id IS NOT NULL) c GROUP BY c.batch_id
ORDER BY c.batch_id
ON CONFLICT (batch_id, shard) DO
UPDATE SET processed = batch_counts.processed + excluded.processed, failed = batch_counts.failed + excluded.failed, cancelled = batch_counts.cancelled + excluded.cancelled, expired = batch_counts.expired + excluded.expired, last_error = coalesce(excluded.last_error, batch_counts.last_error), last_error_at = coalesce(excluded.last_error_at, batch_counts.last_error_at);
END IF;
FOREACH one IN ARRAY steps LOOP CONTINUE WHEN one.follow_up IS NULL;
SELECT f.* INTO job
FROM rowlock.jobs_finished f
WHERE f.id = one.id;
PERFORM rowlock._add_follow_up(one.follow_up, jsonb_build_object('owner', job.owner, 'traceparent', job.traceparent, 'parent_id', job.id), json_build_object('finished', json_build_object('job_id', job.id, 'task', job.task, 'owner', job.owner, 'state', job.state, 'attempt', job.attempt, 'args', job.args, 'result', job.result, 'error_code', job.error_code, 'error_message', job.error_message)), format('job %s', job.id));
END LOOP;
IF cardinality(batches) > 0 THEN
PERFORM rowlock._end_batches(batches);
END IF;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._tell_failures(steps rowlock._step[])
RETURNS void
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE at timestamptz := rowlock._clock();
names text[] := ARRAY(SELECT DISTINCT t.source
FROM unnest(steps) t
WHERE t.source IS NOT NULL AND (t.fault IS NOT NULL OR t.retry_after IS NOT NULL)
ORDER BY 1);
this text;
s rowlock._step;
h rowlock.sources;
c rowlock.sources;
BEGIN IF cardinality(names) = 0 THEN
RETURN;
END IF;
PERFORM rowlock._make_sources(names);
PERFORM 1
FROM rowlock.sources x
WHERE x.name = ANY (names)
ORDER BY x.name FOR
UPDATE;
FOREACH this IN ARRAY names LOOP
SELECT x.* INTO h
FROM rowlock.sources x
WHERE x.name = this;
SELECT x.* INTO c
FROM rowlock.sources x
WHERE x.name = split_part(this, ':', 1);
FOREACH s IN ARRAY steps LOOP CONTINUE WHEN s.source IS DISTINCT
FROM this;
IF s.retry_after > 0 THEN h.paused_until := greatest(h.paused_until, at + s.retry_after * interval '1 second');
END IF;
IF s.fault = 'source' THEN h.last_failure_at := at;
h.last_error := coalesce(nullif(concat_ws(': ', s.error_code, s.error_message), ''), h.last_error);
ELSIF s.fault = 'refusal' THEN h.refused_at := at;
h.refusal_code := coalesce(s.error_code, h.refusal_code);
END IF;
CONTINUE WHEN s.source_epoch <> h.epoch;
IF s.fault = 'source' THEN h.failure_streak := h.failure_streak + 1;
IF h.opened_at IS NOT NULL OR h.failure_streak >= coalesce(h.failure_threshold, c.failure_threshold, 5) THEN h.paused_until := greatest(at + interval '1 second' * least(coalesce(h.cooldown_seconds, c.cooldown_seconds, 300) * power(coalesce(h.cooldown_factor, c.cooldown_factor, 1), least(h.opens, 50)), 86400), h.paused_until);
h.opened_at := coalesce(h.opened_at, at);
h.opens := h.opens + 1;
h.epoch := h.epoch + 1;
END IF;
ELSIF s.fault = 'refusal' THEN h.refusals := h.refusals + 1;
h.enabled := h.enabled AND NOT coalesce(h.refusals >= coalesce(h.block_after, c.block_after), FALSE);
END IF;
END LOOP;
UPDATE rowlock.sources x SET failure_streak = h.failure_streak, opens = h.opens, refusals = h.refusals, enabled = h.enabled, opened_at = h.opened_at, epoch = h.epoch, last_failure_at = h.last_failure_at, last_error = h.last_error, refused_at = h.refused_at, refusal_code = h.refusal_code, paused_until = h.paused_until, probe_job = CASE WHEN x.epoch = h.epoch THEN x.probe_job END, probe_token = CASE WHEN x.epoch = h.epoch THEN x.probe_token END, paused_at = CASE WHEN x.paused_until IS DISTINCT
FROM h.paused_until THEN at
ELSE x.paused_at END
WHERE x.name = this;
END LOOP;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._tell_success(steps rowlock._step[])
RETURNS void
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE at timestamptz := rowlock._clock();
names text[] := ARRAY(SELECT x.name
FROM rowlock.sources x
WHERE x.name = ANY (ARRAY(SELECT t.source
FROM unnest(steps) t
WHERE t.source IS NOT NULL)) AND (x.failure_streak > 0 OR x.refusals > 0 OR x.opened_at IS NOT NULL OR x.last_success_at IS NULL OR x.last_success_at <= at - interval '1 second')
ORDER BY x.name FOR
UPDATE);
BEGIN IF cardinality(names) = 0 THEN
RETURN;
END IF;
UPDATE rowlock.sources x SET failure_streak = 0, refusals = 0, last_success_at = at, epoch = x.epoch + CASE WHEN x.opened_at IS NULL THEN 0
ELSE 1 END, paused_until = CASE WHEN x.opened_at IS NULL OR x.paused_until > at THEN x.paused_until END, opened_at = NULL, opens = 0, probe_job = NULL, probe_token = NULL
WHERE x.name = ANY (names) AND EXISTS (SELECT 1
FROM unnest(steps) t
WHERE t.source = x.name AND t.source_epoch = x.epoch);
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._uuid(value text)
RETURNS uuid
LANGUAGE sql IMMUTABLE
AS $function$
SELECT CASE WHEN value OPERATOR(pg_catalog.~*) '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$' THEN CAST(value AS pg_catalog.uuid) END $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock._why_not(job uuid, token uuid)
RETURNS text
LANGUAGE sql STABLE SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT CASE WHEN EXISTS (SELECT 1
FROM rowlock.jobs_live j
WHERE j.id = job AND j.settled_token = token) OR EXISTS (SELECT 1
FROM rowlock.jobs_finished f
WHERE f.id = job AND f.settled_token = token) THEN 'duplicate'
ELSE 'lost' END $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.cancel(job_id uuid)
RETURNS text
LANGUAGE sql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT coalesce((SELECT c.answer
FROM rowlock.cancel_many(ARRAY[job_id]) c), 'missing') $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.cancel_many(job_ids uuid[])
RETURNS TABLE(job_id uuid, answer text)
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ #variable_conflict use_column
DECLARE at timestamptz := rowlock._clock();
ids uuid[] := ARRAY(SELECT DISTINCT u
FROM unnest(job_ids) u
WHERE u IS NOT NULL
ORDER BY u);
ended rowlock._step[] := '{}';
running uuid[] := '{}';
remote uuid[] := '{}';
workers text[] := '{}';
j rowlock.jobs_live;
BEGIN FOR j IN
SELECT l.*
FROM rowlock.jobs_live l
WHERE l.id = ANY (ids)
ORDER BY l.id FOR
UPDATE LOOP IF j.state = 'running' AND j.published IS NULL THEN running := running || j.id;
workers := workers || j.locked_by;
CONTINUE;
END IF;
ended := ended || rowlock._cancelled(j, 'CANCELLED', NULL);
IF j.state = 'running' THEN remote := remote || j.id;
END IF;
END LOOP;
IF cardinality(remote) > 0 THEN
INSERT INTO rowlock.attempts (job_id, attempt, outcome, worker, started_at, finished_at, error_code)
SELECT l.id, l.attempt, 'cancelled', l.locked_by, l.locked_at, at, 'CANCELLED'
FROM rowlock.jobs_live l
WHERE l.id = ANY (remote) AND l.attempt > 0
ON CONFLICT (job_id, attempt) DO NOTHING;
DELETE
FROM rowlock.outbox o
WHERE o.kind = 'request' AND o.job_id = ANY (remote);
INSERT INTO rowlock.outbox (kind, job_id, take_at)
SELECT 'cancel', u, at
FROM unnest(remote) u;
END IF;
PERFORM rowlock._finish(ended, FALSE);
IF cardinality(running) > 0 THEN
UPDATE rowlock.jobs_live l SET cancel_requested_at = coalesce(l.cancel_requested_at, at), updated_at = at
WHERE l.id = ANY (running);
PERFORM pg_notify('rowlock', 'cancel:' || w)
FROM (SELECT DISTINCT u AS w
FROM unnest(workers) u) asked;
END IF;
RETURN QUERY
SELECT asked.id, CASE WHEN asked.id = ANY (running) THEN 'cancelling' WHEN f.state = 'cancelled' THEN 'cancelled' WHEN f.state IS NOT NULL THEN 'final'
ELSE 'missing' END
FROM unnest(ids) AS asked (id)
LEFT JOIN LATERAL (SELECT x.state
FROM rowlock.jobs_finished x
WHERE x.id = asked.id LIMIT 1) f ON TRUE
ORDER BY asked.id;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.claim(worker text, tasks text[] DEFAULT NULL::text[], n integer DEFAULT 1, options jsonb DEFAULT '{}'::jsonb)
RETURNS TABLE(job_id uuid, token uuid, task text, queue text, priority integer, args json, owner text, source text, batch_id uuid, tags json, attempt integer, max_attempts integer, releases integer, losses integer, timeout_seconds double precision, lease_expires_at timestamp with time zone)
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp' SET plan_cache_mode TO 'force_generic_plan' SET enable_seqscan TO 'off' SET enable_bitmapscan TO 'off'
AS $function$ #variable_conflict use_column
DECLARE lease double precision;
queues text[];
in_queues text[];
of_tasks text[];
new_token uuid := rowlock._new_token();
taken uuid[] := '{}';
picked uuid[];
heads rowlock._head[];
horizon rowlock._head;
admissions rowlock._admission[];
at timestamptz;
low integer := -101;
low_source text := '';
other text;
BEGIN IF jsonb_typeof(options) IS DISTINCT
FROM 'object' THEN
PERFORM rowlock._refuse(format('claim: options must be a JSON object, not %s', rowlock._shown(CAST(options AS text))), 'Write them like {"queues": ["mail"], "lease_seconds": 60}.');
END IF;
SELECT min(k) INTO other
FROM jsonb_object_keys(options) k
WHERE k NOT IN ('queues', 'lease_seconds', 'sweep');
IF other IS NOT NULL THEN
PERFORM rowlock._refuse(format('claim: no option %s', quote_ident(other)), 'There are queues, lease_seconds, sweep.', 'RL002');
END IF;
lease := coalesce(rowlock._seconds('claim', options, 'lease_seconds'), 60);
PERFORM rowlock._check_worker('claim', worker, lease);
IF n IS NULL OR n NOT BETWEEN 1 AND 1000 THEN
PERFORM rowlock._refuse(format('claim: n must be from 1 to 1000, not %s', rowlock._shown(CAST(n AS text))), 'Claim no more jobs than you can run at once, and beat for each of them.');
END IF;
IF coalesce(jsonb_typeof(options -> 'queues'), 'array') NOT IN ('array', 'null') THEN
PERFORM rowlock._refuse(format('claim: queues must be a list of names, not %s', rowlock._shown(CAST(options -> 'queues' AS text))), 'Write it like {"queues": ["mail", "default"]}.');
END IF;
PERFORM rowlock._require_read_committed('claim');
queues := CASE WHEN jsonb_typeof(options -> 'queues') = 'array' THEN ARRAY(SELECT jsonb_array_elements_text(options -> 'queues'))
ELSE '{default}' END;
IF coalesce(options -> 'sweep' <> 'false', TRUE) THEN
PERFORM rowlock._sweep_if_needed(lease);
END IF;
PERFORM rowlock._seen(worker, coalesce(tasks, '{}'), queues, lease);
SELECT array_agg(lane.queue), array_agg(lane.task) INTO in_queues, of_tasks
FROM (SELECT DISTINCT u AS queue, t AS task
FROM unnest(queues) u
CROSS JOIN LATERAL (SELECT g
FROM unnest(claim.tasks) g
UNION ALL
SELECT r
FROM rowlock._ready_tasks(u) r
WHERE claim.tasks IS NULL) every (t)
WHERE NOT EXISTS (SELECT 1
FROM rowlock.queues q
WHERE q.name = u AND q.paused_at IS NOT NULL)) lane;
LOOP heads := ARRAY(SELECT h
FROM rowlock._heads(in_queues, of_tasks, low, low_source, 200) h);
IF cardinality(heads) = 0 AND cardinality(taken) = 0 AND low = -101 THEN at := rowlock._clock();
RETURN QUERY WITH found AS MATERIALIZED (SELECT front.id, front.priority
FROM unnest(in_queues, of_tasks) AS lane (queue, task)
CROSS JOIN LATERAL (SELECT j.id, j.priority
FROM rowlock.jobs_live j
WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task AND (j.expires_at IS NULL OR j.expires_at > at)
ORDER BY j.priority, j.id LIMIT n FOR
UPDATE SKIP LOCKED) front), picked AS MATERIALIZED (SELECT f.id
FROM found f
ORDER BY f.priority, f.id LIMIT n), claimed AS (UPDATE rowlock.jobs_live j SET state = 'running', ready = FALSE, attempt = j.attempt + 1, lease_token = new_token, locked_by = worker, locked_at = at, heartbeat_at = at, lease_expires_at = at + lease * interval '1 second', started_at = at, updated_at = at
WHERE j.id = ANY (ARRAY(SELECT p.id
FROM picked p)) AND j.ready
RETURNING j.*), let_go AS (DELETE
FROM rowlock.job_keys k
WHERE k.mode = 'while_queued' AND k.job_id = ANY (ARRAY(SELECT c.id
FROM claimed c
WHERE c.unique_mode = 'while_queued'))), started AS (UPDATE rowlock.batches b SET state = 'running', started_at = coalesce(b.started_at, at)
WHERE b.id = ANY (ARRAY(SELECT c.batch_id
FROM claimed c
WHERE c.batch_id IS NOT NULL)) AND b.state = 'queued')
SELECT c.id, new_token, c.task, c.queue, CAST(c.priority AS integer), c.args, c.owner, c.source, c.batch_id, c.tags, c.attempt, c.max_attempts, c.releases, c.losses, c.timeout_seconds, c.lease_expires_at
FROM claimed c
ORDER BY c.priority, c.id;
RETURN;
END IF;
horizon := NULL;
SELECT * INTO horizon
FROM unnest(heads) h
WHERE h.last
ORDER BY h.priority, h.source LIMIT 1;
IF horizon.source IS NOT NULL THEN heads := ARRAY(SELECT h
FROM unnest(heads) h
WHERE (h.priority, h.source) <= (horizon.priority, horizon.source));
END IF;
admissions := '{}';
at := rowlock._clock();
IF cardinality(heads) > 0 THEN
SELECT a.admissions, a.at INTO admissions, at
FROM rowlock._admit(ARRAY(SELECT DISTINCT h.source
FROM unnest(heads) h), cardinality(taken) = 0 AND low = -101) a;
END IF;
picked := ARRAY(WITH found AS MATERIALIZED (SELECT front.id, h.priority, h.source, a.turn, a.room, a.class_room
FROM unnest(heads) h JOIN unnest(admissions) a ON a.source = h.source
CROSS JOIN LATERAL (SELECT j.id
FROM rowlock.jobs_live j
WHERE j.ready AND j.source IS NOT NULL AND j.queue = h.queue AND j.task = h.task AND j.priority = h.priority AND j.source >= h.source AND j.source <= h.source AND (j.expires_at IS NULL OR j.expires_at > at)
ORDER BY j.priority, j.source, j.id LIMIT least(a.room, n - cardinality(taken)) FOR
UPDATE SKIP LOCKED) front
UNION ALL
SELECT front.id, front.priority, '', 0.5, 2147483647, 2147483647
FROM unnest(in_queues, of_tasks) AS lane (queue, task)
CROSS JOIN LATERAL (SELECT j.id, CAST(j.priority AS integer) AS priority
FROM rowlock.jobs_live j
WHERE j.ready AND j.source IS NULL AND j.queue = lane.queue AND j.task = lane.task AND j.priority > low AND j.priority <= coalesce(horizon.priority, 100) AND (j.expires_at IS NULL OR j.expires_at > at)
ORDER BY j.priority, j.id LIMIT n - cardinality(taken) FOR
UPDATE SKIP LOCKED) front), placed AS (SELECT f.*, row_number() OVER (PARTITION BY f.source
ORDER BY f.priority, f.id) AS of_source, row_number() OVER (PARTITION BY f.priority, f.source
ORDER BY f.id) AS round
FROM found f), in_class AS (SELECT p.*, row_number() OVER (PARTITION BY split_part(p.source, ':', 1)
ORDER BY p.priority, p.round, p.turn, p.source) AS of_class
FROM placed p
WHERE p.of_source <= p.room)
SELECT c.id
FROM in_class c
WHERE c.source = '' OR c.of_class <= c.class_room
ORDER BY c.priority, c.round, c.turn, c.source, c.id LIMIT n - cardinality(taken));
IF cardinality(picked) > 0 THEN
PERFORM rowlock._take(picked, admissions, worker, new_token, lease, at);
taken := taken || picked;
END IF;
EXIT WHEN cardinality(taken) >= n OR horizon.source IS NULL;
low := horizon.priority;
low_source := horizon.source;
END LOOP;
RETURN QUERY
SELECT j.id, new_token, j.task, j.queue, CAST(j.priority AS integer), j.args, j.owner, j.source, j.batch_id, j.tags, j.attempt, j.max_attempts, j.releases, j.losses, j.timeout_seconds, j.lease_expires_at
FROM rowlock.jobs_live j
WHERE j.id = ANY (taken)
ORDER BY j.priority, j.id;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.claim_next_pending_job(worker text)
RETURNS TABLE(job_id uuid, token uuid, task text, queue text, priority integer, args json, owner text, source text, batch_id uuid, tags json, attempt integer, max_attempts integer, releases integer, losses integer, timeout_seconds double precision, lease_expires_at timestamp with time zone)
LANGUAGE sql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT *
FROM rowlock.claim(worker, NULL, 1) $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.complete(job_id uuid, token uuid, result jsonb DEFAULT NULL::jsonb, result_uri text DEFAULT NULL::text, result_checksum text DEFAULT NULL::text)
RETURNS text
LANGUAGE sql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT c.answer
FROM rowlock.complete_many(jsonb_build_array(jsonb_build_object('job_id', job_id, 'token', token) || CASE WHEN result IS NULL THEN '{}'
ELSE jsonb_build_object('result', result) END || CASE WHEN result_uri IS NULL AND result_checksum IS NULL THEN '{}'
ELSE jsonb_build_object('result_uri', result_uri, 'result_checksum', result_checksum) END)) c $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.complete_many(jobs jsonb)
RETURNS TABLE(job_id uuid, answer text)
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ #variable_conflict use_column
DECLARE at timestamptz := rowlock._clock();
ends rowlock._success[];
bad rowlock._success;
ids uuid[];
keys uuid[];
marked rowlock._step[];
usual CONSTANT text := '________-____-____-____-____________';
BEGIN
BEGIN ends := ARRAY(SELECT CAST(ROW(one.nth, CASE WHEN one.job ->> 'job_id' LIKE usual THEN CAST(one.job ->> 'job_id' AS uuid) END, CASE WHEN one.job ->> 'token' LIKE usual THEN CAST(one.job ->> 'token' AS uuid) END, one.job -> 'result', one.job ->> 'result_uri', CASE WHEN one.job ->> 'result_checksum' ~ '^[0-9a-fA-F]{64}$' THEN 'sha256:' || lower(one.job ->> 'result_checksum')
ELSE one.job ->> 'result_checksum' END) AS rowlock._success)
FROM rowlock._elements('complete', jobs, ARRAY['job_id', 'token', 'result', 'result_uri', 'result_checksum']) WITH ORDINALITY AS one (job, nth));
EXCEPTION WHEN invalid_text_representation THEN ends := NULL;
END;
IF ends IS NULL OR EXISTS (SELECT 1
FROM unnest(ends) e
WHERE e.job_id IS NULL OR e.token IS NULL) THEN
PERFORM rowlock._lease_part('complete', one, 'job_id'), rowlock._lease_part('complete', one, 'token')
FROM jsonb_array_elements(jobs) one;
END IF;
SELECT e.* INTO bad
FROM unnest(ends) e
WHERE octet_length(CAST(e.result AS text)) > 65536 OR rowlock._has_long_number(e.result) OR (e.result_uri IS NULL) <> (e.result_checksum IS NULL) OR octet_length(e.result_uri) > 4096 OR e.result_checksum !~ '^sha256:[0-9a-fA-F]{64}$' LIMIT 1;
IF octet_length(CAST(bad.result AS text)) > 65536 THEN
PERFORM rowlock._refuse(format('complete: the result of job %s has %s bytes, more than 65536', bad.job_id, octet_length(CAST(bad.result AS text))), 'Store it elsewhere and give its address as result_uri.', 'RL003');
ELSIF rowlock._has_long_number(bad.result) THEN
PERFORM rowlock._refuse(format('complete: the result of job %s holds a number of more than 4300 digits, which Python does not parse', bad.job_id), 'Give it as text.');
ELSIF bad.job_id IS NOT NULL THEN
PERFORM rowlock._refuse(format('complete: the result address of job %s needs an address and a checksum, not %s and %s', bad.job_id, rowlock._shown(bad.result_uri), rowlock._shown(bad.result_checksum)), 'Give result_uri (up to 4096 bytes) and result_checksum (sha256: and 64 hex digits), or neither.');
END IF;
WITH held AS MATERIALIZED (SELECT found.*, e.result AS new_result, e.result_uri AS new_uri, e.result_checksum AS new_checksum
FROM (SELECT DISTINCT ON (u.job_id, u.token) u.*
FROM unnest(ends) u
ORDER BY u.job_id, u.token, u.nth) e
CROSS JOIN LATERAL (SELECT j.*
FROM rowlock.jobs_live j
WHERE j.id = e.job_id AND j.lease_token = e.token AND j.state = 'running' LIMIT 1 FOR
UPDATE) found), gone AS (DELETE
FROM rowlock.jobs_live j
WHERE j.id = ANY (ARRAY(SELECT h.id
FROM held h))), kept AS (INSERT INTO rowlock.jobs_finished (id, task, queue, state, priority, args, owner, source, tags, batch_id, schedule_id, tick, unique_key, unique_mode, attempt, max_attempts, releases, losses, convictions, backoff, timeout_seconds, run_after, expires_at, settled_token, cancel_requested_at, progress, phase, message, result, result_uri, result_checksum, on_success, on_dead, on_lost, keep_seconds, last_worker, traceparent, parent_id, created_at, started_at, finished_at, updated_at, drop_on)
SELECT h.id, h.task, h.queue, 'succeeded', h.priority, h.args, h.owner, h.source, h.tags, h.batch_id, h.schedule_id, h.tick, h.unique_key, h.unique_mode, h.attempt, h.max_attempts, h.releases, h.losses, h.convictions, h.backoff, h.timeout_seconds, h.run_after, h.expires_at, h.lease_token, h.cancel_requested_at, 100, h.phase, h.message, h.new_result, coalesce(h.new_uri, h.result_uri), CASE WHEN h.new_uri IS NULL THEN h.result_checksum
ELSE h.new_checksum END, h.on_success, h.on_dead, h.on_lost, h.keep_seconds, h.locked_by, h.traceparent, h.parent_id, h.created_at, h.started_at, at, at, CAST((at + least(greatest(coalesce(h.keep_seconds, 604800), 0), 3155760000) * interval '1 second') AT TIME ZONE 'UTC' AS date) + 1
FROM held h)
SELECT array_agg(h.id), array_agg(h.lease_token), array_agg(CAST(ROW(h.id, h.lease_token, 'succeeded', 'succeeded', 0, NULL, NULL, 0, 0, 0, NULL, NULL, h.attempt, h.locked_by, h.locked_at, h.source, coalesce(h.source_epoch, 0), h.batch_id, h.unique_mode, h.on_success) AS rowlock._step)) FILTER (WHERE num_nonnulls(h.source, h.batch_id, h.unique_mode, h.on_success) > 0) INTO ids, keys, marked
FROM held h;
IF marked IS NOT NULL THEN
PERFORM rowlock._tell_end(marked);
PERFORM rowlock._tell_success(marked)
WHERE EXISTS (SELECT 1
FROM unnest(marked) s
WHERE s.source IS NOT NULL);
END IF;
RETURN QUERY
SELECT e.job_id, CASE WHEN (e.job_id, e.token) IN (SELECT *
FROM unnest(ids, keys)) THEN 'applied'
ELSE rowlock._why_not(e.job_id, e.token) END
FROM unnest(ends) e
ORDER BY e.nth;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.enqueue(task text, args jsonb DEFAULT '{}'::jsonb, options jsonb DEFAULT '{}'::jsonb)
RETURNS uuid
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE of_one CONSTANT text[] := ARRAY['key', 'job_id'];
job jsonb := jsonb_build_object('args', args);
rest jsonb := coalesce(options, '{}');
BEGIN IF jsonb_typeof(rest) = 'object' THEN job := job || coalesce((SELECT jsonb_object_agg(g.key, g.value)
FROM jsonb_each(rest) g
WHERE g.key = ANY (of_one)), '{}');
rest := rest - of_one;
END IF;
RETURN (SELECT made.job_id
FROM rowlock._enqueue('enqueue', task, jsonb_build_array(job), rest) made);
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.enqueue_many(task text, jobs jsonb, options jsonb DEFAULT '{}'::jsonb)
RETURNS TABLE(job_id uuid, created boolean)
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN IF coalesce(jsonb_typeof(jobs), 'null') <> 'array' THEN
PERFORM rowlock._refuse(format('enqueue_many: jobs must be a JSON array, not %s', rowlock._shown(CAST(jobs AS text))), 'Write it like [{"args": {"n": 1}}, {"args": {"n": 2}}].');
END IF;
RETURN QUERY
SELECT *
FROM rowlock._enqueue('enqueue_many', task, jobs, coalesce(options, '{}'));
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.fail(job_id uuid, token uuid, error text DEFAULT NULL::text, options jsonb DEFAULT '{}'::jsonb)
RETURNS text
LANGUAGE sql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT f.answer
FROM rowlock.fail_many(jsonb_build_array(jsonb_build_object('job_id', job_id, 'token', token, 'error', error) || coalesce(options, '{}'))) f $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.fail_many(jobs jsonb)
RETURNS TABLE(job_id uuid, answer text)
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE ends rowlock._ending[] := '{}';
one jsonb;
e rowlock._ending;
BEGIN FOR one IN
SELECT *
FROM rowlock._elements('fail', jobs, ARRAY[ 'job_id', 'token', 'error', 'code', 'permanent', 'after', 'backoff', 'fault', 'retry_after', 'outcome']) LOOP e := NULL;
e.nth := cardinality(ends) + 1;
e.job_id := rowlock._lease_part('fail', one, 'job_id');
e.token := rowlock._lease_part('fail', one, 'token');
e.outcome := coalesce(one ->> 'outcome', 'failed');
e.error_code := rowlock._cut(coalesce(one ->> 'code', CASE WHEN e.outcome = 'timed_out' THEN 'TIMEOUT'
ELSE 'ERROR' END), 100);
e.error_message := rowlock._cut(one ->> 'error', 8192);
e.permanent := coalesce(one -> 'permanent' = 'true', FALSE);
e.after := rowlock._seconds('fail', one, 'after');
e.retry_after := rowlock._seconds('fail', one, 'retry_after');
e.fault := coalesce(one ->> 'fault', CASE WHEN e.outcome = 'timed_out' THEN 'source' END);
e.backoff := rowlock._backoff(nullif(one -> 'backoff', 'null'));
IF e.outcome NOT IN ('failed', 'timed_out', 'cancelled', 'lost') THEN
PERFORM rowlock._refuse(format('fail: outcome must be failed, timed_out, cancelled or lost; not %s', rowlock._shown(e.outcome)), 'A success is written by rowlock.complete, a job that is given back by rowlock.release.');
END IF;
IF e.fault NOT IN ('source', 'refusal') THEN
PERFORM rowlock._refuse(format('fail: fault must be source or refusal; not %s', rowlock._shown(e.fault)), 'Leave it out when the failure says nothing about the source of the job.');
END IF;
IF jsonb_typeof(one -> 'permanent') NOT IN ('boolean', 'null') THEN
PERFORM rowlock._refuse(format('fail: permanent must be true or false; not %s', rowlock._shown(CAST(one -> 'permanent' AS text))), 'true means: no further try.');
END IF;
IF e.backoff IS NULL AND one -> 'backoff' <> 'null' THEN
PERFORM rowlock._refuse(format('fail: backoff must be like {"kind": "fixed", "base": 60} or {"kind": "exponential", "base": 10,' ' "cap": 86400, "factor": 2}; not %s', rowlock._shown(CAST(one -> 'backoff' AS text))), 'Leave it out to use the backoff that the job was enqueued with.');
END IF;
ends := ends || e;
END LOOP;
RETURN QUERY
SELECT *
FROM rowlock._settle(ends, TRUE);
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.heartbeat(worker text, leases jsonb, lease_seconds double precision DEFAULT 60)
RETURNS TABLE(job_id uuid, answer text, lease_expires_at timestamp with time zone)
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ #variable_conflict use_column
DECLARE at timestamptz := rowlock._clock();
mine jsonb := CASE WHEN jsonb_typeof(leases) = 'object' THEN jsonb_build_array(leases)
ELSE leases END;
ids uuid[];
keys uuid[];
BEGIN
PERFORM rowlock._check_worker('heartbeat', worker, heartbeat.lease_seconds);
SELECT array_agg(rowlock._lease_part('heartbeat', one, 'job_id')), array_agg(rowlock._lease_part('heartbeat', one, 'token')) INTO ids, keys
FROM rowlock._elements('heartbeat', mine, ARRAY['job_id', 'token']) one;
UPDATE rowlock.jobs_live j SET heartbeat_at = at, lease_expires_at = at + heartbeat.lease_seconds * interval '1 second'
WHERE j.id = ANY (ARRAY(SELECT found.id
FROM (SELECT *
FROM unnest(ids, keys) AS u (id, token)
ORDER BY u.id) mine
CROSS JOIN LATERAL (SELECT l.id
FROM rowlock.jobs_live l
WHERE l.id = mine.id AND l.lease_token = mine.token AND l.state = 'running' LIMIT 1 FOR
UPDATE SKIP LOCKED) found));
PERFORM rowlock._seen(worker, NULL, NULL, heartbeat.lease_seconds);
RETURN QUERY
SELECT mine.id, CASE WHEN held.id IS NULL THEN 'lost' WHEN held.cancel_requested_at IS NOT NULL THEN 'cancel'
ELSE 'held' END, held.lease_expires_at
FROM unnest(ids, keys) AS mine (id, token)
LEFT JOIN LATERAL (SELECT j.id, j.cancel_requested_at, j.lease_expires_at
FROM rowlock.jobs_live j
WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running' LIMIT 1) held ON TRUE;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.new_id()
RETURNS uuid
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE micros bigint := CAST(extract(epoch
FROM clock_timestamp()) * 1000000 AS bigint);
sub integer := CAST((micros % 1000) * 4096 / 1000 AS integer);
bytes bytea := uuid_send(gen_random_uuid());
BEGIN bytes := overlay(bytes PLACING substring(int8send(micros / 1000)
FROM 3)
FROM 1 FOR 6);
bytes := set_byte(set_byte(bytes, 6, 112 | (sub >> 8)), 7, sub & 255);
RETURN CAST(encode(bytes, 'hex') AS uuid);
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.progress(job_id uuid, token uuid, progress integer DEFAULT NULL::integer, phase text DEFAULT NULL::text, message text DEFAULT NULL::text)
RETURNS text
LANGUAGE sql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT p.answer
FROM rowlock.progress_many(jsonb_build_array(jsonb_build_object('job_id', job_id, 'token', token, 'progress', progress, 'phase', phase, 'message', message))) p $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.progress_many(jobs jsonb)
RETURNS TABLE(job_id uuid, answer text)
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ #variable_conflict use_column
DECLARE at timestamptz := rowlock._clock();
ids uuid[];
keys uuid[];
held uuid[];
bad text;
BEGIN
SELECT array_agg(rowlock._lease_part('progress', one, 'job_id')), array_agg(rowlock._lease_part('progress', one, 'token')), min(CAST(one -> 'progress' AS text)) FILTER (WHERE one -> 'progress' <> 'null' AND NOT coalesce(one @@ '$.progress >= 0 && $.progress <= 100 && $.progress.type() == "number"', FALSE)) INTO ids, keys, bad
FROM rowlock._elements('progress', jobs, ARRAY['job_id', 'token', 'progress', 'phase', 'message']) one;
IF bad IS NOT NULL THEN
PERFORM rowlock._refuse(format('progress: progress must be a number from 0 to 100, not %s', rowlock._shown(bad)), 'Give percent, or null to tell a phase or a message alone.');
END IF;
held := ARRAY(SELECT found.id
FROM (SELECT *
FROM unnest(ids, keys) AS u (id, token)
ORDER BY u.id) mine
CROSS JOIN LATERAL (SELECT j.id
FROM rowlock.jobs_live j
WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running' LIMIT 1 FOR
UPDATE) found);
UPDATE rowlock.jobs_live j SET progress = CASE WHEN told.progress >= coalesce(j.progress, 0) THEN told.progress
ELSE j.progress END, phase = told.phase, message = told.message, updated_at = at
FROM (SELECT DISTINCT ON (u.one ->> 'job_id', u.one ->> 'token') CAST(u.one ->> 'job_id' AS uuid) AS id, CAST(u.one ->> 'token' AS uuid) AS token, CAST(CAST(u.one ->> 'progress' AS numeric) AS smallint) AS progress, rowlock._cut(u.one ->> 'phase', 8192) AS phase, rowlock._cut(u.one ->> 'message', 8192) AS message
FROM jsonb_array_elements(jobs) WITH ORDINALITY AS u (one, nth)
ORDER BY u.one ->> 'job_id', u.one ->> 'token', u.nth DESC) told
WHERE j.id = told.id AND j.lease_token = told.token AND j.id = ANY (held);
RETURN QUERY
SELECT mine.id, CASE WHEN h.id IS NULL THEN 'lost' WHEN h.cancel_requested_at IS NOT NULL THEN 'cancel'
ELSE 'held' END
FROM unnest(ids, keys) AS mine (id, token)
LEFT JOIN LATERAL (SELECT j.id, j.cancel_requested_at
FROM rowlock.jobs_live j
WHERE j.id = mine.id AND j.lease_token = mine.token AND j.state = 'running' LIMIT 1) h ON TRUE;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.refuse_loose_key()
RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN IF EXISTS (SELECT 1
FROM rowlock.job_keys k
WHERE k.scope = NEW.scope AND k.key = NEW.key AND k.job_id = NEW.job_id) AND NOT EXISTS (SELECT 1
FROM rowlock.jobs_live j
WHERE j.id = NEW.job_id AND (NEW.scope = 'id' OR j.unique_key = NEW.key AND j.task || chr(31) || coalesce(j.owner, '') = NEW.scope)) AND NOT EXISTS (SELECT 1
FROM rowlock.jobs_finished f
WHERE f.id = NEW.job_id AND (NEW.scope = 'id' OR f.unique_key = NEW.key AND f.task || chr(31) || coalesce(f.owner, '') = NEW.scope)) THEN
PERFORM rowlock._refuse(format('enqueue: key %s is held for job %s, which there is not or which has another key', NEW.key, NEW.job_id), 'Call rowlock.enqueue.');
END IF;
RETURN NULL;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.refuse_unreadable()
RETURNS trigger
LANGUAGE plpgsql
AS $function$
BEGIN IF NEW.state IN ('queued', 'running', 'retryable') AND least(NEW.run_after, NEW.expires_at) >= '1970-01-01Z' AND greatest(NEW.run_after, NEW.expires_at) < '2200-01-01Z' AND pg_column_size(NEW.args) <= 4300 THEN
RETURN NEW;
END IF;
IF NEW.state IS DISTINCT
FROM OLD.state AND NEW.state NOT IN ('queued', 'running', 'retryable') THEN RAISE
EXCEPTION 'rowlock: state must be queued, running or retryable, not % (constraint)', NEW.state USING ERRCODE = 'check_violation';
END IF;
IF NEW.run_after IS DISTINCT
FROM OLD.run_after AND NOT (NEW.run_after >= '1970-01-01Z' AND NEW.run_after < '2200-01-01Z') THEN RAISE
EXCEPTION 'rowlock: run_after must be from 1970 to 2199, not % (constraint)', NEW.run_after USING ERRCODE = 'check_violation';
END IF;
IF NEW.expires_at IS DISTINCT
FROM OLD.expires_at AND NOT (NEW.expires_at >= '1970-01-01Z' AND NEW.expires_at < '2200-01-01Z') THEN RAISE
EXCEPTION 'rowlock: expires_at must be from 1970 to 2199, not % (constraint)', NEW.expires_at USING ERRCODE = 'check_violation';
END IF;
IF CAST(NEW.args AS text) IS DISTINCT
FROM CAST(OLD.args AS text) AND strpos(translate(CAST(NEW.args AS text), '123456789', '000000000'), repeat('0', 4301)) > 0 THEN
BEGIN IF EXISTS (SELECT 1
FROM jsonb_path_query(CAST(NEW.args AS jsonb), 'strict $.** ? (@.type() == "number")') AS found (number)
WHERE length(split_part(CAST(number AS text), '.', 1)) > 4300) THEN RAISE
EXCEPTION 'rowlock: args hold a number of more than 4300 digits; pass it as text (constraint)' USING ERRCODE = 'check_violation';
END IF;
EXCEPTION WHEN untranslatable_character THEN NULL;
END;
END IF;
RETURN NEW;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.release(job_id uuid, token uuid, delay double precision DEFAULT 0, reason text DEFAULT NULL::text)
RETURNS text
LANGUAGE sql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
SELECT r.answer
FROM rowlock.release_many(jsonb_build_array(jsonb_build_object('job_id', job_id, 'token', token, 'delay', delay, 'reason', reason))) r $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.release_many(jobs jsonb)
RETURNS TABLE(job_id uuid, answer text)
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
RETURN QUERY
SELECT *
FROM rowlock._settle(ARRAY(SELECT CAST(ROW(one.nth, rowlock._lease_part('release', one.job, 'job_id'), rowlock._lease_part('release', one.job, 'token'), 'released', NULL, rowlock._cut(coalesce(one.job ->> 'reason', 'released'), 8192), coalesce(rowlock._seconds('release', one.job, 'delay'), 0), NULL, NULL, NULL, NULL) AS rowlock._ending)
FROM rowlock._elements('release', jobs, ARRAY['job_id', 'token', 'delay', 'reason']) WITH ORDINALITY AS one (job, nth)), TRUE);
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.sweep(n integer DEFAULT 100, guard_seconds double precision DEFAULT 60)
RETURNS TABLE(reclaimed integer, expired integer, promoted integer, ended integer)
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE at timestamptz := rowlock._clock();
BEGIN IF n IS NULL OR n NOT BETWEEN 1 AND 10000 OR guard_seconds IS NULL OR guard_seconds NOT BETWEEN 0 AND 1e9 THEN
PERFORM rowlock._refuse(format('sweep: n must be from 1 to 10000 and guard_seconds from 0 to 1e9, not %s and %s', rowlock._shown(CAST(n AS text)), rowlock._shown(CAST(guard_seconds AS text))), 'Call rowlock.sweep() without arguments.');
END IF;
reclaimed := rowlock._end_rows('lease', ARRAY(SELECT j.id
FROM rowlock.jobs_live j
WHERE j.state = 'running' AND j.lease_expires_at < at AND (guard_seconds <= 0 OR at > pg_postmaster_start_time() + guard_seconds * interval '1 second') AND (SELECT 1
FROM rowlock.set_aside a
WHERE a.id = j.id AND coalesce(a.again_at > at, TRUE)) IS NULL
ORDER BY j.id LIMIT n FOR
UPDATE SKIP LOCKED));
expired := rowlock._end_rows('start', ARRAY(SELECT j.id
FROM rowlock.jobs_live j
WHERE j.expires_at IS NOT NULL AND j.state <> 'running' AND j.expires_at <= at AND (SELECT 1
FROM rowlock.set_aside a
WHERE a.id = j.id AND coalesce(a.again_at > at, TRUE)) IS NULL
ORDER BY j.expires_at LIMIT n FOR
UPDATE SKIP LOCKED));
promoted := rowlock._promote(n);
ended := rowlock._end_rows('batch', ARRAY(SELECT b.id
FROM rowlock.batches b
WHERE b.finished_at IS NULL AND b.sealed_at IS NOT NULL AND (SELECT coalesce(sum(c.total - c.processed), 0)
FROM rowlock.batch_counts c
WHERE c.batch_id = b.id) <= 0 AND (SELECT 1
FROM rowlock.set_aside a
WHERE a.id = b.id AND coalesce(a.again_at > at, TRUE)) IS NULL
ORDER BY b.id LIMIT n));
RETURN NEXT;
END;
$function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.tell_attempt_task()
RETURNS trigger
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN IF NEW.task IS NULL THEN
SELECT j.task, j.queue, j.source INTO NEW.task, NEW.queue, NEW.source
FROM rowlock.jobs_live j
WHERE j.id = NEW.job_id;
END IF;
RETURN NEW;
END $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.tell_attempts()
RETURNS trigger
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
INSERT INTO rowlock.tallies
SELECT date_bin('1 minute', e.finished_at, '2000-01-01Z'), coalesce(e.queue, ''), coalesce(e.task, ''), 'attempt.' || e.outcome, coalesce(width_bucket(e.ran, '{0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,60,300,900,3600}'), -1), -1, count(*), coalesce(sum(greatest(e.ran, 0)), 0), 0
FROM (SELECT n.finished_at, n.queue, n.task, n.outcome, date_part('epoch', n.finished_at) - date_part('epoch', n.started_at) AS ran
FROM ended n) e GROUP BY 1, 2, 3, 4, 5;
RETURN NULL;
END $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.tell_deleted_events()
RETURNS trigger
LANGUAGE plpgsql SET search_path TO 'pg_catalog'
AS $function$
BEGIN
INSERT INTO rowlock.deleted_events AS known (last_id)
SELECT max(gone.id)
FROM gone HAVING max(gone.id) IS NOT NULL
ON CONFLICT (one) DO
UPDATE SET last_id = greatest(known.last_id, excluded.last_id);
RETURN NULL;
END $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.tell_end()
RETURNS trigger
LANGUAGE plpgsql SET search_path TO 'pg_catalog'
AS $function$
BEGIN
INSERT INTO rowlock.events (job_id, owner, type, task, state, attempt, progress, phase, message, result_uri, result_checksum, error_code, error_message, at)
VALUES (NEW.id, NEW.owner, CASE NEW.state WHEN 'succeeded' THEN 'job.completed' WHEN 'dead' THEN 'job.failed'
ELSE 'job.cancelled' END, NEW.task, NEW.state, NEW.attempt, NEW.progress, NEW.phase, NEW.message, NEW.result_uri, NEW.result_checksum, NEW.error_code, NEW.error_message, NEW.finished_at);
IF EXISTS (SELECT 1
FROM rowlock.event_listeners
WHERE expires_at > statement_timestamp()) THEN
PERFORM pg_notify('rowlock', 'events');
END IF;
RETURN NULL;
END $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.tell_progress()
RETURNS trigger
LANGUAGE plpgsql SET search_path TO 'pg_catalog'
AS $function$
BEGIN
INSERT INTO rowlock.events (job_id, owner, type, task, state, attempt, progress, phase, message, at)
VALUES (NEW.id, NEW.owner, 'job.progress', NEW.task, NEW.state, NEW.attempt, NEW.progress, NEW.phase, NEW.message, NEW.updated_at);
IF EXISTS (SELECT 1
FROM rowlock.event_listeners
WHERE expires_at > statement_timestamp()) THEN
PERFORM pg_notify('rowlock', 'events');
END IF;
RETURN NULL;
END $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.tell_tallies()
RETURNS trigger
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
INSERT INTO rowlock.tallies
SELECT date_bin('1 minute', e.finished_at, '2000-01-01Z'), e.queue, e.task, e.state, coalesce(width_bucket(e.ran, '{0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,60,300,900,3600}'), -1), coalesce(width_bucket(e.waited, '{0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,60,300,900,3600}'), -1), count(*), coalesce(sum(greatest(e.ran, 0)), 0), coalesce(sum(greatest(e.waited, 0)), 0)
FROM (SELECT n.finished_at, n.queue, n.task, n.state, CASE WHEN n.state = 'succeeded' THEN date_part('epoch', n.finished_at) - date_part('epoch', n.started_at) END AS ran, CASE WHEN n.state = 'succeeded' THEN date_part('epoch', n.started_at) - date_part('epoch', n.run_after) END AS waited
FROM ended n) e GROUP BY 1, 2, 3, 4, 5, 6;
RETURN NULL;
END $function$
-- execute: owner only

CREATE OR REPLACE FUNCTION rowlock.tell_webhook()
RETURNS trigger
LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE hook rowlock.webhooks;
delivery uuid;
BEGIN
UPDATE rowlock.webhooks SET drop_on = NEW.drop_on
WHERE job_id = NEW.id
RETURNING * INTO hook;
IF NOT FOUND THEN
RETURN NULL;
END IF;
delivery := rowlock.new_id();
INSERT INTO rowlock.webhook_deliveries (job_id, delivery_id)
VALUES (NEW.id, delivery);
INSERT INTO rowlock.jobs_live (id, task, queue, ready, args, source, max_attempts, backoff, timeout_seconds, run_after, created_at, updated_at)
VALUES (delivery, 'rowlock.webhook', hook.queue, TRUE, json_build_object('url', hook.url, 'owner', hook.owner, 'event', json_build_object('job_id', NEW.id, 'task', NEW.task, 'state', NEW.state, 'attempt', NEW.attempt, 'progress', NEW.progress, 'phase', NEW.phase, 'message', NEW.message, 'result_uri', NEW.result_uri, 'result_checksum', NEW.result_checksum, 'error_code', NEW.error_code, 'error_message', NEW.error_message, 'at', extract(epoch
FROM NEW.finished_at))), hook.source, hook.max_attempts, hook.backoff, hook.timeout_seconds, NEW.finished_at, NEW.finished_at, NEW.finished_at);
IF EXISTS (SELECT 1
FROM rowlock.workers
WHERE idle AND expires_at > NEW.finished_at) THEN
PERFORM pg_notify('rowlock', 'work');
END IF;
RETURN NULL;
END $function$
-- execute: owner only

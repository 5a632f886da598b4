-- The statement of store/engine/clock.py.

-- name: clock
-- The database's time.
SELECT {time({now})} AS now;

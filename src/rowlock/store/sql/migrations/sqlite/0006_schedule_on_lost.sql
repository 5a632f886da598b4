-- What becomes of a schedule's job whose worker is lost, as its task says: NULL is another attempt.
-- There is no 0005 here: it is about what only PostgreSQL pays for.

ALTER TABLE rowlock_schedules ADD COLUMN on_lost TEXT;

-- What becomes of a schedule's job whose worker is lost, as its task says: NULL is another attempt.

ALTER TABLE rowlock.schedules ADD COLUMN on_lost text;

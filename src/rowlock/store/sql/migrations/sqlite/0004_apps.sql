-- What apps bring along: their own tables' migrations.

CREATE TABLE rowlock_app_migrations (
    app        TEXT    NOT NULL,
    number     INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    applied_at REAL    NOT NULL,
    PRIMARY KEY (app, number)
);

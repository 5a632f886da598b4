"""Which of our errors an error of SQLite becomes: told by its result code, never by its text."""

import apsw

from rowlock.core.errors import StorageFull, StoreError, StoreUnavailable
from rowlock.store.engine.sqlite.runner import translate
from support.each import each


@each(
    "code, ours",
    [
        (apsw.SQLITE_FULL, StorageFull),
        (apsw.SQLITE_IOERR_WRITE, StorageFull),
        (apsw.SQLITE_IOERR_READ, StoreUnavailable),
        (apsw.SQLITE_BUSY, StoreUnavailable),
        (apsw.SQLITE_CANTOPEN, StoreUnavailable),
        (apsw.SQLITE_CONSTRAINT, StoreError),
    ],
    ids=["full", "write", "read", "busy", "cannot open", "constraint"],
)
def test_an_error_is_told_by_its_result_code(code: int, ours: type[StoreError]) -> None:
    translated = translate(apsw.exception_for(code), "write")
    assert type(translated) is ours
    assert str(translated).startswith("write: ")


def test_the_word_write_in_a_message_makes_no_full_disk() -> None:
    error = apsw.IOError("disk I/O error while it tried to WRITE")
    error.extendedresult = apsw.SQLITE_IOERR_READ  # type: ignore[attr-defined]
    assert type(translate(error, "read")) is StoreUnavailable

"""SQLite's errors as ours."""

from __future__ import annotations

import apsw

from rowlock.core.errors import StorageFull, StoreError, StoreUnavailable


def translate(error: BaseException, doing: str) -> StoreError:
    """Our error for one of apsw's; `doing` begins its message. One of ours stays what it is."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, apsw.FullError):
        return StorageFull(f"{doing}: the disk is full ({error}); reads work, writes resume when there is space")
    if isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE:
        return StorageFull(f"{doing}: the disk did not take the write ({error})")
    if isinstance(error, (apsw.BusyError, apsw.LockedError, apsw.IOError, apsw.CantOpenError)):
        return StoreUnavailable(f"{doing}: {error}")
    return StoreError(f"{doing}: {error}")

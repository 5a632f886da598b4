"""Stickers: users pay a credit for a picture that a worker draws; what is not drawn is paid back, once.

`shop` is what a web tier calls, `app` has the tasks that workers run, `ledger` is the money, `drawing` the pictures.
"""

from rowlock_apps.stickers.app import app

__all__ = ["app"]

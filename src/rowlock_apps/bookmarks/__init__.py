"""Bookmarks: import what a browser exports, and find out what each link is, once and politely."""

from .app import app, make_app
from .imports import Import, ImportNotFound, cancel_import, import_file, read_import
from .uploads import BadUpload

__all__ = [
    "BadUpload",
    "Import",
    "ImportNotFound",
    "app",
    "cancel_import",
    "import_file",
    "make_app",
    "read_import",
]

"""An open app on a migrated database of its own, on each engine; the bodies never name an engine."""

from support.apps import app, app_url

__all__ = ["app", "app_url"]

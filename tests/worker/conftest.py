"""An open app on a migrated database of its own, on each engine; the bodies never name an engine."""

from support.rigs.app import app_in_real_time, app_url

__all__ = ["app_in_real_time", "app_url"]

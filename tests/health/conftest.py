"""A real server over an app on each engine."""

from api.conftest import app_url, patient_reads, serve

__all__ = ["app_url", "patient_reads", "serve"]

"""One frozen `Settings`: flags over environment variables over a file over defaults, checked once.

Every mistake is a ConfigError of one line: key, value, where it stands, what is wrong. `sections` and `api` have the
records, `values` the kinds of value, `file` and `loading` read and merge, `messages` words the mistakes.
"""

from rowlock.core.config.api import ApiSettings, JwtSettings, WebhookSettings
from rowlock.core.config.loading import OTHER_VARIABLES, VARIABLES, change_worker, load_settings
from rowlock.core.config.messages import Given
from rowlock.core.config.sections import (
    KEYS,
    SECTIONS,
    AlertSettings,
    RedisSettings,
    ResultSettings,
    RetentionSettings,
    SentrySettings,
    Settings,
    TraceSettings,
    TransactionSettings,
    WorkerSettings,
)

__all__ = [
    "KEYS",
    "OTHER_VARIABLES",
    "SECTIONS",
    "VARIABLES",
    "AlertSettings",
    "ApiSettings",
    "Given",
    "JwtSettings",
    "RedisSettings",
    "ResultSettings",
    "RetentionSettings",
    "SentrySettings",
    "Settings",
    "TraceSettings",
    "TransactionSettings",
    "WebhookSettings",
    "WorkerSettings",
    "change_worker",
    "load_settings",
]

"""All settings as one frozen `Settings`: flags over environment variables over a file over defaults, checked once.

Every mistake is a ConfigError of one line: key, value, where it was set, and what is wrong. `sections` and
`alert_rules` have the records; `load` reads and merges the places, and words the mistakes.
"""

from rowlock.core.config.load import change_worker as change_worker
from rowlock.core.config.load import load_settings as load_settings
from rowlock.core.config.sections import AlertSettings as AlertSettings
from rowlock.core.config.sections import ApiSettings as ApiSettings
from rowlock.core.config.sections import JwtSettings as JwtSettings
from rowlock.core.config.sections import RedisSettings as RedisSettings
from rowlock.core.config.sections import ResultSettings as ResultSettings
from rowlock.core.config.sections import SentrySettings as SentrySettings
from rowlock.core.config.sections import Settings as Settings
from rowlock.core.config.sections import WebhookSettings as WebhookSettings
from rowlock.core.config.sections import WorkerSettings as WorkerSettings

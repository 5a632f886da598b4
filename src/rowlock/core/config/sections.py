"""The records of all settings: a class for each section of the config file, and `Settings`, which has them all.

First come the kinds of values, and how each is read from a file, a variable or an argument. A validator raises a
ValueError whose text starts with "must"; load.py puts key, value and place in front of it. The comment beside a field
explains the setting; docs/reference/settings.md shows the defaults.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator as After
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic import BeforeValidator as Before
from pydantic_core import PydanticCustomError

from rowlock.core.config.alert_rules import AlertRule, parse_rules
from rowlock.core.sources.policy import check_name, check_policy
from rowlock.core.times import parse_duration

DAY = 86_400  # seconds


class Section(BaseModel):
    """A record of settings: refuses unknown keys, and cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def seconds(value: object) -> object:
    """Read 30, 0.5, "30s", "5m" or "2h" as seconds."""
    if not isinstance(value, str):
        return number(value)
    found = parse_duration(value)
    if found is None:
        raise ValueError("must be seconds, or a number with ms, s, m, h, d or w, such as 30s or 5m")
    return found


def number(value: object) -> object:
    """Refuse a boolean, which is what YAML reads yes and no as, and which would count as 1 or 0."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def names(value: object) -> object:
    """A list, or text with a JSON list or commas, because environment variables can't be lists."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return from_json(value, "a JSON list, or names with commas between them")
    return [name.strip() for name in value.split(",")]


def distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names or not all(name and name == name.strip() for name in names):
        raise ValueError("must be at least one name, none of them empty")
    if len(set(names)) < len(names):
        raise ValueError("must not have the same name twice")
    return names


def matching(pattern: str, otherwise: str) -> After:
    """A validator that refuses text that doesn't match `pattern`, with the message `otherwise`."""

    def check(text: str) -> str:
        if not re.match(pattern, text):
            raise ValueError(otherwise)
        return text

    return After(check)


def time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (LookupError, OSError, ValueError):
        raise ValueError("must be a time zone such as UTC or Asia/Seoul") from None
    return name


def from_json(value: object, wanted: str) -> object:
    """`value`, parsed as JSON if it is text, which is how an environment variable gives a mapping."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError(f"must be {wanted}") from None


DOTTED = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
Database = Annotated[
    str, matching("sqlite:///|postgres(ql)?://", "must start with sqlite:/// or postgresql://, as in sqlite:///jobs.db")
]
Server = Annotated[str, matching("postgres(ql)?://", "must start with postgresql://")]
Redis = Annotated[str, matching("(rediss?|unix)://", "must start with redis://, rediss:// (TLS) or unix://")]
AppPath = Annotated[str, matching(rf"{DOTTED}(:{DOTTED})?\Z", "must be module:attribute or a module")]
Port = Annotated[int, Before(number), Field(ge=1, le=65_535)]
Count = Annotated[int, Before(number), Field(ge=1, le=10_000)]
Rate = Annotated[int, Before(number), Field(ge=1, le=10_000_000)]
Seconds = Annotated[float, Before(seconds), Field(gt=0, le=DAY, allow_inf_nan=False)]
SecondsOrZero = Annotated[float, Before(seconds), Field(ge=0, le=DAY, allow_inf_nan=False)]
Days = Annotated[float, Before(number), Field(ge=0, le=36_500, allow_inf_nan=False)]
List = Annotated[tuple[str, ...], Before(names)]
Names = Annotated[List, After(distinct)]


class JwtSettings(Section):
    """Tokens of an identity provider (JWT). Only `algorithm` is accepted, whatever a token's header names."""

    algorithm: Literal["HS256", "RS256"]
    secret: str | None = Field(default=None, repr=False)  # for HS256
    jwks: str | None = None  # for RS256: a file, or an https:// URL (http:// only for this machine)
    issuer: str | None = None
    audience: str | None = None
    owner_claim: str = "sub"  # the claim that names the owner whose jobs the token may see
    operator_claim: str | None = None  # the claim that makes the caller an operator if it is true

    @model_validator(mode="after")
    def _has_its_key(self) -> JwtSettings:
        needed, other = ("secret", "jwks") if self.algorithm == "HS256" else ("jwks", "secret")
        if getattr(self, needed) is None or getattr(self, other) is not None:
            raise ValueError(f"{self.algorithm} needs {needed}, and {other} must not be set")
        if self.secret is not None and len(self.secret.encode()) < 32:
            raise ValueError("secret must have at least 32 bytes")
        return self


def _mapping(value: object) -> object:
    return from_json(value, 'JSON such as {"enabled": true}')


class WebhookSettings(Section):
    """Webhooks: requests to an address that a client of the API gave, sent when its job ends. Off unless enabled,
    because workers call addresses that strangers chose."""

    enabled: bool = False
    hosts: List = ()  # that may be called, such as *.example.com; if empty: all public hosts
    allow_private: bool = False  # also call loopback and private addresses: for tests only
    # Of the jobs that send webhooks; a worker with these settings must serve it.
    queue: Annotated[str, Field(min_length=1, max_length=200)] = "default"
    max_attempts: Count = 12
    retry_seconds: Seconds = 5  # before the second attempt; doubled for each further one, up to six hours
    timeout_seconds: Seconds = 15  # of one attempt


BasePath = Annotated[str, matching(r"(/[\w.~-]+)*\Z", "must be empty or a path like /rowlock, not ending in a slash")]


class ApiSettings(Section):
    """The job API: where it listens, who may call it, and how often."""

    host: str = "127.0.0.1"
    port: Annotated[int, Before(number), Field(ge=0, le=65_535)] = 8321
    base_path: BasePath = ""  # prefix of all paths, for a proxy that forwards only some of its paths
    zone: Annotated[str, After(time_zone)] = "UTC"  # time zone of times in responses
    cors_origins: List = ()  # web origins that may call, such as https://example.com
    allowed_hosts: List = ()  # names of this server (Host header), in addition to localhost
    trusted_proxies: List = ()  # addresses whose X-Forwarded-… headers are trusted
    jwt: JwtSettings | None = None
    body_bytes: Annotated[int, Before(number), Field(ge=1024, le=100_000_000)] = 524_288
    body_seconds: Seconds = 10  # time limit for a whole request body to arrive
    idle_seconds: Seconds = 30  # time limit for a request's head, for a pong, and for a client that stops reading
    argument_depth: Annotated[int, Before(number), Field(ge=1, le=200)] = 32  # how deeply arguments may be nested
    jobs_per_owner: Annotated[int, Before(number), Field(ge=1, le=1_000_000)] = 10_000  # unfinished jobs
    requests_per_minute: Rate = 6_000  # with one token
    address_requests_per_minute: Rate = 60_000  # from one address, with any tokens; opening a WebSocket counts
    stranger_requests_per_minute: Rate = 600  # from one address without a valid token
    metrics_open: bool = False  # /metrics needs no token: open to anyone who can reach the server
    connections_per_owner: Count = 20  # WebSockets and event streams
    session_seconds: Seconds = 43_200  # how long a browser stays logged in after a login link
    webhooks: Annotated[WebhookSettings, Before(_mapping)] = WebhookSettings()


BUCKET = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^/?#\\\s]+)*/?$"


class WorkerSettings(Section):
    """How a worker claims, runs and releases jobs."""

    pool_size: Count = 10  # slots: jobs that one process runs at the same time
    poll_interval_seconds: Seconds = 5  # longest sleep of an idle worker
    claim_batch_size: Count = 500  # most jobs per claim
    shutdown_timeout_seconds: SecondsOrZero = 30  # how long a stop waits for running jobs
    heartbeat_seconds: Seconds = 15  # how often leases are renewed
    lease_seconds: Seconds = Field(default=60, validate_default=True)  # how long a lease lasts without a heartbeat
    sweep_seconds: Seconds = 10  # how often to look for expired leases
    processes: Annotated[int, Before(number), Field(ge=1, le=256)] = 1  # worker processes that one command starts
    queues: Names = ("default",)  # to claim jobs from
    wakeups: bool = True  # new jobs wake idle workers; false: idle workers only poll
    metrics_port: Port | None = None  # for /metrics, /livez and /readyz; with processes, each gets the next port
    metrics_host: Annotated[str, Field(min_length=1, max_length=255)] = "127.0.0.1"  # that port asks for no login

    @property
    def transaction_seconds(self) -> float:
        """How long a user's transaction may hold SQLite's only writer: a heartbeat has to be written in between."""
        return max(1.0, self.heartbeat_seconds / 3)

    @field_validator("lease_seconds")
    @classmethod
    def _outlasts_two_beats(cls, lease: float, info: ValidationInfo) -> float:
        # A healthy worker must not lose its jobs because one heartbeat was late or lost.
        beat = info.data.get("heartbeat_seconds", 0)
        if lease < 2 * beat:
            raise PydanticCustomError("lease", f"must be at least twice heartbeat_seconds ({beat:g})")
        return lease

    @field_validator("metrics_port")
    @classmethod
    def _leaves_a_port_for_each_process(cls, port: int | None, info: ValidationInfo) -> int | None:
        processes = info.data.get("processes", 1)
        if port is not None and port + processes - 1 > 65_535:
            raise ValueError(f"must leave a port for each of the {processes} processes, up to 65535")
        return port


def _policies(value: object) -> object:
    """Check the settings of sources and source classes, by name; keeps them as written."""
    value = from_json(value, 'JSON such as {"api:ebay": {"rate": "30/min"}}')
    if not isinstance(value, dict):
        raise ValueError("must be a mapping of sources, such as api:ebay, to their settings")
    policies: dict[str, dict[str, object]] = {}
    for name, given in value.items():
        if not isinstance(given, dict):
            raise ValueError(f"source {name!r} must have settings such as {{concurrency: 2}}, not {given!r}")
        policies[check_name(name)] = policy = dict(given)
        if "cooldown" in policy:
            policy["cooldown"] = seconds(policy["cooldown"])
        check_policy(name, policy)
    return policies


def _schedules(value: object) -> object:
    """Schedules by name. A dispatcher checks their rules one by one when it starts, so that a wrong rule stops neither
    workers nor other schedules."""
    value = from_json(value, 'JSON such as {"nightly": {"task": "report", "cron": "0 3 * * *"}}')
    if not isinstance(value, dict):
        raise ValueError("must be a mapping of schedules, such as nightly, to their task and rule")
    for name, given in value.items():
        if not isinstance(given, dict) or not isinstance(given.get("task", given.get("handler_name")), str):
            raise ValueError(
                f"schedule {name!r} must have a task and a rule, such as {{task: report, cron: 0 3 * * *}}"
            )
    return value


Schedules = Annotated[dict[Any, dict[Any, Any]], Before(_schedules)]
Policies = Annotated[dict[str, dict[str, Any]], Before(_policies)]


class TransactionSettings(Section):
    """How much of a PostgreSQL server `app.transaction()` and `ctx.transaction()` may use."""

    connections: Count | None = None  # most per process; null: 20 plus one per slot
    wait_seconds: Seconds = 30  # how long a transaction waits for a free connection
    idle_seconds: Seconds = 60  # a transaction that runs no statement for this long is rolled back
    statement_seconds: Seconds = 30  # how long one statement may take


class RetentionSettings(Section):
    """How long finished jobs are kept, unless their task sets another time."""

    succeeded_days: Days = 7
    dead_days: Days = 30  # cancelled jobs too


class ResultSettings(Section):
    """Where the result files of jobs are stored."""

    path: str = "rowlock-results"  # the folder; with `url`: only for files still being written
    file_bytes: Annotated[int, Before(number), Field(ge=1)] = 10_000_000_000  # largest result file
    url: Annotated[str, matching(BUCKET, "must be s3://bucket or s3://bucket/prefix")] | None = None  # object storage
    endpoint: Annotated[str, matching("https?://[^/?#]+/?$", "must be a URL like https://s3.example.com")] | None = None
    region: str | None = None
    signed_urls: bool = False  # downloads are redirected to a signed URL of the storage
    signed_seconds: Annotated[float, Before(seconds), Field(ge=1, le=7 * DAY)] = 300  # how long that URL is valid

    @field_validator("signed_urls")
    @classmethod
    def _needs_storage(cls, signed: bool, info: ValidationInfo) -> bool:
        if signed and info.data.get("url") is None:
            raise ValueError("needs results.url: a local folder has no URLs to sign")
        return signed


class RedisSettings(Section):
    """Redis or Valkey, through which tasks with runs_on="redis" reach workers in other languages."""

    url: Redis | None = Field(default=None, repr=False)  # may contain a user and a password
    prefix: Annotated[str, matching(r"[\w.:{}-]{0,100}\Z", "must have only letters, digits and . : _ - {}")] = ""
    lease_seconds: Seconds = 60  # a started job is published again after this long without a message from its worker
    takeover_seconds: Seconds = 30  # after a bridge was silent for this long, another takes over its work
    unread: Count = 1_000  # most requests without a report from a worker; then publishing pauses


def _rules(value: object) -> object:
    """Check alert rules by name; keeps them as written."""
    value = from_json(value, 'JSON such as {"hanging": {"when": "running_seconds"}}')
    parse_rules(value)
    return value


class AlertSettings(Section):
    """Alerts for operators: the rules, and where to send messages. Without rules, nothing is checked."""

    rules: Annotated[dict[str, dict[str, Any]], Before(_rules)] = Field(default_factory=dict)
    # Between two checks.
    check_seconds: Annotated[float, Before(seconds), Field(gt=0, le=3600, allow_inf_nan=False)] = 15
    repeat_seconds: Annotated[float, Before(seconds), Field(ge=1, le=30 * DAY, allow_inf_nan=False)] = 3600
    webhook_url: Annotated[str, matching("https?://[^/]", "must be an http or https URL")] | None = Field(
        default=None, repr=False
    )
    webhook_secret: str | None = Field(default=None, repr=False, validate_default=True)
    webhook_private: bool = False  # the URL may resolve to a loopback or private address
    webhook_timeout_seconds: Seconds = 10

    @field_validator("webhook_secret")
    @classmethod
    def _signs(cls, secret: str | None, info: ValidationInfo) -> str | None:
        if secret is None:
            if info.data.get("webhook_url") is not None:
                raise ValueError("must be set where webhook_url is: messages are signed with it")
            return None
        try:
            key = b64decode(secret.removeprefix("whsec_"), validate=True)
        except ValueError:
            key = b""
        if not secret.startswith("whsec_") or len(key) < 24:
            raise ValueError("must be whsec_ followed by at least 24 bytes in base64")
        return secret

    @property
    def parsed_rules(self) -> tuple[AlertRule, ...]:
        return parse_rules(self.rules, self.repeat_seconds)


class SentrySettings(Section):
    """Sends failed attempts to Sentry as events."""

    dsn: Annotated[str, matching("https?://", "must be the DSN of a Sentry project, https://…")] | None = Field(
        default=None, repr=False
    )  # where to send them
    environment: str | None = None
    enabled: bool = False  # without a DSN: send through the client that the program made with sentry_sdk.init

    @property
    def wanted(self) -> bool:
        return self.enabled or self.dsn is not None


class TraceSettings(Section):
    """OpenTelemetry spans. Off unless enabled, because each span costs time and needs a collector."""

    enabled: bool = False  # a span for each enqueue and each attempt
    claims: bool = False  # also for each claim and each batch of outcomes that is written


class Settings(Section):
    """All settings that can be made outside the code."""

    database: Database = "sqlite:///rowlock.db"
    pooler: Literal["session", "transaction"] = "session"  # mode of PgBouncer or another pooler, if there is one
    direct_url: Server | None = None  # PostgreSQL without the pooler, for wake-ups (LISTEN)
    app: AppPath | None = None  # module:attribute; without an attribute: `app`
    sources: Policies = Field(default_factory=dict)  # api:ebay or api: {concurrency, total, rate, burst, …}
    schedules: Schedules = Field(default_factory=dict)  # nightly: {task, cron or every or at, zone, args, …}
    worker: WorkerSettings = WorkerSettings()
    transactions: TransactionSettings = TransactionSettings()
    retention: RetentionSettings = RetentionSettings()
    api: ApiSettings = ApiSettings()
    results: ResultSettings = ResultSettings()
    redis: RedisSettings = RedisSettings()
    sentry: SentrySettings = SentrySettings()
    traces: TraceSettings = TraceSettings()
    alerts: AlertSettings = AlertSettings()


SECTIONS: dict[str, type[Section]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}
KEYS = [key for key in Settings.model_fields if key not in SECTIONS] + [
    f"{section}.{key}" for section, model in SECTIONS.items() for key in model.model_fields
]

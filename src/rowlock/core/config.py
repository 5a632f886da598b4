"""One frozen `Settings`: flags over environment over file over defaults, checked once.

Every mistake is a ConfigError of one line: key, value, where it stands, what is wrong. Each source is first
laid flat (dotted key -> value and origin), so that the merge and the messages know only one shape.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import AfterValidator as After
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic import BeforeValidator as Before
from pydantic_core import PydanticCustomError

from rowlock.core.alerts import Rule, parse_rules
from rowlock.core.durations import parse_duration
from rowlock.core.errors import ConfigError
from rowlock.core.source import check_name, check_policy

DAY = 86_400

_PASSWORD = re.compile(r"(?<=://)([^:/@]*):.*@|(?<=[?&]password=)[^&]*")
_VARIABLE = re.compile(r"\$?\$\{(?P<name>[A-Za-z_]\w*)(:-(?P<default>[^}]*))?\}")
_SECRET = re.compile("pass|secret|token|key|credential|webhook_url", re.IGNORECASE)


def _seconds(value: object) -> object:
    """30, 0.5, "30s", "5m" or "2h" as seconds."""
    if not isinstance(value, str):
        return _number(value)
    found = parse_duration(value)
    if found is None:
        raise ValueError("must be seconds, or a number with ms, s, m, h, d or w, such as 30s or 5m")
    return found


def _number(value: object) -> object:
    """Anything but a boolean, which is what YAML makes of yes and no, and which would pass for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _names(value: object) -> object:
    """A list, also as JSON or with commas: an environment variable has no lists."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError("must be a JSON list, or names with commas between them") from None
    return [name.strip() for name in value.split(",")]


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names or not all(name and name == name.strip() for name in names):
        raise ValueError("must be one name or more, none of them empty")
    if len(set(names)) < len(names):
        raise ValueError("must not have the same name twice")
    return names


def _like(pattern: str, otherwise: str) -> After:
    def check(text: str) -> str:
        if not re.match(pattern, text):
            raise ValueError(otherwise)
        return text

    return After(check)


_BUCKET = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^/?#\\\s]+)*/?$"
_DOTTED = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
Database = Annotated[str, _like("sqlite:///|postgres(ql)?://", "must start with sqlite:/// or postgresql://")]
Server = Annotated[str, _like("postgres(ql)?://", "must start with postgresql://")]
Redis = Annotated[str, _like("(rediss?|unix)://", "must start with redis://, rediss:// (TLS) or unix://")]
AppPath = Annotated[str, _like(rf"{_DOTTED}(:{_DOTTED})?\Z", "must be module:attribute or a module")]
Port = Annotated[int, Before(_number), Field(ge=1, le=65_535)]
Count = Annotated[int, Before(_number), Field(ge=1, le=10_000)]
Rate = Annotated[int, Before(_number), Field(ge=1, le=10_000_000)]
Seconds = Annotated[float, Before(_seconds), Field(gt=0, le=DAY, allow_inf_nan=False)]
SecondsOrZero = Annotated[float, Before(_seconds), Field(ge=0, le=DAY, allow_inf_nan=False)]
Days = Annotated[float, Before(_number), Field(ge=0, le=36_500, allow_inf_nan=False)]
Names = Annotated[tuple[str, ...], Before(_names), After(_distinct)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WorkerSettings(_Section):
    """How a worker takes, runs and gives back jobs."""

    pool_size: Count = 10  # slots: jobs that one process runs at the same time
    poll_interval_seconds: Seconds = 5  # longest sleep of an idle worker
    claim_batch_size: Count = 500  # most jobs that one claim takes
    shutdown_timeout_seconds: SecondsOrZero = 30  # how long a stop waits for running jobs
    heartbeat_seconds: Seconds = 15  # how often leases are renewed
    lease_seconds: Seconds = Field(default=60, validate_default=True)  # how long one lasts without a beat
    sweep_seconds: Seconds = 10  # how often leases that ran out are looked for
    processes: Annotated[int, Before(_number), Field(ge=1, le=256)] = 1  # that one command starts
    queues: Names = ("default",)  # to take jobs from
    wakeups: bool = True  # be woken by new jobs; without, the database is only polled
    metrics_port: Port | None = None  # for /metrics, /livez and /readyz; the next process gets the next port
    metrics_host: str = Field(default="127.0.0.1", min_length=1, max_length=255)  # to listen on; there is no login

    @field_validator("lease_seconds")
    @classmethod
    def _outlasts_two_beats(cls, lease: float, info: ValidationInfo) -> float:
        # One late or lost beat must not cost a healthy worker its jobs.
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
    """Sources and classes with their settings; checked, and left as they were written."""
    if isinstance(value, str):  # an environment variable
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError('must be JSON such as {"api:ebay": {"rate": "30/min"}}') from None
    if not isinstance(value, dict):
        raise ValueError("must be a mapping of sources, such as api:ebay, to their settings")
    policies: dict[str, dict[str, object]] = {}
    for name, given in value.items():
        if not isinstance(given, dict):
            raise ValueError(f"source {name!r} must have settings such as {{concurrency: 2}}, not {given!r}")
        policies[check_name(name)] = policy = dict(given)
        if "cooldown" in policy:
            policy["cooldown"] = _seconds(policy["cooldown"])
        check_policy(name, policy)
    return policies


def _schedules(value: object) -> object:
    """Schedules by name. All else is checked when a dispatcher starts, one by one: a wrong rule stops no worker and no
    other schedule."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError('must be JSON such as {"nightly": {"task": "report", "cron": "0 3 * * *"}}') from None
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


class TransactionSettings(_Section):
    """What `app.transaction()` and `ctx.transaction()` may take of a PostgreSQL server."""

    connections: Count | None = None  # most that one process holds at the same time; none: 20, and one for each slot
    wait_seconds: Seconds = 30  # how long to wait for one
    idle_seconds: Seconds = 60  # how long one may be left without a statement; then it is rolled back
    statement_seconds: Seconds = 30  # how long one statement may take


class RetentionSettings(_Section):
    """How long finished jobs are kept, unless their task says otherwise."""

    succeeded_days: Days = 7
    dead_days: Days = 30  # of cancelled ones too


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (LookupError, OSError, ValueError):
        raise ValueError("must be a time zone such as UTC or Asia/Seoul") from None
    return name


class JwtSettings(_Section):
    """Tokens of an identity provider. The algorithm is this one, whatever a token names."""

    algorithm: Literal["HS256", "RS256"]
    secret: str | None = Field(default=None, repr=False)  # of HS256
    jwks: str | None = None  # of RS256: a file, or an https:// URL (http:// on this machine)
    issuer: str | None = None
    audience: str | None = None
    owner_claim: str = "sub"  # whose jobs the token opens
    operator_claim: str | None = None  # a claim that makes its holder an operator if it is true

    @model_validator(mode="after")
    def _has_its_key(self) -> JwtSettings:
        needed, other = ("secret", "jwks") if self.algorithm == "HS256" else ("jwks", "secret")
        if getattr(self, needed) is None or getattr(self, other) is not None:
            raise ValueError(f"{self.algorithm} needs {needed}, and no {other}")
        if self.secret is not None and len(self.secret.encode()) < 32:
            raise ValueError("secret must have 32 bytes or more")
        return self


def _mapping(value: object) -> object:
    """A mapping, also as JSON: an environment variable has none."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError('must be JSON such as {"enabled": true}') from None


class WebhookSettings(_Section):
    """Requests that the API's clients may have sent when their jobs end. Off unless enabled: the addresses come from
    strangers, and the worker is the one who calls them."""

    enabled: bool = False
    hosts: Annotated[tuple[str, ...], Before(_names)] = ()  # that may be called, *.example.com too; none: all public
    allow_private: bool = False  # also call the loopback and private networks: for tests, never beside strangers
    queue: str = Field(default="default", min_length=1, max_length=200)  # that a worker with this setting serves
    max_attempts: Count = 12
    retry_seconds: Seconds = 5  # before the second attempt; then twice as long each time, up to six hours
    timeout_seconds: Seconds = 15  # of one attempt


BasePath = Annotated[str, _like(r"(/[\w.~-]+)*\Z", "must be empty or such as /rowlock, without a slash at its end")]


class ApiSettings(_Section):
    """The job API: where it listens, who may reach it, and how much."""

    host: str = "127.0.0.1"
    port: Annotated[int, Before(_number), Field(ge=0, le=65_535)] = 8321
    base_path: Annotated[
        str, _like(r"(/[\w.~-]+)*\Z", "must be empty or such as /rowlock, without a slash at its end")
    ] = ""
    zone: Annotated[str, After(_zone)] = "UTC"  # of the times in answers
    cors_origins: Annotated[tuple[str, ...], Before(_names)] = ()  # pages that may ask, such as https://example.com
    allowed_hosts: Annotated[tuple[str, ...], Before(_names)] = ()  # names of this server, beside the loopback's
    trusted_proxies: Annotated[tuple[str, ...], Before(_names)] = ()  # whose X-Forwarded-… headers count
    jwt: JwtSettings | None = None
    body_bytes: Annotated[int, Before(_number), Field(ge=1024, le=100_000_000)] = 524_288
    body_seconds: Seconds = 10  # for a whole body to arrive
    idle_seconds: Seconds = 30  # for a request's head, the answer to a ping, or a client to take something
    argument_depth: Annotated[int, Before(_number), Field(ge=1, le=200)] = 32  # of nested arguments
    jobs_per_owner: Annotated[int, Before(_number), Field(ge=1, le=1_000_000)] = 10_000  # not finished
    requests_per_minute: Rate = 6_000  # of one token
    address_requests_per_minute: Rate = 60_000  # from one address, with any tokens; WebSockets that are opened too
    stranger_requests_per_minute: Rate = 600  # from one address without a valid token
    metrics_open: bool = False  # /metrics without a token, for everybody who can reach the server
    connections_per_owner: Count = 20  # WebSockets and event streams
    session_seconds: Seconds = 43_200  # a browser that a login link has logged in stays so for this long
    webhooks: Annotated[WebhookSettings, Before(_mapping)] = WebhookSettings()


class ResultSettings(_Section):
    """Where files that jobs make are kept."""

    path: str = "rowlock-results"  # with a URL: of files that are still written
    file_bytes: Annotated[int, Before(_number), Field(ge=1)] = 10_000_000_000  # of one result
    url: Annotated[str, _like(_BUCKET, "must be s3://bucket or s3://bucket/prefix")] | None = None  # object storage
    endpoint: Annotated[str, _like("https?://[^/?#]+/?$", "must be such as https://s3.example.com")] | None = None
    region: str | None = None
    signed_urls: bool = False  # downloads are answered with an address of the storage
    signed_seconds: Annotated[float, Before(_seconds), Field(ge=1, le=7 * DAY)] = 300  # for so long

    @field_validator("signed_urls")
    @classmethod
    def _needs_storage(cls, signed: bool, info: ValidationInfo) -> bool:
        if signed and info.data.get("url") is None:
            raise ValueError("needs results.url: a local folder has no addresses to sign")
        return signed


class RedisSettings(_Section):
    """Redis or Valkey, through which tasks with runs_on="redis" reach workers in other languages."""

    url: Redis | None = Field(default=None, repr=False)  # may carry a user and a password
    prefix: Annotated[str, _like(r"[\w.:{}-]{0,100}\Z", "must be letters, digits and . : _ - {} alone")] = ""
    lease_seconds: Seconds = 60  # a job that has begun is published again after this long without a message
    takeover_seconds: Seconds = 30  # work of a bridge that does nothing for this long is taken over by another one
    unread: Count = 1_000  # requests that are published and of which nothing was heard; then publishing waits


def _rules(value: object) -> object:
    """Alert rules by name; checked, and left as they were written."""
    if isinstance(value, str):  # an environment variable
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError('must be JSON such as {"hanging": {"when": "running_seconds"}}') from None
    parse_rules(value)
    return value


class AlertSettings(_Section):
    """What operators are told about, and how. Without rules, nothing is looked at."""

    rules: Annotated[dict[str, dict[str, Any]], Before(_rules)] = Field(default_factory=dict)
    check_seconds: Annotated[float, Before(_seconds), Field(gt=0, le=3600, allow_inf_nan=False)] = 15  # between looks
    repeat_seconds: Annotated[float, Before(_seconds), Field(ge=1, le=30 * DAY, allow_inf_nan=False)] = 3600
    webhook_url: Annotated[str, _like("https?://[^/]", "must be an http or https URL")] | None = Field(
        default=None, repr=False
    )
    webhook_secret: str | None = Field(default=None, repr=False, validate_default=True)
    webhook_private: bool = False  # the URL may lead to the loopback or a private network
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
            raise ValueError("must be whsec_ and the base64 of 24 bytes or more")
        return secret

    @property
    def parsed_rules(self) -> tuple[Rule, ...]:
        """The rules as records."""
        return parse_rules(self.rules, self.repeat_seconds)


class SentrySettings(_Section):
    """Failed attempts as events of Sentry."""

    dsn: Annotated[str, _like("https?://", "must be the DSN of a Sentry project, https://…")] | None = Field(
        default=None, repr=False
    )  # where to send them
    environment: str | None = None
    enabled: bool = False  # without a DSN: by the client that the program has made with sentry_sdk.init

    @property
    def wanted(self) -> bool:
        """Whether failed attempts are sent."""
        return self.enabled or self.dsn is not None


class TraceSettings(_Section):
    """Spans of OpenTelemetry. Off unless enabled: each one costs, and somebody must collect them."""

    enabled: bool = False  # a span for each enqueue and each attempt
    claims: bool = False  # also one for each claim and each batch of outcomes that is written


class Settings(_Section):
    """Everything that can be set from outside the code."""

    database: Database = "sqlite:///rowlock.db"
    pooler: Literal["session", "transaction"] = "session"  # the mode of PgBouncer or its like, if there is one
    direct_url: Server | None = None  # PostgreSQL past the pooler, for wake-ups
    app: AppPath | None = None  # module:attribute; the attribute is `app` if none is named
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


class Given(NamedTuple):
    """A value, and where it stands. A flag may be given as one, where "--name" would be the wrong words."""

    value: Any
    origin: str


Flat = dict[str, Given]

SECTIONS: dict[str, type[_Section]] = {
    "worker": WorkerSettings,
    "transactions": TransactionSettings,
    "retention": RetentionSettings,
    "api": ApiSettings,
    "results": ResultSettings,
    "redis": RedisSettings,
    "sentry": SentrySettings,
    "traces": TraceSettings,
    "alerts": AlertSettings,
}
KEYS = [key for key in Settings.model_fields if key not in SECTIONS] + [
    f"{section}.{key}" for section, model in SECTIONS.items() for key in model.model_fields
]
VARIABLES = {"ROWLOCK_" + key.replace(".", "__").upper(): key for key in KEYS if key != "database"}
VARIABLES["ROWLOCK_DATABASE_URL"] = "database"
OTHER_VARIABLES = {
    "ROWLOCK_CONFIG",
    "ROWLOCK_DEBUG",
    "ROWLOCK_LOG_FORMAT",
    "ROWLOCK_LOG_LEVEL",
}  # not settings: the command line reads them
# Kubernetes gives every pod such variables for each Service: one called rowlock must not stop all workers.
_SERVICE = re.compile(r"ROWLOCK_(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")


def load_settings(
    *,
    file_text: str | None = None,
    file_name: str | None = None,
    env: Mapping[str, str],
    flags: Mapping[str, Any],
) -> Settings:
    """Flags (by dotted key; None is not given) over ROWLOCK_… variables over a YAML file over defaults."""
    from_file = {} if file_text is None else dict(_file(file_text, file_name or "config file", env))
    return _settings(from_file | dict(_environment(env)) | dict(_flags(flags)))


def change_worker(settings: WorkerSettings, changes: Mapping[str, Any]) -> WorkerSettings:
    """A worker's settings, some of them replaced by arguments of a call."""
    flat = {f"worker.{key}": Given(value, "settings") for key, value in settings}
    for key, value in changes.items():
        given = Given(value, "argument")
        flat[_known(f"worker.{key}", KEYS, given)] = given
    return _settings(flat).worker


def _settings(flat: Flat) -> Settings:
    nested: dict[str, Any] = {section: {} for section in SECTIONS}
    for key, given in flat.items():
        section, _, name = key.rpartition(".")
        (nested[section] if section else nested)[name] = given.value
    try:
        return Settings.model_validate(nested)
    except ValidationError as error:
        raise _mistake(error, flat) from None


def _flags(flags: Mapping[str, Any]) -> Iterator[tuple[str, Given]]:
    for key, value in flags.items():
        if value is not None:
            flag = "--" + key.rpartition(".")[2].replace("_", "-")
            given = value if isinstance(value, Given) else Given(value, flag)
            yield _known(key, KEYS, given), given


def _environment(env: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    for name, value in sorted(env.items()):
        ours = name in VARIABLES  # ROWLOCK_API__PORT looks like a variable of a Service, too
        if not name.startswith("ROWLOCK_") or name in OTHER_VARIABLES or (not ours and _SERVICE.fullmatch(name)):
            continue
        _known(name, VARIABLES, Given(value, "environment"), "variable")
        if not value.strip():
            # Compose files make these. The default instead would be another database, in silence.
            raise ConfigError(
                f"{VARIABLES[name]} = {value!r} (environment variable {name}): is empty; fill or unset it"
            )
        yield VARIABLES[name], Given(value, f"environment variable {name}")


def _file(text: str, name: str, env: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    data, lines = _parsed(text, name)
    for key, value in _flat(data, name):
        given = Given(value, f"{name}:{lines[key]}" if key in lines else name)
        given = given._replace(value=_filled(key, given, value, env))
        if key in SECTIONS:
            raise ConfigError(f"{_said(key, given)}: must be a mapping with keys such as {_keys_of(key)[0]}")
        yield _known(key, KEYS, given), given


def _flat(data: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The file's dotted keys. A section that is no mapping is passed on as it is, to be refused."""
    if not isinstance(data, dict | None):
        raise ConfigError(f"{name}: must be a mapping with keys such as worker, not {data!r:.60}")
    for key, value in (data or {}).items():
        if key in SECTIONS and isinstance(value, dict | None):
            yield from ((f"{key}.{inner}", deep) for inner, deep in (value or {}).items())
        else:
            yield str(key), value


def _filled(key: str, given: Given, value: Any, env: Mapping[str, str]) -> Any:
    """`value` with each ${VARIABLE} and ${VARIABLE:-default} in its texts replaced. After YAML is read, so that
    no variable can add keys to the file."""
    if isinstance(value, dict):
        return {name: _filled(key, given, inner, env) for name, inner in value.items()}
    if isinstance(value, list):
        return [_filled(key, given, inner, env) for inner in value]
    if not isinstance(value, str):
        return value

    def fill(found: re.Match[str]) -> str:
        text = env.get(found["name"]) or found["default"]
        if text is None:
            raise ConfigError(
                f"{_said(key, given)}: the environment variable {found['name']} is not set or empty;"
                f" set it, or write a default: ${{{found['name']}:-…}}"
            )
        return text

    if (whole := _VARIABLE.fullmatch(value)) is not None and not value.startswith("$$"):
        return _scalar(fill(whole))
    return _VARIABLE.sub(lambda found: found[0][1:] if found[0].startswith("$$") else fill(found), value)


def _scalar(text: str) -> Any:
    """A variable that is a whole value: 3 and true are a number and a truth value, as they would be in the file."""
    import yaml

    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return value if isinstance(value, (bool, int, float)) else text


def _parsed(text: str, name: str) -> tuple[Any, dict[str, int]]:
    """The document, and the line of each dotted key."""
    import yaml  # here, because only those who have a file need it

    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        lines: dict[str, int] = {}
        for key, line in _lines(node):
            if key in lines:
                raise ConfigError(f"{key} ({name}:{line}): stands on line {lines[key]} already")
            lines[key] = line
        return (None if node is None else loader.construct_document(node)), lines
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        parts = [getattr(error, "context", None), getattr(error, "problem", None)]
        reason = ": ".join(filter(None, parts)) or str(error).partition("\n")[0]
        raise ConfigError(f"{name}{where}: not valid YAML: {reason}") from None


def _lines(node: Any, prefix: str = "") -> Iterator[tuple[str, int]]:
    for key, value in node.value if getattr(node, "id", None) == "mapping" else ():
        if key.id == "scalar" and key.value != "<<":
            yield prefix + key.value, key.start_mark.line + 1
            if not prefix and key.value in (*SECTIONS, "sources", "schedules"):
                yield from _lines(value, f"{key.value}.")


# --- messages


def _known(name: str, known: Collection[str], given: Given, what: str = "setting") -> str:
    """`name`, or an error with the nearest name that exists."""
    if name in known:
        return name
    from difflib import get_close_matches

    # Only last parts are compared: what stands before makes every name look like every other.
    section = name.partition(".")[0] if "." in name else ""
    names = [key for key in known if key.startswith(f"{section}.")] or [*known, *SECTIONS]
    last = {_last_part(candidate): candidate for candidate in names}
    close = get_close_matches(_last_part(name), last, n=1)
    hint = f"did you mean {last[close[0]]}?" if close else f"there are {', '.join(_keys_of(section))}"
    raise ConfigError(f"{_said(name, given)}: no such {what}; {hint}")


def _last_part(name: str) -> str:
    return name.removeprefix("ROWLOCK_").rpartition("__")[2].rpartition(".")[2]


def _keys_of(section: str) -> list[str]:
    return list(SECTIONS.get(section, Settings).model_fields)


def _mistake(error: ValidationError, flat: Flat) -> ConfigError:
    """The first mistake, as one line."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    key = next(key for key in KEYS if f"{place}.".startswith(f"{key}."))
    given = flat.get(key, Given(first["input"], "default"))
    reason = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if first["type"] == "lease" and given.origin in ("default", "settings"):
        # Nobody wrote the lease here; what was changed is the beat.
        key, reason = "worker.heartbeat_seconds", f"must be at most half of lease_seconds ({given.value:g})"
        given = flat[key]
    return ConfigError(f"{_said(key, given)}: {reason}")


def _said(key: str, given: Given) -> str:
    return f"{key} = {_shown(key, given.value)} ({given.origin})"


def _shown(key: str, value: Any) -> str:
    """A value for a message: short, and without passwords."""
    if isinstance(value, dict):
        return "{…}"
    if _SECRET.search(key):
        return "***"
    if isinstance(value, str):
        value = _PASSWORD.sub(lambda found: f"{found[1]}:***@" if found[1] is not None else "***", value)
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"

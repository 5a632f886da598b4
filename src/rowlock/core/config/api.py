"""The settings of the job API and of the requests that it sends: the section `api`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator as After
from pydantic import BeforeValidator as Before
from pydantic import Field, model_validator

from rowlock.core.config.values import Count, List, Rate, Seconds, Section, from_json, matching, number, time_zone


class JwtSettings(Section):
    """Tokens of an identity provider (JWT). `algorithm` counts, not the one that a token's header names."""

    algorithm: Literal["HS256", "RS256"]
    secret: str | None = Field(default=None, repr=False)  # for HS256
    jwks: str | None = None  # for RS256: a file, or an https:// URL (http:// on this machine only)
    issuer: str | None = None
    audience: str | None = None
    owner_claim: str = "sub"  # the claim that names the owner whose jobs the token may see
    operator_claim: str | None = None  # the claim that, if it is true, makes the caller an operator

    @model_validator(mode="after")
    def _has_its_key(self) -> JwtSettings:
        needed, other = ("secret", "jwks") if self.algorithm == "HS256" else ("jwks", "secret")
        if getattr(self, needed) is None or getattr(self, other) is not None:
            raise ValueError(f"{self.algorithm} needs {needed}, and no {other}")
        if self.secret is not None and len(self.secret.encode()) < 32:
            raise ValueError("secret must have 32 bytes or more")
        return self


def _mapping(value: object) -> object:
    return from_json(value, '{"enabled": true}')


class WebhookSettings(Section):
    """Webhooks: requests to an address that a client of the API named, sent when its job ends. Off unless enabled,
    because a worker calls addresses that strangers chose."""

    enabled: bool = False
    hosts: List = ()  # that may be called, also *.example.com; if empty: all public hosts
    allow_private: bool = False  # also call loopback and private addresses: for tests only
    queue: str = Field(
        default="default", min_length=1, max_length=200
    )  # of the jobs that send; a worker with these settings must serve it
    max_attempts: Count = 12
    retry_seconds: Seconds = 5  # before the second attempt; doubled for each further one, up to six hours
    timeout_seconds: Seconds = 15  # of one attempt


BasePath = Annotated[str, matching(r"(/[\w.~-]+)*\Z", "must be empty or such as /rowlock, without a slash at its end")]


class ApiSettings(Section):
    """The job API: where it listens, who may call it, and how often."""

    host: str = "127.0.0.1"
    port: Annotated[int, Before(number), Field(ge=0, le=65_535)] = 8321
    base_path: BasePath = ""  # before the path of every route, where a proxy forwards only a part of its paths
    zone: Annotated[str, After(time_zone)] = "UTC"  # time zone of the times in answers
    cors_origins: List = ()  # web origins that may call, such as https://example.com
    allowed_hosts: List = ()  # names of this server (Host header), beside localhost
    trusted_proxies: List = ()  # addresses whose X-Forwarded-… headers are believed
    jwt: JwtSettings | None = None
    body_bytes: Annotated[int, Before(number), Field(ge=1024, le=100_000_000)] = 524_288
    body_seconds: Seconds = 10  # time limit for a whole request body to arrive
    idle_seconds: Seconds = 30  # time limit for a request's head, for a pong, and for a client that stops reading
    argument_depth: Annotated[int, Before(number), Field(ge=1, le=200)] = 32  # how deep arguments may nest
    jobs_per_owner: Annotated[int, Before(number), Field(ge=1, le=1_000_000)] = 10_000  # unfinished ones
    requests_per_minute: Rate = 6_000  # with one token
    address_requests_per_minute: Rate = 60_000  # from one address, whatever tokens; opening a WebSocket counts
    stranger_requests_per_minute: Rate = 600  # from one address without a valid token
    metrics_open: bool = False  # /metrics needs no token: open to everybody who can reach the server
    connections_per_owner: Count = 20  # WebSockets and event streams
    session_seconds: Seconds = 43_200  # how long a browser stays logged in after a login link
    webhooks: Annotated[WebhookSettings, Before(_mapping)] = WebhookSettings()

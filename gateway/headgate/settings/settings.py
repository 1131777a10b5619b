"""The settings, one frozen dataclass that is read once from mappings and reports all faults together. No I/O.

In: the process environment, an application's configuration, the command line (later ones win). Out: `Settings`, for the rest of
Headgate. No other file of ours reads the environment, which ruff checks. `docs/settings.md` is generated from here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, fields
from ipaddress import IPv6Address
from math import ceil
from operator import attrgetter
from typing import Any, ClassVar, Literal

from headgate.errors import BusRefused, SettingsError, UnknownNamespace
from headgate.events.topic import DEFAULT_NAMESPACE, MAX_TOPIC_BYTES, MAX_TOPIC_WORDS, check_namespace
from headgate.settings.addresses.http_target import read_target
from headgate.settings.addresses.origins import is_loopback, parse_host, parse_host_pattern, parse_origin_pattern
from headgate.settings.addresses.redis_url import FORMS, read_url

from .options import (
    HOST_AND_PORT,
    PATTERNS,
    SWITCH,
    Kind,
    WrongValue,
    all_parsed,
    file_path,
    integer,
    number,
    one_of,
    option,
    parsed,
    read_options,
    read_words,
    text,
)

PREFIX = "HEADGATE_"
# A value of HEADGATE_SCHEMAS. Any other is a folder.
REGISTRY = "redis"
HARD_MAX_PAYLOAD_BYTES = 1024 * 1024
MOST_LOG_EVENTS = 10_000_000
MAX_WORKERS = 256
# Hosts that mean every address of the machine.
EVERYWHERE = ("0.0.0.0", "::", "")
# A secret must be at least as long as the hash of HS256 (RFC 7518, section 3.2).
MIN_SECRET_BYTES = 32
# Distinct characters. All but one in a million random hexadecimal secrets have more than 8. A padded word has fewer, or
# repeats.
MIN_SECRET_DIFFERENT = 8
MIN_SECRET_REPEATED_BYTES = 16
# Letters and digits of examples that operators forget to replace. Random bytes never contain one in practice.
PLACEHOLDERS = (
    *("changeme", "changethis", "changeit", "replaceme", "replacethis", "replacewith", "placeholder", "insertyour", "putyour"),
    *("yoursecret", "yourkey", "yourtoken", "yourpassword", "yourown", "yoursuper", "your256bit", "mysecret", "supersecret"),
    *("secrethere", "keyhere", "goeshere", "fortheexample", "examplesecret", "examplekey", "examplepassword", "dummysecret"),
    *("secretatleast", "insecure", "notsecret", "notsosecret", "donotuse"),
)
STRONG_SECRET = (
    f"a secret of at least {MIN_SECRET_BYTES} bytes, {MIN_SECRET_DIFFERENT} of them different, that does not repeat a short text"
    ", is no placeholder and no key of another kind (PEM, SSH, JWK), and has no blank or line end around it"
)
_OTHER_KEY = re.compile(rb'-----BEGIN |\A(?:ssh-|ecdsa-sha2-)|"kty"')
# Remedies for a gateway that cannot check a token, and for one without any way to connect.
CHECK_TOKENS = f"give `Headgate` an authenticator, or set {PREFIX}TOKEN_SECRET, {PREFIX}TOKEN_KEYS or {PREFIX}TOKEN_JWKS_URL"
LET_IN = f"{CHECK_TOKENS}, or start with --dev on your own machine"
# What an operator must know of HEADGATE_DEV.
DEVELOPMENT = "development mode: anyone on this machine may subscribe to everything and publish. Never use it in public."
_REDIS_PROGRAM, _CONFIGURATION_FILE = "HEADGATE_REDIS_SERVER", "HEADGATE_CONFIG"
# Variables that Kubernetes sets in every container, unless `enableServiceLinks: false`, for a Service named headgate or
# headgate-something: https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
# Docker's `--link` sets more, also the linked container's name and environment: https://docs.docker.com/engine/network/links/
_SERVICE = rf"{PREFIX}(?:[A-Z0-9_]+_)?"
_SERVICE_NAMES = re.compile(rf"{_SERVICE}(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT_[0-9]+_(TCP|UDP|SCTP)(_[A-Z_]+)?|ENV_\w+)")
_SERVICE_PORT, _SERVICE_VALUE = re.compile(rf"{_SERVICE}(PORT|NAME)"), re.compile(r"(tcp|udp|sctp)://\S+:[0-9]+|/\S+/\S+")
# Quotes that `docker run --env-file` keeps around a value.
_QUOTED = re.compile(r"""\s*(["']).*\1\s*""", re.DOTALL)
# Names with our prefix for tools around the gateway (Makefile, tests, bench, publishers).
_FOREIGN = {_REDIS_PROGRAM, _CONFIGURATION_FILE, "HEADGATE_PURE", "HEADGATE_CHROMIUM", "HEADGATE_BENCH_CENTRIFUGO"}


def environment() -> MutableMapping[str, str]:
    """Return the environment of the process, for code that merges it with other sources before `Settings.read`."""
    return os.environ


def is_service_link(name: str, value: object) -> bool:
    """Return whether an orchestrator has set this variable for a service of our name. It is then not a setting."""
    if _SERVICE_NAMES.fullmatch(name):
        return True
    # HEADGATE_PORT is also a setting.
    return bool(_SERVICE_PORT.fullmatch(name) and isinstance(value, str) and _SERVICE_VALUE.fullmatch(value.strip()))


def variables_set(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a source, which are `HEADGATE_` names with a value, except service links.

    Includes names in lower case, such as headgate_port, for `Settings.read` to refuse.
    """
    return {
        name: value
        for name, value in source.items()
        if isinstance(name, str) and (name.startswith(PREFIX) or name.upper() in _VARIABLES)
        if value not in ("", None) and not is_service_link(name, value)
    }


def service_links_ignored(source: Mapping[str, str]) -> str | None:
    """Return a line about service links in the environment for a starting process, or None without any."""
    names = sorted(name for name, value in source.items() if is_service_link(name, value))
    if not names:
        return None
    return (
        f"ignored {len(names)} variables that the orchestrator sets for a service, such as {names[0]} (enableServiceLinks: false)"
    )


def redis_program() -> str | None:
    """Return the path in HEADGATE_REDIS_SERVER of the server program for a private Redis, if set."""
    return os.environ.get(_REDIS_PROGRAM, "").strip() or None


def configuration_file() -> str | None:
    """Return the path in HEADGATE_CONFIG of the configuration file, if set."""
    return os.environ.get(_CONFIGURATION_FILE, "").strip() or None


def _workers(raw: Any) -> int:
    return 0 if str(raw).strip() == "auto" else integer(1, MAX_WORKERS).read(raw)


def _namespaces(raw: Any) -> tuple[str, ...]:
    try:
        names = tuple(check_namespace(name) for name in read_words(raw))
    except UnknownNamespace as error:
        raise ValueError from error
    if not names or len(set(names)) != len(names):
        raise ValueError
    return names


def _redis_url(raw: Any) -> str:
    try:
        read_url(raw)
    except BusRefused as error:
        raise WrongValue(str(error.parts["reason"]), says_expected=True) from None
    return str(raw).strip()


def _listen_host(raw: Any) -> str:
    """Read a host to listen on. Only here may an IPv6 address have a zone, the name of a network interface."""
    given = raw.strip()
    if "%" in given:
        return str(IPv6Address(given.removeprefix("[").removesuffix("]")))
    return parsed(parse_host, given)


def _log_bytes(raw: Any) -> int:
    size: int = integer(0, 10**14).read(raw)
    if size and size < 2**20:
        raise ValueError
    return size


def _origins(raw: Any) -> tuple[str, ...]:
    return tuple(map(str, all_parsed(lambda each: each if each == "*" else parse_origin_pattern(each), read_words(raw))))


def _hosts(raw: Any) -> tuple[str, ...]:
    return all_parsed(lambda each: each if each == "*" else parse_host_pattern(each), read_words(raw))


def _secret(raw: Any) -> str:
    """Read a secret unchanged. A line end around it is refused, because the signer may not strip it either."""
    if not isinstance(raw, str) or is_weak_secret(raw.encode(errors="surrogateescape")):
        raise ValueError
    return raw


def _admin_key(raw: Any) -> str:
    """Read a secret for use in a header."""
    key = _secret(raw)
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError
    return key


def _jwks_url(raw: Any) -> str:
    url = str(raw).strip()
    target = read_target(url)
    if "#" in url or (target.scheme != "https" and not is_loopback(target.host)):
        raise ValueError
    return url


def is_weak_secret(secret: bytes) -> bool:
    """Return whether a secret is guessable, has white space around it, or is a key of another kind, which may be public.

    STRONG_SECRET describes a good one.
    """
    if secret != secret.strip() or _OTHER_KEY.search(secret):
        return True
    # The first position of a text in its double is the length of its repeated part.
    repeated_bytes = (secret + secret).find(secret, 1)
    return (
        len(secret) < MIN_SECRET_BYTES
        or len(set(secret)) < MIN_SECRET_DIFFERENT
        or repeated_bytes < MIN_SECRET_REPEATED_BYTES
        or is_placeholder(secret)
    )


def is_placeholder(secret: bytes) -> bool:
    """Return whether a secret is a copied example."""
    bare = re.sub(r"[^a-z0-9]", "", secret.decode(errors="replace").lower())
    return any(each in bare for each in PLACEHOLDERS)


# Failed logins of an address are forgotten after this time.
FAILED_LOGINS_S = 50.0


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. Each field `name` is `HEADGATE_NAME` in the environment and in `app.config`."""

    # Limit on the `meta` of a topic's member, in bytes of JSON text.
    max_presence_meta_bytes: ClassVar[int] = 1024

    host: str = option(
        "127.0.0.1",
        Kind(_listen_host, "a host name or address, without a port"),
        "Address to listen on. Default: loopback only.",
    )
    port: int = option(8000, integer(0, 65535, "(0 picks a free one)"), "Port to listen on.")
    workers: int = option(
        1,
        Kind(_workers, f"a whole number from 1 to {MAX_WORKERS}, or auto"),
        "Worker processes of `headgate serve` on one port. auto (stored as 0) means one per available processor.",
    )
    redis_url: str | None = option(
        None,
        Kind(_redis_url, f"a URL such as {FORMS}"),
        "Redis or Valkey to use. Not set: the gateway starts a private server and stops it when it stops.",
        secret=True,
    )
    data_dir: str = option(".headgate", file_path("a folder"), "Folder of the private Redis server (socket, data, log).")
    dev: bool = option(
        False, SWITCH, "Development: anonymous clients may subscribe to everything and publish. Never with a public address."
    )
    demo: bool = option(
        False,
        SWITCH,
        "Serve the demo (the shared orders board) at /. Anyone may sign in, so it excludes token settings and public addresses.",
    )
    demo_public: bool = option(
        False,
        SWITCH,
        "Also serve the demo on addresses other than loopback, to anyone who reaches it, such as from a container.",
    )
    trace_every: int = option(
        100,
        integer(0, 1_000_000),
        "For `headgate trace`: count every nth event in detail when a gateway has more than 100 a second, and every event below "
        "that. 1: always every event, 0: none.",
    )
    otel: bool = option(
        False, SWITCH, "Create OpenTelemetry spans of sampled events and send them as the OTEL_ variables say (extra `otel`)."
    )
    console_actions: bool = option(
        False,
        SWITCH,
        "Operators signed in with HEADGATE_ADMIN_KEY may act in the console: publish, disconnect, retry dead letters. Otherwise "
        "they may only read.",
    )
    metrics_open: bool = option(
        False, SWITCH, "Serve /metrics to every address, not only to loopback. Never to requests that came through a proxy."
    )
    statsd: tuple[str, int] | None = option(
        None, HOST_AND_PORT, "StatsD server (UDP) that receives the metrics of each process every 10 s."
    )
    namespaces: tuple[str, ...] = option(
        (DEFAULT_NAMESPACE,),
        Kind(_namespaces, "names of [A-Za-z0-9_-], comma-separated, each once"),
        "Namespaces to serve. Each is one log, one set of limits, one Socket.IO namespace.",
    )
    allowed_origins: tuple[str, ...] = option(
        (),
        Kind(_origins, "origins such as https://app.example.com, comma-separated; https://*.example.com is one label"),
        "Every origin whose pages may connect, including your own. Not set: the gateway's own, with the scheme from its proxies. "
        "With HEADGATE_DEV, every loopback origin may connect too.",
    )
    hosts: tuple[str, ...] = option(
        (),
        Kind(_hosts, "host names such as app.example.com or *.example.com (one label), without ports, comma-separated; or *"),
        "Host names of the gateway, besides loopback. Requests to other names get 421. Not set: the host that it listens on, "
        "addresses, hosts of HEADGATE_ALLOWED_ORIGINS, and with HEADGATE_PROXIES the names that they forward.",
    )
    token_secret: str | None = option(None, Kind(_secret, STRONG_SECRET), "Secret of tokens signed with HS256.", secret=True)
    token_keys: str | None = option(
        None,
        file_path("path of a JSON or TOML file"),
        "Keys of tokens: key id → {alg, key}, with alg one of HS256, RS256, ES256, EdDSA and key a PEM public key or a secret.",
    )
    token_jwks_url: str | None = option(
        None,
        Kind(_jwks_url, "a URL such as https://login.example.com/jwks.json, without user and password; http only to loopback"),
        "URL of token keys (JWKS), which the gateway fetches every five minutes and uses beside the configured keys.",
    )
    token_issuer: str | None = option(None, text("a name or URL"), "Required `iss` of a token. Not set: any.")
    token_audience: str = option("headgate", text("a name"), "The `aud` that a token must name, alone or in a list.")
    token_leeway_s: float = option(
        5.0, number(0, 30, "seconds"), "Tolerated difference between the clocks of the token's issuer and the gateway."
    )
    admin_key: str | None = option(
        None,
        Kind(_admin_key, STRONG_SECRET + ", of printable ASCII without spaces"),
        "Key of the operator: a caller of the HTTP API with it may do everything, and it signs in to the console at /console. "
        "Not set: only API keys (`headgate keys`) may, and the console is off unless an authenticator lets someone in.",
        secret=True,
    )
    anonymous_subscribe: tuple[str, ...] = option(
        (), PATTERNS, "Patterns that clients without a token may subscribe to. Not set: every client needs a token."
    )
    anonymous_namespaces: tuple[str, ...] = option(
        (),
        Kind(lambda raw: _namespaces(raw) if raw != () else (), "names out of HEADGATE_NAMESPACES, comma-separated"),
        "Namespaces that HEADGATE_ANONYMOUS_SUBSCRIBE applies to. Not set: the first one.",
    )
    max_clients_per_user: int = option(
        64,
        integer(0, 1_000_000, "clients (0 for no limit)"),
        "Clients of one user, on all gateways of one Redis (docs/decisions/0034 says how exactly). Anonymous "
        "clients are counted by address only.",
    )
    max_clients_per_address: int = option(
        1000,
        integer(0, 1_000_000, "clients (0 for no limit)"),
        "Clients from one network address (of IPv6: one /64), on all gateways of one Redis (docs/decisions/0034). On each "
        "gateway as many pending sessions, and as many HTTP connections (at most an eighth of the descriptors; a reload leaves "
        "their limit). Behind a proxy, set HEADGATE_PROXIES too. Does not limit anonymous clients in development.",
    )
    max_clients: int = option(
        0,
        integer(0, 10_000_000, "clients (0 for no limit)"),
        "Maximum clients of one gateway process. Further newcomers get 503. One place in twenty is reserved for returning "
        "clients.",
    )
    failed_logins_burst: int = option(
        100,
        integer(0, 1_000_000, "logins (0 for no limit)"),
        "Failed logins of one network address, at all gateways of one Redis, after which they refuse further logins unread for a "
        "while. Not in development.",
    )
    proxies: int = option(
        0,
        integer(0, 16, "proxies"),
        "Proxies in front of the gateway. Each adds the address of its caller to X-Forwarded-For, or to Forwarded (RFC 7239).",
    )
    max_payload_bytes: int = option(
        65536, integer(1, HARD_MAX_PAYLOAD_BYTES, "bytes"), "Largest payload of an event, in bytes of JSON text."
    )
    queue_frames: int = option(256, integer(2, 65536, "frames"), "Client queue: frames that may wait for one client.")
    queue_bytes: int = option(
        1024 * 1024, integer(65536, 256 * 1024 * 1024, "bytes"), "Client queue: bytes that may wait for one client."
    )
    send_buffer_bytes: int = option(
        65536, integer(4096, 16 * 1024 * 1024, "bytes"), "Kernel send buffer (SO_SNDBUF) of each client's socket."
    )
    write_deadline_s: float = option(
        10.0,
        number(0.1, 600, "seconds"),
        "The gateway closes a socket that accepts no bytes for this long while frames or the rest of an HTTP answer wait. A "
        "client may pause within a request's body for as long, and longer while it comes at 1 KiB per second or faster.",
    )
    drain_s: float = option(
        10.0,
        number(0, 600, "seconds"),
        "Before `headgate serve` stops, it notifies its clients to move and disconnects them over this time. At once with 0, or "
        "when no other gateway serves them.",
    )
    rebalance_per_s: float = option(
        10.0,
        number(0, 1000, "clients per second (0 for never)"),
        "After a deploy, clients per second that each gateway process takes over from fuller ones until all have equally many. "
        "`headgate rebalance` starts this at any time.",
    )
    ping_interval_s: float = option(25.0, number(0.05, 600, "seconds"), "Time between pings to a client.")
    ping_timeout_s: float = option(
        20.0, number(0.05, 600, "seconds"), "The gateway disconnects a client that does not answer a ping for this long."
    )
    handshake_deadline_s: float = option(
        10.0,
        number(0.1, 600, "seconds"),
        "A connection must have sent its request, and joined a namespace, within this time. It may wait for as long for its next "
        "HTTP request.",
    )
    inbound_per_s: float = option(
        50.0, number(0.1, 100000, "messages per second"), "Messages that one client may send per second; twice as many at once."
    )
    publish_per_s: float = option(
        200.0,
        number(0.1, 100000, "events per second"),
        "Events that one user may publish over HTTP per second, over all gateways of one "
        "Redis (docs/decisions/0038 says how exactly); twice as many at once.",
    )
    ephemeral_per_s: float = option(
        20.0,
        number(0.1, 100000, "events per second"),
        "Ephemeral events that one user (without a token: one client) may publish per second through one gateway process; "
        "twice as many at once.",
    )
    requests_per_s: float = option(
        20.0,
        number(0.1, 100000, "requests per second"),
        "Requests to functions of the application (`on_request`) that one user (without a token: one address) may make per "
        "second through one gateway process; twice as many at once.",
    )
    max_requests: int = option(
        16, integer(1, 65536, "requests"), "Those of one user that may wait for their answers in one gateway process."
    )
    request_timeout_s: float = option(
        10.0, number(0.05, 600, "seconds"), "Time that a function of the application has to answer one of them."
    )
    read_per_s: float = option(
        50.0,
        number(0.1, 100000, "pages per second"),
        "Pages of the log that one user (or, without a token, one address) may read per second, over all gateways of one "
        "Redis: as many over HTTP, and as many with `replay` and `since` in each namespace. Four times as many at once.",
    )
    max_subscriptions: int = option(
        128, integer(1, 65536, "patterns"), "Subscriptions of one client; a quarter of them may have a wildcard."
    )
    max_presence_topics: int = option(
        16, integer(0, 65536, "topics (0 for no presence)"), "Topics whose members one client may watch, or be a member of."
    )
    max_presence_members: int = option(
        10_000,
        integer(1, 1_000_000, "users"),
        "Users that may be members of one topic, over all gateways. Users who enter at the same moment may exceed it.",
    )
    presence_events: tuple[str, ...] = option(
        (),
        PATTERNS,
        "Topics that publish `<topic>.occupied` when the first member enters, and `<topic>.vacated` when the last one leaves. "
        "Not set: none.",
    )
    event_by: tuple[str, ...] = option(
        (),
        PATTERNS,
        "Topics whose events name their sender to clients (`event.by`): the user of the token that published. Not set: none.",
    )
    log_max_events: int = option(
        0,
        integer(0, MOST_LOG_EVENTS, "events"),
        f"Log retention by count, per namespace. 0: as many as age and bytes allow, at most {MOST_LOG_EVENTS}.",
    )
    log_max_age_s: int = option(600, integer(1, 30 * 86400, "seconds"), "Log retention by age, per namespace.")
    log_max_bytes: int = option(
        0,
        Kind(_log_bytes, "bytes, at least 1048576, or 0"),
        "Log retention by bytes, per namespace. 0: half of Redis' `maxmemory` for all logs; 256 MiB for each log without that "
        "limit.",
    )
    fence_interval_s: float = option(
        1.0,
        number(0.05, 60, "seconds"),
        "Time between fences, which verify that everything up to the log's head has arrived; five times as long while no client "
        "listens and nothing is published.",
    )
    schemas: str | None = option(
        None,
        file_path("a folder, or `redis`"),
        "JSON Schemas of topics: a folder of files, or `redis` for those of the registry. Needs the extra `schemas`.",
    )
    schema_check: Literal["off", "warn", "refuse"] = option(
        "warn",
        one_of("off", "warn", "refuse"),
        "Whether an event that breaks a schema of its topic (HEADGATE_SCHEMAS) is published unchecked, published and logged, or "
        "refused.",
    )
    log_level: str = option("info", one_of("debug", "info", "warning", "error"), "Least severe log line to write.")
    log_format: Literal["auto", "console", "logfmt", "json"] = option(
        "auto",
        one_of("auto", "console", "logfmt", "json"),
        "Form of log lines (docs/logs.md): auto is console on a terminal, and logfmt elsewhere.",
    )

    @classmethod
    def read(cls, *sources: Mapping[str, Any]) -> Settings:
        """Return the settings in `sources`; a later source wins over an earlier one.

        Service links and keys without the prefix `HEADGATE_` are ignored, but a setting in small letters is a fault. An empty
        string counts as not set. Raises SettingsError with one line for every wrong value and every unknown `HEADGATE_` name.
        """
        merged = {name: raw for source in sources for name, raw in variables_set(source).items()}
        small = [name for name in sorted(merged) if name != name.upper() in _VARIABLES]
        left_out = {*_FOREIGN, *small}
        given = {name.removeprefix(PREFIX).lower(): raw for name, raw in sorted(merged.items()) if name not in left_out}
        quoted = [name for name, raw in given.items() if isinstance(raw, str) and _QUOTED.fullmatch(raw)]
        faults = [f"{_variable(name)} is no longer a setting: {why}" for name, why in REMOVED.items() if name in given]
        faults += [
            f"{_variable(name)} is in quotes, which count as part of the value: take them away"
            for name in quoted
            if name not in REMOVED
        ]
        given = {name: raw for name, raw in given.items() if name not in quoted and name not in REMOVED}
        settings, faults_read = read_options(cls, given, "a setting")
        faults += [f"{name} is not a setting; did you mean {name.upper()}?" for name in small]
        faults += [fault.line(_variable) for fault in faults_read]
        if settings is not None:
            faults += _cross_faults(settings)
        if faults:
            raise SettingsError(faults)
        assert settings is not None
        return settings

    @classmethod
    def from_environment(cls, *only: str) -> Settings:
        """Return the settings in the environment. With `only`, read names with these prefixes and ignore faults in others.

        Raises SettingsError as `read`.
        """
        return cls.read({name: raw for name, raw in os.environ.items() if name.upper().startswith(only or PREFIX)})

    @property
    def lets_nobody_in(self) -> bool:
        """Whether no client may connect without an authenticator of the application."""
        return not (
            self.dev or self.demo or self.token_secret or self.token_keys or self.token_jwks_url or self.anonymous_subscribe
        )

    def served(self, namespace: str | None) -> str:
        """Return the namespace to publish to, which is the given one or the gateway's first.

        Raises UnknownNamespace if this gateway does not serve it.
        """
        if namespace is None:
            return self.namespaces[0]
        name = namespace.removeprefix("/")
        if name not in self.namespaces:
            raise UnknownNamespace(namespace, self.namespaces)
        return name

    def schema_check_in_force(self) -> Literal["off", "warn", "refuse"]:
        """Return how events are checked; never without schemas."""
        return self.schema_check if self.schemas else "off"

    @property
    def max_refusals(self) -> int:
        """How many refused requests end a connection, more than one CONNECT may have. One is forgiven per second."""
        return 2 * self.max_subscriptions

    # The limits of HTTP (transport/http_limits.py) that are those of clients.
    max_connections_per_address = property(attrgetter("max_clients_per_address"))
    body_deadline_s = property(attrgetter("write_deadline_s"))
    keep_alive_s = property(attrgetter("handshake_deadline_s"))

    @property
    def max_wildcards(self) -> int:
        """How many subscriptions of one client may have a wildcard. Each costs more per event than one without."""
        return max(1, self.max_subscriptions // 4)

    @property
    def inbound_burst(self) -> int:
        """Messages that one client may send at once."""
        return max(1, ceil(2 * self.inbound_per_s))

    @property
    def publish_burst(self) -> int:
        """Events that one user may publish over HTTP at once."""
        return max(1, ceil(2 * self.publish_per_s))

    @property
    def read_burst(self) -> int:
        """Pages of the log that one user may read at once."""
        return max(1, ceil(4 * self.read_per_s))

    @property
    def failed_logins_per_s(self) -> float:
        """How many failed logins of an address are forgotten per second, which is all of them after FAILED_LOGINS_S."""
        return max(self.failed_logins_burst, 1) / FAILED_LOGINS_S

    def values_for(self, declared: type[Any]) -> dict[str, Any]:
        """Return the settings, and the values derived from them, that are fields of a dataclass."""
        return {each.name: getattr(self, each.name) for each in fields(declared) if hasattr(Settings, each.name)}

    def limits(self) -> dict[str, Any]:
        """Return the limits that `welcome` sends to a client."""
        limits = {name: getattr(self, name) for name in _CLIENT_LIMITS}
        return {**limits, "max_topic_bytes": MAX_TOPIC_BYTES, "max_topic_words": MAX_TOPIC_WORDS}


# The limits that `welcome` sends to clients (docs/protocol.md). The total number of clients is not among them, because only a
# refusal reveals it.
_CLIENT_LIMITS = (
    *("max_payload_bytes", "queue_frames", "queue_bytes", "max_subscriptions", "max_wildcards", "max_presence_topics"),
    *("max_presence_members", "max_presence_meta_bytes", "max_refusals", "inbound_per_s", "inbound_burst", "publish_per_s"),
    *("publish_burst", "ephemeral_per_s", "requests_per_s", "max_requests", "request_timeout_s", "read_per_s", "read_burst"),
    *("write_deadline_s", "handshake_deadline_s", "max_clients_per_user", "max_clients_per_address", "log_max_events"),
    *("log_max_age_s", "log_max_bytes"),
)
# Settings of earlier releases, each with its replacement.
REMOVED = dict.fromkeys(
    ("internal_address", "relay_key"),
    'gateways no longer relay requests to each other; take it away, and see "Several gateways" in docs/operations/deploy.md',
) | {
    "statsd_prefix": "names in StatsD begin with `headgate`; take it away",
    "http_min_bytes_per_s": "a slow HTTP client needs 1 KiB a second; take it away",
    "shed_lag_s": "a gateway refuses newcomers when its loop is a second late; take it away",
    "max_body_bytes": "set MAX_CONTENT_LENGTH in your application instead",
    "failed_logins_per_s": "failed logins are forgotten within 50 s; set HEADGATE_FAILED_LOGINS_BURST alone",
    "max_presence_meta_bytes": "a page says at most 1 KiB about its user; take it away",
    "client_addresses": "the list of clients shows the network of an address; take it away",
    "max_refusals": "it is twice HEADGATE_MAX_SUBSCRIPTIONS; take it away",
    "inbound_burst": "a client may send two seconds of HEADGATE_INBOUND_PER_S at once; set that alone",
    "publish_burst": "a user may publish two seconds of HEADGATE_PUBLISH_PER_S at once; set that alone",
    "read_burst": "a user may read four seconds of HEADGATE_READ_PER_S at once; set that alone",
    "max_wildcards": "it is a quarter of HEADGATE_MAX_SUBSCRIPTIONS; set that alone",
    "keep_alive_s": "it is HEADGATE_HANDSHAKE_DEADLINE_S; set that alone",
    "body_deadline_s": "it is HEADGATE_WRITE_DEADLINE_S; set that alone",
    "max_connections_per_address": "it is HEADGATE_MAX_CLIENTS_PER_ADDRESS; set that alone",
}
_VARIABLES = frozenset(PREFIX + each.name.upper() for each in fields(Settings))
# The defaults, which also apply to parts of Headgate without a gateway.
DEFAULTS = Settings()


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _cross_faults(settings: Settings) -> list[str]:
    faults = []
    if settings.max_payload_bytes * 2 > settings.queue_bytes:
        faults.append(
            f"HEADGATE_QUEUE_BYTES={settings.queue_bytes}: expected at least twice HEADGATE_MAX_PAYLOAD_BYTES "
            f"({settings.max_payload_bytes}), or one event could fill a client's queue"
        )
    if "*" in settings.allowed_origins and not settings.dev:
        faults.append("HEADGATE_ALLOWED_ORIGINS=*: expected exact origins; * is only accepted together with HEADGATE_DEV=1")
    if not set(settings.anonymous_namespaces) <= set(settings.namespaces):
        faults.append(
            f"HEADGATE_ANONYMOUS_NAMESPACES={','.join(settings.anonymous_namespaces)}: expected names out of HEADGATE_NAMESPACES "
            f"({','.join(settings.namespaces)})"
        )
    if settings.schema_check == "refuse" and not settings.schemas:
        faults.append("HEADGATE_SCHEMA_CHECK=refuse: expected HEADGATE_SCHEMAS beside it, as nothing is checked without schemas")
    if settings.demo and (settings.token_secret or settings.token_keys or settings.token_jwks_url):
        faults.append(
            "HEADGATE_DEMO=on: expected neither HEADGATE_TOKEN_SECRET, HEADGATE_TOKEN_KEYS nor HEADGATE_TOKEN_JWKS_URL beside "
            "it, as the demo signs in anyone with tokens of its own"
        )
    if settings.demo and not settings.demo_public and not is_loopback(settings.host):
        faults.append(
            f"HEADGATE_DEMO=on with HEADGATE_HOST={settings.host}: expected a loopback address, as the demo signs in anyone; "
            "HEADGATE_DEMO_PUBLIC=on is for where that is meant"
        )
    if settings.dev and not is_loopback(settings.host):
        faults.append(
            f"HEADGATE_DEV=1 with HEADGATE_HOST={settings.host}: expected a loopback address, as development lets anyone in"
        )
    return faults

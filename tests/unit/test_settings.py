"""Settings: read once from mappings, later ones win, every fault reported together, secrets hidden."""

import dataclasses
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import SettingsError
from headgate.events.topic import MAX_TOPIC_BYTES, MAX_TOPIC_WORDS
from headgate.settings.settings import HARD_MAX_PAYLOAD_BYTES, PREFIX, Settings, is_service_link, service_links_ignored
from headgate.transport.http_limits import HttpLimits
from headgate.transport.limits import TransportLimits
from tests.support.service_links import SERVICE_LINKS
from tools.settings_page import describe

SECRET = bytes(range(32)).hex()
FIELDS = {PREFIX + field.name.upper(): field for field in dataclasses.fields(Settings)}


def faults_of(**environment: Any) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        Settings.read({PREFIX + name: value for name, value in environment.items()})
    return caught.value.faults


def test_nothing_set_gives_the_defaults() -> None:
    """An empty environment is a working gateway on loopback."""
    assert Settings.read() == Settings.read({}) == Settings()
    assert (Settings().host, Settings().port, Settings().max_payload_bytes) == ("127.0.0.1", 8000, 65536)


def test_names_without_our_prefix_are_not_ours() -> None:
    """The rest of the environment and of `app.config` is left alone, other keys than strings included."""
    assert Settings.read({"PORT": "9", "PATH": "/bin", 7: "x"}) == Settings()  # type: ignore[dict-item]


def test_a_later_source_wins() -> None:
    """Environment, then application configuration, then command line. An empty value says nothing over an earlier source."""
    read = Settings.read({"HEADGATE_PORT": "1", "HEADGATE_HOST": "::1"}, {"HEADGATE_PORT": 2}, {"HEADGATE_PORT": "3"})
    assert (read.port, read.host) == (3, "::1")
    assert Settings.read({"HEADGATE_PORT": 9000}, {"HEADGATE_PORT": ""}).port == 9000


def test_what_an_orchestrator_sets_for_a_service_of_our_name_is_no_setting() -> None:
    """Kubernetes sets it in every pod that starts after the Service, so a deploy would stop. The operator reads it once."""
    assert Settings.read({"HEADGATE_PORT": "9000"}, SERVICE_LINKS) == Settings(port=9000)
    assert service_links_ignored(SERVICE_LINKS) == (
        "ignored 26 variables that the orchestrator sets for a service, such as HEADGATE_PORT (enableServiceLinks: false)"
    )
    assert service_links_ignored({"HEADGATE_PORT": "9000", "PATH": "/bin"}) is None


@pytest.mark.parametrize("wrong", ["tcp://", "tcp://host", "http://10.96.4.7:80", "10.96.4.7:80", "80/tcp"])
def test_a_port_that_is_no_service_link_is_refused_all_the_same(wrong: str) -> None:
    """Only the form that an orchestrator writes is passed over."""
    assert len(faults_of(PORT=wrong)) == 1


def test_no_setting_is_taken_for_a_service_link() -> None:
    """Whatever its value, but for the one form of HEADGATE_PORT."""
    assert [name for name in FIELDS if is_service_link(name, "80")] == []


@pytest.mark.parametrize(
    "lets_in",
    [
        *({"DEV": "on"}, {"DEMO": "on"}, {"TOKEN_SECRET": SECRET}, {"TOKEN_KEYS": "keys.json"}),
        *({"TOKEN_JWKS_URL": "https://login.example.com/keys"}, {"ANONYMOUS_SUBSCRIBE": "news.#"}),
    ],
    ids=lambda names: next(iter(names)),
)
def test_each_way_in_is_known(lets_in: dict[str, str]) -> None:
    """A key of the operator is none, because it is for the HTTP API and the console."""
    assert not Settings.read({PREFIX + name: value for name, value in lets_in.items()}).lets_nobody_in
    assert Settings(admin_key=SECRET).lets_nobody_in


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("PORT", "8080"), ("DEV", "yes"), ("DEMO", "TRUE"), ("HOST", "::1"), ("PING_INTERVAL_S", "5"), ("WORKERS", "auto")),
        *(("NAMESPACES", "a,b"), ("REDIS_URL", "redis://:s@host/1"), ("STATSD", "host:8125")),
        *(("LOG_LEVEL", "debug"), ("TOKEN_JWKS_URL", "https://login.example.com/keys"), ("HOSTS", "app.example.com")),
        *(("ALLOWED_ORIGINS", "https://a.example"), ("LOG_MAX_BYTES", "2097152")),
    ],
)
def test_white_space_around_a_value_means_nothing(name: str, value: str) -> None:
    """As a file with DOS line ends, or a secret made with `echo`, leaves it."""
    beside = {} if name == "DEMO" else {"HEADGATE_TOKEN_SECRET": SECRET}  # which some settings want
    plain = Settings.read({PREFIX + name: value}, beside)
    for around in ("{}\n", "{}\r\n", "\r\n{}", " {} ", "{}\t"):
        assert Settings.read({PREFIX + name: around.format(value)}, beside) == plain, around


def test_a_value_in_quotes_is_refused_with_the_cure() -> None:
    """`docker run --env-file` leaves them, and a secret with them is another one than the signer's. Secrets are not shown."""
    for name, quoted in product(FIELDS, (f'"{SECRET}"', f"'{SECRET}'\r")):
        assert faults_of(**{name.removeprefix(PREFIX): quoted}) == (
            f"{name} is in quotes, which count as part of the value: take them away",
        )


@pytest.mark.parametrize("around", ["{}\n", "{}\r\n", " {}", "{} "])
@pytest.mark.parametrize("name", ["TOKEN_SECRET", "ADMIN_KEY"])
def test_a_secret_with_white_space_around_it_is_refused(name: str, around: str) -> None:
    """Its other owner may read it with or without. Every token would be refused, without a visible reason."""
    assert Settings.read({PREFIX + name: SECRET})
    [fault] = faults_of(**{name: around.format(SECRET)})
    assert "has no blank or line end around it" in fault
    assert SECRET not in fault


def test_an_empty_value_counts_as_not_set() -> None:
    """`HEADGATE_PORT= make run` is not an error."""
    for name, nothing in product(FIELDS, ("", None)):
        assert Settings.read({name: nothing}) == Settings(), name


def test_every_default_is_read_back_from_its_own_description() -> None:
    """A default from the settings page can be pasted into an environment and means the same."""
    for name, default, _, _ in describe():
        assert not default or Settings.read({name: default}) == Settings(), name


def test_every_setting_is_described() -> None:
    """The settings page leaves nothing out and explains each one."""
    described = {name: (expected, doc) for name, _, expected, doc in describe()}
    assert set(described) == set(FIELDS)
    assert all(expected and doc.endswith(".") for expected, doc in described.values())


READ: dict[str, list[tuple[object, object]]] = {
    "PORT": [("0", 0), (" 65535 ", 65535), (8080, 8080)],
    "DEV": [("on", True), (True, True)],
    "DEMO": [("YES", True), ("0", False)],
    "QUEUE_FRAMES": [("2", 2)],
    "PING_INTERVAL_S": [("0.05", 0.05)],
    "NAMESPACES": [("a, /b ,c", ("a", "b", "c")), (["a", "b"], ("a", "b"))],
    "ALLOWED_ORIGINS": [("https://a.example, http://b.example:8080", ("https://a.example", "http://b.example:8080"))],
    "REDIS_URL": [(url, url) for url in ("redis://:secret@host:6379/0", "rediss://host", "unix:///run/redis.sock")],
    "LOG_LEVEL": [("DEBUG", "debug")],
    "MAX_PAYLOAD_BYTES": [("1", 1)],
    "DATA_DIR": [(Path("/srv/shop"), "/srv/shop")],
    "SCHEMAS": [(Path("schemas"), "schemas")],
}


@pytest.mark.parametrize(("name", "good", "value"), [(name, *each) for name, values in READ.items() for each in values])
def test_a_value_is_read(name: str, good: object, value: object) -> None:
    """Text from an environment and typed values from a configuration mean the same."""
    assert getattr(Settings.read({PREFIX + name: good}), name.lower()) == value


WRONG: dict[str, tuple[object, ...]] = {
    "PORT": ("-1", "65536", "80.5", "eighty", True, "1_000"),
    "DRAIN_S": (10**400,),  # a file of TOML may have whole numbers of any size
    "DEV": ("maybe",),
    "QUEUE_FRAMES": ("1",),
    "PING_INTERVAL_S": ("nan", "inf", "-1", True),
    "NAMESPACES": (",", "a,a", "a,/a", "a b", "a.b", 7),
    "ALLOWED_ORIGINS": ("app.example.com", "https://a.example/path", "https://a.example,https://user@b.example", "null"),
    "HOST": ("127.0.0.1:8000", "http://127.0.0.1", "  ", "a..b", "[::1", 7),
    "STATSD": ("statsd:8125/x", "a..b:8125", f"{'x' * 64}:8125"),
    "LOG_LEVEL": ("chatty",),
    "MAX_PAYLOAD_BYTES": (str(HARD_MAX_PAYLOAD_BYTES + 1), "0"),
    "DATA_DIR": ("a\0b",),
    "SCHEMAS": ("x" * 5000,),
    "TOKEN_LEEWAY_S": ("31", "-1"),
    "ANONYMOUS_SUBSCRIBE": ("a..b",),
}


@pytest.mark.parametrize(("name", "bad"), [(name, bad) for name, values in WRONG.items() for bad in values])
def test_a_wrong_value_is_refused_with_its_name_and_what_was_expected(name: str, bad: object) -> None:
    """The line has the right value."""
    (fault,) = faults_of(**{name: bad})
    assert fault.startswith(PREFIX + name)
    assert f"expected {FIELDS[PREFIX + name].metadata['expected']}" in fault


@pytest.mark.parametrize("name", ["PORT", "WORKERS", "LOG_MAX_AGE_S", "LOG_MAX_BYTES", "DRAIN_S", "READ_PER_S"])
@pytest.mark.parametrize(
    "written", ["2_097_152", "\uff12\uff10\uff19\uff17\uff11\uff15\uff12", "+60", "inf", "nan", "0x10", "6 0", "1e", ".", b"60"]
)
def test_a_number_is_read_as_people_write_it(name: str, written: object) -> None:
    """Python also reads underscores and the digits of every script, which other programs with the same file refuse."""
    assert len(faults_of(**{name: written})) == 1


@pytest.mark.parametrize(
    ("written", "read"),
    [("2.5", 2.5), ("60", 60.0), ("1e1", 10.0), (".5", 0.5), ("5.", 5.0), (" 07 ", 7.0), (60, 60.0), (0.5, 0.5)],
)
def test_a_duration_is_a_decimal_number(written: object, read: float) -> None:
    """Blanks around it and zeros in front of it change nothing."""
    assert Settings.read({"HEADGATE_DRAIN_S": written}).drain_s == read


def test_all_faults_are_told_together() -> None:
    """One start of the gateway reports all five mistakes."""
    faults = faults_of(PORT="x", DEV="maybe", QUEUE_BYTES="-1", PROT="1")
    assert [fault.split("=")[0].split(" ")[0] for fault in faults] == [
        "HEADGATE_DEV",
        "HEADGATE_PORT",
        "HEADGATE_PROT",
        "HEADGATE_QUEUE_BYTES",
    ]


def test_a_misspelt_name_is_refused_with_the_nearest_one() -> None:
    """A setting that silently does nothing is worse than an error."""
    assert faults_of(MAX_PAYLOAD_BYTE="1") == (
        "HEADGATE_MAX_PAYLOAD_BYTE is not a setting; did you mean HEADGATE_MAX_PAYLOAD_BYTES?",
    )
    assert faults_of(ZZZZZZZZZZZZZZZZZZZZ="1") == ("HEADGATE_ZZZZZZZZZZZZZZZZZZZZ is not a setting",)


@pytest.mark.parametrize("name", ["headgate_port", "HEADGATE_port", "Headgate_Port"])
def test_a_name_in_small_letters_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Linux it is another variable. Beside the right one, it would be unclear which of them counts."""
    monkeypatch.setenv(name, "9000")
    for only in ((), ("HEADGATE_PO",)):
        with pytest.raises(SettingsError) as caught:
            Settings.from_environment(*only)
        assert caught.value.faults == (f"{name} is not a setting; did you mean HEADGATE_PORT?",)
    assert Settings.read({"headgate_home": "/srv", "headgate_chromium": "x", name: ""}) == Settings()


@pytest.mark.parametrize("name", ["REDIS_SERVER", "CHROMIUM"])
def test_variables_of_the_tools_around_the_gateway_are_let_through(name: str) -> None:
    """`make test` and the private Redis read these; the gateway started by them must not refuse them."""
    assert Settings.read({PREFIX + name: "/usr/bin/x"}) == Settings()


def test_a_huge_wrong_value_is_cut_in_the_message() -> None:
    """A file pasted into a variable does not fill the terminal."""
    (fault,) = faults_of(PORT="9" * 100_000)
    assert len(fault) < 300


def test_a_secret_shows_neither_in_repr_nor_in_a_fault() -> None:
    """The Redis URL holds a password."""
    read = Settings.read({"HEADGATE_REDIS_URL": "redis://:hunter2@host"})
    assert "hunter2" not in repr(read)
    (fault,) = faults_of(REDIS_URL="http://:hunter2@host")
    assert "hunter2" not in fault
    assert "(hidden)" in fault


@pytest.mark.parametrize("url", ["https://me:hunter2@a.example/jwks", "http://a.example/jwks?key=hunter2"])
@pytest.mark.parametrize("name", ["TOKEN_JWKS_URL", "ALLOWED_ORIGINS", "HOSTS"])
def test_a_fault_in_a_url_shows_neither_its_password_nor_its_query(name: str, url: str) -> None:
    """The log of a start that fails is read by many."""
    (fault,) = faults_of(**{name: url})
    assert "a.example" in fault
    assert "hunter2" not in fault


def test_settings_cannot_be_changed() -> None:
    """They are read once; the limits of a client's welcome stay true."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().port = 1  # type: ignore[misc]


TOGETHER: list[tuple[dict[str, str], str | None]] = [
    # The queue holds at least two of the largest payloads.
    ({"MAX_PAYLOAD_BYTES": "524288", "QUEUE_BYTES": "1048576"}, None),
    (
        {"MAX_PAYLOAD_BYTES": "524289", "QUEUE_BYTES": "1048576"},
        "HEADGATE_QUEUE_BYTES=1048576: expected at least twice HEADGATE_MAX_PAYLOAD_BYTES (524289)",
    ),
    # A misspelt namespace would admit no client, and say nothing.
    ({"NAMESPACES": "a,b", "ANONYMOUS_NAMESPACES": "b"}, None),
    ({"NAMESPACES": "a,b", "ANONYMOUS_NAMESPACES": "a,c"}, "expected names out of HEADGATE_NAMESPACES"),
    # Without schemas every event passes.
    ({"SCHEMA_CHECK": "warn"}, None),
    ({"SCHEMA_CHECK": "refuse"}, "HEADGATE_SCHEMA_CHECK=refuse: expected HEADGATE_SCHEMAS beside it"),
    # `*` in production is how cross-site WebSocket hijacking begins.
    ({"ALLOWED_ORIGINS": "*", "DEV": "1"}, None),
    ({"ALLOWED_ORIGINS": "*"}, "HEADGATE_DEV=1"),
    # Development lets anyone in, so it must not be reachable from outside.
    *(({"DEV": "1", "HOST": host}, None) for host in ("127.0.0.1", "::1", "localhost")),
    ({"DEV": "1", "HOST": "0.0.0.0"}, "loopback"),
    # The demo signs in anyone as Ana or Ben. It replaces no tokens, and is not public by accident.
    *(({"DEMO": "on", **beside}, None) for beside in ({}, {"HOST": "::1"}, {"HOST": "0.0.0.0", "DEMO_PUBLIC": "on"})),
    *(({"DEMO": "on", "HOST": host}, "HEADGATE_DEMO_PUBLIC") for host in ("0.0.0.0", "192.168.1.5")),
    ({"DEMO": "on", "TOKEN_SECRET": "a secret of thirty-two bytes or more"}, "HEADGATE_TOKEN_SECRET"),
    ({"DEMO": "on", "TOKEN_KEYS": "keys.json"}, "HEADGATE_TOKEN_KEYS"),
    ({"DEMO": "on", "TOKEN_JWKS_URL": "https://a.example/jwks"}, "HEADGATE_TOKEN_JWKS_URL"),
    ({"DEMO": "on", "TOKEN_KEYS": "keys.json", "HOST": "0.0.0.0", "DEMO_PUBLIC": "on"}, "HEADGATE_TOKEN_KEYS"),
]


@pytest.mark.parametrize(("together", "told"), TOGETHER, ids=str)
def test_settings_that_contradict_each_other_are_one_fault(together: dict[str, str], told: str | None) -> None:
    """Each alone would be right."""
    if told is None:
        Settings.read({PREFIX + name: value for name, value in together.items()})
    else:
        (fault,) = faults_of(**together)
        assert told in fault


KEYS_AT = (
    *("https://login.example.com/.well-known/jwks.json", "https://login.example.com:8443/jwks?a=b"),
    *("http://127.0.0.1:9000/jwks", "http://[::1]:9000/jwks"),
)
NO_KEYS_AT = (
    *("http://login.example.com/jwks", "http://127.0.0.1.evil.example/jwks", "http://10.0.0.1/jwks"),
    *("ftp://login.example.com/jwks", "file:///etc/passwd", "https:///jwks", "https://user:password@login.example.com/jwks"),
    *("https://login.example.com:port/jwks", "login.example.com", "https://login.example.com/jwks#part"),
    *("https://login.exa mple.com/jwks", "https://login..example.com/jwks", "https://0x7f.1/jwks", "https://[::1/jwks"),
    "https://lo\u200dgin.example.com/jwks",
)


def test_keys_are_fetched_over_tls_or_from_this_machine() -> None:
    """An attacker with access to them on the way can sign any token."""
    for url in KEYS_AT:
        assert Settings.read({"HEADGATE_TOKEN_JWKS_URL": url}).token_jwks_url == url
    for url in NO_KEYS_AT:
        with pytest.raises(SettingsError, match=r"HEADGATE_TOKEN_JWKS_URL=.*http only to loopback"):
            Settings.read({"HEADGATE_TOKEN_JWKS_URL": url})


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        (
            "allowed_origins",
            "HTTPS://App.example.com:443, https://app.example.com., app://.",
            ("https://app.example.com", "app://."),
        ),
        ("allowed_origins", "https://*.Example.com", ("https://*.example.com",)),
        ("hosts", "A.Example., [2001:DB8:0::1], *.M\u00fcnchen.de", ("a.example", "2001:db8::1", "*.xn--mnchen-3ya.de")),
        ("host", "[0:0::1]", "::1"),
        ("host", "LOCALHOST", "localhost"),
        ("host", "[fe80::1%eth0]", "fe80::1%eth0"),
        ("statsd", "StatsD.example.:8125", ("statsd.example", 8125)),
    ],
)
def test_a_host_in_a_setting_is_read_into_its_one_spelling(name: str, given: str, read: object) -> None:
    """It is compared with the browsers' spelling, which is one only."""
    assert getattr(Settings.read({f"HEADGATE_{name.upper()}": given}), name) == read


def test_each_wrong_origin_of_a_list_is_named_with_its_reason() -> None:
    (fault,) = faults_of(ALLOWED_ORIGINS="https://a.example, https://b.example/app, null, https://c.example;https://d.example")
    assert "; 'https://b.example/app': it has a path; " in fault
    assert "; 'null': null is the origin of every sandboxed frame" in fault
    assert "https://d.example': it has a path and a semicolon; " in fault
    assert "'https://a.example':" not in fault


def test_the_limits_told_to_a_client_are_the_settings() -> None:
    """Each is a setting of the same name and value, or part of the grammar of topics. Those of rates and of the log are there."""
    settings = Settings.read({"HEADGATE_QUEUE_FRAMES": "17", "HEADGATE_MAX_SUBSCRIPTIONS": "3"})
    limits = settings.limits()
    assert limits["queue_frames"] == 17
    assert limits["max_subscriptions"] == 3
    grammar = {"max_topic_bytes": MAX_TOPIC_BYTES, "max_topic_words": MAX_TOPIC_WORDS}
    assert limits == {name: getattr(settings, name) for name in limits if name not in grammar} | grammar
    rates = {f"{kind}_{part}" for kind in ("inbound", "publish", "read") for part in ("per_s", "burst")}
    assert rates | {"log_max_events", "log_max_age_s", "log_max_bytes"} <= limits.keys()


def test_the_page_lists_the_limits_that_a_client_is_told() -> None:
    """docs/protocol.md names each of them, in the same order."""
    page = (Path(__file__).parents[2] / "docs/protocol.md").read_text(encoding="utf-8")
    text, _, _ = page[page.index("`limits`: ") :].partition("\n\n")
    assert re.findall(r"\w+_\w+", text) == list(Settings().limits())


@pytest.mark.parametrize(("per_s", "expected"), [(0.1, (1, 1, 1)), (1.2, (3, 3, 5)), (50.0, (100, 100, 200))])
def test_a_burst_is_a_few_seconds_of_its_rate_and_never_nothing(per_s: float, expected: tuple[int, ...]) -> None:
    """Of messages, publishes and reads."""
    settings = Settings(inbound_per_s=per_s, publish_per_s=per_s, read_per_s=per_s)
    assert (settings.inbound_burst, settings.publish_burst, settings.read_burst) == expected


@pytest.mark.parametrize("declared", [TransportLimits, HttpLimits])
def test_the_limits_of_the_transport_are_the_settings_of_the_same_names(declared: type[Any]) -> None:
    """With their defaults where nothing is set, and with the values in a gateway."""
    names = Settings().values_for(declared)
    sevens: dict[str, Any] = dict.fromkeys(names.keys() & FIELDS, 7)
    assert sevens.items() <= Settings(**sevens).values_for(declared).items()
    assert names.items() <= dataclasses.asdict(declared()).items()
    others = {each.name for each in dataclasses.fields(declared)} - names.keys()
    assert (
        others
        == {
            TransportLimits: {"max_message_bytes"},
            HttpLimits: {"header_deadline_s", "max_connections", "min_bytes_per_s", "max_body_bytes"},
        }[declared]
    )


@given(
    st.dictionaries(st.sampled_from(sorted(FIELDS)), st.text(max_size=40) | st.integers() | st.floats() | st.binary(max_size=9))
)
def test_whatever_is_set_the_result_is_settings_or_one_settings_error(environment: dict[str, object]) -> None:
    """No value, however odd, escapes as another kind of exception."""
    try:
        settings = Settings.read(environment)
        faults = None
    except SettingsError as error:
        settings, faults = Settings(), error.faults
    assert faults is None or (faults and all(fault.startswith(PREFIX) for fault in faults))
    assert Settings.read({name: getattr(settings, field.name) for name, field in FIELDS.items()}) == settings


@pytest.mark.parametrize("most", [1, 128, 65536])
def test_a_client_may_be_refused_more_often_than_it_has_subscriptions(most: int) -> None:
    """Otherwise one with only refused subscriptions could never be notified of that."""
    assert Settings(max_subscriptions=most).max_refusals > most


def test_the_environment_is_read_under_our_names_and_in_part_where_that_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher needs two variables, and a fault in another one is not its business."""
    monkeypatch.setenv("HEADGATE_PORT", "no port")
    monkeypatch.setenv("HEADGATE_REDIS_URL", "redis://127.0.0.1:7777/0")

    assert Settings.from_environment("HEADGATE_REDIS_URL").redis_url == "redis://127.0.0.1:7777/0"
    with pytest.raises(SettingsError, match="HEADGATE_PORT"):
        Settings.from_environment()
    monkeypatch.setenv("HEADGATE_PORT", "7778")
    assert Settings.from_environment().port == 7778


@pytest.mark.parametrize("value", ["10.0.0.5:8100", '"10.0.0.5:8100"'])
@pytest.mark.parametrize("name", ["INTERNAL_ADDRESS", "RELAY_KEY"])
def test_a_setting_of_an_earlier_release_is_refused_with_what_to_do(name: str, value: str) -> None:
    """An operator learns at an upgrade that the relay is gone, and is not advised to write another name. No secret is shown."""
    [fault] = faults_of(**{name: value})
    assert fault.startswith(f"HEADGATE_{name} is no longer a setting: ")
    assert "take it away" in fault
    assert "10.0.0.5" not in fault
    assert Settings.read({PREFIX + name: ""}) == Settings()

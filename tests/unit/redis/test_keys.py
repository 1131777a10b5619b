"""Names in Redis: the allowed namespaces, and that log.lua has the same limits as Python."""

import re

import pytest

from headgate.errors import UnknownNamespace
from headgate.events import event, topic
from headgate.redis import keys, log
from headgate.redis.functions import SOURCE
from headgate.settings import settings

DEFAULTS = settings.Settings()


@pytest.mark.parametrize(
    ("given", "name"), [("orders", "orders"), ("/orders", "orders"), ("a_B-9", "a_B-9"), ("n" * 64, "n" * 64), ("log", "log")]
)
def test_a_namespace_is_known_by_its_name_without_the_slash(given: str, name: str) -> None:
    """Socket.IO writes a leading slash, Redis names have none."""
    assert topic.check_namespace(given) == name
    assert keys.namespace_of(keys.log_key(name)) == name


@pytest.mark.parametrize("given", ["", "/", "//orders", "a b", "a.b", "{a}", "a}", "é", "n" * 65, "a\n", None, 7, b"orders"])
def test_other_names_are_refused(given: object) -> None:
    """Above all braces, because they would move the keys to another slot."""
    with pytest.raises(UnknownNamespace):
        topic.check_namespace(given)


def test_all_names_of_a_namespace_share_its_hash_tag() -> None:
    """One slot in a cluster, as the namespace is everything between the first braces."""
    names = [
        keys.log_key("orders"),
        keys.head_key("orders"),
        keys.channel("orders", "a.b"),
        keys.channel_prefix("orders"),
        keys.gateways_key("orders"),
        keys.group_key("orders", "on-call"),
        keys.seen_key("orders", "ada"),
        keys.schemas_key("orders"),
    ]

    assert {re.findall(r"\{(.*?)\}", name)[0] for name in names} == {"orders"}


def test_a_channel_is_its_prefix_and_the_topic() -> None:
    """The receiver cuts the prefix off and has the topic."""
    assert keys.channel("orders", "a.b").removeprefix(keys.channel_prefix("orders")) == "a.b"


@pytest.mark.parametrize(
    ("lua", "python"),
    [
        ("MAX_TOPIC_BYTES, MAX_TOPIC_WORDS", f"{topic.MAX_TOPIC_BYTES}, {topic.MAX_TOPIC_WORDS}"),
        ("MAX_ID_LENGTH", str(event.MAX_ID_LENGTH)),
        ("MAX_BY_LENGTH", "64"),
        ("MAX_DEPTH", str(event.MAX_DEPTH)),
        ("ENTRY_BYTES", str(log.ENTRY_BYTES)),
        ("HARD_MAX_PAYLOAD_BYTES", "1024 * 1024"),
        (
            "DEFAULT_MAX_EVENTS, DEFAULT_MAX_AGE_MS, DEFAULT_MAX_PAYLOAD_BYTES",
            f"{settings.MOST_LOG_EVENTS}, {DEFAULTS.log_max_age_s * 1000}, {DEFAULTS.max_payload_bytes}",
        ),
    ],
)
def test_the_function_library_has_the_same_limits(lua: str, python: str) -> None:
    """The numbers are written twice, as Lua cannot import Python; this holds them together."""
    assert settings.HARD_MAX_PAYLOAD_BYTES == 1024 * 1024
    assert re.search(rf"^local {re.escape(lua)} = {re.escape(python)}$", SOURCE, re.MULTILINE)

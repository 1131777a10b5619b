"""Identity: what a client may do is exactly what its grants contain, and nothing by default."""

import dataclasses
import re
from typing import Any

import pytest

from headgate.auth.identity import Handshake, Identity, PageRequest
from headgate.auth.keys import TokenKey
from headgate.errors import InvalidPattern, InvalidRequest
from headgate.events.topic import own_topics, pattern, user_word
from headgate.services.publisher import Receipt
from headgate.settings.settings import Settings


@pytest.mark.parametrize(("pattern", "allowed"), [("orders.*.shipped", True), ("users.*", False), ("#", False)])
def test_a_subscription_is_allowed_only_if_a_grant_contains_the_whole_pattern(pattern: str, allowed: bool) -> None:
    """Pattern in pattern: test_grants.py has the rule's vectors. A wildcard that also reaches outside is refused whole."""
    assert Identity("ana", subscribe=("orders.#", "users.ana")).may_subscribe(pattern) is allowed


def test_grants_to_subscribe_and_to_publish_are_apart() -> None:
    """Reading does not imply writing, nor the other way round."""
    reader, writer = Identity("r", subscribe=("orders.#",)), Identity("w", publish=("orders.#",))
    assert (reader.may_subscribe("orders.1"), reader.may_publish("orders.1")) == (True, False)
    assert (writer.may_subscribe("orders.1"), writer.may_publish("orders.1")) == (False, True)


@pytest.mark.parametrize("grants", [{"subscribe": ("orders..x",)}, {"publish": ("orders.a*",)}, {"subscribe": ("",)}])
def test_a_grant_that_is_no_pattern_is_refused_at_once(grants: dict[str, Any]) -> None:
    """A mistake in an authenticator shows at the first connect, not as a puzzling refusal later."""
    with pytest.raises(InvalidPattern):
        Identity("ana", **grants)


def test_an_identity_cannot_be_changed() -> None:
    """Nothing can widen the grants of a live connection without the gateway's knowledge."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Identity("ana").subscribe = ("#",)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("auth", "token"),
    [({"token": "abc"}, "abc"), ({}, None), ({"token": None}, None), ({"token": 7}, None), ({"token": ["abc"]}, None)],
)
def test_a_handshakes_token_is_a_string_or_absent(auth: dict[str, object], token: str | None) -> None:
    """An authenticator never sees a token of another type."""
    assert Handshake("notifications", auth, {}).token == token


def test_a_handshake_does_not_show_the_request_headers() -> None:
    """The WSGI environment holds cookies and the Authorization header."""
    assert "hunter2" not in repr(Handshake("notifications", {}, {"HTTP_COOKIE": "session=hunter2"}))


# Names that an application may get from a sign-up form, and whether they are one word of a topic as they are.
NAMES = [
    ("ana", True),
    ("Ana-42_x", True),
    ("*", False),
    ("#", False),
    ("", False),
    ("ana.ben", False),
    ("ana.#", False),
    ("*.ana", False),
    ("ana*", False),
    ("ana\n", False),
    ("ana@example.com", False),
    ("Ана", False),
]


@pytest.mark.parametrize(("name", "accepted"), NAMES)
def test_a_grant_made_of_a_name_reaches_nobody_elses_topics(name: str, accepted: bool) -> None:
    """`pattern` gives a grant of that one word or refuses; one error names the value and the allowed ones."""
    if accepted:
        assert own_topics(name) == f"users.{name}.#" == pattern("users.{who}.#", who=name)
        return
    with pytest.raises(InvalidPattern, match="expected one word of ASCII letters, digits, _ and -") as caught:
        pattern("teams.{team}.*", team=name)
    assert repr(name) in caught.value.message


@pytest.mark.parametrize(
    ("template", "words", "made"),
    [
        ("users.{who}.#", {"who": "ana"}, "users.ana.#"),
        ("a.{x}.{y}.*", {"x": "b", "y": 7}, "a.b.7.*"),
        ("{x}.{x}", {"x": "b"}, "b.b"),
        ("news.#", {}, "news.#"),
    ],
)
def test_a_pattern_has_the_wildcards_of_its_template_only(template: str, words: dict[str, Any], made: str) -> None:
    """Each place takes one word."""
    assert pattern(template, **words) == made


@pytest.mark.parametrize(
    ("template", "words", "told"),
    [
        ("users.{who}.#", {}, "who is not given"),
        ("users.*", {"who": "ana"}, "who is not in the template"),
        ("users.{who}x*", {"who": "ana"}, "words are ASCII letters"),
        ("users.{who}.#", {"who": None}, "who=None: expected one word"),
        ("users.{who}.#", {"who": True}, "who=True: expected one word"),
        ("users.{0}", {}, "words are ASCII letters"),
    ],
)
def test_a_pattern_of_which_something_does_not_fit_is_refused(template: str, words: dict[str, Any], told: str) -> None:
    """Every place and every word is used, and the misfit is named."""
    with pytest.raises(InvalidPattern, match=re.escape(told)):
        pattern(template, **words)


@pytest.mark.parametrize("name", ["*", "#", "a.*", "#.a", "a.#.b"])
@pytest.mark.parametrize("kind", ["subscribe", "publish"])
def test_a_name_that_is_a_wildcard_in_a_grant_is_refused_with_it(name: str, kind: str) -> None:
    """An authenticator that puts the name into a grant by itself refuses every user of that name; other grants are as usual."""
    with pytest.raises(InvalidPattern, match="it holds the user's name, which is a wildcard there"):
        Identity(name, **{kind: (f"teams.{name}.x",)})  # type: ignore[arg-type]
    found = Identity(name, subscribe=(pattern("teams.{who}.x", who=user_word(name)),)).with_own_topics()
    assert found.may_subscribe(own_topics(name))
    assert not found.may_subscribe("teams.ben.x")
    assert not found.may_subscribe("users.ben.x")


@pytest.mark.parametrize("name", ["", "ana\n", "\ud800", "x" * 248, "\0key:k1"])
def test_a_name_that_nobody_can_have_is_refused(name: str) -> None:
    """The same rule as for tokens, revocations and publishes to a user."""
    with pytest.raises(InvalidRequest, match="user: "):
        Identity(name)


@pytest.mark.parametrize("name", ["subscribe", "publish", "namespaces"])
@pytest.mark.parametrize("given", ["ab", b"ab", "orders.#", 7, {"a": 1}])
def test_grants_that_are_one_text_are_refused(name: str, given: Any) -> None:
    """Its letters would be taken for patterns: `ab` granted `a` and `b`."""
    with pytest.raises(TypeError, match=rf"Identity\({name}=…\): expected a list or tuple"):
        Identity("ana", **{name: given})


def test_lists_and_sets_of_grants_are_taken_as_tuples() -> None:
    """An application that reads them from JSON need not convert them, and an identity cannot be changed through them."""
    given = ["orders.#"]
    found = Identity("ana", subscribe=given, publish={"chat.ana"})
    given.append("#")
    assert (found.subscribe, found.publish) == (("orders.#",), ("chat.ana",))
    assert hash(found) is not None


@pytest.mark.parametrize(
    ("user", "own"),
    [
        ("ana", "users.ana.#"),
        ("Ana-42_x", "users.Ana-42_x.#"),
        ("a.b", "users.a__2eb.#"),
        ("*", "users.__2a.#"),
        ("anonymous", None),
    ],
)
def test_every_user_is_granted_its_own_topics(user: str, own: str | None) -> None:
    """Not the anonymous, because they are many and have one name."""
    found = Identity(user, subscribe=("orders.x",)).with_own_topics()
    assert found.subscribe == (("orders.x", own) if own else ("orders.x",))
    assert found.with_own_topics() is found


CANARY = "canary-0f8e7d6c5b4a39281706f5e4d3c2b1a0"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJlLWNhbmFyeS0xMjM0"


@pytest.mark.parametrize("auth", [{"token": CANARY}, {"token": JWT}, {"session": {"id": CANARY}}, {"keys": [[CANARY]]}], ids=str)
@pytest.mark.parametrize("text", ["bad token {}", "{!r} is no session", "near {:.12}: bad padding", "{0} {0}", "{0:.20}…{0:.9}"])
def test_the_log_of_a_handshake_holds_no_part_of_a_secret(auth: dict[str, Any], text: str) -> None:
    """Whole, quoted or in parts; the rest of the text stays."""
    secret = CANARY if CANARY in str(auth) else JWT
    told = Handshake("n", auth, {}).redacted("from a.py: " + text.format(secret))
    assert told.startswith("from a.py: ")
    assert "(hidden)" in told
    assert not any(secret[at : at + 8] in told for at in range(len(secret) - 7))


@pytest.mark.parametrize("name", ["HTTP_AUTHORIZATION", "HTTP_COOKIE", "QUERY_STRING"])
def test_a_secret_in_a_header_is_hidden_too(name: str) -> None:
    """An application may keep its session in a cookie."""
    assert CANARY not in Handshake("n", {}, {name: f"x={CANARY}; y"}).redacted(f"no session {CANARY}")


def test_a_secret_in_the_query_is_hidden_and_what_the_transport_says_there_is_not() -> None:
    """An application may read a token from there; every path of ours has `transport` in it."""
    shown = Handshake("n", {}, {"QUERY_STRING": "EIO=4&transport=websocket&key=canary%2Bcanary"})
    told = shown.redacted("transport=websocket failed with canary+canary or canary%2Bcanary")
    assert told == "transport=websocket failed with (hidden) or (hidden)"


def test_a_text_without_a_secret_is_kept_up_to_a_limit() -> None:
    """An error about anything but the token must stay readable, and a huge one must not fill the log."""
    shown = Handshake("n", {"token": CANARY, "n": 7, "short": "abc"}, {})
    assert shown.redacted("division by zero abc") == "division by zero abc"
    assert len(shown.redacted("x" * 10_000)) == 500


def secrets_of_all_dataclasses() -> list[object]:
    """One of every public dataclass, with the canary wherever a secret may stand."""

    return [
        Handshake("n", {"token": CANARY}, {"HTTP_AUTHORIZATION": CANARY}),
        Identity("ana", token_id="t1"),
        Settings(token_secret=CANARY, redis_url=f"redis://:{CANARY}@h/0"),
        TokenKey("k", "HS256", CANARY.encode()),
        PageRequest("orders.price", {"card": CANARY}, Identity("ana", token_id="t1"), "n", "id"),
        Receipt("e", 1, False, "id"),
    ]


def test_no_repr_of_a_public_dataclass_shows_a_secret() -> None:
    """A log line, a traceback with locals or a debugger shows it."""
    import headgate

    shown = secrets_of_all_dataclasses()
    public = {value for name in headgate.__all__ if dataclasses.is_dataclass(value := getattr(headgate, name))}
    assert public <= {type(value) for value in shown}
    for value in shown:
        assert CANARY not in repr(value) + str(value)


@pytest.mark.parametrize("right", ["admin", "", True, "READ"])
def test_a_right_in_the_console_that_there_is_not_is_refused(right: Any) -> None:
    """Better than a mark that means nothing, or too much."""
    with pytest.raises(TypeError, match="admin"):
        Identity("ann", admin=right)


def test_the_mark_of_the_console_stays_with_the_users_own_topics() -> None:
    """And is not given by default."""
    assert Identity("ann", admin="act").with_own_topics().admin == "act"
    assert Identity("ann").with_own_topics().admin is None

"""The error tree: every refusal has a wire word, parts in JSON, and text that a hostile value cannot flood."""

import contextlib
import copy
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import headgate
from headgate import errors
from headgate.services.publisher import Receipt

EXAMPLES: tuple[errors.HeadgateError, ...] = (
    errors.InvalidTopic("a..b", "empty word"),
    errors.InvalidPattern("a.*b", "not a lone wildcard"),
    errors.InvalidEvent("id", "too long"),
    errors.NotSerializable("NaN"),
    errors.PayloadTooLarge(70000, 65536, "publisher"),
    errors.SchemaViolation("orders.7.shipped", "orders.*.shipped", ("lines", 0, "sku"), 'the value is not of type "string"'),
    errors.InvalidSchema("orders.json", "is not JSON", "/properties"),
    errors.UnknownNamespace("/admin", ("notifications",)),
    errors.NamespaceNotServed("nobody", ("notifications",)),
    errors.NotDurable(Receipt("0123456789abcdef", 7, False, "a1"), "0 of 1 replicas have it after 4 s"),
    errors.PublisherClosed("it was closed"),
    errors.UnknownHost("evil.example"),
    errors.OriginNotAllowed("https://evil.example"),
    errors.BusUnavailable("connection refused"),
    errors.BusRefused("out of memory"),
    errors.Unauthorized("no token"),
    errors.Forbidden("subscribe to", "secret.#"),
    errors.AuthorizeFailed("subscribe to", "secret.#"),
    errors.LimitReached("subscriptions", 128),
    errors.LimitReached("clients_per_user", 64, retry_after_s=10),
    errors.InvalidRequest("not a mapping"),
    errors.UnknownRequest("orders.price"),
    errors.RequestTimedOut("orders.price", 0.5),
    errors.RequestFailed("orders.price", "it was cancelled"),
    errors.RequestRefused("sold_out", "no more of them", sku="a7"),
    errors.Overloaded(7),
    errors.Paused("namespace", 9, "shop"),
    errors.SettingsError(["HEADGATE_PORT='x': expected a whole number"]),
)

HOSTILE = ("x" * 100_000, "line\nbreak", "\x1b[31mred", "\u202eevil", "\ud800", "", "'\"", None, 7, b"\xff", ["a"] * 50_000)


def _tree(root: type[errors.HeadgateError]) -> Iterator[type[errors.HeadgateError]]:
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from _tree(child)


KINDS: tuple[type[errors.HeadgateError], ...] = (errors.HeadgateError, *_tree(errors.HeadgateError))


def test_every_error_of_the_tree_has_an_example_here() -> None:
    """A new error cannot be added without passing through the tests below."""
    assert {type(example) for example in EXAMPLES} == set(KINDS) - {errors.HeadgateError}


def test_every_error_can_be_imported_from_the_package() -> None:
    """`from headgate import …` is where users find them."""
    for kind in KINDS:
        assert getattr(headgate, kind.__name__) is kind
        assert kind.__name__ in headgate.__all__


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_an_error_reaches_another_process_whole(example: errors.HeadgateError) -> None:
    """A pool of processes pickles what a worker raises. One that cannot be restored blocks `multiprocessing.Pool` for ever."""
    error = copy.copy(example)
    error.add_note("the remedy")

    restored = pickle.loads(pickle.dumps(error))

    assert type(restored) is type(example)
    assert (str(restored), restored.to_wire()) == (str(example), example.to_wire())
    assert restored.lines() == [*example.lines(), "the remedy"]
    assert vars(restored) == vars(error)


# Of these the only part is a name, and only a gateway raises them.
OF_A_NAME = (errors.UnknownHost, errors.OriginNotAllowed, errors.UnknownRequest)


@pytest.mark.parametrize(
    "example", [each for each in EXAMPLES if not isinstance(each, OF_A_NAME)], ids=lambda example: type(example).__name__
)
def test_an_error_that_is_created_again_from_its_text_has_that_text(example: errors.HeadgateError) -> None:
    """Celery's JSON result backend does so, and falls back on an exception of its own where that raises."""
    with contextlib.suppress(TypeError, AttributeError, ValueError):
        again = type(example)(*example.args)
        assert (str(again), again.parts) == (str(example), example.parts)


def test_every_reason_of_unauthorized_says_itself_to_people() -> None:
    """The word is for programs; the text is a sentence, with the claim where there is one."""
    for reason in errors.UnauthorizedReason:
        error = errors.Unauthorized(reason, claim="sub")
        assert error.to_wire()["reason"] == reason.value
        assert error.detail.endswith(": sub")
        assert error.retry is (reason in (errors.UnauthorizedReason.KEYS_PENDING, errors.UnauthorizedReason.AUTHENTICATOR_FAILED))


def test_a_sentence_of_an_application_is_told_under_a_word_of_the_list() -> None:
    """Programs find `not_accepted`, people read the sentence; a word of the list, given as text, is that word."""
    error = errors.Unauthorized("your trial has ended")
    assert error.reason is errors.UnauthorizedReason.NOT_ACCEPTED
    assert (error.message, error.parts) == ("not authorized: your trial has ended", {"reason": "not_accepted"})
    assert errors.Unauthorized("expired").reason is errors.UnauthorizedReason.EXPIRED


def test_no_two_errors_share_a_wire_word() -> None:
    """A client decides by the code alone."""
    codes = [kind.code for kind in KINDS]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.code)
def test_the_wire_form_is_json_with_code_message_retry_and_the_parts(error: errors.HeadgateError) -> None:
    """It survives JSON unchanged and holds every part beside the text. No part overwrites a field that clients decide by."""
    wire = error.to_wire()
    assert json.loads(json.dumps(wire)) == wire
    assert (wire["code"], wire["message"], wire["retry"]) == (error.code, str(error), error.retry)
    assert wire.get("retry_after_s") == error.retry_after_s
    assert {**wire, **error.parts} == wire
    assert not {"code", "message", "retry", "retry_after_s"} & set(error.parts)


def test_only_what_passes_by_itself_is_worth_another_try() -> None:
    """Every other refusal is the same the second time; and a retryable one says after how long."""
    retried = [error for error in EXAMPLES if error.retry]
    assert [error.code for error in retried] == [
        "not_durable", "bus_unavailable", "authorize_failed", "limit_reached", "overloaded", "paused",
    ]  # fmt: skip
    assert [error.retry_after_s for error in retried] == [1, 1, 1, 10, 7, 9]
    assert all(error.retry_after_s is None for error in EXAMPLES if not error.retry)


@pytest.mark.parametrize(("wait_s", "told_s"), [(0.005, 1), (1, 1), (1.2, 2), (60, 60), (1e9, 60), (float("inf"), 60)])
def test_the_wait_of_a_limit_is_whole_seconds_from_one_to_a_minute(wait_s: float, told_s: int) -> None:
    """Long enough for the place to be free, and never so long that a client seems dead."""
    assert errors.LimitReached("publish_per_s", 0.1, wait_s).to_wire()["retry_after_s"] == told_s


def test_a_large_payload_says_its_size_the_limit_and_where() -> None:
    """The one error for too big, wherever it is found."""
    error = errors.PayloadTooLarge(70000, 65536, "browser")
    assert error.to_wire() == {
        "code": "payload_too_large",
        "message": "payload of 70000 bytes is above the limit of 65536 bytes (browser)",
        "retry": False,
        "size": 70000,
        "limit": 65536,
        "where": "browser",
    }


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:20])
def test_a_hostile_name_is_shown_short_printable_and_encodable(value: object) -> None:
    """A name from outside ends in logs and terminals, without a flood, a line break, an escape sequence or a lone surrogate."""
    for error in (
        errors.InvalidTopic(value, "r"),
        errors.InvalidPattern(value, "r"),
        errors.UnknownNamespace(value, ()),
        errors.Forbidden("read", str(value)),
        errors.SchemaViolation("t", "t", (str(value)[:70], 1), "r"),
        errors.InvalidSchema(str(value)[:70], "r"),
    ):
        text = str(error)
        assert len(text) < 200
        assert text.isprintable()
        assert text.encode("utf-8")
        assert json.dumps(error.to_wire())
    part = str(errors.InvalidTopic(value, "r").parts["topic"])
    assert part.isprintable()
    assert len(part) <= 81


def test_the_name_at_fault_is_quoted_in_the_text_and_bare_in_the_part() -> None:
    """A program compares the part with its own value; a person sees in the text where the name ends."""
    for error, part in (
        (errors.InvalidTopic("a..b", "r"), "topic"),
        (errors.InvalidPattern("a..b", "r"), "pattern"),
        (errors.UnknownNamespace("a..b", ()), "namespace"),
        (errors.Forbidden("read", "a..b"), "name"),
    ):
        assert error.to_wire()[part] == "a..b"
        assert "'a..b'" in error.message


def test_an_unknown_namespace_names_those_that_are_served() -> None:
    """The caller sees the served ones; for an impossible name, the rule for names."""
    assert str(errors.UnknownNamespace("/x", ("a", "b"))).endswith("this gateway serves a, b")
    assert str(errors.UnknownNamespace("a b", ())).endswith("expected 1 to 64 ASCII letters, digits, _ and -")


def test_wrong_settings_are_told_one_per_line_and_counted() -> None:
    """One run of the program shows everything there is to mend."""
    assert str(errors.SettingsError(["A is wrong", "B is wrong"])) == "2 settings are wrong:\n  A is wrong\n  B is wrong"
    assert str(errors.SettingsError(["A is wrong"])) == "1 setting is wrong:\n  A is wrong"
    assert errors.SettingsError(["A", "B"]).faults == ("A", "B")


def test_a_violation_says_where_in_the_data_as_a_json_path() -> None:
    """RFC 9535 puts quotes around names that no identifier has."""
    error = errors.SchemaViolation("a", "#", ("lines", 0, "a b", "sku"), "too short")
    assert str(error) == "data for topic 'a' breaks the schema of '#' at $.lines[0]['a b'].sku: too short"
    assert errors.SchemaViolation("a", "#", (), "no object").path == "$"


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "protocol.md").read_text("utf-8")
ROWS = {
    code: ({*re.findall(r"\w+\??", parts)}, retry)
    for code, parts, retry in re.findall(r"^\| `(\w+)` \|([^|]*)\| (yes|no|by `name`) \|", PAGE, re.MULTILINE)
}
# A caller of a method gets these, and no client; the last is a code of an application.
NOT_ON_THE_WIRE = {"invalid_schema", "namespace_not_served", "not_durable", "publisher_closed", "invalid_settings", "sold_out"}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.code)
def test_the_protocol_page_has_the_parts_of_an_error_and_whether_to_try_again(error: errors.HeadgateError) -> None:
    """Authors of clients in other languages work from its table."""
    if error.code in NOT_ON_THE_WIRE:
        assert error.code not in ROWS
        return
    parts, retry = ROWS[error.code]
    own = {*error.to_wire()} - {"code", "message", "retry", "retry_after_s"}
    assert {part for part in parts if not part.endswith("?")} <= own <= {part.removesuffix("?") for part in parts}
    assert retry == "by `name`" or error.retry is (retry == "yes")


@pytest.mark.parametrize("code", ["", "Sold", "sold-out", "7up", "a" * 65, "sold out", "söld"])
def test_a_code_of_an_application_is_a_plain_word(code: str) -> None:
    """Pages compare it, and metrics of theirs may have it as a label."""
    with pytest.raises(ValueError, match="1 to 64 of a-z, 0-9 and _"):
        errors.RequestRefused(code, "no")


@pytest.mark.parametrize("part", ["retry", "retry_after_s"])
def test_a_part_of_an_application_does_not_replace_a_field_of_the_error(part: str) -> None:
    """A client decides by these fields alone."""
    with pytest.raises(TypeError, match=part):
        errors.RequestRefused("sold_out", "no", **{part: True})

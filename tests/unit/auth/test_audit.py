"""The audit log: what it reports and omits, and that nothing in it can be mistaken for another line."""

from structlog.testing import capture_logs

from headgate.auth.audit import ALL_BURST, LINES_BURST, LINES_PER_S, MAX_ADDRESSES, Audit
from tests.support.held_clock import HeldClock


def refuse(audit: Audit, address: str | None, reason: str = "expired") -> None:
    audit.login_refused(address=address, namespace="n", code="unauthorized", reason=reason)


def test_a_refused_login_is_one_line_with_its_fields() -> None:
    """Under a separate logger name; the user is not known."""
    with capture_logs() as lines:
        refuse(Audit(HeldClock()), "192.0.2.9")
    (line,) = lines
    assert line == {
        "event": "login refused",
        "log_level": "warning",
        "logger": "headgate.audit",
        "address": "192.0.2.9",
        "namespace": "n",
        "code": "unauthorized",
        "reason": "expired",
    }


def test_of_one_address_few_lines_are_written_and_what_was_left_out_is_counted() -> None:
    """A flood must not fill the log, nor hide itself."""
    clock = HeldClock()
    audit = Audit(clock)
    with capture_logs() as lines:
        for _ in range(100):
            refuse(audit, "192.0.2.9")
        refuse(audit, "192.0.2.10")
        clock.now_s += 1 / LINES_PER_S
        refuse(audit, "192.0.2.9")
    assert [line["address"] for line in lines] == ["192.0.2.9"] * LINES_BURST + ["192.0.2.10", "192.0.2.9"]
    assert [line.get("left_out") for line in lines] == [None] * (LINES_BURST + 1) + [100 - LINES_BURST]


def test_many_addresses_together_are_limited_and_forgotten() -> None:
    """A flood from everywhere is bounded in the log and in memory."""
    audit = Audit(HeldClock())
    with capture_logs() as lines:
        for number in range(MAX_ADDRESSES + 100):
            refuse(audit, str(number))
    assert len(lines) == ALL_BURST
    assert len(audit._limits) == MAX_ADDRESSES


def test_hostile_text_stays_short_and_on_one_line() -> None:
    """A reason may come from an application, a name from a token."""
    with capture_logs() as lines:
        refuse(Audit(HeldClock()), "a\nb", "x" * 10_000 + "\n")
        refuse(Audit(HeldClock()), None, "fine\nevent=revoked")
        Audit(HeldClock()).revoked(kind="user", name="ana\x1b[2J", for_s=60, by="uid 0")
        Audit(HeldClock()).revoked(kind="user", name="ana", for_s=0, by="uid 0")
    assert [line["event"] for line in lines] == ["login refused", "login refused", "revoked", "revocation lifted"]
    assert all(str(value).isprintable() and len(str(value)) <= 200 for line in lines for value in line.values())


def test_what_an_operator_did_is_always_a_line() -> None:
    """However much is done; a browser's text cannot make two lines of it."""
    audit = Audit(HeldClock())
    with capture_logs() as lines:
        for nth in range(2 * ALL_BURST):
            audit.acted("publish", by="ann", via="console", address="192.0.2.9", name="a\nb", namespace=None, offset=nth)
    assert len(lines) == 2 * ALL_BURST
    assert lines[-1] == {
        "event": "publish",
        "log_level": "info",
        "logger": "headgate.audit",
        "by": "ann",
        "via": "console",
        "name": "a\\nb",
        "address": "192.0.2.9",
        "offset": 2 * ALL_BURST - 1,
    }

"""A finding is one line for a person."""

from headgate.runtime.check_result import Verdict, count, fault, ok, unknown, warning


def test_a_line_says_what_was_seen_and_what_to_do() -> None:
    assert fault("disk", "full", "make room").line == "disk: full: make room"
    assert ok("disk", "fine").line == "disk: fine"


def test_findings_are_counted_by_verdict() -> None:
    """An exit code follows from the faults."""
    found = [ok("a", ""), warning("b", ""), fault("c", ""), fault("d", ""), unknown("e", "")]
    assert [count(found, verdict) for verdict in (Verdict.OK, Verdict.UNKNOWN, Verdict.WARNING, Verdict.FAULT)] == [1, 1, 1, 2]

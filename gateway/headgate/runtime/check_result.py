"""Finding: one thing that a look at a running system found, with what to do about it. No I/O.

In: what `headgate check`, `headgate doctor` and `headgate status` saw. Out: a line for a person, and fields for a program.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a finding is to be taken."""

    OK = "ok"
    UNKNOWN = "unknown"  # it could not be looked at, for the reason that the text gives
    WARNING = "warning"  # it works now, and will hurt: under load, at a restart, or in an attack
    FAULT = "fault"  # events are lost, refused or late because of it


@dataclass(frozen=True, slots=True)
class Finding:
    """`text` says what was seen of `name`; `fix` says which setting to change, or what to do, where there is something."""

    name: str
    verdict: Verdict
    text: str
    fix: str | None = None

    @property
    def line(self) -> str:
        """The finding on one line, as `headgate check` prints it."""
        return f"{self.name}: {self.text}" + (f": {self.fix}" if self.fix else "")


def ok(name: str, text: str) -> Finding:
    """Return a finding that needs nothing."""
    return Finding(name, Verdict.OK, text)


def unknown(name: str, text: str, fix: str | None = None) -> Finding:
    """Return a finding about what could not be looked at."""
    return Finding(name, Verdict.UNKNOWN, text, fix)


def warning(name: str, text: str, fix: str | None = None) -> Finding:
    """Return a finding that will hurt."""
    return Finding(name, Verdict.WARNING, text, fix)


def fault(name: str, text: str, fix: str | None = None) -> Finding:
    """Return a finding that hurts."""
    return Finding(name, Verdict.FAULT, text, fix)


def count(findings: Iterable[Finding], verdict: Verdict) -> int:
    """Return how many findings have a verdict."""
    return sum(finding.verdict is verdict for finding in findings)

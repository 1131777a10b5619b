"""CheckResult: one result of checking a running system, and its remedy. No I/O.

In: the observations of `headgate check`, `headgate doctor` and `headgate status`. Out: a line for a person, and fields for a
program.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How serious a result is."""

    OK = "ok"
    UNKNOWN = "unknown"  # not checked, for the reason in the text
    WARNING = "warning"  # works now, but will fail under load, at a restart or in an attack
    FAULT = "fault"  # causes lost, refused or late events


@dataclass(frozen=True, slots=True)
class CheckResult:
    """`text` describes the state of `name`. `fix` names the setting to change or the step to take, if any."""

    name: str
    verdict: Verdict
    text: str
    fix: str | None = None

    @property
    def line(self) -> str:
        """Return the result on one line, as `headgate check` prints it."""
        return f"{self.name}: {self.text}" + (f": {self.fix}" if self.fix else "")


def ok(name: str, text: str) -> CheckResult:
    """Return a result that needs no action."""
    return CheckResult(name, Verdict.OK, text)


def unknown(name: str, text: str, fix: str | None = None) -> CheckResult:
    """Return a result for a check that was not possible."""
    return CheckResult(name, Verdict.UNKNOWN, text, fix)


def warning(name: str, text: str, fix: str | None = None) -> CheckResult:
    """Return a result about future harm."""
    return CheckResult(name, Verdict.WARNING, text, fix)


def fault(name: str, text: str, fix: str | None = None) -> CheckResult:
    """Return a result about present harm."""
    return CheckResult(name, Verdict.FAULT, text, fix)


def count(results: Iterable[CheckResult], verdict: Verdict) -> int:
    """Return the number of results with a verdict."""
    return sum(result.verdict is verdict for result in results)

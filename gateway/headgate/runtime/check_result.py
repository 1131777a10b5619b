"""CheckResult: one result of checking a running system, and its remedy. No I/O.

In: the observations of `headgate check`, `headgate doctor` and `headgate status`. Out: a line for a person, and fields for a
program.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial


class Verdict(StrEnum):
    """How serious a result is."""

    OK = "ok"
    UNKNOWN = "unknown"  # not checked, for the reason in the text
    WARNING = "warning"  # works now, but will fail under load, at a restart or in an attack
    FAULT = "fault"  # causes lost, refused or late events


@dataclass(frozen=True, slots=True)
class CheckResult:
    """`text` describes the state of `name`. `fix` names the setting to change or the step to take, if any."""

    verdict: Verdict
    name: str
    text: str
    fix: str | None = None

    @property
    def line(self) -> str:
        """Return the result on one line, as `headgate check` prints it."""
        return f"{self.name}: {self.text}" + (f": {self.fix}" if self.fix else "")


ok = partial(CheckResult, Verdict.OK)
unknown = partial(CheckResult, Verdict.UNKNOWN)
warning = partial(CheckResult, Verdict.WARNING)
fault = partial(CheckResult, Verdict.FAULT)


def count(results: Iterable[CheckResult], verdict: Verdict) -> int:
    """Return the number of results with a verdict."""
    return sum(result.verdict is verdict for result in results)

"""The health of several workers as that of one gateway: the worst of them, with each named. No I/O.

In: the row of each worker on the board, and what those that were asked have answered (None: not in time). Out: one report.
A worker that is starting or leaving is named and does not count: while one is replaced, the others serve. A worker that serves
and does not answer counts as down: connections that it has taken are stuck in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .board import Row, State

SILENT = "it does not answer"
# The words of `admission`, the worst last (node/population/shedding.py).
_ADMISSIONS = ("admitting", "full", "shedding")


def joined(rows: Sequence[Row], answers: Mapping[int, Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return the health of all; `answers` are by age."""
    workers: list[dict[str, Any]] = []
    serving: list[Mapping[str, Any]] = []
    is_ready = True
    for row in sorted(rows, key=lambda row: row.number):
        told: dict[str, Any] = {"worker": row.number, "process": row.process_id, "state": row.state.name.lower()}
        answer = answers.get(row.age)
        if row.state is State.SERVING:
            if answer is None:
                told |= {"ready": False, "error": SILENT}
            else:
                told["ready"] = bool(answer.get("ready"))
                if "admission" in answer:
                    told["admission"] = answer["admission"]
                serving.append(answer)
            is_ready = is_ready and told["ready"]
        workers.append(told)
    report: dict[str, Any] = {
        "ready": is_ready and bool(serving),
        "bus": "up" if serving and all(each.get("bus") == "up" for each in serving) else "down",
        "revocations": bool(serving) and all(each.get("revocations", False) for each in serving),
        "namespaces": _namespaces([each.get("namespaces", {}) for each in serving]),
        "workers": workers,
    }
    if builds := [each["build"] for each in serving if "build" in each]:
        report["build"] = builds[0]  # one installation for all
    if admissions := [each["admission"] for each in serving if "admission" in each]:
        report["admission"] = max(admissions, key=_ADMISSIONS.index)
    if any("paused" in each for each in serving):
        report["paused"] = sorted({pause for each in serving for pause in each.get("paused", [])})
    errors = [each["revocations_error"] for each in serving if "revocations_error" in each]
    return report | ({"revocations_error": errors[0]} if errors else {})


def _namespaces(each: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return, for each namespace, the worst: down where one is, the lowest offset. Clients are counted together."""
    joined: dict[str, dict[str, Any]] = {}
    for namespaces in each:
        for name, state in namespaces.items():
            known = joined.get(name)
            if known is None:
                joined[name] = dict(state)
                continue
            worst = dict(state) if (state["bus"], state["offset"]) < (known["bus"], known["offset"]) else known
            joined[name] = {**worst, "clients": known["clients"] + state["clients"]}
    return joined

"""The health of all workers of a process manager, from each one's. No I/O.

It is the worst of all, and lists each. A starting or leaving worker does not count, because the others serve while it is
replaced. A serving worker without an answer counts as down, because its connections are stuck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.workers.scoreboard import Row, State

SILENT = "it does not answer"
# The values of `admission`, the worst last (node/population/shedding.py).
_ADMISSIONS = ("admitting", "full", "shedding")


def joined(rows: Sequence[Row], answers: Mapping[int, Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return the combined health. `answers` are by age; None for no answer in time."""
    workers: list[dict[str, Any]] = []
    serving: list[Mapping[str, Any]] = []
    for row in sorted(rows, key=lambda row: row.number):
        entry: dict[str, Any] = {"worker": row.number, "process": row.process_id, "state": row.state.name.lower()}
        if row.state is State.SERVING:
            if (answer := answers.get(row.age)) is None:
                entry |= {"ready": False, "error": SILENT}
            else:
                entry["ready"] = bool(answer.get("ready"))
                if "admission" in answer:
                    entry["admission"] = answer["admission"]
                serving.append(answer)
        workers.append(entry)
    report: dict[str, Any] = {
        "ready": bool(serving) and all(entry.get("ready", True) for entry in workers),
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
    """Return the worst state of each namespace (down, or the lowest offset) and the number of its clients."""
    joined: dict[str, dict[str, Any]] = {}
    for namespaces in each:
        for name, state in namespaces.items():
            if (known := joined.get(name)) is None:
                joined[name] = dict(state)
                continue
            worst = dict(state) if (state["bus"], state["offset"]) < (known["bus"], known["offset"]) else known
            joined[name] = {**worst, "clients": known["clients"] + state["clients"]}
    return joined

"""The tables of docs/benchmarks.md, from committed results.

    python -m bench.page             write them
    python -m bench.page --check     write nothing; end with 1 if the page differs from the results

The page is written by hand, but for what stands between a comment and `<!-- end -->`:

- `<!-- summary RUN SCENARIO[:COLUMN] … -->`: a line for each figure, with Headgate and its peers in one line. Without a
  column it is the one that the scenario compares.
- `<!-- bench RUN SCENARIO -->`: the whole table of a scenario.
- `<!-- losses -->`: each figure of the summaries in which a peer is better than Headgate, or Headgate failed.

The rows are those of results/RUN.json. A new run is shown by its name in the comments.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.generated import write_or_check

from .report import median, merged, number, read, table
from .scenario import Row, more_is_better
from .scenarios import SCENARIOS
from .variants import VARIANTS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
RESULTS = Path(__file__).parent / "results"
SUMMARY = re.compile(r"(<!-- summary (\S+) ([^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)
BLOCK = re.compile(r"(<!-- bench (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
LOSSES = re.compile(r"(<!-- losses -->\n).*?(<!-- end -->)", re.DOTALL)
# Above this, a peer's figure counts as better: differences below are noise on a virtual machine.
NOISE = 1.1
# A latency or a borne rate is worthless where other programs used more than this share of the server's core.
DISTURBED = 0.1
# Headgate as a publisher uses it where a run has that, else as it is published to from other languages.
OWN = ("headgate-append", "headgate")
PEERS = {
    "centrifugo-history": "Centrifugo, history",
    "centrifugo-ids": "Centrifugo, history and ids",
    "node-streams": "Node, streams",
    "centrifugo": "Centrifugo",
    "node": "Node",
}
_DISTURBED = "disturbed"
_OUTCOMES = {"bus_lost": "Redis was too slow", "overrun": "did not keep up", "failed": "–", "ok": "lost events"}
_LOST = ("undelivered", "missing", "closed")

Rows = Mapping[str, Sequence[Row]]


@dataclass(frozen=True)
class Figure:
    """One column of one scenario, of Headgate (`""`) and of each peer that was measured: a number, or what went wrong."""

    title: str
    more_is_better: bool
    of: Mapping[str, float | str]

    def times_worse(self, peer: str) -> float | None:
        """Return how many times worse Headgate is than a peer; None where one of them has no number but 0."""
        ours, theirs = self.of.get(""), self.of.get(peer)
        if isinstance(ours, str) or isinstance(theirs, str) or not ours or not theirs:
            return None
        return theirs / ours if self.more_is_better else ours / theirs


def filled(page: str, results: Path = RESULTS) -> str:
    """Return the page with its tables as they must be.

    Raises:
        ValueError: a run, a scenario or a column of it is not there.
    """
    page = BLOCK.sub(lambda found: f"{found[1]}\n{_block(found[2], found[3], results)}\n{found[4]}", page)
    page = SUMMARY.sub(lambda found: f"{found[1]}\n{_summary(found[2], found[3].split(), results)}\n{found[4]}", page)
    figures = [figure(found[2], name, results) for found in SUMMARY.finditer(page) for name in found[3].split()]
    return LOSSES.sub(lambda found: f"{found[1]}\n{_losses(figures)}\n{found[2]}", page)


def scenarios(page: str) -> list[str]:
    """Return the names of all scenarios that the page shows, each once."""
    summaries = [name.partition(":")[0] for found in SUMMARY.finditer(page) for name in found[3].split()]
    return list(dict.fromkeys([*summaries, *(found[3] for found in BLOCK.finditer(page))]))


def figure(run: str, name: str, results: Path = RESULTS) -> Figure:
    """Return a figure of a run: `SCENARIO` or `SCENARIO:COLUMN`. Raises ValueError as `filled` does."""
    scenario_name, _, column = name.partition(":")
    _, rows = _read(run, scenario_name, results)
    scenario = SCENARIOS[scenario_name]
    column = column or scenario.ratio
    if column not in scenario.columns:
        raise ValueError(f"docs/benchmarks.md asks for {name} of {run}, and its scenario has no such column")
    own = next(rows[variant] for variant in OWN if variant in rows)
    of = {"": _value(own, column), **{peer: _value(rows[peer], column) for peer in PEERS if peer in rows}}
    title = f"{scenario.title}: {scenario.columns[column]}"
    return Figure(title, more_is_better(column), {k: v for k, v in of.items() if v is not None})


def _value(rows: Sequence[Row], column: str) -> float | str | None:
    """Return the median, a text of the column (never), or what went wrong where no round is good; None: it has none."""
    if "_ms" in column or column.startswith("borne"):
        rows = [row for row in rows if float(row.get("others_on_server_core_share", 0)) <= DISTURBED]
        if not rows:
            return _DISTURBED
    good = [row for row in rows if row.get("outcome") == "ok" and not any(row.get(name) for name in _LOST)]
    if good:
        texts = {value for row in good if isinstance(value := row.get(column), str)}
        return "; ".join(sorted(texts)) or median(good, column)
    if lost := median(rows, "lost"):
        return f"{number(lost)} lost"
    outcome = str(rows[0]["outcome"])
    return _OUTCOMES.get(outcome, outcome)


def _read(run: str, scenario: str, results: Path) -> tuple[Mapping[str, Any], Rows]:
    """Return the machine and the rows of a scenario; a file may hold several runs, of the same machine."""
    path = results / f"{run}.json"
    if not path.exists():
        raise ValueError(f"docs/benchmarks.md asks for {run}, and bench/results has no {run}.json")
    runs = read(path)
    # A run may hold removed variants.
    rows = {variant: measured for variant, measured in merged(runs).get(scenario, {}).items() if variant in VARIANTS}
    if not rows or scenario not in SCENARIOS:
        raise ValueError(f"docs/benchmarks.md asks for {scenario} of {run}, and that run has none")
    return runs[0]["machine"], rows


def _summary(run: str, names: Sequence[str], results: Path) -> str:
    figures = [figure(run, name, results) for name in names]
    peers = [peer for peer in PEERS if any(peer in each.of for each in figures)]
    lines = [f"| | Headgate | {' | '.join(PEERS[peer] for peer in peers)} |", "|---" * (len(peers) + 2) + "|"]
    for each in figures:
        cells = [_text(each.of.get("")), *(_beside(each, peer) for peer in peers)]
        lines.append(f"| {each.title} | {' | '.join(cells)} |")
    machine, _ = _read(run, names[0].partition(":")[0], results)
    every = [rows for name in names for rows in _read(run, name.partition(":")[0], results)[1].values()]
    return "\n".join([*lines, "", _origin(machine, every)]) + "\n"


def _text(value: float | str | None) -> str:
    return value if isinstance(value, str) else number(value)


def _beside(each: Figure, peer: str) -> str:
    """Return a peer's figure, and how many times better Headgate is; in bold where the peer is."""
    times_worse = each.times_worse(peer)
    if times_worse is None:
        return _text(each.of.get(peer))
    text = f"{_text(each.of[peer])} ({1 / times_worse:.2f} ×)"
    return f"**{text}**" if times_worse >= NOISE else text


def _block(run: str, name: str, results: Path) -> str:
    machine, rows = _read(run, name, results)
    return (
        "\n".join([f"**{SCENARIOS[name].title}**", "", *table(SCENARIOS[name], rows), "", _origin(machine, list(rows.values()))])
        + "\n"
    )


def _origin(machine: Mapping[str, Any], every: Sequence[Sequence[Row]]) -> str:
    """Return when and on what it was measured, and what else the machine did then."""
    hardware = f"{machine['cpu_model']}, {machine['cores']} cores"
    software = [f"Linux {str(machine['kernel']).split('-')[0]}", f"Python {machine['python']}", str(machine.get("bus", ""))]
    rounds = max(len(rows) for rows in every)
    parts = [str(machine.get("date", "")), hardware, *software, f"{rounds} round{'s' if rounds > 1 else ''}"]
    parts += ["short rounds"] if machine.get("quick") else []
    shares = [float(row[name]) for rows in every for row in rows if (name := "others_on_server_core_share") in row]
    if shares:
        parts.append(f"others used {statistics.median(shares):.0%} of the server's core (median), at most {max(shares):.0%}")
    return f"*{' · '.join(part for part in parts if part)}*"


def _losses(figures: Sequence[Figure]) -> str:
    lines = [f"- {each.title}: {found}." for each in figures if (found := "; ".join(_lost_to(each)))]
    return "\n".join(lines or ["- In no table of this page."]) + "\n"


def _lost_to(each: Figure) -> Iterator[str]:
    """Yield each better peer and its ratio, first those where Headgate has no figure."""
    if isinstance(each.of.get(""), str) and each.of[""] != _DISTURBED:
        yield f"Headgate: {each.of['']}"
    for peer, title in PEERS.items():
        times_worse = each.times_worse(peer)
        if times_worse is not None and times_worse >= NOISE:
            yield f"{title} {_text(each.of[peer])} against {_text(each.of[''])} ({times_worse:.2f} ×)"


def main(words: Sequence[str]) -> int:
    """Write the page, or with `--check` compare it. Return the exit status."""
    return write_or_check(words, PAGE, filled(PAGE.read_text()), "bench/results", "bench.page")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""From rows of figures to charts: percentiles, latency over load, throughput and memory over the number of clients."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .chart import Axis, Points, chart

Rows = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
Titles = Mapping[str, str]

_MS = Axis("latency (ms)", logarithmic=True)
_NINES = Axis("percentile", lambda factor: f"{100 * (1 - 1 / factor):.10g} %", logarithmic=True)
_CLIENTS = Axis("clients", lambda value: f"{value:,.0f}")
_THROUGHPUT = re.compile(r"throughput-(\d+)x256B-w8")


def percentile_points(distribution: Sequence[Sequence[float]], count: int) -> Points:
    """Return a distribution (percentile, µs) on the HDR scale: across 1 / (1 - p), each nine as wide as the last; up ms.

    The maximum, whose percentile is 100, stands where one out of `count` values does.
    """
    points = []
    for percentile, microseconds in distribution:
        factor = float(count) if percentile >= 100 else 1 / (1 - percentile / 100)
        points.append((max(1.0, factor), microseconds / 1000))
    return sorted(points)


def percentile_curve(title: str, rows: Mapping[str, Sequence[Mapping[str, Any]]], titles: Titles) -> str | None:
    """Return the curves of a scenario's servers, of the round with the median maximum; None if there is none."""
    lines = {}
    for name, found in rows.items():
        measured = sorted((row for row in found if row.get("distribution_us")), key=lambda row: float(row["max_ms"]))
        if measured:
            row = measured[len(measured) // 2]
            lines[titles.get(name, name)] = percentile_points(row["distribution_us"], max(1, int(row.get("deliveries", 1))))
    return chart(title, _NINES, _MS, lines) if lines else None


def latency_over_load(title: str, rows: Mapping[str, Sequence[Mapping[str, Any]]], titles: Titles) -> str | None:
    """Return p99.9 over the rate for what a search of the saturation has tried; None if there was none."""
    lines = {}
    for name, found in rows.items():
        tried = sorted((rate, p99_9) for row in found for rate, _, p99_9 in row.get("latency_over_load", ()))
        if tried:
            lines[titles.get(name, name)] = tried
    return chart(title, Axis("events per second"), Axis("p99.9 (ms)", logarithmic=True), lines) if lines else None


def over_clients(title: str, column: str, label: str, rows: Rows, titles: Titles) -> str | None:
    """Return a column of the throughput scenarios (256 B, window 8) over the number of clients; None with less than two."""
    points: dict[str, list[tuple[float, float]]] = {}
    numbers = set()
    for scenario, variants in rows.items():
        if found := _THROUGHPUT.fullmatch(scenario):
            for name, measured in variants.items():
                values = [float(row[column]) for row in measured if isinstance(row.get(column), int | float)]
                if values:
                    numbers.add(int(found[1]))
                    points.setdefault(titles.get(name, name), []).append((float(found[1]), statistics.median(values)))
    lines = {name: sorted(line) for name, line in points.items()}
    return chart(title, _CLIENTS, Axis(label, lambda value: f"{value:,.0f}"), lines) if len(numbers) > 1 else None


def draw(results: Path, rows: Rows, titles: Mapping[str, str], servers: Titles) -> list[Path]:
    """Draw all that rows have, beside the file of the results, as `<its name>-<picture>.svg`; return the files."""
    pictures: dict[str, str | None] = {}
    for scenario, variants in rows.items():
        title = titles.get(scenario, scenario)
        pictures[f"{scenario}-percentiles"] = percentile_curve(title, variants, servers)
        pictures[f"{scenario}-load"] = latency_over_load(title, variants, servers)
    throughput = "Deliveries per server CPU second, 256 B, window 8"
    pictures["throughput"] = over_clients(throughput, "deliveries_per_cpu_s", "deliveries per CPU second", rows, servers)
    pictures["memory"] = over_clients("Memory of the server under load, 256 B", "server_mib", "MiB", rows, servers)
    written = []
    for name, svg in pictures.items():
        if svg is not None:
            path = results.with_name(f"{results.stem}-{name}.svg")
            path.write_text(svg)
            written.append(path)
    return written

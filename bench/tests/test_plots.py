"""The charts: where a point is, what the scales say, and that both schemes of colour are in them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from bench.plots import chart, pictures
from bench.plots.chart import Axis

SVG = "{http://www.w3.org/2000/svg}"


def lines_of(svg: str) -> list[list[tuple[float, float]]]:
    """Return the points of each line in the picture."""
    found = ElementTree.fromstring(svg).findall(f"{SVG}polyline")
    return [[tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()] for line in found]  # type: ignore[misc]


def test_linear_axes_begin_at_nothing_and_end_at_a_round_number() -> None:
    """Half the value is half the way; the axis is not cut off below."""
    ((low, high),) = lines_of(chart.chart("t", Axis("x"), Axis("y"), {"a": [(0, 0), (10, 10)]}))
    assert low == (chart.LEFT, chart.HEIGHT - chart.BOTTOM)
    assert high == (chart.WIDTH - chart.RIGHT, chart.TOP)


def test_logarithmic_axes_have_each_power_of_ten_equally_wide() -> None:
    """1, 10 and 100 are equally far apart, and what has no logarithm is left out."""
    svg = chart.chart("t", Axis("x", logarithmic=True), Axis("y"), {"a": [(0, 1), (1, 1), (10, 1), (100, 1)]})
    (points,) = lines_of(svg)
    (first, _), (second, _), (third, _) = points
    assert second - first == pytest.approx(third - second, abs=0.2)


def test_names_are_escaped_and_told_apart_by_more_than_colour() -> None:
    """A picture is XML whatever the servers are called, and its lines have different dashes."""
    svg = chart.chart("<t> & u", Axis("x"), Axis("y"), {"a<b": [(1, 1)], "c&d": [(1, 2)]})
    root = ElementTree.fromstring(svg)
    assert {"a<b", "c&d", "<t> & u"} <= {text.text for text in root.findall(f"{SVG}text")}
    assert len({line.attrib["stroke-dasharray"] for line in root.findall(f"{SVG}polyline")}) == 2


def test_a_picture_has_colours_for_light_and_for_dark() -> None:
    """The reader's scheme decides."""
    assert "prefers-color-scheme: dark" in chart.chart("t", Axis("x"), Axis("y"), {"a": [(1, 1)]})


def test_a_chart_without_a_point_is_refused() -> None:
    """An empty picture would look like a result."""
    with pytest.raises(ValueError, match="nothing"):
        chart.chart("t", Axis("x"), Axis("y"), {"a": []})


def test_each_nine_of_a_distribution_is_equally_wide_and_the_maximum_stands_at_its_count() -> None:
    """The HDR scale: 90 % at 10, 99 % at 100, the largest of 5,000 values at 5,000."""
    points = pictures.percentile_points([[0, 1000], [90, 2000], [99, 3000], [100, 9000]], 5000)
    assert [round(across, 6) for across, _ in points] == [1, 10, 100, 5000]
    assert [up for _, up in points] == [1, 2, 3, 9]


def test_results_become_pictures_beside_them(tmp_path: Path) -> None:
    """Each kind of figure makes its picture; one number of clients alone makes no line."""
    rows: dict[str, dict[str, list[dict[str, Any]]]] = {
        "schedule": {"headgate": [{"distribution_us": [[0, 100], [100, 900]], "max_ms": 0.9, "deliveries": 10}]},
        "saturation": {"headgate": [{"latency_over_load": [[100, 1, 5], [200, 2, 50]]}]},
        "throughput-1000x256B-w8": {"headgate": [{"deliveries_per_cpu_s": 5, "server_mib": 40}]},
        "throughput-5000x256B-w8": {"headgate": [{"deliveries_per_cpu_s": 4, "server_mib": 50}]},
        "memory": {"headgate": [{"kib_per_client": 2}]},
    }
    results = tmp_path / "run.json"
    written = [path.name for path in pictures.draw(results, rows, {}, {"headgate": "Headgate"})]
    assert sorted(written) == ["run-memory.svg", "run-saturation-load.svg", "run-schedule-percentiles.svg", "run-throughput.svg"]
    assert "Headgate" in (tmp_path / "run-throughput.svg").read_text()
    del rows["throughput-5000x256B-w8"]
    assert "run-throughput.svg" not in [path.name for path in pictures.draw(results, rows, {}, {})]

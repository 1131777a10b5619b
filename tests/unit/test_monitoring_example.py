"""The dashboard and the alert rules of examples/monitoring ask only for exported series; each alert has a remedy.

`make monitoring` has the real Prometheus read both, and Grafana's own types check the dashboard.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.runtime.metrics import exposition
from tests.support.metric_names import asked, exported, expressions_of_dashboard, expressions_of_rules
from tools.settings_page import describe

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "monitoring"
DASHBOARD = (FOLDER / "dashboard.json").read_text()
RULES = (FOLDER / "alerts.yml").read_text()
ALERTS: list[dict[str, Any]] = [rule for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("expression", sorted({*expressions_of_dashboard(DASHBOARD), *expressions_of_rules(RULES)}))
def test_every_series_that_is_asked_for_is_exported(expression: str) -> None:
    """A graph of an unknown name stays empty, and an alert on it never fires."""
    known = exported(exposition()[1].decode())
    assert asked(expression) <= known


def test_a_series_that_does_not_exist_is_found() -> None:
    """The test above can fail."""
    assert asked('rate(headgate_nothing_total{reason="headgate_in_text"}[5m])') == {"headgate_nothing_total"}
    assert "headgate_nothing_total" not in exported(exposition()[1].decode())
    assert "headgate_clients" in exported(exposition()[1].decode())


def test_there_is_an_expression_for_each_alert_and_panel() -> None:
    assert len(expressions_of_rules(RULES)) == len(ALERTS) >= 20
    panels = [panel for panel in json.loads(DASHBOARD)["panels"] if panel["type"] != "row"]
    assert all(panel["targets"] and all(target["expr"] for target in panel["targets"]) for panel in panels)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_says_what_it_means_and_what_to_do(alert: dict[str, Any]) -> None:
    """In sentences, for a reader just out of bed."""
    for said in ("summary", "action"):
        assert alert["annotations"][said].endswith("."), said
        assert len(alert["annotations"][said]) > 20, said
    assert alert["labels"]["severity"] in ("page", "ticket")
    named = set(re.findall(r"HEADGATE_[A-Z_]*[A-Z]", str(alert["annotations"])))
    assert named <= {name for name, *_ in describe()}


def test_panels_do_not_overlap() -> None:
    """Grafana would move them."""
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD)["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells

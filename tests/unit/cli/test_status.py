"""How `headgate status` writes its findings."""

import dataclasses
import json

import pytest
from click.testing import CliRunner

from headgate.cli.main import main
from headgate.cli.status import _show
from headgate.consumers.work.groups import GroupStatus
from headgate.diagnosis.overview import GatewayState, NamespaceState, Overview, RedisOverview

SEEN = Overview(
    1_800_000_000.0,
    RedisOverview("Redis 7.2.4 at h:6379", 1023, 2**40, 12, 40),
    [GatewayState(f"web-{number}/7", "0.1.0", "n", 1200, 90000, -3) for number in range(25)],
    [NamespaceState("n", 25, 1, "e", 500, 400, 1536, 864_000.0, 300.0)],
    [
        GroupStatus("mail", "n", 1, 2, 3, 4, 5, 1.0),
        GroupStatus("old", "n", 0, 0, 0, 0, 0, None),
        GroupStatus("ill", "n", 0, 0, 0, 0, 0, 100.0),
    ],
    {},
    [],
)


def test_a_screen_has_the_most_important_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns stand below each other; rows beyond twenty are counted. Sizes and times have the unit that fits."""
    _show(SEEN, None)
    lines = capsys.readouterr().out.splitlines()
    assert "Redis 7.2.4 at h:6379: 1023 B of 1024.0 GiB in use, 12 connections, 40 commands/s" in lines
    assert "  web-0/7   0.1.0    1,200     25 h  -3 ms  n" in lines
    assert "  and 5 more; --json has all" in lines
    assert "  n          25        500     400          1.5 KiB  10 d    5 min" in lines
    assert "  mail      n          1    2       3        4     5       now" in lines
    assert "  old       n          0    0       0        0     0       never" in lines
    assert "  ill       n          0    0       0        0     0       100 s ago" in lines
    assert lines[-1] == "nothing is wrong"


def test_a_watch_shows_the_rate_since_the_last_look(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the same epoch; another one starts from zero."""
    earlier = dataclasses.replace(SEEN.namespaces[0], head=450)
    _show(SEEN, dataclasses.replace(SEEN, at_s=SEEN.at_s - 2, namespaces=[earlier]))
    assert "10 d    5 min     25.0\n" in capsys.readouterr().out
    other = dataclasses.replace(earlier, epoch="before")
    _show(SEEN, dataclasses.replace(SEEN, at_s=SEEN.at_s - 2, namespaces=[other]))
    assert "10 d    5 min\n" in capsys.readouterr().out


def test_redis_that_is_away_is_one_line_or_one_object() -> None:
    nowhere = ("--redis", "redis://127.0.0.1:1")
    said = CliRunner().invoke(main, ["status", *nowhere])
    assert (said.exit_code, said.stdout) == (1, "")
    assert said.stderr.startswith("headgate: the bus is unavailable: ")
    as_json = CliRunner().invoke(main, ["status", "--json", *nowhere])
    assert as_json.exit_code == 1
    error = json.loads(as_json.stdout)["error"]
    assert (error["code"], error["reason"]) == ("bus_unavailable", "127.0.0.1:1: connection refused")
    assert error["message"] == said.stderr.strip().replace("headgate: ", "").replace("\n", "; ")

"""The kinds of values that options take."""

from pathlib import Path

import click
import pytest

from headgate.cli.options import processors, read_address, seconds

CONTEXT = click.Context(click.Command("x"))
OPTION = click.Option(["--listen"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("90", 90), ("90s", 90), ("15m", 900), ("1h", 3600), ("7d", 604800), ("999999999", 10**9 - 1)],
)
def test_a_time_is_a_number_with_a_unit(text: str, expected: int) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "h", "1w", "-1", "1.5h", "1 h", "1234567890", "1h30m", "١h"])
def test_any_other_text_is_wrong_usage(text: str) -> None:
    with pytest.raises(click.BadParameter, match="not a time such as 90, 90s"):
        seconds(text)


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, None), ("127.0.0.1:9100", ("127.0.0.1", 9100)), ("[::1]:0", ("::1", 0)), ("localhost:65535", ("localhost", 65535))],
)
def test_an_address_is_a_host_and_a_port(given: str | None, expected: tuple[str, int] | None) -> None:
    """IPv6 with brackets. Without them it is unclear where the port begins."""
    assert read_address(CONTEXT, OPTION, given) == expected


@pytest.mark.parametrize("given", ["", "9100", "::1:80", ":9100", "[]:9100", "host:", "host:65536", "host:-1", "host:http"])
def test_an_address_without_host_or_port_is_wrong_usage(given: str) -> None:
    with pytest.raises(click.BadParameter, match="expected HOST:PORT"):
        read_address(CONTEXT, OPTION, given)


@pytest.mark.parametrize(
    ("groups", "limits"),
    [
        ("0::/", {"cpu.max": "100000 100000\n"}),
        ("0::/a/b", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "50000 100000\n"}),
        ("0::/outside/of/the/container", {"cpu.max": "1000 100000\n"}),
        ("5:memory:/\n1:cpu,cpuacct:/a\n0::/", {"cpu/a/cpu.cfs_quota_us": "90000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}),
    ],
)
def test_the_cpu_limit_of_a_container_bounds_its_processors(tmp_path: Path, groups: str, limits: dict[str, str]) -> None:
    """As Docker, Kubernetes and systemd (CPUQuota) set it. Without one, all that the process may run on count."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"{groups}\n")
    unlimited = processors(tmp_path)
    for name, text in limits.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    assert processors(tmp_path) == 1
    assert unlimited == processors(tmp_path / "nowhere")

"""`headgate check` against a real Redis."""

import json
import re

from headgate.consumers.work.store import GROUP_LIBRARY
from headgate.redis.client import Client, call
from headgate.redis.keys import head_key
from headgate.redis.log import EventLog
from tests.integration.cli.conftest import Run


def test_check_names_the_server_that_is_found_and_needed(run: Run) -> None:
    """The server's version, and the libraries' before and after loading them."""
    before, loading, after = run("check"), run("check", "--load"), run("check")

    ours, found, needed, library, consumers, members, role, disk, memory, buffers, connections, writes, *served, clients = (
        before.stdout.splitlines()
    )
    assert re.fullmatch(r"headgate: [\d.]+, (python|compiled)", ours)
    assert found.startswith("found: ")
    assert needed == "needed: Redis 7.0 or newer, or Valkey"
    assert library.startswith("function library: not loaded")
    assert consumers.startswith("function library of consumers: not loaded")
    assert members.startswith("function library of presence: not loaded")
    assert role.startswith("role: primary without replicas")
    assert disk == "disk: append-only file"
    assert re.fullmatch(r"memory: maxmemory [\d,]+ MiB, noeviction; \d+ MiB in use", memory)
    assert buffers.startswith("buffers: client-output-buffer-limit pubsub ")
    assert connections == "connections: maxclients 10000, no timeout"
    assert writes == "writes: it takes events from this user"
    assert [re.sub(r"\d+ s", "N s", line) for line in served] == [
        "namespace notifications: 1 gateway(s) at work, the last one seen N s ago",
        "namespace other: 1 gateway(s) at work, the last one seen N s ago",
    ]
    assert clients.startswith(
        "clients: with the settings here no client may connect, unless the application has an authenticator"
    )
    assert loading.stdout.splitlines()[:6] == after.stdout.splitlines()[:6]
    assert "function library: version " in after.stdout
    assert "function library of consumers: version " in after.stdout
    assert "function library of presence: version " in after.stdout


def test_check_warns_of_an_older_library(run: Run, redis_client: Client) -> None:
    """With the command that replaces it; afterwards there is no warning."""
    older = GROUP_LIBRARY.source.replace(f"local VERSION = {GROUP_LIBRARY.version}", "local VERSION = 1")
    call(redis_client, "FUNCTION", "LOAD", older)
    shown = run("check").stdout
    assert f"function library of consumers: version 1, which is older (ours: {GROUP_LIBRARY.version})" in shown
    assert "run `headgate check --load` as a user who may load functions" in shown
    assert "older" not in run("check", "--load").stdout


def test_check_says_what_the_settings_of_a_gateway_here_would_do(run: Run, environment: dict[str, str]) -> None:
    """Nothing where clients may connect; a fault in the settings, if there is one."""
    assert "clients: " not in run("check", env={**environment, "HEADGATE_DEV": "1"}).stdout
    wrong = run("check", env={**environment, "HEADGATE_PROT": "1"})
    assert (wrong.returncode, "clients: the settings here are wrong: HEADGATE_PROT is not a setting" in wrong.stdout) == (0, True)


def test_check_says_for_how_long_ids_count_and_what_they_may_take(run: Run, redis_client: Client) -> None:
    """And warns where that is less than 300 s, with the setting that restores it. For programs, findings are objects."""
    EventLog("notifications", redis_client, 1024).configure(1000, 600, 2**28)
    assert "ids of notifications: an id counts for 300 s; all may take 352 MiB" in run("check").stdout.splitlines()
    assert "ids of other" not in run("check").stdout

    call(redis_client, "HSET", head_key("notifications"), "ids_hold", 150_000)

    ended = run("check", "--json")
    said = json.loads(ended.stdout)
    assert (ended.returncode, said["ok"], said.keys()) == (0, True, {"ok", "headgate", "build", "findings"})
    assert {"name": "disk", "verdict": "ok", "text": "append-only file", "fix": None} in said["findings"]
    [ids] = [each for each in said["findings"] if each["name"] == "ids of notifications"]
    assert ids["verdict"] == "warning"
    assert ids["text"].startswith("an id counts for 150 s at the present rate, not for 300 s, as all may take 352 MiB")
    assert ids["fix"].startswith(f"set HEADGATE_LOG_MAX_BYTES to {2 * 2**28} or more")

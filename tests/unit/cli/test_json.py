"""`--json`: every command has it, and reports a fault in one shape."""

import json
from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner

from headgate.cli.main import main

# They run until they are stopped, and log (HEADGATE_LOG_FORMAT=json).
WITHOUT = {"demo", "serve", "consume"}
NOWHERE = "redis://127.0.0.1:1"
# The arguments with which a command comes as far as Redis.
GIVEN = {
    "consumers remove": ["mail"],
    "dead-letters drop": ["mail", "--all"],
    "dead-letters list": ["mail"],
    "dead-letters retry": ["mail", "--all"],
    "dead-letters show": ["mail", "1-0"],
    "disconnect": ["--user", "ann"],
    "keys create": ["shop", "--scope", "read:#"],
    "keys revoke": ["a" * 10],
    "pause": ["connects"],
    "presence": ["rooms.7"],
    "publish": ["orders.1", "{}"],
    "regrant": ["ann"],
    "replay": ["#", "--until", "9"],
    "resume": ["connects"],
    "revoke": ["--user", "ann"],
    "schemas remove": ["orders.json"],
    "schemas show": ["orders.json"],
    "tail": ["#"],
    "trace": ["1"],
    "types": ["--registry"],
    "who-can": ["#"],
}
# They need a folder first, report the trouble with Redis as their result, or do not ask it.
NO_FAULT = {"schemas push", "check", "doctor", "status", "config show"}


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands(main))


def has(command: click.Command, option: str) -> bool:
    return any(option in parameter.opts for parameter in command.params)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_json(name: str) -> None:
    assert has(COMMANDS[name], "--json") == (name not in WITHOUT)


@pytest.mark.parametrize("name", sorted(name for name, command in COMMANDS.items() if has(command, "--redis")))
def test_a_fault_is_one_object_on_standard_error(name: str) -> None:
    """Its code, its message, whether trying again helps, and its parts; nothing on standard output, and exit code 1."""
    if name in WITHOUT | NO_FAULT:
        return
    found = CliRunner().invoke(main, [*name.split(), *GIVEN.get(name, []), "--redis", NOWHERE, "--json"])
    assert (found.exit_code, found.stdout) == (1, ""), found.output
    error: dict[str, Any] = json.loads(found.stderr)["error"]
    assert (error["code"], error["retry"]) == ("bus_unavailable", True), error
    assert error["message"].startswith("the bus is unavailable: ")


def test_a_token_comes_with_its_user_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_TOKEN_SECRET", "a secret of thirty-two bytes or more, for tests")
    found = json.loads(CliRunner().invoke(main, ["token", "--user", "ann", "--ttl", "5m", "--json"]).stdout)
    assert (found["user"], found["expires_in_s"], found["token"].count(".")) == ("ann", 300, 2)
    refused = CliRunner().invoke(main, ["token", "--user", "ann", "--kid", "k9", "--json"])
    assert (refused.exit_code, list(json.loads(refused.stderr))) == (1, ["error"])

"""The command line itself: its commands, and that it loads nothing of them before they are asked for."""

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import headgate
from headgate.__main__ import main as run_command
from headgate.cli.main import _SECTIONS, main
from tests.support.service_links import SERVICE_LINKS

# Without the site module, which in an editable installation loads a separate finder.
PATHS = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(headgate.__file__).parents[1]), *sys.path])}


@pytest.mark.parametrize(
    "command",
    [
        *("check", "status", "publish a 1", "tail #", "replay #", "trace 1", "presence a", "pause", "rebalance", "clients"),
        *(
            "keys list",
            "consume",
            "consume --check",
            "consumers list",
            "dead-letters list mailer",
            "who-can #",
            "revoke --user ana",
        ),
        *("regrant ana", "disconnect --user ana", "schemas list", "publish --file /dev/null"),
    ],
)
def test_a_services_variables_stop_no_command(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reads the settings that it needs, the file's over the orchestrator's variables, and goes on to Redis."""
    monkeypatch.chdir(tmp_path)
    Path("headgate.toml").write_text(
        '[settings]\nport = 9000\nredis_url = "redis://127.0.0.1:1"\n'
        '[consumers.mailer]\ntype = "monitoring"\npatterns = "#"\n[[consumers.mailer.counters]]\nname = "x"\npattern = "#"\n'
    )
    environment = {**SERVICE_LINKS, "HEADGATE_REDIS_URL": "redis://127.0.0.1:1"}

    done = CliRunner().invoke(main, command.split(), env=environment)

    assert done.exit_code == 1
    assert "connection refused" in done.stderr
    assert "setting" not in done.stderr


@pytest.mark.parametrize("name", main.list_commands(click.Context(main)))
def test_every_command_of_the_table_is_there_and_has_help(name: str) -> None:
    """A name that leads to no module, or to another command, would only be noticed by the user."""
    context = click.Context(main)
    command = main.get_command(context, name)
    assert command is not None
    assert command.name == name
    assert CliRunner().invoke(main, [name, "--help"]).stdout.startswith(f"Usage: main {name} ")


def test_help_lists_the_commands_and_an_unknown_one_is_wrong_usage() -> None:
    listed = CliRunner().invoke(main, ["--help"]).stdout
    assert all(f"  {name} " in listed for names in _SECTIONS.values() for name in names)
    assert all(f"\n{section}:\n" in listed for section in _SECTIONS)
    assert CliRunner().invoke(main, ["no-such-command"]).exit_code == 2


@pytest.mark.parametrize("words", [[], ["keys"], ["dead-letters"], ["consumers"], ["schemas"], ["config"]])
@pytest.mark.parametrize("columns", ["40", "80"])
def test_help_cuts_no_sentence(words: list[str], columns: str) -> None:
    assert "..." not in CliRunner().invoke(main, [*words, "--help"], env={"COLUMNS": columns}).stdout.replace("[ARGS]...", "")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["publsh", "a", "1"], "Did you mean publish?"),
        (["dead-leters"], "Did you mean dead-letters?"),
        (["keys", "creat"], "Did you mean create?"),
        (["dead-letters", "lst", "mail"], "Did you mean list?"),
        (["consumers", "rm"], ""),
    ],
)
def test_a_misspelt_command_is_answered_with_the_nearest_one(words: list[str], meant: str) -> None:
    """As settings, options of consumers and tables of the configuration file are."""
    wrong = CliRunner().invoke(main, words)
    assert wrong.exit_code == 2
    assert "No such command" in wrong.stderr
    assert meant in wrong.stderr


def test_the_command_line_loads_nothing_that_a_command_needs() -> None:
    """`serve` must be able to patch the standard library before anything of ours is loaded, and help is not to wait for it."""
    code = (
        "import sys, headgate.cli.main as m, click; context = click.Context(m.main); "
        "[m.main.get_command(context, name) for name in m.main.list_commands(context)]; "
        "print([name for name in ('redis', 'msgspec', 'gevent', 'flask', 'headgate.redis.client', 'headgate.events.event', "
        "'headgate.settings.settings') if name in sys.modules])"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_ctrl_c_while_the_command_is_loaded_leaves_no_traceback(tmp_path: Path) -> None:
    """As later, it ends with 130."""
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-m", "headgate", "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": paths})
    assert (ended.returncode, ended.stderr) == (130, "")


def test_sigterm_ends_a_command_that_is_the_first_process_of_a_container() -> None:
    """The kernel ignores a signal without a handler there, so it would be killed ten seconds later."""
    code = (
        "import os, signal, sys; pid = os.getpid(); os.getpid = lambda: 1; sys.argv = ['headgate', '--version']\n"
        "from headgate.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit:\n    os.kill(pid, signal.SIGTERM)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGTERM, "")


# Our modules that each of these loads; the rest of the time is Python's own and click's.
LIGHT = {
    "headgate",
    "headgate.__main__",
    "headgate.cli",
    "headgate.cli.events",
    "headgate.cli.main",
    "headgate.cli.options",
    "headgate.cli.output",
    "headgate.errors",
    "headgate.events",
    "headgate.installation",
    "headgate.runtime",
    "headgate.runtime.operator_lines",
    "headgate.events.topic",
}
# All modules loaded in the end, with those of click and of the standard library, some of which Python has already.
MOST_MODULES = 130


@pytest.mark.parametrize("words", [["--version"], ["complete", "pub"], ["publish", "--help"]])
def test_help_and_completion_load_little(words: list[str]) -> None:
    """A person waits for them, and a shell at each Tab, so they load no settings, no Redis, and no other command's module."""
    completing = words[0] == "complete"
    arguments = [] if completing else words
    code = (
        f"import sys; sys.argv = ['headgate', *{arguments}]\n"
        "from headgate.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "names = sorted(name for name in sys.modules if name.partition('.')[0] == 'headgate')\n"
        "print(len(sys.modules), *names, file=sys.stderr)"
    )
    asked = {"_HEADGATE_COMPLETE": "bash_complete", "COMP_WORDS": f"headgate {words[1]}", "COMP_CWORD": "1"} if completing else {}
    ended = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=PATHS | asked)
    count, *loaded = ended.stderr.split()
    assert set(loaded) <= LIGHT
    assert int(count) <= MOST_MODULES
    assert ("plain,publish" if completing else "headgate") in ended.stdout


def test_a_command_that_has_ended_leaves_no_object_to_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python exits without scanning the objects of the command for cycles."""
    monkeypatch.setattr(sys, "argv", ["headgate", "--version"])
    gc.unfreeze()
    try:
        with pytest.raises(SystemExit):
            run_command()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()

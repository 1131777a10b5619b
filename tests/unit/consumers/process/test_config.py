"""The configuration file: its settings and consumers, and one exact line for everything that can be wrong in it."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

import pytest

from headgate.consumers import Consumer, Delivery
from headgate.consumers.process import config
from headgate.consumers.process.config import read_consumers
from headgate.consumers.values import sealed
from headgate.consumers.work.spec import ConsumerSpec, RunnerOptions
from headgate.errors import SettingsError
from headgate.installation import install_command
from headgate.settings.file import find_file, read_settings
from headgate.settings.options import SWITCH, integer, option, required, text
from headgate.settings.settings import Settings
from tests.support.recording_consumer import fail

FILE = "headgate.toml"


@dataclass(frozen=True)
class PagerOptions:
    """Options with a default, a required one and a secret."""

    number: str = option(required(), text("a telephone number"), "Whom to call.")
    rings: int = option(3, integer(1, 9), "How often.")
    pin: str | None = option(None, sealed(text("a PIN").read, "a PIN"), "Of the exchange.", secret=True)
    loud: bool = option(False, SWITCH, "Whether it may wake people.")


class Pager(Consumer):
    """An application's own consumer."""

    Options = PagerOptions

    @classmethod
    def check(cls, options: Any, patterns: Sequence[str]) -> list[str]:
        """Silence and many rings contradict each other."""
        return [f"rings={options.rings}: expected at most 3 unless loud"] if options.rings > 3 and not options.loud else []

    def handle(self, delivery: Delivery) -> None:
        """Ring nobody."""


class Hasty(Pager):
    """It takes whole pages of events."""

    batch = True

    def handle_many(self, deliveries: Sequence[Delivery]) -> None:
        """Ring nobody."""


class Single(Pager):
    """It takes whole pages, and has a method for single events only."""

    batch = True


class Idle(Consumer):
    """It has no method for events at all."""


def checking(answer: Callable[[], Any]) -> type[Pager]:
    """Return a pager with a check that ends in this way."""
    return type("Checking", (Pager,), {"check": classmethod(lambda *_: answer())})


Careless, Silent = checking(lambda: fail(RuntimeError("no dial tone"))), checking(lambda: None)
Wordy = checking(lambda: "no dial tone")


class Later(Pager):
    """Nobody would await its tick."""

    async def tick(self) -> None:  # type: ignore[override]
        """Count nothing."""


Plain = type("Plain", (Consumer,), {"Options": Path})
Undeclared = type("Undeclared", (Consumer,), {"Options": make_dataclass("Options", [("file", str, "a")])})
_TAKEN = [("patterns", str, option("", text("a word"), "Its own."))]
Clashing = type("Clashing", (Consumer,), {"Options": make_dataclass("Options", _TAKEN)})
NO_CONSUMER = "just text"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's, with this module importable as `pagers` and one that cannot be imported as `broken`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pagers", sys.modules[__name__])
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "broken.py").write_text("raise RuntimeError('no dial tone')\n")
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "needy.py").write_text("import apprise_that_nobody_has\n")
    return tmp_path


def read(
    content: str | bytes, environment: dict[str, str] | None = None, only: Sequence[str] = ()
) -> tuple[Settings, tuple[ConsumerSpec, ...]]:
    Path(FILE).write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_consumers(FILE, environment or {}, only)


def faults_of(content: str | bytes, environment: dict[str, str] | None = None, only: Sequence[str] = ()) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(content, environment, only)
    return list(caught.value.faults)


def pager(more: str = "", name: str = "on-call") -> str:
    """A correct table, with additions."""
    given = {"type": '"pagers:Pager"', "patterns": '["orders.*.failed"]', "number": '"112"'}
    for line in more.splitlines():
        key, _, value = line.partition(" = ")
        given[key] = value
    return f"[consumers.{name}]\n" + "".join(f"{key} = {value}\n" for key, value in given.items() if value != "(none)")


# A good file ----------------------------------------------------------------------------------------------------------------


def test_a_file_gives_settings_and_consumers() -> None:
    """With the defaults of the missing options."""
    settings, [spec] = read(
        '[settings]\nport = 9000\nnamespaces = ["shop", "chat"]\n' + pager('rings = 2\npin = "1234"\nworkers = 4')
    )

    assert (settings.port, settings.namespaces) == (9000, ("shop", "chat"))
    assert (spec.name, spec.consumer, spec.patterns, spec.namespace) == ("on-call", Pager, ("orders.*.failed",), "shop")
    assert spec.options == PagerOptions(number="112", rings=2, pin="1234")
    assert spec.runner == RunnerOptions(workers=4)
    assert "1234" not in repr(spec)


def test_a_byte_order_mark_of_a_windows_editor_does_not_count(folder: Path) -> None:
    """As Notepad may write it."""
    (folder / FILE).write_text("[settings]\nport = 1\n", "utf-8-sig")
    assert read_settings(FILE, {}) == {"HEADGATE_PORT": "1"}


def test_a_consumer_may_name_its_namespace_and_one_pattern_as_text() -> None:
    """Any served namespace."""
    _, [spec] = read('[settings]\nnamespaces = "shop,chat"\n' + pager('namespace = "chat"\npatterns = "a.#, b"'))

    assert (spec.namespace, spec.patterns) == ("chat", ("a.#", "b"))


def test_a_secret_may_be_in_the_environment() -> None:
    """Of any type of consumer, in a variable that the file names."""
    _, [spec] = read(pager('pin_env = "PIN"'), {"PIN": "kept as it is"})

    assert spec.options.pin == "kept as it is"


def test_only_some_of_the_consumers() -> None:
    """In the order of the file; the others are checked all the same."""
    content = "".join(pager(name=name) for name in "abc")

    assert [spec.name for spec in read(content, only=["c", "a"])[1]] == ["a", "c"]
    assert faults_of(content + pager("rings = 10", "d"), only=["a"])


def test_the_environment_wins_over_the_file() -> None:
    """An empty value of the environment says nothing."""
    content = '[settings]\nport = 9000\nhost = "::1"\n' + pager()

    found = read(content, {"HEADGATE_PORT": "9001", "HEADGATE_HOST": "", "OTHER": "x"})[0]

    assert (found.port, found.host) == (9001, "::1")


def test_every_kind_of_setting_can_stand_in_the_file(folder: Path) -> None:
    """Switches, numbers and lists arrive as from the environment; a wrong consumer is not examined."""
    Path(FILE).write_text(
        "[settings]\ndev = true\nmetrics_open = false\nproxies = 2\ntoken_leeway_s = 1.5\n[consumers.x]\ny = 1\n"
    )

    assert read_settings(FILE, {"PATH": "/bin"}) == {
        "HEADGATE_DEV": "on",
        "HEADGATE_METRICS_OPEN": "off",
        "HEADGATE_PROXIES": "2",
        "HEADGATE_TOKEN_LEEWAY_S": "1.5",
    }


def test_the_file_is_found_by_option_variable_or_its_usual_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order; without any there is none."""
    assert find_file(None) is None
    (folder / FILE).write_text("")
    assert find_file(None) == FILE
    monkeypatch.setenv("HEADGATE_CONFIG", "other.toml")
    assert find_file(None) == "other.toml"
    assert find_file("mine.toml") == "mine.toml"


# Faults -------------------------------------------------------------------------------------------------------------------

TABLE = "headgate.toml [consumers.on-call]"
TYPES = "apprise, email, monitoring, webhook, webpush, or your own as package.module:Class"
OPTIONS = "expected Options to be a dataclass whose fields are declared with headgate.consumers.option"
PATTERNS = "expected 1 to 64 patterns such as orders.*.failed"
WORDS = "words are ASCII letters, digits, _ and -, or a lone * or #, joined by single dots"
TABLES = "expected 1 to 64 tables such as [consumers.on-call]"
NAME = "expected a name of 1 to 64 characters of [A-Za-z0-9_-]"
CHECK = "its check raised InvalidRequest: 'invalid request: check: expected a list of texts,"
PUSH = "patterns = ['users.#']\nchannel = 'push'\n"
# Content of the file → the line about it, after the name of the file.
WRONG_FILES: dict[str, tuple[str | bytes, str]] = {
    "no TOML": ("[consumers.on-call\n", ": not TOML: Expected ']' at the end of a table declaration (at line 1, column 19)"),
    "no value": ("a =\n", ": not TOML: Invalid value (at line 1, column 4)"),
    "a key twice": (pager() + "rings = 1\nrings = 2\n", ": not TOML: Cannot overwrite a value (at line 6, column 10)"),
    "no UTF-8": (b"# \xff\n", ": expected UTF-8 text (at line 1)"),
    "too long": ("#" * 1_048_577, ": expected at most 1048576 bytes"),
    "nested without end": ("a = " + "[" * 100_000, ": not TOML: nested too deeply"),
    # Tables
    "an unknown table": (pager() + "[setings]\n", " [setings] is not a table of this file; did you mean [settings]?"),
    "another unknown table": (pager() + "[x]\n", " [x] is not a table of this file; expected [settings] or [consumers.on-call]"),
    "no consumer": ("", f" [consumers]: 0 consumers; {TABLES}"),
    "too many": ("".join(pager(name=f"c{number}") for number in range(65)), f" [consumers]: 65 consumers; {TABLES}"),
    "consumers that are no table": ("consumers = 3", f" [consumers]: 3; {TABLES}"),
    "a consumer that is no table": (
        "[consumers]\non-call = 'x'",
        " [consumers] on-call='x': expected a table [consumers.on-call]",
    ),
    "a list of tables": ("[[consumers.on-call]]", " [consumers] on-call=[{}]: expected a table [consumers.on-call]"),
    "a name with a space": (pager(name='"on call"'), f" [consumers.'on call']: {NAME}"),
    "a long name": (pager(name="x" * 65), f" [consumers.'{'x' * 65}']: {NAME}"),
    # Settings
    "settings that are no table": ("settings = 1\n" + pager(), " settings=1: expected a table [settings]"),
    "a wrong setting": (
        "[settings]\nport = 70000\n" + pager(),
        " [settings] port=70000: expected a whole number from 0 to 65535 (0 picks a free one)",
    ),
    "an unknown setting": (
        "[settings]\nnamespace = 'a'\n" + pager(),
        " [settings] namespace is not a setting; did you mean namespaces?",
    ),
    "a setting with the name of its variable": (
        "[settings]\nHEADGATE_DEV = true\n" + pager(),
        " [settings] HEADGATE_DEV is not a setting; did you mean dev?",
    ),
    "a secret setting": (
        "[settings]\ntoken_secret = 'hunter2'\n" + pager(),
        " [settings] token_secret=(hidden): expected a secret of at least 32 bytes, 8 of them different, that does not repeat "
        "a short text, is no placeholder and no key of another kind (PEM, SSH, JWK), and has no blank or line end around it",
    ),
}
# Lines of a table [consumers.on-call] → the line about it, after the name of the table.
WRONG_CONSUMERS: dict[str, tuple[str, str]] = {
    # Options that every consumer has
    "no type": ("type = (none)", f"type is missing; expected {TYPES}"),
    "a type that is no text": ("type = 3", f"type=3: expected {TYPES}"),
    "no patterns": ("patterns = (none)", f"patterns is missing; {PATTERNS}"),
    "empty patterns": ("patterns = []", f"patterns=[]: {PATTERNS}"),
    "a wrong pattern": ("patterns = ['a.#', 'a..b']", f"patterns=['a.#', 'a..b']: {PATTERNS}; invalid pattern 'a..b': {WORDS}"),
    "patterns that are a number": ("patterns = 7", f"patterns=7: {PATTERNS}"),
    "a namespace that is not served": ("namespace = 'x'", "namespace='x': expected one of notifications"),
    "a namespace that is no text": ("namespace = 1", "namespace=1: expected a namespace"),
    "a start in the middle": ("start = 'last'", "start='last': expected new or oldest"),
    "no worker": ("workers = 0", "workers=0: expected a whole number from 1 to 64"),
    "a wait that is no number": ("retry_first_s = 'soon'", "retry_first_s='soon': expected a number from 0.01 to 3600 seconds"),
    # Options of the type
    "an option that is missing": ("number = (none)", "number is missing; expected a telephone number"),
    "an option that is wrong": ("rings = 10", "rings=10: expected a whole number from 1 to 9"),
    "an option that is not known": ("ringz = 1", "ringz is not an option of pagers:Pager; did you mean rings?"),
    "an option of the runner, misspelt": ("worker = 1", "worker is not an option of pagers:Pager; did you mean workers?"),
    "an option of the runner that the type cannot have": (
        "type = 'pagers:Hasty'\nunless_read_s = 60",
        "unless_read_s is for types that take events one by one; this one takes pages",
    ),
    "a time to be seen where no topic is a user's": (
        "unless_seen_s = 60",
        "unless_seen_s: no pattern has topics of users (users.<user>.…); expected seen_user to name the user",
    ),
    "a time to be read where no topic is an item's": (
        "patterns = ['users.*.inbox']\nunless_read_s = 60",
        "unless_read_s: no pattern has items of inboxes; expected one such as users.*.inbox.*.#",
    ),
    "a template of no user": ("unless_seen_s = 60\nseen_user = '{{ user }}'", "seen_user: unknown name 'user'; there are event"),
    "a channel that there is not": ("channel = 'sms'", "channel='sms': expected mail, push or none"),
    "a function of preferences whose module ends the process": (
        f"{PUSH}wants = 'exits:wants'",
        "wants='exits:wants': cannot be imported: SystemExit",
    ),
    "preferences without a channel": (
        "patterns = ['users.#']\nwants = 'pagers:pager'",
        "wants: this consumer is no channel of a user; expected channel to be mail or push",
    ),
    "a secret that is wrong": ("pin = 123456", "pin=(hidden): expected a PIN"),
    "a secret under a wrong name": ("pln = 'hunter2'", "pln is not an option of pagers:Pager; did you mean pin?"),
    "options that contradict each other": ("rings = 9", "rings=9: expected at most 3 unless loud"),
    "a check that returns nothing": ("type = 'pagers:Silent'", f"{CHECK} got NoneType'"),
    "a check that returns a text": ("type = 'pagers:Wordy'", f"{CHECK} got str'"),
    "a check with a bug": ("type = 'pagers:Careless'", "its check raised RuntimeError: 'no dial tone'"),
}
# Types without a consumer → why.
WRONG_TYPES: dict[str, str] = {
    "emial": f"expected {TYPES}; did you mean email?",
    "pagerz:Pager": "no module named 'pagerz' (looked in FOLDER first)",
    "pagers:Pagr": "module 'pagers' has no 'Pagr'; expected package.module:Class",
    "pagers:": "'pagers:' is not of the form package.module:Class",
    "pagers:NO_CONSUMER": "expected a class that derives from headgate.consumers.Consumer",
    "broken:Pager": "cannot be imported: RuntimeError: 'no dial tone'",
    "needy:Pager": "cannot be imported: ModuleNotFoundError: \"No module named 'apprise_that_nobody_has'\"",
    "exits:Pager": "cannot be imported: SystemExit: '0'",
    "pagers:Plain": OPTIONS,
    "pagers:Undeclared": OPTIONS,
    "pagers:Clashing": "its option patterns has the name of one that every consumer has",
    "pagers:Later": "expected tick to be a method that may block, not a coroutine (async def)",
    "pagers:Single": "expected a method handle_many, which does the work",
    "pagers:Idle": "expected a method handle, which does the work",
}
WRONG: dict[str, tuple[str | bytes, str]] = {
    **{name: (content, f"headgate.toml{line}") for name, (content, line) in WRONG_FILES.items()},
    **{name: (pager(more), f"{TABLE} {line}") for name, (more, line) in WRONG_CONSUMERS.items()},
    **{name: (pager(f"type = '{name}'"), f"{TABLE} type='{name}': {why}") for name, why in WRONG_TYPES.items()},
    "settings that contradict each other": (
        "[settings]\nallowed_origins = ['*']\n" + pager(),
        "HEADGATE_ALLOWED_ORIGINS=*: expected exact origins; * is only accepted together with HEADGATE_DEV=1",
    ),
}


@pytest.mark.parametrize(("content", "line"), WRONG.values(), ids=WRONG)
def test_a_fault_is_one_line(content: str | bytes, line: str, folder: Path) -> None:
    """File, table, key, value, the expected form; no secret."""
    assert faults_of(content) == [line.replace("FOLDER", str(folder))]
    assert "hunter2" not in line


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("pin_env = 'PIN'\npin = 'hunter2'", "pin and pin_env are both given; expected one of them"),
        ("pin_env = 'NOT_SET'", "pin_env='NOT_SET': there is no such environment variable, or it is blank"),
        ("pin_env = 'BLANK'", "pin_env='BLANK': there is no such environment variable, or it is blank"),
        ("pin_env = 5", "pin_env=5: there is no such environment variable, or it is blank"),
        ("number_env = 'PIN'", "number_env is not an option of pagers:Pager; did you mean number?"),
        ('pin = " hunter2"', "pin=(hidden): expected a PIN; there is a blank or a line end around it; take it away"),
        (
            "pin_env = 'PADDED'",
            "pin_env='PADDED': the value of this variable is wrong: "
            "expected a PIN; there is a blank or a line end around it; take it away",
        ),
    ],
)
def test_a_fault_in_a_secret_names_its_place_and_not_the_secret(more: str, line: str) -> None:
    """Twice, missing, blank, or with white space that may or may not belong to it."""
    assert faults_of(pager(more), {"PIN": "hunter2", "BLANK": " ", "PADDED": "hunter2\r\n"}) == [f"{TABLE} {line}"]


def test_all_faults_are_told_together() -> None:
    """Of the settings, of every consumer, of the command line."""
    content = "[settings]\nport = -1\n" + pager("rings = 0\nworkers = 0\nnamber = 1") + pager("patterns = []", "b") + "[x]\n"

    assert faults_of(content, only=["c"]) == [
        "headgate.toml [settings] port=-1: expected a whole number from 0 to 65535 (0 picks a free one)",
        "headgate.toml [x] is not a table of this file; expected [settings] or [consumers.on-call]",
        f"{TABLE} workers=0: expected a whole number from 1 to 64",
        f"{TABLE} rings=0: expected a whole number from 1 to 9",
        f"{TABLE} namber is not an option of pagers:Pager; did you mean number?",
        f"headgate.toml [consumers.b] patterns=[]: {PATTERNS}",
        "--only 'c': expected one of on-call, b",
    ]


def test_a_file_that_cannot_be_read_is_named(folder: Path) -> None:
    """Not there, or a folder."""
    for path, reason in (("missing.toml", "no such file or directory"), (".", "is a directory")):
        with pytest.raises(SettingsError) as caught:
            read_settings(path, {})
        assert caught.value.faults == (f"{path}: {reason}",)


def test_a_setting_outside_its_table_is_told(folder: Path) -> None:
    """`headgate serve`, which reads the settings alone, would go on without it, and on SIGHUP with every limit at its default."""
    Path(FILE).write_text("max_client = 5\n[settings]\nport = 'x'\n[setings]\nport = 1\n[headgate]\n[consumers.x]\ny = 1\n")
    with pytest.raises(SettingsError) as caught:
        read_settings(FILE, {})
    assert caught.value.faults == (
        "headgate.toml [settings] port='x': expected a whole number from 0 to 65535 (0 picks a free one)",
        "headgate.toml max_client is in no table; expected it below [settings]",
        "headgate.toml [setings] is not a table of this file; did you mean [settings]?",
        "headgate.toml [headgate] is not a table of this file; expected [settings] or [consumers.on-call]",
    )


def test_a_missing_extra_is_told_with_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the types that need more than Headgate itself."""
    monkeypatch.setitem(sys.modules, "apprise", None)
    monkeypatch.delitem(sys.modules, "headgate.consumers.apprise", raising=False)

    assert f"{TABLE} type='apprise': needs the package apprise: run {install_command('apprise')}" in faults_of(
        pager("type = 'apprise'\nnumber = (none)")
    )


@pytest.mark.parametrize("name", config.TYPES)
def test_every_known_type_is_a_consumer(name: str) -> None:
    """The list of types names existing classes."""
    assert issubclass(config.load_type(name), Consumer)

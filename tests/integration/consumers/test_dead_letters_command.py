"""`headgate dead-letters` as an operator types it: a real Redis, letters of a real group."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headgate.cli.main import main
from headgate.consumers.process.config import read_consumers
from headgate.consumers.work.dead_letters import DeadLetters
from headgate.consumers.work.store import Store, dead
from headgate.consumers.work.task import Task
from headgate.redis.client import Client
from headgate.services.publisher import Publisher
from tests.support.consume_process import SinkFolder
from tests.support.redis_server import wait_until
from tests.support.supervised import Supervised

Run = Callable[..., Result]


@pytest.fixture
def store(redis_url: str, redis_client: Client) -> Store:
    """The group of a consumer `sink` that has been there."""
    store = Store(redis_client, redis_url, "notifications", "sink", 65536)
    store.open("new")
    return store


@pytest.fixture
def letters(redis_client: Client) -> DeadLetters:
    return DeadLetters(redis_client, "notifications", "sink")


@pytest.fixture
def run(redis_url: str) -> Run:
    """Run `headgate dead-letters …`."""
    return lambda *arguments: CliRunner().invoke(main, ["dead-letters", *arguments], env={"HEADGATE_REDIS_URL": redis_url})


def bury(store: Store, *offsets: int, why: str = "rejected", data: bytes = b'{"a": "\x7f"}', key: str = "") -> None:
    for offset in offsets:
        store.settle(
            [dead(Task("e" * 16, offset, f"orders.{offset}.paid", f"id{offset}", 1000, data, key), why, "it is bad", 100)]
        )


def test_a_list_is_a_line_each_page_by_page(run: Run, store: Store, letters: DeadLetters) -> None:
    """Oldest first; standard error names the way to go on."""
    bury(store, 1, 2)
    bury(store, 3, key="ana@example.com")
    first, second, third = (letter.id for letter in letters.page())

    page, rest = run("list", "sink", "--limit", "2"), run("list", "sink", "--after", second)

    lines = page.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [first, second]
    assert lines[0].endswith("+00:00 rejected 1 orders.1.paid: it is bad")
    assert page.stderr == f"3 dead letters in all; continue with --after {second}\n"
    assert rest.stdout.startswith(f"{third} ")
    assert rest.stdout.endswith(" rejected 3 orders.3.paid (ana@example.com): it is bad\n")
    assert rest.stderr == "3 dead letters in all\n"
    assert [json.loads(line)["offset"] for line in run("list", "sink", "--json").stdout.splitlines()] == [1, 2, 3]


def test_one_is_shown_with_its_data(run: Run, store: Store, letters: DeadLetters) -> None:
    """No control character of it reaches the terminal. An unknown one is a fault."""
    bury(store, 1)
    [letter] = letters.page()

    shown, gone = run("show", "sink", letter.id), run("show", "sink", "1-1")

    assert shown.stdout.splitlines()[1:] == ['{"a": "\\u007f"}']
    assert (gone.stdout, gone.stderr, gone.exit_code) == ("", "headgate: there is no dead letter 1-1 (any more)\n", 1)


def test_letters_are_dropped_and_put_back_by_id_or_all(run: Run, store: Store, letters: DeadLetters) -> None:
    """It gives the number. An unknown id does not count, and is a fault, as it may be misspelt."""
    bury(store, 1, 2, 3, 4)
    first, second, _, _ = (letter.id for letter in letters.page())

    for command, letter, told in (("drop", first, "1 dropped\n"), ("retry", second, "1 to be tried again\n")):
        done = run(command, "sink", letter, "1-1")
        assert (done.exit_code, done.stdout, "1 are no dead letters" in done.stderr) == (1, told, True)
    assert [letter.task.offset for letter in letters.page()] == [3, 4]
    assert run("retry", "sink", "--all").stdout == "2 to be tried again\n"
    assert letters.count() == 0
    bury(store, 5, 6)
    assert run("drop", "sink", "--all").stdout == "2 dropped\n"
    assert letters.count() == 0


def test_the_redis_of_the_configuration_file_is_found(
    store: Store, sink_folder: SinkFolder, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the consumers run with it, it also serves their letters."""
    monkeypatch.chdir(sink_folder.path)
    sink_folder.configure(f'[settings]\nredis_url = "{redis_url}"\n')
    bury(store, 1)

    assert CliRunner().invoke(main, ["dead-letters", "drop", "sink", "--all"]).output == "1 dropped\n"


def test_a_letter_that_is_tried_again_reaches_the_consumer(
    run: Run, supervised: Supervised, sink_here: SinkFolder, redis_url: str, letters: DeadLetters
) -> None:
    """The consumer rejected the event, its code was corrected, and it is started again."""

    def reject() -> None:
        Publisher(redis_url).publish("orders.1.bad", 1)
        wait_until(letters.count, "the letter is there")

    supervised.run(read_consumers("headgate.toml", {}), reject)
    code = sink_here.path / "sink.py"
    code.write_text(code.read_text().replace('"bad"', '"worse"'))
    del sys.modules["sink"]

    assert run("retry", "sink", "--all").exit_code == 0

    supervised.run(read_consumers("headgate.toml", {}), lambda: sink_here.wait_for("orders.1.bad"))


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("list", "sink", "--limit", "101"), 2, "101 is not in the range 1<=x<=100"),
        (("drop", "sink", "first"), 1, "headgate: invalid request: a dead letter's id 'first'"),
        (("list", "snik"), 1, "there is no consumer snik in notifications; there are: sink; did you mean sink?"),
        (("drop", "snik", "--all"), 1, "there is no consumer snik in notifications; there are: sink; did you mean sink?"),
        (("list", "sink", "--namespace", "a b"), 1, "headgate: unknown namespace 'a b'"),
        (("list", "sink", "--redis", "redis://:hunter2@127.0.0.1:1/0"), 1, "headgate: the bus is unavailable: 127.0.0.1:1"),
    ],
)
def test_a_wrong_command_is_told(run: Run, store: Store, arguments: tuple[str, ...], status: int, says: str) -> None:
    """Nothing on standard output, no secret."""
    result = run(*arguments)

    assert (result.stdout, result.exit_code) == ("", status)
    assert says in result.stderr
    assert "hunter2" not in result.stderr


def test_one_that_has_never_run_has_no_letters(run: Run, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is no misspelt name."""
    monkeypatch.chdir(tmp_path)
    Path("headgate.toml").write_text('[consumers.new]\ntype = "monitoring"\npatterns = "#"\n')
    assert run("list", "new").exit_code == 0

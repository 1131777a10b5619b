"""The examples of docs/howto/outbox.md on SQLite and PostgreSQL, while relay, Redis and connections to the database are ended."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checkout import DEADLINE_S
from tests.support.held_port import HeldPort
from tests.support.python_examples import Example, MakeExample, published
from tests.support.redis_process import RedisProcess
from tests.support.redis_server import wait_until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(6 * DEADLINE_S)]
ORDERS, ROUNDS = 60, 6

# A third is rolled back; an order with a broken connection is not committed, or is, and the database knows.
# The first event is as large as one may be, and JSON escapes would make it larger.
MAKE_ORDERS = """
import datetime, sys
from sqlalchemy.exc import DBAPIError
import shop
shop.Base.metadata.create_all(shop.engine)
class Refused(Exception): pass
for number in range(int(sys.argv[1]), int(sys.argv[2])):
    try:
        with shop.Session(shop.engine) as session, session.begin():
            session.add(shop.Order(id=number, status="new"))
            note = "\u044f" * 32_000 if number == 1 else ""
            shop.publish_on_commit(session, f"orders.{number % 5}", {"id": number, "at": datetime.date.min, "note": note})
            if number % 3 == 0: raise Refused
    except (Refused, DBAPIError):
        pass
"""
COMMITTED = """
import shop
with shop.Session(shop.engine) as session:
    print(*session.scalars(shop.text("SELECT id FROM orders ORDER BY id")))
"""
PENDING = """
import shop
with shop.Session(shop.engine) as session:
    print(session.scalar(shop.text("SELECT count(*) FROM outbox WHERE status != 'done'")))
"""


class Postgres:
    """A PostgreSQL server of the test's own, on a loopback port."""

    def __init__(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        if not found:
            pytest.skip("no PostgreSQL here (Debian: apt-get install postgresql)")
        # pytest's own folders are closed to other users, and another pytest of this machine would close them again.
        folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._programs, self._folder, self._held = found[-1].parent, folder, HeldPort()
        self._user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
        self.url = f"postgresql+psycopg://shop@127.0.0.1:{self._held.port}/postgres"
        if self._user:
            shutil.chown(folder, self._user)
        self._run("initdb", "-D", str(folder / "data"), "-U", "shop", "--auth", "trust", "--no-sync")
        words = [
            "-D",
            "data",
            "-p",
            str(self._held.port),
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            f"unix_socket_directories={folder}",
        ]
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen([self._programs / "postgres", *words], cwd=folder, user=self._user, stderr=log)
        wait_until(lambda: self._answers(), "PostgreSQL", DEADLINE_S)

    def end_connections(self) -> None:
        """End every connection but our own, as a failover or an operator does."""
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = 'shop'"
        self._run("psql", "-h", "127.0.0.1", "-p", str(self._held.port), "-U", "shop", "-d", "postgres", "-qtc", query)

    def close(self) -> None:
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(DEADLINE_S)
        self._held.close()
        shutil.rmtree(self._folder)

    def _answers(self) -> bool:
        try:
            self._run("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self._held.port))
        except subprocess.CalledProcessError:
            return False
        return True

    def _run(self, program: str, *words: str) -> None:
        command = [str(self._programs / program), *words]
        subprocess.run(command, cwd=self._folder, user=self._user, check=True, stdout=subprocess.DEVNULL, timeout=DEADLINE_S)


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.close()


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_every_committed_row_is_one_event_while_everything_is_killed(
    example: MakeExample,
    database: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """The application is killed, the relay, the connections of both to the database, and Redis."""
    shop = example("outbox")
    server: Postgres | None = request.getfixturevalue("postgres") if database == "postgresql" else None
    shop.environment["SHOP_DATABASE"] = server.url if server else "sqlite:///shop.sqlite3"
    with RedisProcess(tmp_path / "own-redis") as redis:
        shop.environment["HEADGATE_REDIS_URL"] = redis.url
        relay = shop.start("python", "relay.py")
        wait_until(lambda: ran(shop, PENDING) == "0", "the table", DEADLINE_S)
        for number in range(ROUNDS):
            first = number * ORDERS
            orders = shop.start("python", "-c", MAKE_ORDERS, str(first), str(first + ORDERS))
            before = len(published(redis.url))
            wait_until(lambda before=before: len(published(redis.url)) > before or orders.poll() == 0, "an event")  # type: ignore[misc]  # noqa: B023
            if number % 3 == 0:
                relay.kill()
                relay.wait()
                relay = shop.start("python", "relay.py")
            elif number % 3 == 1:
                redis.kill()
                redis.start()
            elif server:
                server.end_connections()
            if number == ROUNDS - 1:
                orders.kill()
            orders.wait()
        wait_until(lambda: ran(shop, PENDING) == "0", "the outbox is empty", 3 * DEADLINE_S)
        committed = [int(number) for number in ran(shop, COMMITTED).split()]
        log = [data["id"] for _, data in published(redis.url)]
        print(f"{database}: {len(committed)} committed of {ROUNDS * ORDERS}, {len(log)} in the log")
    assert sorted(log) == committed
    for topic in range(5):
        of_topic = [number for number in log if number % 5 == topic]
        assert of_topic == sorted(of_topic)


DJANGO = """
import django; django.setup()
from django.db import transaction
from shop.models import Order
from shop.events import publish_on_commit
for number in range(1, 31):
    try:
        with transaction.atomic():
            Order.objects.create(pk=number)
            publish_on_commit(f"orders.{number}", {"id": number})
            if number % 3 == 0: raise ValueError
    except ValueError:
        pass
"""
PENDING_DJANGO = "import django; django.setup(); from jaiminho.models import Event; print(Event.objects.count())"


def test_django_publishes_the_rows_of_committed_transactions(example: MakeExample, tmp_path: Path) -> None:
    """In order, each once, by a relay that is killed and a Redis that is unreachable at first."""
    shop = example("django")
    shop.environment["DJANGO_SETTINGS_MODULE"] = "shop.settings"
    with RedisProcess(tmp_path / "own-redis") as redis:
        redis.kill()
        shop.environment["HEADGATE_REDIS_URL"] = redis.url
        shop.run("python", "manage.py", "migrate", "--run-syncdb", "--verbosity", "0")
        shop.run("python", "-c", DJANGO)
        assert shop.run("python", "-c", PENDING_DJANGO).strip() == "20"
        words = ("python", "manage.py", "events_relay", "--run-in-loop", "--loop-interval", "0.1")
        relay = shop.start(*words)
        redis.start()
        wait_until(lambda: published(redis.url), "an event", DEADLINE_S)
        relay.kill()
        relay.wait()
        shop.start(*words)
        wait_until(lambda: shop.run("python", "-c", PENDING_DJANGO).strip() == "0", "the outbox is empty", DEADLINE_S)
        assert [data["id"] for _, data in published(redis.url)] == [number for number in range(1, 31) if number % 3]


def ran(shop: Example, code: str) -> str:
    """Return the output of a program, or the empty text where it failed."""
    try:
        return shop.run("python", "-c", code).strip()
    except AssertionError:
        time.sleep(0.2)
        return ""

"""Publishing where no gateway serves: a warning, once, or a refusal, if that was asked for; and the cost of knowing."""

import logging
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from headgate import BusUnavailable, NamespaceNotServed, Publisher
from headgate.cli.main import main
from headgate.redis import registry
from headgate.redis.client import Client, call
from headgate.redis.keys import NAMESPACES, gateways_key, log_key
from tests.support.gateway_here import StartGatewayHere
from tests.support.redis_server import DEADLINE_S
from tests.support.registered import register

LOGGER = "headgate.publisher"


@pytest.fixture(autouse=True)
def new_process() -> None:
    """Nothing has been asked in this process yet."""
    registry._asked_about.cache_clear()


@pytest.fixture
def shop(redis_client: Client, redis_url: str) -> Callable[..., str]:
    """Make a Redis user for publishers with these rights beside those of publishing; return its URL."""

    def make(*rights: str) -> str:
        keys = ("~hg:{notifications}:*", "~hg:{nobody}:*", "&*")
        commands = "+fcall +fcall_ro +function|load +time +publish +hmget +hset +get +set +unlink +xadd +xrange +xtrim +xinfo"
        call(redis_client, "ACL", "SETUSER", "shop", "reset", "on", ">pw", *keys, *commands.split(), *rights)
        return f"unix://shop:pw@{redis_url.removeprefix('unix://')}"

    return make


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER and record.levelno >= logging.WARNING]


def events_in(client: Client, namespace: str) -> int:
    return int(call(client, "XLEN", log_key(namespace)))


def asked(client: Client) -> int:
    """How often Redis was asked whether a namespace is served."""
    found = call(client, "INFO", "commandstats").get("cmdstat_zcard")
    return int(found["calls"]) if found else 0


def test_an_unserved_name_is_warned_of_once(redis_url: str, redis_client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """With its name and the served ones; the event is in the log all the same."""
    register(redis_client, "a-gateway", ["notifications", "chat"])
    with Publisher(redis_url, namespace="nobody") as publisher:
        for number in range(3):
            assert publisher.publish("a", number).offset == number + 1
        publisher.publish_many([("a", 3)])
    assert warnings(caplog) == [
        "no gateway has ever served namespace 'nobody' here, so no browser gets its events; gateways serve notifications, chat"
    ]


def test_a_batch_is_warned_of_too(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """And where no gateway was ever there at all, the warning names none."""
    with Publisher(redis_url) as publisher:
        publisher.publish_many([("a", 1)], namespace="nobody")
    assert warnings(caplog) == ["no gateway has ever served namespace 'nobody' here, so no browser gets its events"]


def test_a_namespace_that_is_or_was_served_is_no_cause_for_a_warning(
    redis_url: str, redis_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Also during an outage of the gateways, because their clients read the log when they come back."""
    register(redis_client, "a-gateway", ["notifications"])
    registry.leave(redis_client, "a-gateway", ["notifications"])
    with Publisher(redis_url) as publisher, Publisher(redis_url, strict_namespace=True) as strict:
        publisher.publish("a", 1)
        assert strict.publish("a", 2).offset == 2
    assert warnings(caplog) == []


@pytest.mark.parametrize("strict", [False, True])
def test_a_process_asks_once_for_each_namespace(redis_url: str, redis_client: Client, strict: bool) -> None:
    """However many publishers, threads and events there are."""
    register(redis_client, "a-gateway", ["notifications", "chat"])
    before = asked(redis_client)

    def publish(number: int) -> None:
        with Publisher(redis_url, strict_namespace=strict) as publisher:
            publisher.publish("a", 0)  # so that threads that begin at once do not both ask
            for namespace in ("notifications", "chat"):
                publisher.publish("a", number, namespace=namespace)
                publisher.publish_many([("a", number)] * 3, namespace=namespace)

    publish(0)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(publish, range(8)))
    assert asked(redis_client) - before == 2


def test_threads_that_begin_at_once_warn_once(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with Publisher(redis_url, namespace="nobody") as publisher, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: publisher.publish("a", number), range(50)))
    assert len(warnings(caplog)) == 1


def test_a_strict_publisher_refuses_until_a_gateway_has_served_it(redis_url: str, redis_client: Client) -> None:
    """Nothing is in the log; the error has its own code, and names the served ones."""
    register(redis_client, "a-gateway", ["notifications"])
    with Publisher(redis_url, namespace="nobody", strict_namespace=True) as publisher:
        for attempt in (lambda: publisher.publish("a", 1), lambda: publisher.publish_many([("a", 1)])):
            with pytest.raises(NamespaceNotServed, match="'nobody'") as caught:
                attempt()
            assert caught.value.to_wire() | {"message": ""} == {
                "code": "namespace_not_served",
                "message": "",
                "retry": False,
                "namespace": "nobody",
                "known": ["notifications"],
            }
        assert events_in(redis_client, "nobody") == 0
        assert publisher.publish("a", 1, namespace="notifications").offset == 1
        register(redis_client, "another", ["nobody"])
        assert publisher.publish("a", 1).offset == 1


def test_a_warning_of_one_publisher_does_not_make_another_less_strict(redis_url: str, redis_client: Client) -> None:
    """They share their knowledge, and that is not the same as served."""
    with Publisher(redis_url, namespace="nobody") as publisher:
        publisher.publish("a", 1)
    with Publisher(redis_url, namespace="nobody", strict_namespace=True) as strict, pytest.raises(NamespaceNotServed):
        strict.publish("a", 2)
    assert events_in(redis_client, "nobody") == 1


@pytest.mark.parametrize("strict", [False, True])
def test_a_registry_that_may_not_be_read_keeps_nobody_from_publishing(
    shop: Callable[..., str], redis_client: Client, caplog: pytest.LogCaptureFixture, strict: bool
) -> None:
    """A strict one is warned that nothing was checked; any other is pointed to a closer look. Asked once, too."""
    caplog.set_level(logging.INFO, LOGGER)
    with Publisher(shop(), namespace="nobody", strict_namespace=strict) as publisher:
        assert [publisher.publish("a", number).offset for number in range(3)] == [1, 2, 3]
    [record] = [record for record in caplog.records if record.name == LOGGER]
    assert record.levelno == (logging.WARNING if strict else logging.INFO)
    assert "namespace 'nobody'" in record.getMessage()
    assert "no permission" in record.getMessage()


def test_unreadable_names_are_omitted(shop: Callable[..., str], redis_client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """The rights that docs/operations/redis-users.md gives a publisher name them; fewer are enough to be warned."""
    register(redis_client, "a-gateway", ["notifications"])
    with Publisher(shop("+zcard", "+zrange"), namespace="nobody") as publisher:
        publisher.publish("a", 1)
    assert warnings(caplog) == ["no gateway has ever served namespace 'nobody' here, so no browser gets its events"]
    registry._asked_about.cache_clear()
    with Publisher(shop("+zcard", "+zrange", f"%R~{NAMESPACES}"), namespace="nobody") as publisher:
        publisher.publish("a", 1)
    assert warnings(caplog)[-1].endswith("; gateways serve notifications")


def test_a_registry_of_another_kind_is_no_registry(redis_url: str, redis_client: Client) -> None:
    """A foreign key, so nothing is known, and publishing goes on."""
    call(redis_client, "SET", gateways_key("nobody"), "not a set")
    with Publisher(redis_url, namespace="nobody") as publisher:
        assert publisher.publish("a", 1).offset == 1


def test_without_redis_the_error_is_that_of_publishing() -> None:
    """A strict one adds no warning."""
    with Publisher("redis://127.0.0.1:1", strict_namespace=True) as publisher, pytest.raises(BusUnavailable):
        publisher.publish("a", 1)


# The command line, and a gateway -------------------------------------------------------------------------------------------


def test_the_command_line_warns_in_one_line(redis_url: str, redis_client: Client) -> None:
    """On standard error, below the receipt; of a served namespace it says nothing."""
    register(redis_client, "a-gateway", ["notifications"])

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headgate", "publish", "a", "1", "--redis", redis_url, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False)

    result = run("--namespace", "nobody")
    assert (result.returncode, result.stdout[:9]) == (0, "offset 1 ")
    assert result.stderr == (
        "headgate: no gateway has ever served namespace 'nobody' here, so no browser gets its events; "
        "gateways serve notifications\n"
    )
    assert run().stderr == ""


def test_the_command_line_refuses_where_that_is_asked_for(redis_url: str, redis_client: Client) -> None:
    arguments = ["publish", "a", "1", "--redis", redis_url, "--namespace", "nobody", "--strict-namespace"]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "headgate: no gateway has ever served namespace 'nobody' here, so no browser gets its events\n"
    assert events_in(redis_client, "nobody") == 0


def test_a_gateway_asks_for_none_of_its_own(gateway_here: StartGatewayHere, redis_url: str, redis_client: Client) -> None:
    """Neither the gateway's own publisher nor one beside it in the same process."""
    gateway = gateway_here().gateway
    before = asked(redis_client)
    gateway.publisher.publish("a", 1)
    with Publisher(redis_url) as publisher:
        publisher.publish("a", 2)
    assert events_in(redis_client, "notifications") == 2
    assert asked(redis_client) == before

"""Settings that change while a gateway runs."""

from pathlib import Path

import pytest

from headgate.errors import InvalidSchema, LimitReached
from headgate.node.gateway import OF_TOKENS, RELOADED, changes
from headgate.settings.settings import Settings
from tests.support.gateway_here import StartGatewayOnModel

DOCS = Path(__file__).resolve().parents[3] / "docs" / "operations" / "install.md"


def test_what_can_be_is_applied_and_the_rest_is_named() -> None:
    """Names as in the environment, in the order of the settings; a setting that needs a restart keeps its value."""
    wanted = Settings(max_clients=7, port=9000, read_per_s=1.0)
    settings, *changed = changes(Settings(), wanted)
    assert changed == [["HEADGATE_MAX_CLIENTS", "HEADGATE_READ_PER_S"], ["HEADGATE_PORT"]]
    assert (settings.max_clients, settings.port) == (7, 8000)
    assert changes(settings, wanted)[1] == []


def test_a_secret_needs_a_restart_where_no_token_was_taken() -> None:
    """Nothing reads tokens there."""
    secret = "a secret of the tests, 0123456789abcdef"
    assert changes(Settings(), Settings(token_secret=secret), OF_TOKENS)[1:] == ([], ["HEADGATE_TOKEN_SECRET"])
    assert changes(Settings(), Settings(token_secret=secret))[1:] == (["HEADGATE_TOKEN_SECRET"], [])


def test_where_the_schemas_cannot_be_had_nothing_changes(gateway_on_model: StartGatewayOnModel) -> None:
    """The fault goes to the caller."""
    gateway = gateway_on_model(dev=False, max_subscriptions=2).gateway
    before = gateway.settings

    def prepare(*_: object) -> None:
        raise InvalidSchema("orders.json", "no JSON")

    gateway.publisher.prepare_schemas = prepare  # type: ignore[method-assign, assignment]
    with pytest.raises(InvalidSchema):
        gateway.reload(Settings(max_subscriptions=1))
    assert gateway.settings is before


def test_the_page_lists_what_is_reloaded() -> None:
    """And nothing else."""
    [line] = [line for line in DOCS.read_text().splitlines() if line.startswith("At once: ")]
    assert sorted(word.strip("`") for word in line.removeprefix("At once: ").rstrip(".").split(", ")) == sorted(RELOADED)


def test_a_gateway_goes_on_with_other_limits_and_grants(gateway_on_model: StartGatewayOnModel) -> None:
    """Clients stay; those that come find the new ones, in `welcome` too."""
    gateway = gateway_on_model(dev=False, anonymous_subscribe=("orders.#",), max_subscriptions=2)
    first = gateway.join()
    assert first.welcome["limits"]["max_subscriptions"] == 2

    wanted = Settings.read({"HEADGATE_ANONYMOUS_SUBSCRIBE": "news.#", "HEADGATE_MAX_SUBSCRIPTIONS": "1"})
    applied, _ = gateway.gateway.reload(wanted)
    assert {"HEADGATE_ANONYMOUS_SUBSCRIBE", "HEADGATE_MAX_SUBSCRIPTIONS"} <= set(applied)
    second = gateway.join()
    assert second.welcome["limits"]["max_subscriptions"] == 1
    assert second.request("subscribe", {"pattern": "orders.1"})["error"]["code"] == "forbidden"
    assert second.request("subscribe", {"pattern": "news.1"})["ok"] is True
    assert second.request("subscribe", {"pattern": "news.2"})["error"]["code"] == LimitReached("subscriptions", 1).code
    assert first.request("subscribe", {"pattern": "orders.1"})["ok"] is True
    [namespace] = gateway.gateway.namespaces.values()
    assert len(namespace.clients) == 2


def test_a_refusal_names_the_rate_in_force(gateway_on_model: StartGatewayOnModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the one of the start."""
    monkeypatch.setattr("headgate.node.log_search.READ_WAIT_S", 0.0)
    gateway = gateway_on_model()
    gateway.gateway.reload(Settings(dev=True, read_per_s=0.25))
    client = gateway.join()
    errors = [client.request("history", {"pattern": "#"}).get("error") for _ in range(2)]
    assert errors[0] is None
    assert (errors[1]["name"], errors[1]["limit"]) == ("read_per_s", 0.25)

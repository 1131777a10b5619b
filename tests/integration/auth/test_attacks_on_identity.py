"""Attacks on identity: names chosen to be wildcards, namespaces without a grant, secrets that reach a log.

Every name and namespace is judged in tests/unit/node/access/test_logins.py; here the judgement is wired into a gateway.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
import pytest

from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient

DEADLINE_S = 30.0

Join = Callable[..., RawClient]


@pytest.fixture
def join() -> Iterator[Join]:
    """Connect clients that leave with the test: `join(gateway, token, namespace, subscriptions=…)`."""
    with ExitStack() as joined:

        def join(gateway: GatewayProcess, token: str | None, namespace: str = "notifications", **auth: Any) -> RawClient:
            body = {**auth, **({"token": token} if token is not None else {})}
            client = joined.enter_context(RawClient(gateway.url, body, namespace))
            client.wait_for(lambda: client.named("welcome") or client.refusal or client.closed, "an answer to CONNECT")
            return client

        yield join


# Namespaces ----------------------------------------------------------------------------------------------------------------


SECRET = "a secret of the tests that is long enough to be one"
PUBLIC, INNER = "notifications", "audit"


def minted(*namespaces: str, user: str = "ana") -> str:
    """A token as another service would make it, with a `namespaces` claim if there are any."""
    claims: dict[str, Any] = {"sub": user, "aud": "headgate", "exp": time.time() + 600, "subscribe": ["#"], "publish": ["#"]}
    return jwt.encode({**claims, **({"namespaces": list(namespaces)} if namespaces else {})}, SECRET, "HS256")


# The claim of a token (None: no token, so anonymous) → the namespaces that it opens.
NAMESPACES_OF: list[tuple[tuple[str, ...] | None, set[str]]] = [
    ((), {PUBLIC}),
    ((PUBLIC,), {PUBLIC}),
    ((INNER,), {INNER}),
    ((PUBLIC, INNER), {PUBLIC, INNER}),
    (("elsewhere",), set()),
    (None, {PUBLIC}),
]


@pytest.fixture(scope="module")
def by_token(start_module_gateway: StartGateway) -> GatewayProcess:
    """A gateway with two namespaces, tokens, and anonymous access as it is without HEADGATE_ANONYMOUS_NAMESPACES."""
    return start_module_gateway(
        {"HEADGATE_NAMESPACES": f"{PUBLIC},{INNER}", "HEADGATE_TOKEN_SECRET": SECRET, "HEADGATE_ANONYMOUS_SUBSCRIBE": "#"}
    )


def http(gateway: GatewayProcess, method: str, path: str, token: str | None, body: Any = None, **headers: str) -> tuple[int, Any]:
    connection = HTTPConnection(urlsplit(gateway.url).netloc, timeout=DEADLINE_S)
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    if body is not None:
        headers["Content-Type"] = "application/json"
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text)


def test_a_token_opens_the_namespaces_that_it_names(by_token: GatewayProcess, join: Join) -> None:
    """At CONNECT, at `refresh`, over HTTP for publishing and for reading, with the same answer everywhere."""
    for claim, opens in NAMESPACES_OF:
        token = None if claim is None else minted(*claim)
        for namespace in (PUBLIC, INNER):
            case, allowed = f"{claim}, at {namespace}", namespace in opens
            client = join(by_token, token, namespace)
            assert (client.refusal is None) is allowed, case
            if not allowed:
                error = client.refusal["data"]
                assert (error["code"], error["reason"]) == ("unauthorized", "wrong_namespace"), case
            status, read = http(by_token, "GET", f"/api/v1/events?pattern=orders.%23&namespace={namespace}", token)
            assert status == (200 if allowed else 401), (case, read)
            if token is not None:
                body = {"topic": "orders.1", "data": 1, "namespace": namespace}
                status, published = http(by_token, "POST", "/api/v1/events", token, body)
                assert status == (201 if allowed else 401), (case, published)
                inside = join(by_token, minted(PUBLIC, INNER), namespace)
                assert inside.request("refresh", {"token": token})["ok"] is allowed, case


# The audit log -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict(start_module_gateway: StartGateway) -> GatewayProcess:
    """A gateway that lets nobody in without a token."""
    return start_module_gateway({"HEADGATE_TOKEN_SECRET": SECRET})


def test_revocations_and_refused_rights_are_in_the_audit_log(strict: GatewayProcess) -> None:
    """On the gateway that acts on them, and where the command line was."""
    token = minted(user="mallory")
    claims = jwt.decode(token, SECRET, ["HS256"], audience="headgate")
    narrow = jwt.encode({**claims, "publish": ["chat.#"], "subscribe": []}, SECRET, "HS256")
    assert http(strict, "POST", "/api/v1/events", narrow, {"topic": "orders.1", "data": 1})[0] == 403
    assert http(strict, "GET", "/api/v1/events?pattern=orders.%23", narrow)[0] == 403
    for scope in ("publish:orders.1", "read:orders.#"):
        strict.wait_for_line(rf'user=mallory action=use name={scope} .*logger=headgate.audit.* event="right refused"')

    url = f"unix://{strict.folder}/data/redis.sock"
    command = [str(Path(sys.executable).with_name("headgate")), "revoke", "--user", "mallory", "--for", "60", "--redis", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert done.stdout.strip() == "revoked user 'mallory' for 60 s"
    heard = r'kind=user name=mallory for_s=60 by="{}".* logger=headgate.audit.* event=revoked'
    assert re.search(heard.format(rf"uid {os.getuid()} on the command line"), done.stderr)
    strict.wait_for_line(heard.format("heard from Redis"))

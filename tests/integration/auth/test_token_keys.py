"""Keys that change while the gateway runs: an issuer's, fetched from its address, and those of a file, after SIGHUP."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.http_receiver import Receiver, status, trickle
from tests.support.raw_client import RawClient
from tests.support.redis_server import wait_until
from tests.support.token_keys import EC_KEY, ED_KEY, OTHER_SECRET, RSA_KEY, SECRET, jwks, pem

ISSUER = "https://login.example.com"
# `headgate serve` with less patience than the product's, for one answer of an issuer, and between two questions.
TIMEOUT_S, AGAIN_S = 4.0, 2.0
HASTY = f"""
from gevent import monkey

monkey.patch_all()
from headgate.auth import jwks
from headgate.cli.main import main

jwks.TIMEOUT_S = {TIMEOUT_S}
jwks.AGAIN_S = {AGAIN_S}
main()
"""
SECRETS = {"old": SECRET.decode(), "new": OTHER_SECRET.decode()}
KEYS: dict[str, tuple[str, Any]] = {"RS256": ("rsa", RSA_KEY), "ES256": ("ec", EC_KEY), "EdDSA": ("ed", ED_KEY)}
GOOD = jwks(rsa=RSA_KEY, ec=EC_KEY, ed=ED_KEY)


def token(key_id: str, key: Any, algorithm: str, headers: Mapping[str, Any] | None = None, **claims: Any) -> str:
    body = {"sub": "ana", "aud": "headgate", "iss": ISSUER, "exp": time.time() + 600, **claims}
    return jwt.encode(body, key, algorithm, headers={"kid": key_id, **(headers or {})})


@pytest.fixture
def issuer() -> Iterator[Receiver]:
    with Receiver() as issuer:
        yield issuer


@pytest.fixture
def start(tmp_path: Path, issuer: Receiver) -> Iterator[Callable[[], GatewayProcess]]:
    """Start a gateway that takes the issuer's tokens. It ends with the test."""
    gateway = GatewayProcess(tmp_path, {"HEADGATE_TOKEN_JWKS_URL": issuer.url("/jwks.json"), "HEADGATE_TOKEN_ISSUER": ISSUER})
    gateway.command = (sys.executable, "-c", HASTY, "serve")
    yield gateway.start
    gateway.stop()
    print(gateway.output)  # shown beside a failed test


def login(gateway: GatewayProcess, shown: str) -> tuple[str, bool]:
    """("welcome", False), or the reason of the refusal and whether it may be tried again."""
    with RawClient(gateway.url, {"token": shown}) as client:
        client.wait_for(lambda: client.named("welcome") or client.refusal, "an answer to CONNECT")
        if client.refusal is None:
            return "welcome", False
        error = client.refusal["data"]
        return error.get("reason", error["code"]), error["retry"]


def wait_until_in(gateway: GatewayProcess, shown: str) -> None:
    wait_until(lambda: login(gateway, shown)[0] == "welcome", "the token is accepted")


# An issuer's keys. test_jwks.py here and tests/unit/auth have every other answer and outcome of a fetch. ------------------------


def test_an_issuers_keys_count_and_a_token_says_nothing_of_keys(start: Callable[[], GatewayProcess], issuer: Receiver) -> None:
    """An answer without end is given up and asked for again; then every algorithm is accepted. A public key is no secret."""
    issuer.answer = trickle(b"HTTP/1.1 200 OK\r\n\r\n")
    gateway = start()
    assert login(gateway, token("rsa", RSA_KEY, "RS256")) == ("keys_pending", True)
    gateway.wait_for_line(f"not within {TIMEOUT_S:g} s.*token keys could not be fetched")
    issuer.answer = status(200, body=GOOD)
    for algorithm, (name, key) in KEYS.items():
        wait_until_in(gateway, token(name, key, algorithm))
    elsewhere = issuer.url("/evil.json")
    forged = {
        "unsupported_header": token("rsa", RSA_KEY, "RS256", {"jku": elsewhere}),
        "algorithm_mismatch": token("rsa", "not a key " + pem(RSA_KEY).encode().hex(), "HS256"),
        "wrong_issuer": token("rsa", RSA_KEY, "RS256", iss="https://evil.example"),
        "bad_signature": token("ec", ec.generate_private_key(ec.SECP256R1()), "ES256"),
    }
    assert {reason: login(gateway, shown)[0] for reason, shown in forged.items()} == {reason: reason for reason in forged}
    assert {each.path for each in issuer.requests} == {"/jwks.json"}


# A file of keys; tests/unit/node/access/test_logins.py has one with a fault. ---------------------------------------------------


def test_sighup_reads_the_keys_anew(start_gateway: StartGateway, tmp_path: Path) -> None:
    """Clients stay; new tokens follow."""
    file = tmp_path / "keys.json"

    def write(name: str) -> None:
        file.write_text(json.dumps({name: {"alg": "HS256", "key": SECRETS[name]}}))

    write("old")
    gateway = start_gateway({"HEADGATE_TOKEN_KEYS": str(file)})
    old, new = (token(name, SECRETS[name], "HS256") for name in ("old", "new"))
    with RawClient(gateway.url, {"token": old}) as client:
        assert client.welcome
        write("new")
        os.kill(gateway.pid, signal.SIGHUP)
        gateway.wait_for_line(r"keys=1 event=\"token keys reloaded\"")
        assert (login(gateway, old)[0], login(gateway, new)[0]) == ("unknown_key", "welcome")
        assert client.request("unsubscribe", {"pattern": "a"})["ok"] is True

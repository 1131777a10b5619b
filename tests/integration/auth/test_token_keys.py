"""Keys that change while the gateway runs: an issuer's, fetched from its address, and those of a file, after SIGHUP."""

from __future__ import annotations

import json
import os
import signal
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from headgate.auth.jwks import MAX_BYTES
from tests.support.certificates import Authority
from tests.support.gateway_process import GatewayProcess, StartGateway
from tests.support.raw_client import RawClient
from tests.support.redis_server import wait_until

ISSUER = "https://login.example.com"
# `headgate serve` with less patience than the product's: for one answer of an issuer, and between two questions.
TIMEOUT_S, AGAIN_S = 4.0, 2.0
HASTY = f"""
from gevent import monkey

monkey.patch_all()
from headgate.auth import jwks
from headgate.cli.main import main

jwks.TIMEOUT_S = {TIMEOUT_S}
jwks.Jwks.__init__.__kwdefaults__["again_s"] = {AGAIN_S}
main()
"""
SECRETS = {name: f"secret {name} of thirty-two bytes or more, for tests" for name in ("old", "new")}
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
KEYS: dict[str, tuple[str, Any]] = {
    "RS256": ("rsa", RSA_KEY),
    "ES256": ("ec", ec.generate_private_key(ec.SECP256R1())),
    "EdDSA": ("ed", ed25519.Ed25519PrivateKey.generate()),
}


def token(key_id: str, key: Any, algorithm: str, headers: Mapping[str, Any] | None = None, **claims: Any) -> str:
    body = {"sub": "ana", "aud": "headgate", "iss": ISSUER, "exp": time.time() + 600, **claims}
    return jwt.encode(body, key, algorithm, headers={"kid": key_id, **(headers or {})})


def jwks(**keys: tuple[str, Any]) -> bytes:
    """A set of public keys: key id = (algorithm, key)."""
    entries = []
    for key_id, (algorithm, key) in keys.items():
        entry = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
        entries.append({**{name: value for name, value in entry.items() if name != "key_ops"}, "kid": key_id, "use": "sig"})
    return json.dumps({"keys": entries}).encode()


GOOD = jwks(**{name: (algorithm, key) for algorithm, (name, key) in KEYS.items()})


class Issuer:
    """A server of keys on loopback. `answer` writes the response; `paths` is what was asked for."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.paths: list[str] = []
        self.answer: Callable[[BaseHTTPRequestHandler], None] = serve(GOOD)
        self.ending = threading.Event()
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.paths.append(self.path)
                issuer.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if tls is not None else ''}://127.0.0.1:{self._server.server_address[1]}/jwks.json"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.ending.set()
        self._server.shutdown()
        self._server.server_close()


def serve(body: bytes, status: int = 200, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    yield issuer
    issuer.close()


def hasty_gateway(folder: Path, issuer: Issuer) -> GatewayProcess:
    """A gateway, not started, that takes the issuer's tokens."""
    gateway = GatewayProcess(folder, {"HEADGATE_TOKEN_JWKS_URL": issuer.url, "HEADGATE_TOKEN_ISSUER": ISSUER})
    gateway.command = (sys.executable, "-c", HASTY, "serve")
    return gateway


@pytest.fixture
def start(tmp_path: Path, issuer: Issuer) -> Iterator[Callable[[], GatewayProcess]]:
    """Start a gateway that takes the issuer's tokens. It ends with the test."""
    gateway = hasty_gateway(tmp_path, issuer)
    yield gateway.start
    gateway.stop()
    print(gateway.output)  # shown beside a failed test


@pytest.fixture(scope="module")
def unlucky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, Issuer]]:
    """A gateway whose issuer has never answered it well, until the first test that uses it ends; and that issuer."""
    issuer = Issuer()
    issuer.answer = serve(b"", 503)
    with closing(issuer), hasty_gateway(tmp_path_factory.mktemp("unlucky"), issuer) as gateway:
        yield gateway, issuer


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


# An issuer's keys ----------------------------------------------------------------------------------------------------------


def test_tokens_of_an_issuers_keys_are_accepted_and_what_a_token_says_of_keys_is_not_heeded(
    start: Callable[[], GatewayProcess], issuer: Issuer
) -> None:
    """Every algorithm; nothing is fetched from anywhere else, and a public key is no secret."""
    gateway = start()
    for algorithm, (name, key) in KEYS.items():
        wait_until_in(gateway, token(name, key, algorithm))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    pem = RSA_KEY.public_key().public_bytes(serialization.Encoding.PEM, form)
    elsewhere = issuer.url.replace("jwks.json", "evil.json")
    forged = {
        "unsupported_header": token("rsa", RSA_KEY, "RS256", {"jku": elsewhere}),
        "algorithm_mismatch": token("rsa", "not a key " + pem.hex(), "HS256"),
        "wrong_issuer": token("rsa", RSA_KEY, "RS256", iss="https://evil.example"),
        "bad_signature": token("ec", ec.generate_private_key(ec.SECP256R1()), "ES256"),
    }
    assert {reason: login(gateway, shown)[0] for reason, shown in forged.items()} == {reason: reason for reason in forged}
    assert set(issuer.paths) == {"/jwks.json"}


def test_a_rotated_key_is_fetched_once_it_is_asked_for_and_the_old_one_is_gone(
    start: Callable[[], GatewayProcess], issuer: Issuer
) -> None:
    """Told to try again until then; a flood of unknown key ids brings no more fetches than one every AGAIN_S."""
    gateway = start()
    wait_until_in(gateway, token("rsa", RSA_KEY, "RS256"))
    newer = ec.generate_private_key(ec.SECP256R1())
    issuer.answer = serve(jwks(newer=("ES256", newer)))
    began_s, fetched = time.monotonic(), len(issuer.paths)
    assert login(gateway, token("newer", newer, "ES256")) == ("keys_pending", True)
    for number in range(30):
        login(gateway, token(f"made-up-{number}", newer, "ES256"))
    wait_until_in(gateway, token("newer", newer, "ES256"))
    wait_until(lambda: login(gateway, token("rsa", RSA_KEY, "RS256"))[0] == "unknown_key", "the old key is refused for good")
    assert len(issuer.paths) - fetched <= 1 + (time.monotonic() - began_s) / AGAIN_S


def drip(request: BaseHTTPRequestHandler) -> None:
    """Never end a body, byte by byte."""
    request.send_response(200)
    request.end_headers()
    try:
        while True:
            request.wfile.write(b" ")
            request.wfile.flush()
            time.sleep(0.2)
    except OSError:
        pass  # the gateway has given up


# Answers of an issuer that hold no keys, made from one that would hold them, and the words of the log about them.
BROKEN: list[tuple[str, Callable[[bytes], Callable[[BaseHTTPRequestHandler], None]], str]] = [
    ("error", lambda good: serve(good, 500), "the answer is 500, expected 200"),
    ("redirect", lambda good: serve(good, 302, Location="/elsewhere.json"), "the answer is 302"),
    ("too-much", lambda good: serve(good + b" " * MAX_BYTES), "larger than"),
    ("no-JSON", lambda good: serve(b"<html>"), "not JSON"),
    ("secret", lambda good: serve(b'{"keys": [{"kty": "oct", "kid": "secret", "k": "AAAA"}]}'), "no public key"),
    ("body-without-end", lambda good: drip, f"not within {TIMEOUT_S:g} s"),
]


@pytest.mark.parametrize(("key_id", "broken", "told"), BROKEN, ids=[row[0] for row in BROKEN])
def test_an_issuer_that_answers_wrongly_is_asked_again(
    unlucky: tuple[GatewayProcess, Issuer],
    key_id: str,
    broken: Callable[[bytes], Callable[[BaseHTTPRequestHandler], None]],
    told: str,
) -> None:
    """The gateway runs, says why, lets nobody in by it, and takes the key when it comes."""
    gateway, issuer = unlucky
    good = jwks(**{key_id: ("RS256", RSA_KEY)})
    issuer.answer = broken(good)
    assert login(gateway, token(key_id, RSA_KEY, "RS256")) == ("keys_pending", True)
    gateway.wait_for_line(f"{told}.*token keys could not be fetched")
    assert login(gateway, token(key_id, RSA_KEY, "RS256")) == ("keys_pending", True)
    issuer.answer = serve(good)
    wait_until_in(gateway, token(key_id, RSA_KEY, "RS256"))
    assert set(issuer.paths) == {"/jwks.json"}


def test_while_the_issuer_is_away_the_known_keys_stay_in_force(start: Callable[[], GatewayProcess], issuer: Issuer) -> None:
    """Its trouble is not ours: only tokens of keys that nobody knows wait."""
    gateway = start()
    wait_until_in(gateway, token("rsa", RSA_KEY, "RS256"))
    issuer.answer = serve(b"", 503)
    assert login(gateway, token("other", RSA_KEY, "RS256")) == ("keys_pending", True)
    gateway.wait_for_line("the answer is 503.*token keys could not be fetched")
    assert login(gateway, token("rsa", RSA_KEY, "RS256"))[0] == "welcome"
    assert login(gateway, token("other", RSA_KEY, "RS256")) == ("keys_pending", True)


# A certificate of an issuer → whether its keys are taken.
CERTIFICATES = [
    ("of a trusted authority", "127.0.0.1", False, True),
    ("for another name", "login.example.com", False, False),
    ("expired", "127.0.0.1", True, False),
]


@pytest.mark.parametrize(("what", "host", "expired", "taken"), CERTIFICATES, ids=[row[0] for row in CERTIFICATES])
def test_keys_over_tls_are_taken_from_a_trusted_issuer_only(
    start_gateway: StartGateway, tmp_path: Path, what: str, host: str, expired: bool, taken: bool
) -> None:
    """A server that can answer in its place could sign any token."""
    authority = Authority(tmp_path)
    issuer = Issuer(authority.server_context(host, expired=expired))
    try:
        gateway = start_gateway({"HEADGATE_TOKEN_JWKS_URL": issuer.url, "SSL_CERT_FILE": authority.ca_file})
        if taken:
            wait_until_in(gateway, token("rsa", RSA_KEY, "RS256"))
        else:
            gateway.wait_for_line("CERTIFICATE_VERIFY_FAILED.*token keys could not be fetched")
            assert login(gateway, token("rsa", RSA_KEY, "RS256")) == ("keys_pending", True)
            assert issuer.paths == []
    finally:
        issuer.close()


# A file of keys ------------------------------------------------------------------------------------------------------------


def test_sighup_reads_the_file_of_keys_anew_and_keeps_the_old_ones_when_it_is_wrong(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    """Clients stay, new tokens follow; a fault is told without any part of a key."""
    file = tmp_path / "keys.json"

    def write(*names: str) -> None:
        file.write_text(json.dumps({name: {"alg": "HS256", "key": SECRETS[name]} for name in names}))

    write("old")
    gateway = start_gateway({"HEADGATE_TOKEN_KEYS": str(file)})
    old, new = (token(name, SECRETS[name], "HS256") for name in ("old", "new"))
    with RawClient(gateway.url, {"token": old}) as client:
        assert client.welcome
        assert login(gateway, new) == ("unknown_key", False)

        write("new")
        os.kill(gateway.pid, signal.SIGHUP)
        gateway.wait_for_line(r"keys=1 event=\"token keys reloaded\"")
        assert (login(gateway, old)[0], login(gateway, new)[0]) == ("unknown_key", "welcome")

        file.write_text('{"new": {"alg": "HS256", "key": "short and secret"}}')
        os.kill(gateway.pid, signal.SIGHUP)
        gateway.wait_for_line("at least 32 bytes.*token keys not reloaded")
        assert login(gateway, new)[0] == "welcome"
        assert "short and secret" not in gateway.output
        assert client.request("unsubscribe", {"pattern": "a"})["ok"] is True

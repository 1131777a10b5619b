"""The browser client that an application serves for a script tag: the headers for browsers and caches. Needs `npm run build`."""

import gzip
import hashlib
from pathlib import Path

import pytest
from flask import Flask, url_for
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from headgate import Headgate

BUILT = Path(__file__).resolve().parents[2] / "web" / "dist" / "headgate.global.min.js"
URL = "/headgate/headgate.js"


@pytest.fixture
def app() -> Flask:
    """An application with the extension, in a process that serves no browsers."""
    app = Flask(__name__)
    Headgate(app)
    return app


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


def vary(answer: TestResponse) -> str | None:
    return answer.headers.get("Vary")


@pytest.mark.parametrize("asks", [None, "", "identity", "br", "gzip;q=0", "deflate, br;q=0.5"])
def test_a_browser_that_takes_no_gzip_gets_the_file_as_it_was_built(client: FlaskClient, asks: str | None) -> None:
    """The npm package's script-tag file, with a type that browsers run under nosniff."""
    answer = client.get(URL, headers={} if asks is None else {"Accept-Encoding": asks})

    assert answer.status_code == 200
    assert answer.data == BUILT.read_bytes()
    assert answer.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    assert "Content-Encoding" not in answer.headers
    assert vary(answer) == "Accept-Encoding"


@pytest.mark.parametrize("asks", ["gzip", "gzip, deflate, br, zstd", "br;q=1.0, gzip;q=0.1", "*"])
def test_a_browser_that_takes_gzip_gets_the_compressed_file_of_the_build(client: FlaskClient, asks: str) -> None:
    """The same bytes after it; a cache between knows that the answer depends on the request."""
    answer = client.get(URL, headers={"Accept-Encoding": asks})

    assert answer.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(answer.data) == BUILT.read_bytes()
    assert len(answer.data) == answer.content_length
    assert len(answer.data) < len(BUILT.read_bytes()) / 2
    assert vary(answer) == "Accept-Encoding"


def test_a_browser_that_has_the_file_is_told_so(client: FlaskClient) -> None:
    """Each encoding has a separate tag; 304 repeats how long it holds, and its dependencies."""
    tags = set()
    for asks in ("gzip", "identity"):
        tag = client.get(URL, headers={"Accept-Encoding": asks}).headers["ETag"]
        tags.add(tag)
        again = client.get(URL, headers={"Accept-Encoding": asks, "If-None-Match": tag})
        assert (again.status_code, again.data, again.headers["ETag"], vary(again)) == (304, b"", tag, "Accept-Encoding")
        assert client.get(URL, headers={"Accept-Encoding": asks, "If-None-Match": '"another"'}).status_code == 200
    assert len(tags) == 2


def test_the_address_with_the_hash_is_kept_for_a_year_and_others_are_asked_for_each_time(app: Flask, client: FlaskClient) -> None:
    """`url_for` adds the hash, so that a new version has a new address; a hash of another version promises nothing."""
    with app.test_request_context():
        url = url_for("headgate_files", name="headgate.js")

    assert url == f"{URL}?v={hashlib.sha256(BUILT.read_bytes()).hexdigest()[:16]}"
    assert client.get(url).headers["Cache-Control"] == "public, max-age=31536000, immutable"
    for other in (URL, f"{URL}?v=0123456789abcdef"):
        assert client.get(other).headers["Cache-Control"] == "public, no-cache"


@pytest.mark.parametrize("name", ["headgate.js.gz", "other.js", ".gitignore", "../__init__.py", "%2e%2e/__init__.py", ""])
def test_nothing_else_is_served_there(client: FlaskClient, name: str) -> None:
    """No file of the package but the browser's."""
    assert client.get(f"/headgate/{name}").status_code == 404

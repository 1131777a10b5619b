"""The browser client for a script tag, served by the application itself: `GET /headgate/headgate.js`.

In: the files in static/, which the build has made, each with a .gz beside it. Out: a route of a Flask application, in every
process that imports it. `url_for("headgate_files", name="headgate.js")` adds `?v=<hash>`: that address is cached for a year, for
the file behind it never changes. Without it browsers ask each time, and are answered 304. Nothing is compressed for a request.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from flask import Flask, Response, abort, request

PATH = "/headgate/<name>"
ENDPOINT = "headgate_files"
MAIN = "headgate.js"
YEAR_S = 365 * 86400


@dataclass(frozen=True, slots=True)
class _File:
    plain: bytes
    gzipped: bytes
    version: str


def add_page_files(app: Flask) -> None:
    """Add the route to an application. Idempotent."""
    app.add_url_rule(PATH, ENDPOINT, _serve)
    app.url_defaults(_add_version)


def _add_version(endpoint: str, values: dict[str, object]) -> None:
    if endpoint == ENDPOINT and (found := _files().get(str(values.get("name")))) is not None:
        values.setdefault("v", found.version)


def _serve(name: str) -> Response:
    found = _files().get(name)
    if found is None:
        built = "" if MAIN in _files() else " (the browser client is not built: run `make build` in the checkout)"
        abort(404, f"Headgate has no file {name[:80]!r}{built}")
    is_gzipped = request.accept_encodings.quality("gzip") > 0
    response = Response(found.gzipped if is_gzipped else found.plain, content_type="text/javascript; charset=utf-8")
    if is_gzipped:
        response.headers["Content-Encoding"] = "gzip"
    response.headers["Vary"] = "Accept-Encoding"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.cache_control.public = True
    if request.args.get("v") == found.version:
        response.cache_control.max_age = YEAR_S
        response.cache_control.immutable = True
    else:
        response.cache_control.no_cache = True
    # Two encodings are two representations (RFC 9110, section 8.8.3.3).
    response.set_etag(f"{found.version}-gzip" if is_gzipped else found.version)
    response.make_conditional(request)
    return response


@cache
def _files() -> dict[str, _File]:
    """Return the files by name, read once."""
    folder = files(__package__).joinpath("static")
    found: dict[str, _File] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name.endswith(".js"):
            plain = path.read_bytes()
            version = hashlib.sha256(plain).hexdigest()[:16]
            found[path.name] = _File(plain, folder.joinpath(f"{path.name}.gz").read_bytes(), version)
    return found

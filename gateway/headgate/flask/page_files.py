"""Serves the browser client for a script tag from the application, as `GET /headgate/headgate.js`.

In: the built files in static/, each with its .gz, and those of headgate_server for its own pages. Out: a route of a Flask
application, in every process that imports it.
`url_for("headgate_files", name="headgate.js")` adds `?v=<hash>`. Browsers cache that address for a year, because its file never
changes. Without it they ask each time, and get 304. Files are compressed at build time.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from flask import Flask, Response, abort, current_app, has_request_context, request

PATH = "/headgate/<name>"
ENDPOINT = "headgate_files"
MAIN = "headgate.js"
# The part of the rule that any host matches.
_HOST = "headgate_host"
YEAR_S = 365 * 86400
_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_packages = ["headgate"]


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file for pages, compressed once, with the hash of its content as its version."""

    plain: bytes
    gzipped: bytes
    version: str
    kind: str


def add_page_files(app: Flask, package: str = "headgate") -> None:
    """Add the route, for the files of a package too, to each host and subdomain of an application. Idempotent."""
    if package not in _packages:
        _packages.append(package)
    if ENDPOINT in app.view_functions:
        return
    if app.url_map.host_matching:
        app.add_url_rule(PATH, ENDPOINT, _serve, host=f"<{_HOST}>")
    else:
        app.add_url_rule(PATH, ENDPOINT, _serve)
        if app.subdomain_matching:
            app.add_url_rule(PATH, ENDPOINT, _serve, subdomain=f"<{_HOST}>")
    app.url_defaults(_add_version)


def _add_version(endpoint: str, values: dict[str, object]) -> None:
    if endpoint != ENDPOINT:
        return
    if (file := _find(str(values.get("name")))) is not None:
        values.setdefault("v", file.version)
    if has_request_context() and current_app.url_map.host_matching:
        values.setdefault(_HOST, request.host)


def _serve(name: str, **_place: str) -> Response:
    """Answer a request for a file, compressed if the browser accepts it, cached for a year if versioned."""
    file = _find(name)
    if file is None:
        built = "" if _find(MAIN) else " (the browser client is not built: run `make build` in the checkout)"
        abort(404, f"Headgate has no file {name[:80]!r}{built}")
    is_gzipped = request.accept_encodings.quality("gzip") > 0
    response = Response(file.gzipped if is_gzipped else file.plain, content_type=file.kind)
    if is_gzipped:
        response.headers["Content-Encoding"] = "gzip"
    response.headers["Vary"] = "Accept-Encoding"
    response.headers["X-Content-Type-Options"] = "nosniff"
    # For pages of other origins, because the script loads its other parts as modules, and such a page may use COEP.
    response.headers["Access-Control-Allow-Origin"] = "*"
    response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
    response.cache_control.public = True
    if request.args.get("v") == file.version:
        response.cache_control.max_age = YEAR_S
        response.cache_control.immutable = True
    else:
        response.cache_control.no_cache = True
    # Two encodings are two representations (RFC 9110, section 8.8.3.3).
    response.set_etag(f"{file.version}-gzip" if is_gzipped else file.version)
    response.make_conditional(request)
    return response


def _find(name: str) -> PageFile | None:
    return next((file for package in _packages if (file := _files(package).get(name)) is not None), None)


@cache
def _files(package: str) -> dict[str, PageFile]:
    """Return the files of a package by name, read once."""
    folder = files(package).joinpath("static")
    paths = [path for path in folder.iterdir() if Path(path.name).suffix in _KINDS] if folder.is_dir() else []
    return {path.name: _read(folder, path.name) for path in paths}


def _read(folder: Traversable, name: str) -> PageFile:
    plain, gzipped = (folder.joinpath(each).read_bytes() for each in (name, f"{name}.gz"))
    return PageFile(plain, gzipped, hashlib.sha256(plain).hexdigest()[:16], _KINDS[Path(name).suffix])

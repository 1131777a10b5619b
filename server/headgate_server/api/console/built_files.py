"""The built files of the server's pages (scripts, style sheets, icons), each with a .gz next to it.

In: the folder static/, read once. Out: the files by name, for the console's routes; and for the ready-made application `GET
/static/<name>`. `url_for("static", filename=…)` adds the version, so browsers keep it for a year.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from flask import Flask, Response, abort

from headgate.flask.page_files import PageFile, read_page_file, serve_page_file

_KINDS = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
_PAGES = ("console", "demo")
_ICON = "demo-icon.svg"
ENDPOINT = "static"


@cache
def built_files() -> dict[str, PageFile]:
    """Return the built files by name."""
    folder = files("headgate_server").joinpath("static")
    named = {f"{page}{ending}": kind for page in _PAGES for ending, kind in _KINDS.items()} | {_ICON: _KINDS[".svg"]}
    return {name: read_page_file(folder, name, kind) for name, kind in named.items() if folder.joinpath(name).is_file()}


def add_built_files(app: Flask) -> None:
    """Add the route to an application without a static folder."""
    app.add_url_rule("/static/<filename>", ENDPOINT, _serve)
    app.url_defaults(_add_version)


def _serve(filename: str) -> Response:
    if (file := built_files().get(filename)) is None:
        abort(404)
    return serve_page_file(file)


def _add_version(endpoint: str, values: dict[str, object]) -> None:
    if endpoint == ENDPOINT and (file := built_files().get(str(values.get("filename")))) is not None:
        values.setdefault("v", file.version)

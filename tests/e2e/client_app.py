"""An application around the browser client, served by test_client_*.py as `headgate serve tests.e2e.client_app:app`.

`/client` is a page with the script-tag build, Backbone and client_page.js under a strict Content-Security-Policy; `/tabs` one
of modules with tabs_page.js, whose gates share a connection; `/outbox` one with outbox_page.js, which a service worker loads
without a network; `/presence` one with presence_page.js, `/inbox` one with inbox_page.js; `/elsewhere` a page without;
`POST /faults?pattern=<pattern>` has the function that authorizes raise for a pattern, and for none without one;
`POST /token?life=<seconds>` answers like an application's sign-in. Tokens decide about access. Functions answer
`numbers.double` and `numbers.wait`.
"""

import os
import time
from pathlib import Path

from flask import Flask, Response, request, send_file

from headgate import Headgate, Identity, PageRequest
from headgate.auth.tokens import Tokens
from headgate.settings.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'; img-src data:; require-trusted-types-for 'script'"
ASSETS = {
    "headgate.js": ROOT / "web/dist/headgate.global.min.js",
    "headgate.debug.js": ROOT / "web/dist/headgate.debug.js",
    "headgate.development.js": ROOT / "web/dist/headgate.development.js",
    "headgate.http.js": ROOT / "web/dist/headgate.http.js",
    "headgate.socket.io.js": ROOT / "web/dist/headgate.socket.io.js",
    "underscore.js": ROOT / "node_modules/underscore/underscore-umd-min.js",
    "backbone.js": ROOT / "node_modules/backbone/backbone-min.js",
    "client_page.js": ROOT / "tests/e2e/client_page.js",
}
MODULES = {
    "headgate.js": ROOT / "web/dist/headgate.js",
    "headgate.http.js": ROOT / "web/dist/headgate.http.js",
    "headgate.inbox.js": ROOT / "web/dist/headgate.inbox.js",
    "headgate.offline.js": ROOT / "web/dist/headgate.offline.js",
    "headgate.presence.js": ROOT / "web/dist/headgate.presence.js",
    "headgate.request.js": ROOT / "web/dist/headgate.request.js",
    "headgate.tabs.js": ROOT / "web/dist/headgate.tabs.js",
    "inbox_page.js": ROOT / "tests/e2e/inbox_page.js",
    "presence_page.js": ROOT / "tests/e2e/presence_page.js",
    "strict_page.js": ROOT / "tests/e2e/strict_page.js",
    "tabs_page.js": ROOT / "tests/e2e/tabs_page.js",
    "outbox_page.js": ROOT / "tests/e2e/outbox_page.js",
    "outbox_worker.js": ROOT / "tests/e2e/outbox_worker.js",
}
OUTBOX_PAGE = (
    '<!doctype html><html lang="en"><title>outbox</title><link rel="icon" href="data:,"><body>'
    '<script type="module" src="/modules/outbox_page.js"></script></body></html>'
)
OUTBOX_POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'; img-src data:"
STRICT_POLICY = "default-src 'self'; connect-src 'self'; require-trusted-types-for 'script'"
PAGE = (
    '<!doctype html><html lang="en"><title>client</title><link rel="icon" href="data:,"><body><ul id="list"></ul>'
    + "".join(
        f'<script src="/assets/{name}"></script>' for name in ("underscore.js", "backbone.js", "headgate.js", "client_page.js")
    )
    + "</body></html>"
)

app = Flask(__name__)
gate = Headgate(app)
faults: set[str | None] = set()


@gate.authorize
def authorize(identity: Identity, pattern: str, action: str) -> bool:
    if pattern in faults:
        raise RuntimeError("the data base is unreachable")
    return True


@app.post("/faults")
def set_faults() -> str:
    faults.clear()
    faults.add(request.args.get("pattern"))
    return ""


@gate.on_request("numbers.double")
def double(request: PageRequest) -> int:
    return 2 * int(request.data)


@gate.on_request("numbers.wait")
def wait(request: PageRequest) -> None:
    """Say that it has begun, and do not end by itself."""
    gate.publish("numbers.begun", 0)
    time.sleep(600)


@app.get("/client")
def client() -> Response:
    """The page; nothing about it keeps it out of the back/forward cache."""
    return Response(PAGE, headers={"Content-Security-Policy": POLICY})


@app.get("/outbox")
def outbox() -> Response:
    return Response(OUTBOX_PAGE, headers={"Content-Security-Policy": OUTBOX_POLICY})


@app.get("/tabs")
def tabs() -> Response:
    """A page with `headgate/tabs`, as modules."""
    page = (
        '<!doctype html><html lang="en"><title>tabs</title><link rel="icon" href="data:,">'
        '<script type="module" src="/modules/tabs_page.js"></script></html>'
    )
    return Response(page, headers={"Content-Security-Policy": POLICY})


@app.get("/strict")
def strict() -> Response:
    """A page with the client as a module, under the policy that docs/security.md asks for."""
    page = (
        '<!doctype html><html lang="en"><title>strict</title><script type="module" src="/modules/strict_page.js"></script></html>'
    )
    return Response(page, headers={"Content-Security-Policy": STRICT_POLICY})


@app.get("/presence")
def presence() -> Response:
    page = (
        '<!doctype html><html lang="en"><title>presence</title><link rel="icon" href="data:,">'
        '<script type="module" src="/modules/presence_page.js"></script></html>'
    )
    return Response(page, headers={"Content-Security-Policy": POLICY})


@app.get("/inbox")
def inbox() -> Response:
    page = (
        '<!doctype html><html lang="en"><title>inbox</title><link rel="icon" href="data:,">'
        '<script type="module" src="/modules/inbox_page.js"></script></html>'
    )
    return Response(page, headers={"Content-Security-Policy": POLICY})


@app.get("/modules/<name>")
def module(name: str) -> Response:
    answer = send_file(MODULES[name], mimetype="text/javascript")
    answer.headers["Service-Worker-Allowed"] = "/"
    return answer


@app.get("/elsewhere")
def elsewhere() -> str:
    return "<!doctype html><title>elsewhere</title>"


@app.get("/assets/<name>")
def asset(name: str) -> Response:
    return send_file(ASSETS[name], mimetype="text/javascript")


@app.post("/token")
def token() -> str:
    tokens = Tokens.configured(Settings.read(os.environ))
    assert tokens is not None
    return tokens.mint(request.args.get("user", "ann"), ["#"], ["#"], int(request.args["life"]))

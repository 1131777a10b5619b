"""An application around the browser client, served by test_client_*.py as `headgate serve tests.e2e.client_app:app`.

`/client` is a page with the script-tag build, Backbone and client_page.js under a strict Content-Security-Policy; `/tabs` one
of modules with tabs_page.js, whose gates share a connection; `/outbox` one with outbox_page.js, which a service worker loads
without a network; `/presence` one with presence_page.js, `/inbox` one with inbox_page.js; `/elsewhere` a page without;
`POST /faults?pattern=<pattern>` has the function that authorizes raise for a pattern, and for none without one;
`POST /token?life=<seconds>` answers like an application's sign-in. Tokens decide about access.
"""

import os
from pathlib import Path

from flask import Flask, Response, request, send_file

from headgate import Headgate, Identity
from headgate.auth.tokens import Tokens
from headgate.settings.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'; img-src data:"
TRUSTED_POLICY = f"{POLICY}; require-trusted-types-for 'script'"
STRICT_POLICY = "default-src 'self'; connect-src 'self'; require-trusted-types-for 'script'"
SCRIPTS = {
    "headgate.js": ROOT / "web/dist/headgate.global.min.js",
    "underscore.js": ROOT / "node_modules/underscore/underscore-umd-min.js",
    "backbone.js": ROOT / "node_modules/backbone/backbone-min.js",
}
HEAD = '<!doctype html><html lang="en"><title>{}</title>'
ICON = '<link rel="icon" href="data:,">'
PAGE = f'{HEAD.format("client")}{ICON}<body><ul id="list"></ul>' + "".join(
    f'<script src="/assets/{name}"></script>' for name in ("underscore.js", "backbone.js", "headgate.js", "client_page.js")
)
MODULE_PAGES = dict.fromkeys(("inbox", "presence", "tabs"), TRUSTED_POLICY) | {"outbox": POLICY, "strict": STRICT_POLICY}

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


@app.get("/client")
def client() -> Response:
    """The page; nothing about it keeps it out of the back/forward cache."""
    return Response(PAGE, headers={"Content-Security-Policy": TRUSTED_POLICY})


@app.get("/<any(inbox, outbox, presence, strict, tabs):name>")
def module_page(name: str) -> Response:
    """A page of modules; `strict` is under the policy that docs/security.md asks for, which has no place for the icon."""
    icon = "" if name == "strict" else ICON
    page = f'{HEAD.format(name)}{icon}<script type="module" src="/modules/{name}_page.js"></script></html>'
    return Response(page, headers={"Content-Security-Policy": MODULE_PAGES[name]})


@app.get("/elsewhere")
def elsewhere() -> str:
    return "<!doctype html><title>elsewhere</title>"


@app.get("/assets/<name>")
@app.get("/modules/<name>")
def script(name: str) -> Response:
    """A file of the built package or of this folder; `/assets/headgate.js` is the one of the script tag."""
    built = ROOT / ("web/dist" if name.startswith("headgate.") else "tests/e2e") / name
    answer = send_file(SCRIPTS.get(name, built) if request.path.startswith("/assets") else built, mimetype="text/javascript")
    answer.headers["Service-Worker-Allowed"] = "/"
    return answer


@app.post("/token")
def token() -> str:
    tokens = Tokens.configured(Settings.read(os.environ))
    assert tokens is not None
    return tokens.mint(request.args.get("user", "ann"), ["#"], ["#"], int(request.args["life"]))

"""A Flask application with the extension, shop.py, in a folder of the test's; beside it one without, and two wrong ones."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SHOP = """
from flask import Flask, current_app
from headgate import Headgate, Identity

app = Flask(__name__)
app.config.update(USER="ana", HEADGATE_MAX_SUBSCRIPTIONS=5, HEADGATE_QUEUE_FRAMES=90)
gate = Headgate()

@gate.authenticate
def identify(handshake):
    return Identity(current_app.config["USER"], subscribe=("#",))

gate.init_app(app)

@app.get("/hello")
def hello():
    receipt = app.extensions["headgate"].publish("hello.world", {"from": "a view"})
    return {"offset": receipt.offset, "same": app.extensions["headgate"] is gate}

def needs_an_argument(name):
    return app

def returns_nothing():
    Flask(__name__)

number = 7

class WSGIHandler:
    def __call__(self, environ, start_response):
        return []

of_django = WSGIHandler()
"""
BARE = """
from flask import Flask

def make_app():
    app = Flask(__name__)
    app.get("/which")(lambda: "made by a factory")
    return app
"""
LACKING = "import a_module_that_is_not_there\n\napp = None\n"
MISCONFIGURED = (
    "from flask import Flask\nfrom headgate import Headgate\n"
    "app = Flask(__name__)\napp.config.update(HEADGATE_QUEUE_FRAMES=0, HEADGATE_WHAT=1)\nHeadgate(app)\n"
)
MODULES = {"shop": SHOP, "bare": BARE, "lacking": LACKING, "misconfigured": MISCONFIGURED}


@pytest.fixture
def shop_folder(tmp_path: Path) -> Path:
    """A folder with those applications."""
    for name, code in MODULES.items():
        (tmp_path / f"{name}.py").write_text(code)
    return tmp_path


@pytest.fixture
def in_shop_folder(shop_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same as the current folder of this process; its modules are forgotten with the test."""
    monkeypatch.chdir(shop_folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield shop_folder
    for name in MODULES:
        sys.modules.pop(name, None)

"""A name is checked before anything is started, without an import."""

import sys
from pathlib import Path

import pytest

from headgate.errors import InvalidRequest
from headgate.runtime.importing import check_string


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a package, and with packages without __init__.py in each other."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for folder in ("shop_with_init", "shop_bare/inner"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "web.py").write_text("app = 1\nraise SystemExit('imported')\n")
    (tmp_path / "shop_with_init" / "__init__.py").write_text("raise SystemExit('imported')\n")
    return tmp_path


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "name", ["shop_with_init.web:app", "shop_with_init.web", "shop_bare.inner.web:app", "shop_with_init.web:app()"]
)
def test_what_may_be_there_passes(name: str) -> None:
    """Nothing was imported."""
    check_string(name, "MODULE:APP", default="app")
    assert not {part for part in sys.modules if part.startswith("shop_")}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("shop_with_init.web:ap", "has no 'ap'"),
        ("shop_with_init.web:app(", r"has no 'app\('"),
        ("shop_with_init.wep:app", "no module named 'shop_with_init.wep'"),
        ("shop_with_init.web.re:app", "no module named 'shop_with_init.web.re'"),
        ("shop_nowhere:app", "no module named 'shop_nowhere'"),
        ("shop with_init:app", "is not of the form MODULE:APP$"),
        ("/shop/web.py", "is not of the form MODULE:APP$"),
        ("shop_with_init.web.application", "did you mean 'shop_with_init.web:application'"),
        ("shop_with_init.web.py:app", "did you mean 'shop_with_init.web:app'"),
        ("./shop_with_init/web.py", "did you mean 'shop_with_init.web:app'"),
    ],
)
def test_what_is_certainly_not_there_is_refused(name: str, words: str) -> None:
    """With the missing part."""
    with pytest.raises(InvalidRequest, match=words):
        check_string(name, "MODULE:APP", default="app")

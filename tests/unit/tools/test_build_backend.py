"""The build backend before it builds: whether the page's files are there and current, and the line with the remedy.

tests/integration/packaging has the wheel and the sdist themselves.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from setuptools import build_meta

from tests.support.checkout import ROOT
from tools import build_backend

SOURCE = Path("web", "src", "gate.js")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a checkout with a built page, on a machine without npm."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.devnull)
    for path in (SOURCE, *build_backend.BUILT, build_backend.STAMP):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


def test_no_file_that_pages_load_is_missing_from_a_wheel() -> None:
    """The list is that of web/build.mjs. Each page loads one of them, and some load another by its address."""
    (served,) = re.findall(r"^const SERVED = \{(.+)\};$", (ROOT / "web" / "build.mjs").read_text(), re.MULTILINE)

    names = set(re.findall(r'"([^"]+)": ', served))

    assert {path.name for path in build_backend.BUILT if path.parent == build_backend.CLIENT} == names | {
        f"{name}.gz" for name in names
    }


def test_a_page_that_is_built_and_current_needs_no_npm(checkout: Path) -> None:
    """Nothing is run, and nothing is said."""
    build_backend._have_page()


def test_a_built_page_without_its_sources_is_taken_as_it_is(checkout: Path) -> None:
    """As in an sdist."""
    SOURCE.unlink()
    build_backend.STAMP.unlink()
    build_backend._have_page()


def without_page() -> None:
    build_backend.BUILT[0].unlink()


def with_newer_sources() -> None:
    later_ns = build_backend.STAMP.stat().st_mtime_ns + 10**9
    os.utime(SOURCE, ns=(later_ns, later_ns))


def without_page_and_sources() -> None:
    without_page()
    Path("web").rename("elsewhere")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (without_page, ("(gateway/headgate/static/headgate.js not there)", "install Node 20 or newer", "make build")),
        (with_newer_sources, ("older than its sources (web/src/gate.js)", "install Node 20 or newer")),
        (without_page_and_sources, ("take a complete sdist, wheel or checkout",)),
    ],
)
@pytest.mark.usefixtures("checkout")
def test_a_page_that_cannot_be_built_is_one_clear_line(spoil: Callable[[], None], words: tuple[str, ...]) -> None:
    """No wheel, rather than one with no page or with the page as it was."""
    spoil()
    with pytest.raises(SystemExit) as ended:
        build_backend._have_page()
    assert isinstance(ended.value.code, str)
    assert ended.value.code.startswith("headgate: ")
    assert "\n" not in ended.value.code
    assert all(each in ended.value.code for each in words)


def test_an_editable_install_builds_no_page(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """make does it first, and builds the page after it. The modules in C are made again, where they can be compiled."""
    assert vars(build_backend)["prepare_metadata_for_build_editable"] is build_meta.prepare_metadata_for_build_editable
    monkeypatch.setattr(build_backend, "_have_page", lambda: pytest.fail("it builds the page"))
    monkeypatch.setattr(build_backend, "compiled", build_backend.Compiled.NO)
    old = [build_backend.PACKAGE / name for name in ("_native.old.so",)]
    for each in old:
        each.parent.mkdir(parents=True, exist_ok=True)
        each.touch()
    seen: list[build_backend.Compiled] = []

    def build(*_: object) -> str:
        seen.append(build_backend.compiled)
        return "headgate.whl"

    monkeypatch.setattr(build_meta, "build_editable", build)
    assert build_backend.build_editable("wheels") == "headgate.whl"
    assert seen == [build_backend.Compiled.WHERE_POSSIBLE]
    assert not [each for each in old if each.exists()]

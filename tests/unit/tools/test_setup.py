"""The C extension before it is compiled: the builds with it, its needs, and the line that names the missing part."""

import os
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

import setup
from tools import build_backend


def missing() -> str:
    fault = setup.fault()
    assert fault is not None
    assert fault.startswith("a compiled wheel needs ")
    assert "\n" not in fault
    return fault


@pytest.fixture
def complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a C compiler and Python's headers. Returns the folder of its headers."""
    compiler = tmp_path / "cc"
    compiler.touch(mode=0o755)
    (tmp_path / "Python.h").touch()
    monkeypatch.setenv("CC", f"{compiler} -pthread")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    return tmp_path


def test_nothing_is_missing_where_everything_is(complete: Path) -> None:
    """The options of CC are no part of the program's name."""
    assert setup.fault() is None


def test_a_machine_without_a_compiler_is_told_which_one(complete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that Python itself would take, or CC."""
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    assert "needs a C compiler, and no-such-compiler is missing" in missing()
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", os.devnull)
    assert "needs a C compiler" in missing()


def test_a_python_without_headers_is_told_where_they_would_be(complete: Path) -> None:
    """Systems package them apart."""
    (complete / "Python.h").unlink()
    line = missing()
    assert f"no Python.h in {complete}" in line
    assert "python3-dev" in line


@pytest.mark.parametrize(
    ("compiled", "modules", "optional"),
    [
        (build_backend.Compiled.NO, [], []),
        (build_backend.Compiled.WHERE_POSSIBLE, ["headgate._native"], [True]),
        (build_backend.Compiled.YES, ["headgate._native"], [False]),
    ],
)
def test_each_kind_of_build_has_its_modules(
    complete: Path, monkeypatch: pytest.MonkeyPatch, compiled: build_backend.Compiled, modules: list[str], optional: list[bool]
) -> None:
    """A requested one must be there; an editable install takes any it can have."""
    monkeypatch.setitem(sys.modules, "build_backend", build_backend)
    monkeypatch.setattr(build_backend, "compiled", compiled)
    found = setup.extensions()
    assert ([each.name for each in found], [each.optional for each in found]) == (modules, optional)
    assert all(Path(source).is_file() for each in found for source in each.sources)


def test_a_compiled_wheel_needs_a_compiler(complete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never falls back by itself, because a wheel is its builder's choice."""
    monkeypatch.setitem(sys.modules, "build_backend", build_backend)
    monkeypatch.setattr(build_backend, "compiled", build_backend.Compiled.YES)
    (complete / "Python.h").unlink()
    with pytest.raises(SystemExit) as ended:
        setup.extensions()
    assert isinstance(ended.value.code, str)
    assert "or build without --config-settings compiled=yes" in ended.value.code


def test_a_setting_that_is_neither_yes_nor_no_is_one_clear_line() -> None:
    """Rather than an unintended wheel."""
    with pytest.raises(SystemExit) as ended:
        build_backend.build_wheel("dist", {"compiled": "1"})
    assert ended.value.code == "headgate: --config-settings compiled=1: expected yes or no."


TEXT = """# Headgate

<img src="docs/screenshot.png" width="896" alt="Two people">

<!-- not run: minutes -->
See [docs/guide.md](docs/guide.md#show), [x](https://example.com).
"""


def test_links_of_the_long_description_lead_below_the_projects_address() -> None:
    """A picture is loaded as it is, a page is shown."""
    assert setup.long_description(TEXT, "https://example.org/headgate") == (
        "# Headgate\n\n![Two people](https://example.org/headgate/raw/main/docs/screenshot.png)\n\n"
        "See [docs/guide.md](https://example.org/headgate/blob/main/docs/guide.md#show), [x](https://example.com).\n"
    )


def test_without_an_address_they_are_words() -> None:
    """And a picture is left out."""
    assert setup.long_description(TEXT, "") == "# Headgate\n\nSee docs/guide.md, [x](https://example.com).\n"


def test_the_metadata_has_the_projects_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the publisher of a release knows the address."""
    monkeypatch.setenv(setup.PROJECT_URL, "https://example.org/headgate/")
    assert setup.described()["project_urls"]["Changelog"] == "https://example.org/headgate/blob/main/CHANGELOG.md"
    monkeypatch.delenv(setup.PROJECT_URL)
    assert setup.described()["project_urls"] == {}


def test_a_release_has_a_compiled_wheel_for_each_python_that_is_supported() -> None:
    """Users of another one get the pure wheel, without notice."""
    file = tomllib.loads(Path("pyproject.toml").read_text())
    prefix = "Programming Language :: Python :: "
    supported = [each.removeprefix(prefix) for each in file["project"]["classifiers"] if each.startswith(f"{prefix}3.")]
    wheels = file["tool"]["cibuildwheel"]
    assert wheels["build"] == [f"cp{each.replace('.', '')}-manylinux_*" for each in supported]
    assert wheels["config-settings"] == {"compiled": build_backend.Compiled.YES.value}

"""The compiled build before it compiles: who asks for it, what it needs, and the line that says what is missing.

`make compiled` compiles, and runs the tests on what comes out.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

import setup
from tools import build_backend


def told() -> str:
    """Return the line with which the build ends the process."""
    with pytest.raises(SystemExit) as ended:
        setup.extensions()
    assert isinstance(ended.value.code, str)
    assert ended.value.code.startswith("headgate: compiled modules need ")
    assert "\n" not in ended.value.code
    assert "or build without --config-settings compiled=…" in ended.value.code
    return ended.value.code


@pytest.fixture
def complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a C compiler and Python's headers; mypyc is among the test tools. Returns the folder of its headers."""
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
    assert "need a C compiler, and no-such-compiler is not here" in told()
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", os.devnull)
    assert "need a C compiler" in told()


def test_a_python_without_headers_is_told_where_they_would_be(complete: Path) -> None:
    """Systems package them apart."""
    (complete / "Python.h").unlink()
    line = told()
    assert f"no Python.h in {complete}" in line
    assert "python3-dev" in line


def test_an_environment_without_mypyc_is_told_how_to_get_it(complete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With build isolation pip brings it."""
    monkeypatch.setitem(sys.modules, "mypyc", None)
    monkeypatch.setitem(sys.modules, "mypyc.build", None)
    assert "need mypyc, and mypy is not installed here" in told()


@pytest.mark.parametrize(
    ("compiled", "modules", "optional"),
    [
        (build_backend.Compiled.NO, [], []),
        (build_backend.Compiled.WHERE_POSSIBLE, ["headgate.delivery._direct"], [True]),
        (build_backend.Compiled.DIRECT, ["headgate.delivery._direct"], [False]),
    ],
)
def test_each_kind_of_build_has_its_modules(
    complete: Path,
    monkeypatch: pytest.MonkeyPatch,
    compiled: build_backend.Compiled,
    modules: list[str],
    optional: list[bool],
) -> None:
    """What is asked for must be there; an editable install takes what it can have."""
    monkeypatch.setitem(sys.modules, "build_backend", build_backend)
    monkeypatch.setattr(build_backend, "compiled", compiled)
    found = setup.wanted()
    assert ([each.name for each in found], [each.optional for each in found]) == (modules, optional)
    assert all(Path(source).is_file() for each in found for source in each.sources)


def test_direct_writes_that_are_asked_for_need_a_compiler_and_no_mypyc(complete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never falls back by itself: a wheel is what its builder asked for."""
    monkeypatch.setitem(sys.modules, "build_backend", build_backend)
    monkeypatch.setattr(build_backend, "compiled", build_backend.Compiled.DIRECT)
    monkeypatch.setitem(sys.modules, "mypyc.build", None)
    assert setup.wanted()
    (complete / "Python.h").unlink()
    with pytest.raises(SystemExit, match=r"no Python\.h"):
        setup.wanted()


def test_a_wheel_needs_mypyc_only_where_it_is_asked_to_be_compiled() -> None:
    """`pip install headgate` stays as it is."""
    assert not [name for name in build_backend.get_requires_for_build_wheel() if name.startswith("mypy")]
    assert not [name for name in build_backend.get_requires_for_build_wheel({"compiled": "no"}) if name.startswith("mypy")]
    assert not [name for name in build_backend.get_requires_for_build_wheel({"compiled": "direct"}) if name.startswith("mypy")]
    assert [name for name in build_backend.get_requires_for_build_wheel({"compiled": "yes"}) if name.startswith("mypy")]


def test_a_setting_that_is_neither_yes_nor_no_is_one_clear_line() -> None:
    """Rather than a wheel that is not what was meant."""
    with pytest.raises(SystemExit) as ended:
        build_backend.get_requires_for_build_wheel({"compiled": "1"})
    assert ended.value.code == "headgate: --config-settings compiled=1: expected yes, direct or no."


def test_every_module_of_the_list_has_its_source() -> None:
    """It is given to mypyc by its path."""
    assert setup.modules()
    for name in setup.modules():
        assert Path(setup.source_of(name)).is_file()


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
    """Only whoever releases it knows it."""
    monkeypatch.setenv(setup.PROJECT_URL, "https://example.org/headgate/")
    assert setup.described()["project_urls"]["Changelog"] == "https://example.org/headgate/blob/main/CHANGELOG.md"
    monkeypatch.delenv(setup.PROJECT_URL)
    assert setup.described()["project_urls"] == {}


def test_a_release_has_a_compiled_wheel_for_each_python_that_is_supported() -> None:
    """Whoever has another one gets the pure wheel, and nobody would notice."""
    file = tomllib.loads(Path("pyproject.toml").read_text())
    prefix = "Programming Language :: Python :: "
    supported = [each.removeprefix(prefix) for each in file["project"]["classifiers"] if each.startswith(f"{prefix}3.")]
    wheels = file["tool"]["cibuildwheel"]
    assert wheels["build"] == [f"cp{each.replace('.', '')}-manylinux_*" for each in supported]
    assert wheels["config-settings"] == {"compiled": build_backend.Compiled.YES.value}

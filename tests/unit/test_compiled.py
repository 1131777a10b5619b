"""The compiled modules: which of two files of a module a process runs, and that the list of them can be true."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path

import pytest

import headgate
from headgate import compiled
from headgate.compiled import PURE, Build, SourcesOnly, build_in_use, obey

ROOT = Path(__file__).resolve().parents[2]
LISTED: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["headgate"]["compiled"]["modules"]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A package's folder with one module as in a compiled wheel, and one that has no source."""
    for name in ("event.py", f"event{EXTENSION_SUFFIXES[0]}", f"odd{EXTENSION_SUFFIXES[0]}"):
        (tmp_path / name).touch()
    return str(tmp_path)


def test_python_prefers_the_compiled_module_and_the_finder_its_source(folder: str) -> None:
    """The first is what a compiled wheel relies on, the second what HEADGATE_PURE does."""
    usual = PathFinder.find_spec("headgate.event", [folder])
    found = SourcesOnly().find_spec("headgate.event", [folder])

    assert usual is not None
    assert isinstance(usual.loader, ExtensionFileLoader)
    assert found is not None
    assert isinstance(found.loader, SourceFileLoader)
    assert found.origin == str(Path(folder, "event.py"))


@pytest.mark.parametrize(
    ("name", "in_folder"), [("headgate.odd", True), ("headgate.nowhere", True), ("other.event", True), ("headgate", False)]
)
def test_the_finder_leaves_everything_else_to_others(folder: str, name: str, in_folder: bool) -> None:
    """Modules without a source, of other packages, and at the top."""
    assert SourcesOnly().find_spec(name, [folder] if in_folder else None) is None


def test_it_finds_every_module_and_package_of_ours() -> None:
    """A package is found like a module."""
    for name in ("headgate.bus", "headgate.topic", "headgate.event"):
        found = SourcesOnly().find_spec(name, headgate.__path__)
        assert found is not None
        assert isinstance(found.loader, SourceFileLoader)


@pytest.mark.parametrize(
    ("value", "is_obeyed"), [("1", True), ("yes", True), ("0", False), ("no", False), ("", False), (None, False)]
)
def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch, value: str | None, is_obeyed: bool) -> None:
    """As a switch among the settings does."""
    finders = list(sys.meta_path)
    monkeypatch.setattr(sys, "meta_path", list(finders))
    obey({} if value is None else {PURE: value})
    assert [type(each) for each in sys.meta_path if each not in finders] == [SourcesOnly] * is_obeyed


@pytest.mark.parametrize(
    ("loader", "direct", "pure", "build"),
    [
        (ExtensionFileLoader("headgate.event", "event.so"), True, "", Build.COMPILED),
        (SourceFileLoader("headgate.event", "event.py"), True, "", Build.DIRECT),
        (SourceFileLoader("headgate.event", "event.py"), True, "1", Build.PYTHON),
        (SourceFileLoader("headgate.event", "event.py"), False, "", Build.PYTHON),
    ],
)
def test_the_build_in_use_is_that_of_the_hot_modules(
    monkeypatch: pytest.MonkeyPatch, loader: ExtensionFileLoader | SourceFileLoader, direct: bool, pure: str, build: Build
) -> None:
    """It is what would be loaded, whatever else lies in the folder; the direct writes in C are looked for apart."""

    def find(name: str) -> ModuleSpec | None:
        return ModuleSpec(name, loader) if direct or not name.endswith("._direct") else None

    monkeypatch.setattr(compiled, "find_spec", find)
    monkeypatch.setenv(PURE, pure)
    assert build_in_use() is build


def test_the_modules_of_the_list_are_there_and_are_all_compiled_or_none() -> None:
    """The list is the one place; a module that moved would be left out unseen."""
    loaders = set()
    for name in LISTED:
        assert (ROOT / "gateway" / f"{name.replace('.', '/')}.py").is_file(), name
        __import__(name)
        loaders.add(type(sys.modules[name].__loader__) is ExtensionFileLoader)
    assert loaders == {build_in_use() is Build.COMPILED}
    assert "headgate.event" in LISTED, "build_in_use looks at it"


def test_no_class_that_is_not_compiled_inherits_from_one_that_is() -> None:
    """Its module could not be imported; and where it could, as with a Struct, methods would refuse its objects."""
    heirs = []
    for path in sorted((ROOT / "gateway").rglob("*.py")) + sorted((ROOT / "server").rglob("*.py")):
        folder = path.relative_to(ROOT / "gateway").parent if path.is_relative_to(ROOT / "gateway") else Path("headgate_server")
        tree = ast.parse(path.read_text())
        origins = {name: module for module, name in _imported(tree, folder.parts)}
        if ".".join((*folder.parts, path.stem)) not in LISTED:
            bases = [ast.unparse(base) for each in ast.walk(tree) if isinstance(each, ast.ClassDef) for base in each.bases]
            heirs += [f"{path.name}: {base}" for base in bases if origins.get(base.partition("[")[0]) in LISTED]
    assert not heirs


def _imported(tree: ast.Module, package: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of each `from module import name`, relative ones in full."""
    for each in ast.walk(tree):
        if isinstance(each, ast.ImportFrom):
            above = package[: len(package) + 1 - each.level] if each.level else ()
            module = ".".join([*above, *([each.module] if each.module else [])])
            yield from ((module, alias.asname or alias.name) for alias in each.names)


def test_what_is_imported_before_the_environment_is_obeyed_is_never_compiled() -> None:
    """Else HEADGATE_PURE would come too late for it."""
    source = (ROOT / "gateway" / "headgate" / "__init__.py").read_text().partition("\nobey()")[0]
    early = {f"headgate.{line.split()[1].lstrip('.')}" for line in source.splitlines() if line.startswith("from .")}
    assert early == {"headgate.compiled", "headgate.errors", "headgate.extras", "headgate.topic"}
    assert early.isdisjoint(LISTED)

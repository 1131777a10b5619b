"""The size of the transport, and what it knows of other people's code: `python -m tools.transport_table` prints one table.

Everything is read from the sources: lines, imports and classes of Python files, requirements of pyproject.toml, and the
extensions of setup.py. The drop-in (headgate/socketio) is apart, as it is a subclass of `socketio.Server` on purpose.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("gateway/headgate", "server/headgate_server")
TRANSPORT = ("gateway/headgate/transport",)
# A connection goes from one worker to another through these.
HAND_OVER = tuple(f"gateway/headgate/workers/{name}.py" for name in ("worker_sockets", "peer_workers"))
TESTS = (
    *("tests/unit/transport", "tests/integration/transport"),
    *(f"tests/unit/workers/test_{name}.py" for name in ("worker_sockets", "peer_workers")),
)
DROP_IN = "gateway/headgate/socketio"
# A separate process with a health page of the standard library.
CONSUMERS = "gateway/headgate/consumers"
DEPENDENCIES = frozenset(("socketio", "engineio", "gevent", "bidict", "werkzeug"))
# Modules that read requests of HTTP, and what ours has for that.
PARSERS = frozenset(("httptools", "http.server", "wsgiref.simple_server", "gevent.pywsgi", "werkzeug.serving", "gunicorn.http"))
OURS = frozenset(("RequestParser", "read_head"))


class Row(NamedTuple):
    """A row of the table."""

    what: str
    now: str
    wanted: str


class Size(NamedTuple):
    """A class: how many methods, properties included, and how many attributes its instances set."""

    name: str
    methods: int
    attributes: int


def lines_of(*places: str, root: Path = ROOT) -> int:
    """Return the lines of Python files and folders, blank ones included."""
    return sum(len(path.read_text("utf-8").splitlines()) for path in _files(places, root))


def readers(tree: ast.AST) -> set[str]:
    """Return what reads requests of HTTP in a module: the parsers that it imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in PARSERS}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= PARSERS & {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            if node.module.endswith("http_parser") and any(alias.name in OURS for alias in node.names):
                found.add("http_parser")
        elif isinstance(node, ast.Attribute) and node.attr == "SERVER" and isinstance(node.value, ast.Name):
            found |= {"h11"} & {node.value.id}  # the other side of h11 reads answers
    return found


def corners(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (package, name) for each private name of a dependency, and for each class that subclasses one of theirs.

    A private name begins with one underscore, and is imported, or read from a name that was. Of a subclass these count, too,
    where it reads them from itself and nothing in it defines them.
    """
    package_of: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                module = alias.name if isinstance(node, ast.Import) else node.module or ""
                package = module.partition(".")[0]
                if package in DEPENDENCIES and not (isinstance(node, ast.ImportFrom) and node.level):
                    package_of[alias.asname or alias.name.partition(".")[0]] = package
                    if any(_is_private(word) for word in (*module.split("."), alias.name)):
                        yield package, alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and _first(node) in package_of:
            yield package_of[_first(node)], node.attr
        elif isinstance(node, ast.ClassDef):
            for base in node.bases:
                if _first(base) in package_of:
                    package = package_of[_first(base)]
                    yield package, f"class {node.name}"
                    yield from ((package, name) for name in sorted(_inherited(node)))


def sizes(tree: ast.AST) -> Iterator[Size]:
    """Yield the classes of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            yield Size(node.name, len(methods), len({name for name, is_set in _of_self(node) if is_set}))


def pins(project: str) -> list[str]:
    """Return the requirements of `[server]` in a pyproject.toml that end a range."""
    extras = tomllib.loads(project)["project"]["optional-dependencies"]
    return [each for each in extras["server"] if "<" in each or "==" in each]


def table() -> Sequence[Row]:
    """Return the rows."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in _files(PRODUCT, ROOT)}
    reading: dict[str, list[str]] = {}
    for path, tree in trees.items():
        for name in () if path.is_relative_to(ROOT / CONSUMERS) else readers(tree):
            reading.setdefault(name, []).append(path.stem)
    ways = "; ".join(f"{name} in {', '.join(callers)}" for name, callers in sorted(reading.items()))
    private = {"gateway and server": list[str](), "drop-in": list[str]()}
    for path, tree in trees.items():
        where = "drop-in" if path.is_relative_to(ROOT / DROP_IN) else "gateway and server"
        private[where] += [f"{package} {name} ({path.name})" for package, name in dict.fromkeys(corners(tree))]
    classes = [size for path, tree in trees.items() if path.is_relative_to(ROOT / TRANSPORT[0]) for size in sizes(tree)]
    largest = max(classes, key=lambda size: size.methods)
    pinned = pins((ROOT / "pyproject.toml").read_text("utf-8"))
    extensions = (ROOT / "setup.py").read_text("utf-8").count('Extension("')
    return (
        Row("product lines of transport and hand-over", str(lines_of(*TRANSPORT, *HAND_OVER)), "≤ 4,500"),
        Row("lines of their tests", str(lines_of(*TESTS)), "≤ 8,000"),
        Row("ways an HTTP request can be read", f"{len(reading)}: {ways}", "1"),
        *(Row(f"private names, {where}", f"{len(names)}: {', '.join(names)}", "0") for where, names in private.items()),
        Row("largest class: methods, attributes", f"{largest.name}: {largest.methods}, {largest.attributes}", "≤ 15 methods"),
        Row("version pins in [server]", ", ".join(pinned) or "none", "none"),
        Row("builds", f"pure, and {extensions} optional in C", "pure, and one optional extension"),
    )


def _files(places: Sequence[str], root: Path) -> Iterator[Path]:
    for place in places:
        path = root / place
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _first(node: ast.expr) -> str:
    """Return the name with which a dotted name begins."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _of_self(node: ast.ClassDef) -> Iterator[tuple[str, bool]]:
    """Yield the attributes of `self` in a class, each with whether it is set there."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self":
            yield each.attr, isinstance(each.ctx, ast.Store)


def _inherited(node: ast.ClassDef) -> set[str]:
    """Return the private attributes of `self` that a class reads and does not define."""
    used = list(_of_self(node))
    named = {each.name for each in ast.walk(node) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {name for name, _ in used if _is_private(name)} - {name for name, is_set in used if is_set} - named


def main() -> int:
    """Print the table."""
    print("| what | now | wanted |\n|---|---|---|")
    for row in table():
        print(f"| {' | '.join(row)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

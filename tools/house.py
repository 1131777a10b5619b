"""The shape of the house: `python -m tools.house` prints its sizes, and `--check` the rules of its imports (`make imports`).

The order of the packages is a contract of import-linter in pyproject.toml. Three rules are here: a module whose docstring says
"No I/O" imports nothing that does any, directly or through others; a library is imported only where `MET_IN` says; modules do
not import each other in a circle. A constructor of the gateway process takes at most MAX_COLLABORATORS. Imports of types alone
count only for circles of rooms, as they are not there at run time. A name has no word that says nothing (VAGUE). The rooms have
at most MAX_FLOORS floors. The demo has a budget of MAX_DEMO_LINES.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import grimp

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {"headgate": ROOT / "gateway", "headgate_server": ROOT / "server"}
# The demo and the console are pages with a small server.
PAGES = ("server/headgate_server/demo", "server/headgate_server/api/console")
# The demo, whole: esbuild bundles its page from web/, and the command line's process is what its restart restarts.
DEMO = ("web/demo", "server/headgate_server/demo", "gateway/headgate/cli/demo_operator.py")
MAX_DEMO_LINES = 2_500
MAX_FLOORS = 12
TESTS = ("tests", "bench", "web/test")
WITH_IO = frozenset(("asyncio", "engineio", "flask", "gevent", "greenlet", "hiredis", "redis", "socketio"))
WITH_IO |= frozenset(("select", "selectors", "socket", "subprocess", "threading"))
# From a library to where it is imported; a package stands for its modules.
MET_IN: Mapping[str, tuple[str, ...]] = {
    "apprise": ("consumers.apprise",),
    "cryptography": ("auth.public_keys", "consumers.webpush.encryption"),
    "engineio": ("socketio.engine", "socketio.server"),
    "flask": ("flask", "cli.serve", "workers.application"),
    # The command line patches the standard library before anything else of ours is loaded.
    "gevent": (
        *("runtime.loop", "socketio.other_servers", "transport.peer_socket"),
        *("cli.gateway", "cli.keeper", "workers.gunicorn_worker"),
    ),
    "gunicorn": ("workers.gunicorn_worker",),
    "h11": ("runtime.http_exchange",),
    "hiredis": ("redis",),
    "idna": ("settings.addresses.origins",),
    "jinja2": ("consumers.templates",),
    "jsonschema_rs": ("services.schemas.validation",),
    "jwt": ("auth.public_keys",),
    "opentelemetry": ("runtime.spans",),
    "pytest": ("testing",),
    "redis": ("redis",),
    "socketio": ("socketio",),
    "websockets": ("transport.frame_parser", "diagnosis.browser"),
}
# Besides the settings, plain values and clocks.
MAX_COLLABORATORS = 6
_BUILT_BY_PARTS = "headgate.node."
_NO_COLLABORATORS = frozenset(("Settings", "str", "int", "float", "bool", "Callable[[], float]"))
_NO_IO = re.compile(r"\bNo\s+I/O\b")
# `match`, `entries` or `trace` names a value; `found` does not. "Not found" and "look up" are terms.
VAGUE = frozenset(("told", "tell", "found", "look", "said", "heard", "hear", "anew"))
_TERMS = re.compile(r"not_found|look_up")
_WORD = re.compile(r"[A-Z]*[a-z0-9]+|[A-Z]+")


class Row(NamedTuple):
    """A row of the table."""

    what: str
    now: str
    wanted: str


def faults() -> Iterator[str]:
    """Yield a line for each import or name that breaks a rule, and for a demo beyond its budget."""
    if (lines := _demo_lines()) > MAX_DEMO_LINES:
        yield f"the demo has {lines:,} lines, and its budget is {MAX_DEMO_LINES:,}: {', '.join(DEMO)}"
    graph = grimp.build_graph(*SOURCES, include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None)
    trees = {module: ast.parse(path.read_text("utf-8")) for module, path in _modules().items()}
    for module in sorted(module for module, tree in trees.items() if _NO_IO.search(ast.get_docstring(tree) or "")):
        for library in sorted(WITH_IO):
            if library in graph.modules and (chain := graph.find_shortest_chain(module, library)):
                yield f"{module} says that it does no I/O, and imports some: {' > '.join(chain)}"
    for module, tree in trees.items():
        for name in vague_names(tree):
            yield f"{module} has the name {name}: say what it is"
    for library, places in MET_IN.items():
        if library in graph.modules:
            yield from (
                f"{module} imports {library}, which is met in {', '.join(places)} (tools/house.py)"
                for module in sorted(graph.find_modules_that_directly_import(library))
                if module.startswith("headgate.") and not _is_in(module.removeprefix("headgate."), places)
            )
    for module in sorted(each for each in trees if each.startswith(_BUILT_BY_PARTS)):
        for name, init in _constructors(trees[module]):
            parts = collaborators(init)
            if len(parts) > MAX_COLLABORATORS:
                yield f"{module}.{name} takes more than {MAX_COLLABORATORS} collaborators: {', '.join(parts)}"
    imports = {module: graph.find_modules_directly_imported_by(module) & trees.keys() for module in trees}
    yield from (f"these modules import each other: {', '.join(circle)}" for circle in circles(imports))
    rooms = _rooms(trees)
    yield from (f"these rooms import each other, types included: {', '.join(circle)}" for circle in circles(rooms))
    if (height := floors(rooms)) > MAX_FLOORS:
        yield f"the rooms have {height} floors, and at most {MAX_FLOORS} are allowed: a new import leads too far up"


def vague_names(tree: ast.Module) -> list[str]:
    """Return the names of a module's variables, arguments, attributes, functions and classes that have a word of VAGUE."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
    words = {name: [word.lower() for word in _WORD.findall(name)] for name in names}
    return sorted(name for name, of_it in words.items() if VAGUE & {*of_it} and not _TERMS.search("_".join(of_it)))


def collaborators(init: ast.FunctionDef) -> list[str]:
    """Return the parameters of a constructor that are parts: neither settings nor plain values nor clocks."""
    _, *parameters = *init.args.posonlyargs, *init.args.args, *init.args.kwonlyargs
    return [each.arg for each in parameters if each.annotation is None or ast.unparse(each.annotation) not in _NO_COLLABORATORS]


def circles(imports: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the largest sets of more than one module in which each reaches each (Tarjan's components), sorted."""
    found: list[list[str]] = []
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> None:
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for imported in imports[module]:
            if imported not in numbers:
                visit(imported)
            if imported in stack:
                lowest[module] = min(lowest[module], lowest[imported])
        if lowest[module] == numbers[module]:
            circle = [stack.pop()]
            while circle[-1] != module:
                circle.append(stack.pop())
            if len(circle) > 1:
                found.append(sorted(circle))

    for module in imports:
        if module not in numbers:
            visit(module)
    return sorted(found)


def floors(imports: Mapping[str, Iterable[str]]) -> int:
    """Return the length of the longest way down; arrows inside a circle do not count."""
    circle_of = {room: number for number, circle in enumerate(circles(imports)) for room in circle}
    depth: dict[str, int] = {}

    def below(room: str) -> int:
        if room not in depth:
            depth[room] = 1
            here = circle_of.get(room)
            depth[room] += max((below(each) for each in imports[room] if here is None or circle_of.get(each) != here), default=0)
        return depth[room]

    return max(map(below, imports), default=0)


def table() -> Iterator[Row]:
    """Yield the rows, with the goals of the present round."""
    modules = _modules()
    product = [
        *modules.values(),
        *(each for root in SOURCES.values() for kind in ("lua", "c", "h") for each in root.rglob(f"*.{kind}")),
    ]
    product = [path for path in product if not any(path.is_relative_to(ROOT / page) for page in PAGES)]
    tests = [
        path for place in TESTS for path in (ROOT / place).rglob("*.*") if path.suffix in (".py", ".js", ".mjs", ".ts", ".tsx")
    ]
    tests = [path for path in tests if not {"node_modules", "dist"} & set(path.parts)]
    rooms = _rooms(modules)
    flat = [module for module in modules if module.count(".") == 1 and modules[module].name not in ("__init__.py", "__main__.py")]
    trees = [ast.parse(path.read_text("utf-8")) for path in modules.values()]
    classes = sum(isinstance(node, ast.ClassDef) for tree in trees for node in ast.walk(tree))
    settings = ast.parse((ROOT / "gateway/headgate/settings/settings.py").read_text("utf-8"))
    body = next(node.body for node in settings.body if isinstance(node, ast.ClassDef) and node.name == "Settings")
    gateway = ast.parse((ROOT / "gateway/headgate/node/gateway.py").read_text("utf-8"))
    init = next(init for name, init in _constructors(gateway) if name == "Gateway")
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    contracts = tomllib.loads(project)["tool"]["importlinter"]["contracts"]
    yield Row("product lines (Python, Lua, C; without demo and console)", f"{_lines(product):,}", "≤ 46,000")
    yield Row("lines of the demo, its page and templates included", f"{_demo_lines():,}", f"≤ {MAX_DEMO_LINES:,}")
    yield Row("test lines (Python, JavaScript; bench included)", f"{_lines(tests):,}", "≤ 90,000")
    yield Row("rooms (packages and flat modules)", str(len(rooms)), "≤ 28")
    yield Row("floors", str(floors(rooms)), f"≤ {MAX_FLOORS}")
    yield Row("arrows between rooms, types included", str(sum(map(len, rooms.values()))), "≤ 150")
    yield Row("circles of rooms", str(len(circles(rooms))), "0")
    yield Row("flat modules in gateway/headgate", str(sum(module.startswith("headgate.") for module in flat)), "≤ 10")
    yield Row("classes", str(classes), "≤ 520")
    yield Row(
        "settings", str(sum(isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node) for node in body)), "≤ 60"
    )
    yield Row("lines of Gateway.__init__", str((init.end_lineno or 0) - init.lineno + 1), "≤ 40")
    yield Row("lines of pyproject.toml", str(len(project.splitlines())), "≤ 350")
    yield Row("import contracts", str(len(contracts)), "the order of packages")


def _modules() -> dict[str, Path]:
    """Return the product's modules by name."""
    found = {}
    for package, root in SOURCES.items():
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _rooms(modules: Iterable[str]) -> dict[str, set[str]]:
    """Return the rooms, each with those that it imports, also for types alone."""
    graph = grimp.build_graph(*SOURCES, exclude_type_checking_imports=False, cache_dir=None)
    rooms: dict[str, set[str]] = {}
    for module in modules:
        imported = map(_room, graph.find_modules_directly_imported_by(module))
        rooms.setdefault(_room(module), set()).update(imported)
    for room, others in rooms.items():
        others.discard(room)
        others.intersection_update(rooms)
    return rooms


def _constructors(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the constructors of a module's classes, with the name of the class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from ((node.name, each) for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")


def _room(module: str) -> str:
    """Return the package or flat module below the top in which a module is."""
    return ".".join(module.split(".")[:2])


def _is_in(module: str, places: Iterable[str]) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in places)


def _demo_lines() -> int:
    """Return the lines of every text file of the demo."""
    files = [path for place in DEMO for path in ((ROOT / place).rglob("*") if (ROOT / place).is_dir() else [ROOT / place])]
    return _lines(path for path in files if path.suffix in (".py", ".toml", ".html", ".js", ".mjs", ".css", ".svg"))


def _lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def main(arguments: list[str]) -> int:
    """Check the rules, or print the table."""
    if arguments == ["--check"]:
        broken = list(faults())
        print("\n".join(broken), end="\n" if broken else "")
        return 1 if broken else 0
    print("| what | now | wanted |\n|---|---|---|")
    for row in table():
        print(f"| {' | '.join(row)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

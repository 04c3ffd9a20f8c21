"""Imports run one way: the order of the design, no circle (also none for type checking), libraries where they belong."""

import ast
from pathlib import Path

import pytest

import bulksample

PACKAGE = Path(bulksample.__file__).parent
FACADE = "bulksample"
# the matrices; they may import each other
BOTTOM = ("sparse", "rng", "graph", "mapped", "pickled", "process_lock")
BELOW = {  # a part of the package: the parts right below it; it may import those, and all below those
    "errors": [],
    "version": [],
    "printable": ["errors"],
    **{part: ["printable", "version", *(other for other in BOTTOM if other != part)] for part in BOTTOM},
    "backends": list(BOTTOM),
    "adjacency": ["backends"],
    "local_adjacency": ["adjacency"],
    "samplers": ["local_adjacency", "shuffle"],
    "shuffle": ["rng"],
    "profiling": [],
    "log": ["printable"],
    "free_memory": ["errors"],
    "loading": ["samplers", "free_memory", "profiling"],
    "data": ["loading"],
    "config": ["errors", "version"],
    "distributed": ["data", "adjacency", "config"],
    "layer_costs": [],
    "nn": ["loading", "distributed", "config", "layer_costs"],
    "views": ["nn"],
    "evaluation": ["views"],
    "training": ["evaluation", "log"],
    "methods": ["training"],
    "interop": ["training"],
    "deprecated": ["interop"],
    "plan": ["loading", "distributed", "config", "layer_costs"],
    "report": ["plan"],
    "cli": ["methods", "report", "interop"],
    "__main__": ["cli"],
}


def module_of(path):
    """The dotted name of a source file; of a package, the name of its folder."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(module):
    """The names that a file imports anywhere: at its top, in functions and for type checking alone; relative ones made whole."""
    path = SOURCES[module]
    folder = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = folder[: len(folder) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" if f"{base}.{alias.name}" in SOURCES else base for alias in node.names)


@pytest.fixture(scope="module")
def graph():
    """The modules that each module imports."""
    return {module: {name for name in imported(module) if name in SOURCES and name != module} for module in SOURCES}


def part_of(module):
    return module.split(".")[1] if "." in module else FACADE


def all_below(part):
    """The parts that `part` may import: those below it, however far."""
    found, left = set(), list(BELOW[part])
    while left:
        if (below := left.pop()) not in found:
            found.add(below)
            left.extend(BELOW[below])
    return found


def circles(graph):
    """Modules on circles of imports, or between two: the rest is taken away, as it imports nothing or nothing imports it."""
    left = dict(graph)
    while True:
        wanted = set().union(*left.values()) if left else set()
        kept = {module: names & left.keys() for module, names in left.items() if names & left.keys() and module in wanted}
        if kept.keys() == left.keys():
            return sorted(kept)
        left = kept


def test_a_circle_is_found():
    line = {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert circles(line) == []
    assert circles({**line, "d": {"b"}}) == ["b", "c", "d"]


def test_no_modules_import_each_other(graph):
    assert circles(graph) == []


def test_every_part_has_a_place_in_the_order():
    assert {part_of(module) for module in SOURCES} - {FACADE} == BELOW.keys()


@pytest.mark.parametrize("part", BELOW)
def test_a_part_imports_only_what_lies_below_it(graph, part):
    own = [module for module in graph if part_of(module) == part]
    climbs = {(module, name) for module in own for name in graph[module] if part_of(name) not in {part, *all_below(part)}}
    assert sorted(climbs) == []


@pytest.mark.parametrize(
    ("library", "homes"),
    [
        ("mpi4py", ["distributed/comm/"]),
        ("cupy", ["backends/cuda/"]),
        (
            "torch",
            [
                "nn/",
                "views/",
                "evaluation/",
                "training/",
                "methods/",
                "cli/",
                "interop/",
                "distributed/comm/torch_distributed.py",
                "training/trackers.py",
            ],
        ),
    ],
)
def test_a_library_is_imported_only_where_it_belongs(library, homes):
    users = [
        SOURCES[module].relative_to(PACKAGE).as_posix() for module in SOURCES if library in {n.split(".")[0] for n in imported(module)}
    ]
    assert users, f"nothing imports {library}"
    assert [user for user in users if not user.startswith(tuple(homes))] == []

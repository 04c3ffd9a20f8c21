"""No cached property calls the other ranks.

Before Python 3.12, `functools.cached_property` holds one lock for all objects of a class while it computes. Ranks that are threads
would wait for it, and the one that holds it for them.
"""

import ast
from pathlib import Path

import bulksample
from bulksample.distributed.comm.base import Comm

LOCAL = {"close", "duplicate"}
COLLECTIVE = {name for name in dir(Comm) if not name.startswith("_") and callable(getattr(Comm, name))} - LOCAL | {
    "together",
    "agree",
    "made_alike",
}


def cached_properties(source):
    """The bodies of the cached properties of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and any(getattr(d, "id", "") == "cached_property" for d in node.decorator_list):
            yield node


def collective_calls(node):
    """The names of collective calls on a communicator in a function, and of helpers that call one."""
    for call in (found for found in ast.walk(node) if isinstance(found, ast.Call)):
        function = call.func
        if isinstance(function, ast.Name) and function.id in COLLECTIVE:
            yield function.id
        if isinstance(function, ast.Attribute) and function.attr in COLLECTIVE and "comm" in ast.unparse(function.value):
            yield function.attr


def test_a_collective_call_is_found():
    (bad,) = cached_properties("class A:\n    @cached_property\n    def x(self):\n        return self.grid.column_comm.allgather(1)")
    assert list(collective_calls(bad)) == ["allgather"]


def test_no_cached_property_is_collective():
    package = Path(bulksample.__file__).parent
    found = {path.name: list(cached_properties(path.read_text())) for path in package.rglob("*.py")}
    assert sum(map(len, found.values())) > 40
    assert [(name, node.name) for name, nodes in found.items() for node in nodes if list(collective_calls(node))] == []

"""Edits of Python code that change its meaning: comparisons, arithmetic, constants, conditions, statements and arguments.

What no result depends on stays: annotations, docstrings, messages of errors, logging, decorators, assertions and `__repr__`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .mutant import Edit

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd, ast.Pow: ast.Mult,
}  # fmt: skip
NAMES = {
    "min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum", "floor": "ceil", "ceil": "floor",
    "argmin": "argmax", "argmax": "argmin", "zeros": "ones", "ones": "zeros", "logical_and": "logical_or", "logical_or": "logical_and",
}  # fmt: skip
SPOKEN = {"warn", "info", "debug", "warning", "error", "exception", "log", "print", "register", "fail", "overload", "cast", "TypeVar"}
KEYWORDS = {"help", "stacklevel", "description", "indent", "match", "name", "usage", "desc"}  # arguments that no result depends on
SHOWN = {"__repr__", "__str__", "__all__", "__slots__"}


def edits(source: str) -> list[Edit]:
    """Return all edits of a module, in the order of its text."""
    return sorted(set(_Edits(source).found()))


_TURNED = (ast.Compare, ast.UnaryOp, ast.Constant)  # conditions that other edits turn


class _Edits:
    def __init__(self, source: str) -> None:
        self.source, self.tree, self.starts = source, ast.parse(source), [0]
        self.lines = source.splitlines(keepends=True)
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def found(self) -> Iterator[Edit]:
        for statement in self.tree.body:
            yield from self._walk(statement, "", False, (0, 0, 0))

    def _walk(self, node: ast.AST, where: str, inside: bool, lines: tuple[int, int, int]) -> Iterator[Edit]:
        """Yield the edits of a node and of all below it.

        `lines` are the line of the statement and the lines whose tests may notice: those of the statement inside a function, of the
        whole function for its head, of the whole file for what runs at import.
        """
        if _left_alone(node):
            return
        function, inner = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef), where
        if isinstance(node, ast.stmt):
            lines = (node.lineno, *_lines(node)) if inside else (node.lineno, 1, len(self.lines))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{where}.{node.name}".lstrip(".")
            lines = (node.lineno, node.lineno, node.end_lineno or 0) if function else lines
        for old, new in _changes(node):
            yield self._edit(old, new, where, lines)
        for child in _children(node):
            yield from self._walk(child, inner, inside or function, lines)

    def _edit(self, old: ast.AST, new: ast.AST | str, where: str, lines: tuple[int, int, int]) -> Edit:
        start, end = self._at(old.lineno, old.col_offset), self._at(old.end_lineno, old.end_col_offset)  # type: ignore[attr-defined]
        plain = isinstance(new, str | ast.stmt | ast.Constant | ast.Name | ast.Attribute | ast.Slice | ast.Call)
        text = new if isinstance(new, str) else ast.unparse(new)
        return Edit(start, end, self.source[start:end], text if plain else f"({text})", where, *lines)

    def _at(self, line: int, column: int) -> int:
        """Return the place of a column, which `ast` counts in bytes."""
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())


def _lines(statement: ast.stmt) -> tuple[int, int]:
    """Return the first and last line of a statement, of a compound one those of its head."""
    body = getattr(statement, "body", None)
    last = (body[0].lineno - 1) if isinstance(body, list) and body else statement.end_lineno
    return statement.lineno, max(statement.lineno, last or 0)


def _left_alone(node: ast.AST) -> bool:
    """True for what no result depends on."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom | ast.arg):
        return True
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and (node.name in SHOWN or node.name.endswith("Error")):
        return True
    if isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id in SHOWN for one in node.targets):
        return True
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return True
    if isinstance(node, ast.keyword):
        return node.arg in KEYWORDS
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.Yield):
        return True
    return isinstance(node, ast.Call) and (_called(node) in SPOKEN or _called(node).endswith(("Error", "Warning")))


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is below a node but for annotations and decorators."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_comment", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _changes(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | str]]:
    """Yield pairs of a node and what replaces it."""
    match node:
        case ast.Compare(left=left, ops=[op, *ops], comparators=right) if type(op) in COMPARISONS:
            yield node, ast.Compare(left, [COMPARISONS[type(op)](), *ops], right)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC and not _text(left) and not _union(node):
            yield node, ast.BinOp(left, ARITHMETIC[type(op)](), right)
        case ast.AugAssign(target=target, op=op, value=value):
            yield node, "pass"
            if type(op) in ARITHMETIC and not _text(value):
                yield node, ast.AugAssign(target, ARITHMETIC[type(op)](), value)
        case ast.BoolOp(op=op, values=values):
            yield node, ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, operand
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield node, operand
        case ast.Constant(value=bool() as value):
            yield node, ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield node, ast.Constant(value + 1)
            if value:
                yield node, ast.Constant(value - 1)
        case ast.Constant(value=float() as value):
            yield node, ast.Constant(value * 2 if value else 1.0)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not isinstance(test, _TURNED):
            yield test, ast.UnaryOp(ast.Not(), test)
        case ast.Expr(value=ast.Call() as call) if _called(call) not in SPOKEN:
            yield node, "pass"
        case ast.Assign(targets=[ast.Subscript()]):
            yield node, "pass"
        case ast.Break():
            yield node, "continue"
        case ast.Continue():
            yield node, "break"
        case ast.Slice(lower=lower, upper=upper, step=None):
            if lower is not None and not isinstance(lower, ast.Constant):
                yield node, ast.Slice(None, upper, None)
            if upper is not None and not isinstance(upper, ast.Constant):
                yield node, ast.Slice(lower, None, None)
        case ast.Call(func=func, args=[first, second, *rest], keywords=keywords) if _swaps(first, second):
            yield node, ast.Call(func, [second, first, *rest], keywords)
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in NAMES and isinstance(node, ast.Call):
            yield node.func, ast.Name(NAMES[name])
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in NAMES and isinstance(node, ast.Call):
            yield node.func, ast.Attribute(value, NAMES[name])


def _text(node: ast.AST) -> bool:
    """True for a string, which "+" and "%" do not add."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _union(node: ast.BinOp) -> bool:
    """True for a union of types, such as `int | None`."""
    parts = [node.left, node.right]
    return isinstance(node.op, ast.BitOr) and any(isinstance(part, ast.Constant) and part.value is None for part in parts)


def _swaps(first: ast.expr, second: ast.expr) -> bool:
    """True for two arguments of one shape; others are mostly of two types, and any test notices those."""
    return type(first) is type(second) and not isinstance(first, ast.Starred) and ast.dump(first) != ast.dump(second)

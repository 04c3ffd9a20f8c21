"""Help and errors of a command line: options of one method at a time, and suggestions for mistyped words."""

from __future__ import annotations

import difflib
import sys
from copy import copy
from itertools import pairwise
from typing import Any

import typer
from typer.core import TyperCommand

from ..config.options import Options

# The base of all errors of a command line that cannot be parsed; Typer takes it from click, or brings its own copy.
ParseError: Any = typer.BadParameter.__mro__[2]
_METHOD = "bulksample.method"


class HelpByMethod(TyperCommand):
    """A command whose help shows the options of a method only after ``--method NAME``."""

    options: type[Options]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        joined = [word.removeprefix("--method=") for word in args if word.startswith("--method=")]
        apart = [value for word, value in pairwise(args) if word == "--method"]
        ctx.meta[_METHOD] = next(iter([*joined, *apart]), None)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        method = ctx.meta.get(_METHOD)
        if method is not None:
            self.options.made({"method": method}, {"method": "--method"})  # refuses a method that does not exist
        foreign = {name for name, (group, _) in self.options.by_name().items() if group.methods and method not in group.methods}
        shown = copy(self)
        shown.params = [one for one in self.params if one.name not in foreign]
        super(HelpByMethod, shown).format_help(ctx, formatter)


def help_by_method(options: type[Options]) -> type[HelpByMethod]:
    """Return the class of a command with these options."""
    return type("HelpByMethod", (HelpByMethod,), {"options": options})


def explain(error: Any) -> str:
    """Return the message of a `ParseError`, with the nearest flag or with the command that shows help."""
    context, message = getattr(error, "ctx", None), str(error.format_message()).rstrip(".").replace(": Value error, ", ": ")
    if context is None or not message or message.endswith("?"):
        return message
    if flag := getattr(error, "option_name", None):
        flags = [name for one in context.command.params if not getattr(one, "hidden", False) for name in (*one.opts, *one.secondary_opts)]
        if near := difflib.get_close_matches(flag, flags, 1):
            return f"No such option: {flag}; did you mean {near[0]}?"
        message = f"No such option: {flag}"
    given = _given(getattr(error, "param", None), sys.argv[1:])
    told = "" if given is None or given in message else f"; got {given!r}"
    return f"{message}{told}; see {context.command_path} --help"


def _given(parameter: Any, words: list[str]) -> str | None:
    """Return the last value that a command line gives to an option; None if there is none."""
    flags = () if parameter is None else parameter.opts
    joined = [word.partition("=")[2] for word in words if word.partition("=")[0] in flags and "=" in word]
    apart = [value for word, value in pairwise(words) if word in flags]
    return next(reversed([*joined, *apart]), None)

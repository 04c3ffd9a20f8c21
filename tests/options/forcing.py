"""Take an option away from the code: the user sets it, every check sees it, and whatever reads it afterwards finds its default."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer

from bulksample import samplers
from bulksample.config.options import Options

TESTS = Path(__file__).parents[1]


@contextmanager
def forced(config: type[Options], name: str) -> Iterator[None]:
    """Let every attribute ``config.name`` be the default of the option while the context lasts.

    Only the validators of pydantic still see the value of the user, so a value that the option alone makes legal stays legal.
    A dump of the configuration shows it too: a test that compares what a report echoes would notice nothing, and is none.
    """
    default, original, checking = config.model_fields[name].default, config.made, threading.local()

    def made(cls: type[Options], *arguments: Any) -> Options:
        checking.now = True
        try:
            return original(*arguments)
        finally:
            checking.now = False

    def read(self: Options) -> Any:
        return self.__dict__[name] if getattr(checking, "now", False) else default

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "made", classmethod(made))
        patch.setattr(config, name, property(read), raising=False)
        yield


@contextmanager
def forced_flag(name: str) -> Iterator[None]:
    """Let a flag that belongs to a command alone, such as --json, keep its default whatever the user types."""
    original = typer.core.TyperOption.process_value

    def process(self: Any, context: Any, value: Any) -> Any:
        return original(self, context, self.get_default(context) if self.name == name else value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.core.TyperOption, "process_value", process)
        yield


@contextmanager
def forced_of_sampler(option: str) -> Iterator[None]:
    """Keep an option of a sampler, such as ``sage.replace``, from the sampler, which then takes its default."""
    sampler, _, key = option.partition(".")
    make = samplers.make

    def made(name: str, fanouts: Any, **options: Any) -> samplers.Sampler:
        return make(name, fanouts, **{one: value for one, value in options.items() if (name, one) != (sampler, key)})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samplers, "make", made)
        yield


def function_of(where: str) -> Callable[..., None]:
    """The function of a test such as ``options/test_x.py::test_y``."""
    file, _, name = where.partition("::")
    path = TESTS / file
    if path.stem not in sys.modules:  # as pytest imports it, so that helpers beside it are found
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[path.stem] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    function: Callable[..., None] = getattr(sys.modules[path.stem], name)
    return function


def run(where: str, request: pytest.FixtureRequest) -> None:
    """Run a test in this process, with its fixtures."""
    function = function_of(where)
    function(**{name: request.getfixturevalue(name) for name in inspect.signature(function).parameters})

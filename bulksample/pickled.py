"""Pickles and copies of objects: what can be computed again stays behind, and arrays in files of a store are mapped again, not copied.

Processes exchange batches, graphs and loaders in this form: the workers of torch's `DataLoader`, queues and pools. Nothing here reads a
pickle.
"""

from __future__ import annotations

import copy
from dataclasses import fields
from functools import cached_property
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from .errors import UsageError
from .mapped import MappedPart


class Rebuilt:
    """A dataclass whose pickles and copies are made of its fields by its constructor, so that read-only arrays are read-only again."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_of, (type(self), {name: _portable(value) for name, value in self._fields().items()})

    def __copy__(self) -> Self:
        return type(self)(**self._fields())

    def _fields(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init}  # type: ignore[arg-type]  # of dataclasses


def _made_of(kind: Any, columns: dict[str, Any]) -> Any:
    return kind(**columns)


class CopiedAlong:
    """An object that changes: a shallow copy of its owner has one of its own."""


class Uncached:
    """An object whose pickles and copies leave out what a `cached_property` has computed."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: _portable(value) for name, value in self._kept().items()}

    def __copy__(self) -> Self:
        made = object.__new__(type(self))
        vars(made).update({name: copy.copy(value) if isinstance(value, CopiedAlong) else value for name, value in self._kept().items()})
        return made

    def _kept(self) -> dict[str, Any]:
        """Return the attributes of pickles and copies."""
        return {name: value for name, value in vars(self).items() if not isinstance(getattr(type(self), name, None), cached_property)}


class Unpicklable:
    """An object of one process, which can be neither pickled nor copied."""

    stays: ClassVar[str]  # what it is and what to do instead, for the message

    def __reduce__(self) -> NoReturn:
        raise UsageError(f"got a {type(self).__name__} to pickle or copy: {self.stays}")


def _portable(value: Any) -> Any:
    """Return a field as its pickle holds it."""
    if isinstance(value, np.ndarray):
        return MappedPart.of(value) or value
    if type(value) is dict:
        return {name: _portable(part) for name, part in value.items()}
    return value

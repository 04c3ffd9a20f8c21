"""A figure of a report: it says in words what it shows, has its numbers as a table, and draws itself on an axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Numbers:
    """A table: words in the first column, figures in the others."""

    head: list[str]
    body: list[list[str]]


@dataclass(frozen=True)
class Plot:
    """A figure.

    Attributes
    ----------
    name : of its file
    says : in words, for who cannot see it
    note : what to know in reading it
    size : of its canvas, in inches
    """

    name: str
    title: str
    says: str
    note: str
    draw: Callable[[Any, Any], None]
    size: tuple[float, float]
    numbers: Numbers

"""A chart of a report: its description in words, its numbers as a table, and a function that draws it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TextTable:
    """A table of text: labels in the first column, numbers in the others."""

    head: list[str]
    body: list[list[str]]


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes
    ----------
    name : name of its file, without suffix
    description : the chart in words, for readers who cannot see it
    note : remark shown under the chart
    draw : draws on a matplotlib figure and one of its axes
    size : width and height in inches
    numbers : what the chart shows, as a table
    """

    name: str
    title: str
    description: str
    note: str
    draw: Callable[[Any, Any], None]
    size: tuple[float, float]
    numbers: TextTable

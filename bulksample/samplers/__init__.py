"""Samplers of mini-batches, one file each, whose docstring gives the sampler as a matrix formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import UsageError, instead_of, unknown
from .base import AnySampler, Sampler, whole_fanouts
from .fastgcn import FastGcn
from .full import Full
from .labor import Labor
from .ladies import Ladies
from .layer_wise import LayerWise
from .node_wise import NodeWise
from .sage import Sage
from .saint import Saint
from .shadow import Shadow

SAMPLERS: dict[str, type[Sampler]] = {s.name: s for s in (Sage, Ladies, FastGcn, Labor, Full, Shadow, Saint)}

__all__ = [
    "SAMPLERS", "AnySampler", "FastGcn", "Full", "Labor", "Ladies", "LayerWise", "NodeWise", "Sage", "Saint", "Sampler", "Shadow", "make",
    "whole_fanouts",
]  # fmt: skip


def make(name: str, fanouts: Sequence[int], **options: Any) -> Sampler:
    """Make the sampler of that name; `UsageError` for an unknown name or option suggests the closest one, or tells the range of a value."""
    if not isinstance(name, str) or name not in SAMPLERS:
        raise UsageError(unknown("sampler", name, SAMPLERS))
    known = {field.name for field in SAMPLERS[name]._options()} - {"fanouts"}
    for option in options:
        if option not in known:
            raise UsageError(f"sampler {name!r} has no option {option!r}; {instead_of(option, sorted(known))}")
    return SAMPLERS[name](whole_fanouts(fanouts), **options)

"""Seed timestamps and the time rule, from the options of a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..adjacency import kind_of_times
from ..config.groups import TimeOptions
from ..errors import DataError, UsageError
from ..graph import Graph, VertexType
from ..graph.times import as_times
from ..samplers import Full, Sampler
from ..samplers.time_rule import TimeRule


@dataclass(frozen=True, eq=False)
class SeedTimes:
    """When each vertex of the target type is asked about, and what may be drawn for it."""

    of_vertex: np.ndarray  # int64, shape (n,)
    rule: TimeRule


def seed_times(config: TimeOptions, graph: Graph, kind: VertexType) -> SeedTimes | None:
    """Return when each vertex of the target type is asked about, and the rule of time; None for a graph without times."""
    if config.seed_times is not None and not _timed(graph):
        raise UsageError(f"seed_times: graph {graph.name!r} has no times; leave the option out")
    rule = rule_of(config, graph)
    if rule is None:
        return None
    if config.seed_times is None and kind.times is None:
        if columns := [name for name, column in kind.extra.items() if column.ndim == 1 and column.dtype.kind in "iu"]:
            known = f"use seed_times with a column of the type ({', '.join(columns)})"
        else:
            known = "it has no column of whole numbers that could say so: make the graph with times of these vertices"
        missing = f"vertices of type {kind.name!r} have none, so it is unknown what was known of each"
        raise UsageError(f"{_timed(graph)[0]} of graph {graph.name!r} has times, but {missing}; {known}")
    return SeedTimes(_column(config.seed_times, kind), rule)


def _timed(graph: Graph) -> list[str]:
    """Return the types and relations with times."""
    timed = [f"type {one.name!r}" for one in graph.types if one.times is not None]
    return timed + [str(relation) for relation in graph.relations if relation.times is not None]


def rule_of(config: TimeOptions, graph: Graph) -> TimeRule | None:
    """Return the rule of time of a configuration, None for a graph without times; raises `UsageError` if it has no such times."""
    if not _timed(graph):
        options = ["strict"] * config.strict + ["strategy"] * (config.strategy != "uniform") + ["time_by"] * (config.time_by != "auto")
        if options:
            raise UsageError(f"{', '.join(options)}: graph {graph.name!r} has no times; leave the option out")
        return None
    try:
        kind_of_times(graph, config.time_by)
    except UsageError as error:
        raise UsageError(f"time_by: {error}") from None
    return TimeRule(config.time_by, config.strategy, config.strict)


def _column(name: str | None, kind: VertexType) -> np.ndarray:
    """Return the time of each vertex: int64, shape (n,)."""
    if name is None:
        assert kind.times is not None
        return kind.times
    if name not in kind.extra:
        raise UsageError(f"seed_times: type {kind.name!r} has no column {name!r}; use {', '.join(kind.extra) or 'a graph with one'}")
    column = np.asarray(kind.extra[name])
    if column.dtype.kind == "M":
        raise DataError(f"seed_times: column {name!r} holds dates; use whole numbers in the unit of the times of the graph")
    return as_times(f"seed_times: column {name!r}", column, kind.count)


def rule_for(rule: TimeRule, sampler: Sampler) -> TimeRule:
    """Return the rule of time for a sampler: of all neighbors, the newest are all of them too."""
    return TimeRule(rule.by, strict=rule.strict) if isinstance(sampler, Full) else rule

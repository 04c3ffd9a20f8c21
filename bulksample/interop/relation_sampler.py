"""Make the sampler of a heterogeneous graph from a name and options, or from a sampler of a homogeneous one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import samplers
from ..config import DEFAULT_FANOUTS
from ..errors import UsageError
from ..graph import Graph, Key
from ..relations.hgt import HGSampler
from ..relations.layers import UnionSampler
from ..relations.rule import TimeRule
from ..relations.sampler import RelationSampler, draws_by_row
from ..samplers import LayerWise, NodeWise, Sampler

Fanouts = Sequence[int] | Mapping[Any, Sequence[int]]


def relation_sampler(
    graph: Graph, sampler: str | Sampler | RelationSampler | UnionSampler | HGSampler, fanouts: Fanouts | None, time: TimeRule | None,
    disjoint: bool | None, options: dict[str, Any],
) -> RelationSampler | UnionSampler | HGSampler:  # fmt: skip
    """Make the sampler of that name on a graph; a sampler on relations is returned as it is."""
    if isinstance(sampler, RelationSampler | UnionSampler | HGSampler):
        if fanouts is not None or options or time is not None or disjoint is not None:
            raise UsageError(f"got a {type(sampler).__name__}, and fanouts, time, disjoint or options besides; give them to the sampler")
        return sampler
    if isinstance(sampler, Sampler):
        if fanouts is not None or options:
            raise UsageError(f"got a sampler object, and fanouts or options besides; use the name {sampler.name!r} to give them here")
        return _on_relations(sampler, None, time, disjoint)
    if not isinstance(fanouts, Mapping):
        made = samplers.make(sampler, DEFAULT_FANOUTS if fanouts is None else fanouts, **options)
        return _on_relations(made, None, time, disjoint)
    of_relations = {graph.relation(key).key: samplers.whole_fanouts(given) for key, given in fanouts.items() if key != "default"}
    missing = [":".join(relation.key) for relation in graph.relations if relation.key not in of_relations]
    if missing and "default" not in fanouts:
        raise UsageError(f"fanouts name no relation {missing[0]}; name every relation, or give a 'default'")
    default = fanouts["default"] if "default" in fanouts else next(iter(of_relations.values()))
    return _on_relations(samplers.make(sampler, default, **options), of_relations, time, disjoint)


def _on_relations(
    sampler: Sampler, fanouts: Mapping[Key, tuple[int, ...]] | None, time: TimeRule | None, disjoint: bool | None
) -> RelationSampler | UnionSampler:
    if draws_by_row(sampler):
        assert isinstance(sampler, NodeWise)
        return RelationSampler(sampler, fanouts, time, disjoint)
    if not isinstance(sampler, LayerWise):
        raise UsageError(f"sampler {sampler.name!r} works on one relation; by type and relation use sage, labor, full, ladies or fastgcn")
    if fanouts is not None or time is not None or disjoint:
        raise UsageError(f"sampler {sampler.name!r} draws from all relations together; leave out fanouts by relation, times and disjoint")
    return UnionSampler(sampler)

"""The input nodes of a loader, checked: of one type or of several, with their times and the beginnings of their windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch_geometric.data import Data, HeteroData

from ...errors import UsageError
from ...graph import NODE
from ...graph.times import given_times
from .attributes import column, ids_or_mask
from .read_graph import has_types, num_nodes_of
from .seed_input import SeedInput
from .seed_sampler import SeedSampler, starts_of


def node_input(data: Any, sampler: SeedSampler, nodes: Any, time: Any = None, start: Any = None, names: Any = None) -> SeedInput:
    """Return the input nodes that a user names, with their times and starts, and the names that they have in `input_id`.

    `nodes` are ids, a mask or None for all; of a graph with types a type, a type and one of these, or a list or a dict of several. Then
    `time` and `start` are dicts by type. An input node of a mask is named by its vertex, one of ids by its position, as in torch_geometric.
    Raises `UsageError` for anything else, and where times and starts do not fit the nodes or the graph.
    """
    sampler.check_given("input", time, start)
    lists = _lists(data, sampler, nodes)
    columns = (("input_time", time), ("input_start", start), ("input_id", names))
    times, starts, given_names = (_by_type(name, values, lists) for name, values in columns)
    parts = {}
    for name, chosen in lists.items():
        count = sampler.graph.type(name).count
        of = f" of type {name!r}" if len(lists) > 1 else ""
        ids = torch.arange(count) if chosen is None else ids_or_mask(chosen, count, f"input_nodes{of}")
        mask = ids.dtype == torch.bool
        ids = ids.nonzero().view(-1) if mask else ids
        own, called = times[name], given_names[name]
        for what, values in (("input_time", own), ("input_id", called)):
            if values is not None and (values.ndim != 1 or len(values) != len(ids)):
                found = len(values) if values.ndim == 1 else f"shape {tuple(values.shape)}"
                raise UsageError(f"{what}{of}: got {found} for {len(ids)} input nodes; use one for each")
        if own is not None:
            given_times(f"input_time{of}", own.detach().cpu())
        part = SeedInput(ids if mask and called is None else called, ids, own, name if has_types(data) else None)
        if starts[name] is not None and (ends := sampler.time_of(name, part)) is not None:
            part.start = torch.from_numpy(starts_of(f"input_start{of}", starts[name], ends))
        parts[name] = part
    return next(iter(parts.values())) if len(parts) == 1 else SeedInput.joined(parts)


def _lists(data: Any, sampler: SeedSampler, nodes: Any) -> dict[str, Any]:
    """Return ids, a mask or None for all, by type."""
    if not has_types(data):
        if isinstance(nodes, str | Mapping) or _is_pair(nodes):
            raise UsageError(f"input_nodes: got {_shown(nodes)}, and the graph has no types; use ids or a mask")
        return {NODE: nodes}
    if isinstance(nodes, Mapping):
        pairs = list(nodes.items())
    elif isinstance(nodes, str):
        pairs = [(nodes, None)]
    elif _is_pair(nodes) and not isinstance(nodes[1], str):
        pairs = [tuple(nodes)]
    elif isinstance(nodes, list | tuple) and all(isinstance(one, str) or _is_pair(one) for one in nodes):
        pairs = [(one, None) if isinstance(one, str) else tuple(one) for one in nodes]
    else:
        pairs = []
    names = [name for name, _ in pairs]
    if not pairs or not all(isinstance(name, str) and name for name in names):
        types, such = ", ".join(kind.name for kind in sampler.graph.types), "such as 'type' or ('type', mask), or a list of such"
        raise UsageError(f"input_nodes: got {_shown(nodes)}; name their type, {such}; the types are {types}")
    if len(twice := [name for name in names if names.count(name) > 1]):
        raise UsageError(f"input_nodes: type {twice[0]!r} stands there {names.count(twice[0])} times; join its lists")
    return dict(pairs)


def _is_pair(nodes: Any) -> bool:
    return isinstance(nodes, list | tuple) and len(nodes) == 2 and isinstance(nodes[0], str)


def _shown(nodes: Any) -> str:
    return f"a {type(nodes).__name__} of shape {tuple(nodes.shape)}" if hasattr(nodes, "shape") else repr(nodes)


def _by_type(name: str, values: Any, lists: Mapping[str, Any]) -> dict[str, torch.Tensor | None]:
    """Return the tensor of each type."""
    if isinstance(values, Mapping) and values.keys() != lists.keys():
        raise UsageError(f"{name}: got those of {', '.join(map(str, values)) or 'no type'}; give those of {', '.join(lists)}")
    if values is not None and len(lists) > 1 and not isinstance(values, Mapping):
        raise UsageError(f"{name}: got a {type(values).__name__} for input nodes of {len(lists)} types; use a dict with {', '.join(lists)}")
    given = values if isinstance(values, Mapping) else dict.fromkeys(lists, values)
    none = [kind for kind, of_type in given.items() if of_type is None]
    if 0 < len(none) < len(given):
        raise UsageError(f"{name}: got none for type {none[0]!r}; give one for each input node of every type, or leave {name} out")
    return {kind: column(name, of_type) for kind, of_type in given.items()}


def check_sizes(data: Any, sampler: SeedSampler) -> None:
    """Raise `UsageError` if a sampler is not of this graph: vertices of a batch would get the features of others."""
    counts = {kind.name: kind.count for kind in sampler.graph.types}
    if isinstance(data, Data | HeteroData):
        ours = {name: int(data[name].num_nodes or 0) for name in data.node_types} if has_types(data) else {NODE: num_nodes_of(data)}
        for name in ours:
            if ours[name] and ours[name] != counts.get(name, 0):
                of = "" if name == NODE else f" of type {name!r}"
                found = f"got one of {counts.get(name, 0)} vertices{of}, and the graph has {ours[name]}"
                raise UsageError(f"neighbor_sampler: {found}; make both from one graph")

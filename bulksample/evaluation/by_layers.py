"""Exact inference on a heterogeneous graph without times: each layer once, over the rows that the wanted ones need.

    R_L = the wanted vertices;    R_(l-1) = R_l and all neighbors of R_l by relations of layer l
    H_l[R_l] = layer_l(A[R_l, R_(l-1)], H_(l-1)[R_(l-1)])

So a vertex has one row in each layer, where mini-batches compute it once for every mini-batch whose neighborhoods meet it. Ranks share the
rows of every type and gather those of each layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from ..distributed.comm.base import Comm
from ..graph import Graph, Key
from ..graph.minibatch import Block
from ..nn.model import evaluation_mode
from ..nn.relational import RelationalGnn, RelationalLayer, Rows
from ..sparse import row_pointers
from ..views.inference_share import edge_steps
from ..views.type_view import type_targets
from ..views.view import View, mean_weights
from .inference import fair_memory, gathered_rows

_EDGES = 2**20  # of the rows that a relation adds to at once
_FEATURES = 2**24  # numbers that a rank fetches at once, 64 MiB

Ids = dict[str, np.ndarray]  # of some vertices of each type, ascending


class LayerOutputs(NamedTuple):
    """Rows of this rank's share of the wanted vertices, type by type."""

    ids: Ids
    hidden: Rows  # those that enter the last layer
    outputs: Rows


def fits_layers(model: RelationalGnn, view: View, comm: Comm, memory: int | None = None) -> bool:
    """Return True if the rows of a pass by layers fit in `memory` bytes, by default a share of the free, on every rank; collective.

    False at once if seeds have times, since a vertex then has a row for each of them, if relations lie in block rows, or on a device.
    """
    if type_targets(view).times is not None or view.adjacency.collective or next(model.parameters()).device.type != "cpu":
        return False
    rows = sum(model.schema.counts[name] for name in model.types[0])
    widest = max(layer.width_in + layer.width_out for layer in model.layers if isinstance(layer, RelationalLayer))
    return not any(comm.gather_control(4 * rows * widest > (memory or fair_memory(comm))))


@torch.no_grad()
def infer_by_layers(model: RelationalGnn, view: View, comm: Comm, wanted: Mapping[str, np.ndarray]) -> LayerOutputs:
    """Compute the rows of some vertices of the target types from all their neighbors; collective.

    Parameters
    ----------
    wanted : dict of int32 by type
        Distinct vertices, ascending; the same on every rank.

    Notes
    -----
    Each rank fetches the features of its share of R_0 (kinds "topology" and "features") and computes its share of every R_l. All ranks
    gather those of R_0 .. R_(L-1): 4 width_l (p - 1) bytes for each row (kind "activations").
    """
    graph, layers = type_targets(view).graph, [layer for layer in model.layers if isinstance(layer, RelationalLayer)]
    needed = _needed(graph, layers, {name: np.asarray(wanted.get(name, ()), np.int32) for name in model.types[-1]})
    with evaluation_mode(model):
        rows = _input_rows(model, view, comm, needed[0])
        for i, (layer, (sources, destinations)) in enumerate(zip(layers, pairwise(needed), strict=True)):
            h = gathered(rows, comm)
            places = _places(graph, sources)
            shares = {name: _share(destinations[name], comm) for name in layer.destinations}
            rows = model.between(i, {name: _new_rows(view, layer, name, places, ids, h) for name, ids in shares.items()})
    return LayerOutputs(shares, {name: h[name][_index(places[name][ids])] for name, ids in shares.items()}, rows)


def _input_rows(model: RelationalGnn, view: View, comm: Comm, ids: Ids) -> Rows:
    """Compute the input rows of this rank's share of some vertices, from some `_FEATURES` numbers of their features at once; collective."""
    numbers = sum(len(ids[name]) * model.schema.widths[name] for name in model.types[0])
    pieces = 1 + numbers // (comm.size * _FEATURES)
    shares = {name: np.array_split(_share(ids[name], comm), pieces) for name in model.types[0]}
    requests: list[Any] = [{name: parts[i] for name, parts in shares.items()} for i in range(pieces)]
    made = [model.input_rows(model.look_up(begin()())) for begin in view.features.ask(requests)]
    return {name: torch.cat([part[name] for part in made]) for name in model.types[0]}


def _share(ids: np.ndarray, comm: Comm) -> np.ndarray:
    """Return this rank's share of some vertices."""
    return np.array_split(ids, comm.size)[comm.rank]


def _index(positions: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(positions).long()


def _needed(graph: Graph, layers: list[RelationalLayer], wanted: Ids) -> list[Ids]:
    """Return the vertices of R_0 .. R_L of each type."""
    needed = [wanted]
    for layer in reversed(layers):
        met = {kind.name: np.zeros(kind.count, bool) for kind in graph.types}
        for name, ids in needed[0].items():
            met[name][ids] = True
        for key in layer.relations:
            rows = needed[0].get(key[2], np.empty(0, np.int32))
            for first, last in _chunks(graph, key, rows):
                met[key[0]][graph.relation(key).adjacency.take(rows[first:last]).indices] = True
        needed.insert(0, {name: np.flatnonzero(mask).astype(np.int32) for name, mask in met.items()})
    return needed


def _new_rows(
    view: View, layer: RelationalLayer, name: str, places: Mapping[str, np.ndarray], ids: np.ndarray, h: Rows
) -> torch.Tensor:  # fmt: skip
    """Compute the rows that a layer gives some vertices of a type; `places` are those of the rows of `h`."""
    graph = type_targets(view).graph
    before = h[name][_index(places[name][ids])]
    rows = layer.own_rows(name, before)
    for number, key in enumerate(layer.relations):
        if key[2] != name or not graph.relation(key).adjacency.degrees[ids].any():
            continue
        source = layer.of_sources(number, h[key[0]])
        for first, last in _chunks(graph, key, ids):
            edges = graph.relation(key).adjacency.take(ids[first:last])
            weights = mean_weights(edges.indptr, edges.values, 1.0, type_targets(view).weighted)[1]
            block = Block(edges.indptr, places[key[0]][edges.indices], weights, len(h[key[0]]))
            if block.num_edges:
                rows[first:last] += layer.message(number, block, source, before[first:last])
    return rows


def _chunks(graph: Graph, key: Key, rows: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield the bounds of consecutive rows with some `_EDGES` edges of a relation, or of one row that has more."""
    return edge_steps(row_pointers(graph.relation(key).adjacency.degrees[rows]), _EDGES)


def _places(graph: Graph, ids: Ids) -> dict[str, np.ndarray]:
    """Return the position of each vertex among the ids of its type: int32, shape (n,); 0 where it is not among them."""
    places = {kind.name: np.zeros(kind.count, np.int32) for kind in graph.types if kind.name in ids}
    for name, place in places.items():
        place[ids[name]] = np.arange(len(ids[name]), dtype=np.int32)
    return places


def gathered(rows: Rows, comm: Comm) -> Rows:
    """Return the rows of all ranks, type by type, in the order of ranks; collective."""
    return {name: torch.from_numpy(gathered_rows(np.ascontiguousarray(tensor.float().numpy()), comm)) for name, tensor in rows.items()}


def logits_by_layers(model: RelationalGnn, view: View, comm: Comm, vertices: np.ndarray) -> tuple[np.ndarray, torch.Tensor]:
    """Return the logits of this rank's share of some vertices of the target type, with their positions among them; collective."""
    name = type_targets(view).kind.name
    inferred = infer_by_layers(model, view, comm, {name: vertices})
    return _share(np.arange(len(vertices)), comm), inferred.outputs[name].float()

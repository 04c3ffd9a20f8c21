"""Exact inference: compute each layer once over the whole graph, with all neighbors of every vertex.

    for l = 1 .. L:   sent = send_l(h[own])  -> to the ranks that aggregate it;   h[own] = receive_l(A[own, :], sent)

The work is L passes over the edges, where one tree of neighbors per vertex would grow exponentially with L. Every rank computes the
rows of its own `InferenceShare`, gathered where they fit into memory, else streamed.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch

from ..distributed.comm.base import Comm
from ..distributed.matrix.inference_memory import gathered_bytes
from ..free_memory import free_memory
from ..nn.layers import Layer
from ..nn.model import Gnn, evaluation_mode
from ..views.inference_share import InferenceShare
from .streamed import infer_streamed, needed_rows


def infer(model: Gnn, share: InferenceShare) -> torch.Tensor:
    """Compute the logits of the rows of a share from all their neighbors: shape (rows, classes); collective."""
    return infer_with_hidden(model, share)[1]


@torch.no_grad()
def infer_with_hidden(model: Gnn, share: InferenceShare) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Compute the rows that enter the last layer, shape (rows, hidden), and the logits; a model of one layer has no such rows."""
    below: torch.Tensor | None = None
    hidden: torch.Tensor | None = None  # the share's rows of the layer below; None stands for the features
    with evaluation_mode(model):
        for i, module in enumerate(model.layers):
            below, hidden = hidden, model.between(i, _layer_rows(cast(Layer, module), share, hidden))
    assert hidden is not None
    return below, hidden


def _layer_rows(layer: Layer, share: InferenceShare, hidden: torch.Tensor | None) -> torch.Tensor:
    """Compute the share's rows of one layer from its rows of the layer below."""
    transforms = layer.transforms_first(hidden is None and share.sparse, share.n, share.n, share.edges)
    raw = hidden is None and not transforms
    neighborhood = share.distribute_features(layer) if raw else share.distribute(share.sent(layer, hidden, transforms))
    received = [torch.empty(0, layer.width_out, device=share.degrees.device)]
    for a, b in share.steps(max(layer.width_out, layer.width_in if raw else 0)):
        block, sent, own = neighborhood(a, b)
        if a < b:
            received.append(layer.receive(block, sent, share.inputs(hidden, a, b), own, share.degrees[a:b], transforms))
    return torch.cat(received)


def exact_rows(
    model: Gnn, share: InferenceShare, memory: int | None = None, wanted: np.ndarray | None = None
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Compute the rows that enter the last layer, and the logits, by exact inference; collective among the ranks of the share.

    Parameters
    ----------
    memory : int, optional
        Bytes of this rank for it; by default a quarter of the free memory, divided by the ranks of this machine. Ranks stream if one of
        them could not hold what gathering needs.
    wanted : bool, shape (rows,), optional
        The rows whose logits are wanted, by default all. Streaming computes these alone, and the rows below that they need.
    """
    memory = fair_memory(share.comm) if memory is None else memory
    needed = gathered_bytes(model.widths, share.n * share.gathered, share.rows, share.holds_features)
    if not any(share.comm.gather_control(needed > memory)):
        share.streamed = False
        return infer_with_hidden(model, share)
    share.streamed = True
    rows = None if wanted is None else needed_rows(share, wanted, len(model.layers))
    hidden, logits = infer_streamed(model, share, memory, rows)
    return None if hidden is None else torch.from_numpy(hidden), torch.from_numpy(logits)


def fair_memory(comm: Comm) -> int:
    """Return a quarter of the free memory of this machine, divided by the ranks on it; collective."""
    here = comm.machine_of == comm.machine_of[comm.rank]
    return free_memory() // (4 * int(here.sum()))

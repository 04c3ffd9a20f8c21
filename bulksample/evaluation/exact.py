"""Exact inference, gathered where its rows fit into memory, else streamed."""

from __future__ import annotations

import numpy as np
import torch

from ..distributed.comm.base import Comm
from ..distributed.matrix.inference_memory import gathered_bytes
from ..free_memory import free_memory
from ..nn.model import Gnn
from ..views.inference_share import InferenceShare
from .inference import infer_with_hidden
from .streamed import infer_streamed, needed_rows


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

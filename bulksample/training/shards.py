"""Shards of a checkpoint: the parameters of which each rank holds a block row, with Adam's moments and their best values.

Rank 0 writes and reads the shards one after another, each in a file of its own, so it never holds a whole table. Shards name their rows:
a run continues on another grid, where rank 0 sends each row to the ranks that hold it there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import DataError
from ..nn.decoders import LinkModel
from ..nn.relational import RelationalGnn
from . import checkpoint
from .context import TrainingContext

_IDS = "ids."


def own_shard(context: TrainingContext) -> dict[str, torch.Tensor]:
    """Return this rank's rows of every shard, by the names that a checkpoint gives them; empty without shards."""
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in context.model.shards.items():
        tensors[f"model.{name}"] = parameter.detach()
        if name in context.best_weights:
            tensors[f"best.{name}"] = context.best_weights[name]
        for key, value in context.optimizer.state.get(parameter, {}).items():
            if value.shape == parameter.shape:
                tensors[f"adam.{name}.{key}"] = value
    return tensors


def shards_to_rank_0(context: TrainingContext) -> Iterator[dict[str, torch.Tensor]]:
    """Bring the shards to rank 0, which yields one at a time; others yield nothing. Collective: every rank takes all that is yielded.

    The first process column sends: each table once, with 4 bytes for each row (kind "model").
    """
    if not context.model.shards or grid_of(context).column:
        return
    column, shards = grid_of(context).column_comm, own_shard(context)
    parts = {**shards, **{f"{_IDS}{name}": torch.from_numpy(_members(context, name).copy()) for name in context.model.shards}}
    for turn in range(column.size):
        shard = {}
        for name, part in sorted(parts.items()):  # those of the rank whose turn it is
            rows = np.ascontiguousarray(part.numpy() if column.rank == turn else part[:0].numpy())
            counts = np.array([len(rows)] + [0] * (column.size - 1), np.int64)
            shard[name] = torch.from_numpy(column.alltoall_rows(rows, counts, "model"))
        if column.rank == 0:
            yield shard


def shards_from_rank_0(context: TrainingContext, state: dict[str, Any], folder: str) -> dict[str, torch.Tensor]:
    """Return this rank's rows of every shard, which rank 0 reads; collective. Raises `DataError` if a shard is damaged, or a row lacks."""
    grid, model = grid_of(context), context.model
    names = state["shard_tensors"]
    shard_rows = {name: torch.full_like(model.shards[_parameter(name, model.shards)], math.nan) for name in names}
    if grid.column == 0:
        shards = checkpoint.read_shards(Path(folder), state) if grid.row == 0 else iter([{}] * len(state["shards"]))
        for shard in shards:
            for name in names:
                parameter = _parameter(name, model.shards)
                ids, rows = _spread(context, parameter, shard.get(f"{_IDS}{parameter}"), shard.get(name), shard_rows[name])
                shard_rows[name][torch.from_numpy(np.searchsorted(_members(context, parameter), ids))] = torch.from_numpy(rows)
    for name in names if grid.column == 0 else ():
        if shard_rows[name].isnan().any():
            raise DataError(f"checkpoint {folder}: its shards lack rows of {name}, or hold NaN there")
    for name in names if grid.replication > 1 else ():
        grid.row_comm.broadcast(shard_rows[name].numpy(), "model")
    return shard_rows


def whole_tables(folder: Path, state: dict[str, Any], kind: str) -> dict[str, torch.Tensor]:
    """Return the parameters of all shards put together, for one process that predicts; `kind` is "model" or "best"."""
    tables: dict[str, torch.Tensor] = {}
    names = [name for name in state.get("shard_tensors", ()) if name.startswith(f"{kind}.")]
    parts: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {name: [] for name in names}
    for shard in checkpoint.read_shards(folder, state) if names else ():
        for name in names:
            parts[name].append((shard[_IDS + name.removeprefix(f"{kind}.")], shard[name]))
    for name, pieces in parts.items():
        ids, rows = (torch.cat(one) for one in zip(*pieces, strict=True))
        tables[name.removeprefix(f"{kind}.")] = rows[torch.argsort(ids.long())]
    return tables


def _spread(
    context: TrainingContext, parameter: str, ids: torch.Tensor | None, rows: torch.Tensor | None, like: torch.Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Send the rows of a shard from rank 0 to the ranks of its process column that hold them; return those of this rank."""
    column = grid_of(context).column_comm
    if ids is None or rows is None:
        none = np.zeros(column.size, np.int64)
        return column.alltoall_rows(np.empty(0, np.int32), none, "model"), column.alltoall_rows(like[:0].numpy(), none, "model")
    owners = _model(context).learned_blocks(parameter).blocks_of(ids.numpy())
    order, counts = np.argsort(owners, kind="stable"), np.bincount(owners, minlength=column.size)
    return column.alltoall_rows(ids.numpy()[order], counts, "model"), column.alltoall_rows(rows.numpy()[order], counts, "model")


def _parameter(name: str, shards: dict[str, Any]) -> str:
    """Return the name of the parameter that a tensor of a shard belongs to."""
    return next(parameter for parameter in shards if parameter in name)


def _members(context: TrainingContext, parameter: str) -> np.ndarray:
    return _model(context).learned_blocks(parameter).members(grid_of(context).row)


def grid_of(context: TrainingContext) -> Any:
    """Return the process grid that divides the learned rows."""
    learned = _model(context).learned
    assert learned is not None
    return learned.blocks.grid


def _model(context: TrainingContext) -> RelationalGnn:
    """Return the model, of links its encoder, which holds the shards."""
    model = context.model.encoder if isinstance(context.model, LinkModel) else context.model
    assert isinstance(model, RelationalGnn)
    return model

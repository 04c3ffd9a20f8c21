"""One sampled mini-batch of a plain graph with its features and labels as numpy arrays; `to` makes torch tensors of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..minibatch import Block, MiniBatch
from ..views.edges import EdgeRows
from .batch_rows import BatchRows, HeldRows
from .tensor_batch import TensorBatch, device_of

if TYPE_CHECKING:
    import torch

    from .dialects import EdgeLayout


@dataclass(frozen=True, eq=False)
class Batch:
    """A sampled mini-batch as numpy arrays.

    A pickle or a copy holds all values, also those that were not read yet, and not the graph: processes may exchange batches.

    Parameters
    ----------
    minibatch : MiniBatch
    rows : BatchRows
        Gathers its features and labels when they are first read, or holds them.
    repeated : bool
        The mini-batch is one of the first of the epoch once more, so that all ranks make equally many steps: leave it out of counts.
    """

    minibatch: MiniBatch
    rows: BatchRows
    repeated: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the mini-batch with its values, and without the graph they come from."""
        has = self.rows
        held = HeldRows(has.name, self.x if has.has_features else None, self.y if has.has_labels else None, self.edge_rows)
        return Batch, (self.minibatch.on_host(), held, self.repeated)

    @property
    def id(self) -> int:
        """The number of the mini-batch within its epoch."""
        return self.minibatch.id

    @property
    def epoch(self) -> int:
        """The epoch the mini-batch belongs to."""
        return self.minibatch.epoch

    @property
    def vertices(self) -> NDArray[np.int32]:
        """All sampled vertices, the distinct seeds first: shape (N,)."""
        return self.minibatch.vertices

    @property
    def seeds(self) -> NDArray[np.int32]:
        """The seeds: shape (b,)."""
        return self.minibatch.seeds

    @property
    def seed_rows(self) -> NDArray[np.int32]:
        """The position of each seed in `vertices`: shape (b,). It is 0 .. b - 1 unless a seed repeats."""
        return self.minibatch.seed_rows

    @property
    def seed_weights(self) -> NDArray[np.float32] | None:
        """The weight of each seed in the loss, shape (b,), from GraphSAINT with `coverage`; None (all ones) otherwise."""
        return self.minibatch.seed_weights

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The sampled edges, one block a layer, from the input layer to the output layer."""
        return self.minibatch.blocks

    @cached_property
    def x(self) -> NDArray[np.float32]:
        """Features of `vertices`: shape (N, f); sparse features become dense. Raises `UsageError` if the graph has none."""
        return self.rows.x(self.minibatch)

    @cached_property
    def y(self) -> NDArray[np.int64] | NDArray[np.float32]:
        """Labels of `seeds`: int64, shape (b,), with -1 where a seed has no class; or float32, shape (b, t), with NaN for a missing one.

        Raises `UsageError` if the graph has none.
        """
        return self.rows.y(self.minibatch)

    @property
    def e_id(self) -> tuple[NDArray[np.int64], ...]:
        """The positions of the sampled edges in the adjacency, one array a block.

        Raises `UsageError` if another rank has that part of the adjacency and the loader was made without ``edge_ids=True``.
        """
        if self.edge_rows.numbers is None:
            raise UsageError(
                "the rows of the adjacency lie on other ranks; make the loader with edge_ids=True to fetch the numbers of edges"
            )
        return self._by_block(self.edge_rows.numbers)

    @property
    def edge_attr(self) -> tuple[NDArray[np.float32], ...]:
        """Features of the sampled edges, one matrix a block: shape (E, d). Raises `UsageError` if the graph has none."""
        if self.edge_rows.features is None:
            raise UsageError(
                "the graph has no edge features; give edge_attr to from_edges, or import with `bulksample data import --edge-features`"
            )
        return self._by_block(self.edge_rows.features)

    @cached_property
    def edge_rows(self) -> EdgeRows:
        """The positions and the features of the edges of `MiniBatch.edge_ends`; None where this rank has none."""
        return self.rows.edges(self.minibatch)

    def _by_block(self, rows: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """Split the rows of all edges by block; nested blocks are prefixes of the same rows."""
        sizes = [block.num_edges for block in self.blocks]
        if self.minibatch.nested:
            return tuple(rows[:size] for size in sizes)
        return tuple(np.split(rows, np.cumsum(sizes)[:-1]))

    def digest(self) -> str:
        """Return the SHA-256 of the sampled arrays: equal mini-batches have equal digests on every machine."""
        return self.minibatch.digest()

    def to(self, device: Any = "cpu") -> TensorBatch:
        """Return the mini-batch as torch tensors on a device; `x` and `y` are not copied on the CPU.

        Raises
        ------
        UsageError
            If torch knows no such device, or sees no GPU for it.
        """
        return TensorBatch(self, device_of(device))

    def to_pyg(self, layout: EdgeLayout = "edge_index") -> Any:
        """Return the mini-batch as a `torch_geometric.data.Data` on the CPU; ``batch.to(device).to_pyg()`` puts it on a device.

        Parameters
        ----------
        layout : {"edge_index", "EdgeIndex", "adj_t", "SparseTensor"}
            How edges are given: int64 of shape (2, E); the same as a `torch_geometric.EdgeIndex`, sorted by destination; a sparse CSR
            tensor of torch, which shares the columns of the block; or torch-sparse's `SparseTensor`.

        Returns
        -------
        Data
            With ``x``, ``y`` of the seeds, ``n_id``, ``input_id``, ``batch_size``, ``num_sampled_nodes`` and ``num_sampled_edges``, seeds
            first, and where they are known ``e_id``, ``edge_attr`` and ``edge_weight``. With the frontier ``new`` there is one set of
            edges, ``edge_index`` or ``adj_t``. Else every layer has edges of its own: ``adjs`` lists ``(edges, e_id, size)`` from the
            input layer on, for ``conv((x, x[:size[1]]), edges)``; ``layer_edge_attr`` and ``layer_edge_weight`` list theirs.

        Raises
        ------
        UsageError
            If there is no such layout.
        ImportError
            If torch_geometric, or torch-sparse for its layout, is missing.
        """
        return self.to().to_pyg(layout)

    def to_dgl(self) -> tuple[torch.Tensor, torch.Tensor, list[Any]]:
        """Return the mini-batch in the format of DGL: ``(input_nodes, output_nodes, blocks)`` of int32, on the CPU.

        The blocks share their columns with the batch. They hold ``srcdata[dgl.NID]``, ``dstdata[dgl.NID]`` and, where they are known,
        ``edata[dgl.EID]``, ``edata["feat"]`` and ``edata["weight"]``; the first block ``srcdata["feat"]``, the last one
        ``dstdata["label"]`` unless a seed repeats. Raises ImportError if DGL is missing.
        """
        return self.to().to_dgl()

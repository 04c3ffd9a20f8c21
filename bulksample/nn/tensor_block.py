"""The sampled edges of one layer as torch tensors, for models of a user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..backends.dropout import kept_parts
from ..errors import UsageError
from ..graph.minibatch import Block
from ..pickled import CopiedAlong, Uncached
from .aggregate import aggregate
from .compiled import aggregate_compiled
from .dropout import PassNames, epilogue


class Calls(CopiedAlong):
    """The number of dropouts without `place` so far."""

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> int:
        """Return the place of the next one."""
        self.count += 1
        return self.count - 1


class TensorBlock(Uncached):
    """The sampled edges of one layer as tensors, made when they are first read. Destinations are the first of the sources.

    Parameters
    ----------
    block : Block
    device : torch.device or str
    names : PassNames, optional
        Of the rows of the mini-batch, for `dropout`.
    layer : int
        The number of the layer, from 1 for that of the input.
    kind : str, optional
        The vertex type of the destinations; by default the only one of `names`.
    calls : Calls, optional
        Shared by the relations of a layer into one type, whose dropouts are told apart.
    """

    def __init__(
        self, block: Block, device: Any, names: PassNames | None = None, layer: int = 1, kind: str | None = None, calls: Calls | None = None
    ) -> None:
        self.block, self.device, self._edges = block, device, _Edges(block, device)
        self._names, self._layer, self._kind, self._calls = names, layer, kind, calls or Calls()

    def __setstate__(self, state: dict[str, Any]) -> None:
        TensorBlock.__init__(self, state["block"], state["device"])  # earlier pickles have these two alone
        vars(self).update(state)

    def in_pass(self, names: PassNames | None, layer: int) -> TensorBlock:
        """Return the same edges as the block of another layer or pass; tensors are made once for both."""
        made = TensorBlock(self.block, self.device, names, layer, self._kind)
        made._edges = self._edges
        return made

    def changed(self, change: Callable[[torch.Tensor], torch.Tensor], device: Any, calls: Mapping[Calls, Calls]) -> TensorBlock:
        """Return the block on a device, with tensors that `change` makes of those of this one, and the other counter of dropouts."""
        made = TensorBlock(self.block, device, self._names, self._layer, self._kind, calls[self._calls])
        made._edges = self._edges.changed(change, device)
        return made

    def sources(self, h: torch.Tensor) -> torch.Tensor:
        """Return the rows of all sources, shape (num_sources, f), from the output of the layer before.

        In a mini-batch these are the same rows. Methods that exchange rows between layers fetch those of other ranks here (`HaloBlock`),
        so a module that begins each layer with ``h = block.sources(h)`` trains by every method.
        """
        return h

    @property
    def num_sources(self) -> int:
        return self.block.num_sources

    @property
    def num_destinations(self) -> int:
        return self.block.num_destinations

    @property
    def num_edges(self) -> int:
        return self.block.num_edges

    @property
    def edge_index(self) -> torch.Tensor:
        """Positions of source and destination in the mini-batch's list of vertices, as torch_geometric has them: int64, shape (2, E)."""
        return self._edges.index

    @property
    def weights(self) -> torch.Tensor | None:
        """The weight of each edge in the aggregation: float32, shape (E,); None stands for the mean over a destination's edges."""
        return self._edges.weights

    def aggregate(self, h: torch.Tensor) -> torch.Tensor:
        """Return the weighted sum, or the mean, of the sources of each destination: shape (num_destinations, f) from (num_sources, f).

        On a CPU by the kernel that the package's own layers use, with its gradient. Raises `ValueError` if `h` has too few rows.
        """
        if len(h) < self.num_sources:
            raise ValueError(f"aggregate needs a row for each of the {self.num_sources} sources; got {len(h)}: use block.sources(h) first")
        if h.device.type == "cpu":
            summed = aggregate_compiled(self.block, h) if torch.compiler.is_compiling() else aggregate(self.block, h)
            return summed.to(h.dtype)
        source, destination = self.edge_index
        scale = self.weights
        if scale is None:
            scale = 1 / destination.bincount(minlength=self.num_destinations).clamp(min=1).to(h.dtype)[destination]
        return h.new_zeros(self.num_destinations, h.shape[1]).index_add(0, destination, h[source] * scale[:, None])

    def dropout(self, h: torch.Tensor, p: float = 0.5, training: bool = True, place: int | None = None) -> torch.Tensor:
        """Drop numbers of rows with probability p, and scale the others by 1 / (1 - p): shape (m, f), differentiable once.

        A mask is a function of (seed, epoch, mini-batch, layer, place, vertex, column) alone: it is the same for every number of ranks and
        threads, on every device, and whatever else is drawn. p is realised in parts of 65536.

        Parameters
        ----------
        h : floating-point numbers, shape (m, f)
            Rows of the first m sources, such as the destinations. Of a relation between two types, those of the destinations alone.
            The result has their type; half precision is computed in float32.
        p : float
            0 to below 1.
        training : bool
            False returns h itself, as for `torch.nn.functional.dropout`: give ``self.training``.
        place : int, optional
            Tells the dropouts of a layer apart; by default they are counted call by call, over all relations into one type. Give it where
            a pass is made again for its gradient (`torch.utils.checkpoint`).

        Raises
        ------
        UsageError
            If p rounds to 0 or to 1, h has other rows or a type without fractions, or nothing tells the block its vertices.

        References
        ----------
        Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", JMLR 2014.
        """
        return self._dropped(h, p, training, place, relu=False)

    def dropout_relu(self, h: torch.Tensor, p: float = 0.5, training: bool = True, place: int | None = None) -> torch.Tensor:
        """Compute ``dropout(relu(h))`` in one pass, forward and backward; see `dropout`. Without `training` it is relu."""
        return self._dropped(h, p, training, place, relu=True)

    def _dropped(self, h: torch.Tensor, p: float, training: bool, place: int | None, relu: bool) -> torch.Tensor:
        kept_parts(p, "p")
        if not (isinstance(h, torch.Tensor) and h.is_floating_point() and h.dim() == 2):
            found = f"{h.dtype} of shape {tuple(h.shape)}" if isinstance(h, torch.Tensor) else f"a {type(h).__name__}"
            raise UsageError(
                f"dropout takes rows of floating-point numbers, shape (m, f); got {found}: use h.float(), and h.flatten(1) of heads"
            )
        if not (training and p):
            return epilogue(h, relu=relu, kernels=None if self._names is None else self._names.kernels).to(h.dtype)
        if self._names is None:
            raise UsageError("dropout draws by the vertices of a mini-batch, and this block knows none; use a block of a batch")
        if self._kind is not None and len(h) != self.num_destinations:
            found = f"got {len(h)} rows of a relation with {self.num_destinations} destinations"
            raise UsageError(f"dropout of a relation takes a row for each destination; {found}: use the rows of {self._kind!r}")
        if place is None:
            place = self._calls.next()
        mask = self._names.mask(p, len(h), self._layer, place, self._kind)
        return epilogue(h, relu=relu, mask=mask, kernels=self._names.kernels).to(h.dtype)


class HaloBlock(TensorBlock):
    """A layer of a pass over the whole graph: its sources are this rank's m rows, then h halo rows, which other ranks hold.

    `edges` holds the edges, which all layers share. `exchange` returns the rows of all sources, shape (m + h, f), from those of this rank,
    shape (m, f); it is collective, forward and backward, and `exchanges` counts its calls.
    """

    def __init__(
        self, edges: TensorBlock, exchange: Callable[[torch.Tensor], torch.Tensor], names: PassNames | None = None, layer: int = 1
    ) -> None:
        super().__init__(edges.block, edges.device, names, layer)
        self._edges, self._exchange, self.exchanges = edges._edges, exchange, 0

    def sources(self, h: torch.Tensor) -> torch.Tensor:
        """Return this rank's rows, then the halo rows. Collective: every rank calls it once for each layer."""
        self.exchanges += 1
        return self._exchange(h)


class _Edges(Uncached):
    """The edges of a block as tensors."""

    def __init__(self, block: Block, device: Any) -> None:
        self._block, self._device = block, device

    @cached_property
    def index(self) -> torch.Tensor:
        counts = _tensor(self._block.indptr, self._device).diff()
        rows = torch.arange(self._block.num_destinations, device=self._device)
        destination = torch.repeat_interleave(rows, counts, output_size=self._block.num_edges)  # a GPU would be asked for it
        return torch.stack([_tensor(self._block.indices, self._device).long(), destination])

    @cached_property
    def weights(self) -> torch.Tensor | None:
        return None if self._block.weights is None else _tensor(self._block.weights, self._device)

    def changed(self, change: Callable[[torch.Tensor], torch.Tensor], device: Any) -> _Edges:
        made = _Edges(self._block, device)
        made.index, made.weights = change(self.index), None if self.weights is None else change(self.weights)
        return made


def _tensor(array: Any, device: Any) -> torch.Tensor:
    """Return an array or a tensor as a tensor on a device. A read-only array is copied."""
    if isinstance(array, np.ndarray):
        array = torch.from_numpy(array if array.flags.writeable else array.copy())
    there: torch.Tensor = array.to(device)
    return there

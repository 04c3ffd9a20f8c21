"""One sampled mini-batch with its features and labels: `bulksample.Batch`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, check_switches
from ..nn.gather import OwnAndMean
from ..pickled import Uncached
from .columns import Columns, each, read_once
from .tensors import changed_blocks, converted, device_of, tensor_blocks

if TYPE_CHECKING:
    import torch

    from .dialects import EdgeLayout

_OF_GRAPH = ("x", "y", "e_id", "edge_attr")
_NO_FEATURES = "graph {name!r} has no features; give x to from_edges, or import with `bulksample data import --features`"
_MISSING = {
    "x": _NO_FEATURES,
    "own_and_mean": _NO_FEATURES,
    "y": "graph {name!r} has no labels; give y to from_edges, or import with `bulksample data import --labels`",
    "e_id": "nothing tells the numbers of edges: of rows that other ranks hold, make the loader with edge_ids=True; of a sampler of yours, "
    "leave out entries=False",
    "edge_attr": "the graph has no edge features; give edge_attr to from_edges, or import with `bulksample data import --edge-features`",
}


class Batch(Uncached):
    """A sampled mini-batch: torch tensors, with integers as int64, or numpy arrays, as ``Loader(out=...)`` says.

    On a plain graph `vertices`, `seeds`, `x` and `y` are one array each, and `blocks`, `e_id` and `edge_attr` have one entry a layer.
    On other graphs, and with ``as_dicts=True``, the former are dicts by type, and the latter have dicts by (source, name, destination).
    A dict leaves out types without seeds, features or labels, and relations without what is asked for; it may be empty.

    A pickle or a copy holds all values, also those that were not read yet, and not the graph: processes may exchange batches.

    Parameters
    ----------
    columns : Columns
        The mini-batch, and its features, labels and edges as numpy arrays, or as tensors in pinned memory.
    repeated : bool
        The mini-batch is one of the first of the epoch once more, so that all ranks make equally many steps: leave it out of counts.
    device : torch.device or str, optional
        Where the tensors lie; None for numpy arrays.
    """

    def __init__(self, columns: Columns, repeated: bool = False, device: Any = None) -> None:
        self.columns, self.repeated, self.device = columns, repeated, device

    @property
    def minibatch(self) -> Any:
        """The `MiniBatch` of numpy arrays."""
        return self.columns.minibatch

    @property
    def by_type(self) -> bool:
        """True if values are dicts by type and relation."""
        return bool(self.minibatch.by_type)

    @property
    def id(self) -> int:
        """The number of the mini-batch within its epoch."""
        return int(self.minibatch.id)

    @property
    def epoch(self) -> int:
        """The epoch the mini-batch belongs to."""
        return int(self.minibatch.epoch)

    @read_once
    def vertices(self) -> Any:
        """All sampled vertices, the distinct seeds first: shape (N,); int32 in numpy."""
        return converted(self.minibatch.vertices, self.device)

    @read_once
    def seeds(self) -> Any:
        """The seeds: shape (b,); int32 in numpy."""
        return converted(self.minibatch.seeds, self.device)

    @read_once
    def seed_rows(self) -> Any:
        """The position of each seed in `vertices`: shape (b,). It is 0 .. b - 1 unless a seed repeats."""
        sampled = self.minibatch
        rows = {name: sampled.rows[name].seed_rows for name in sampled.seeds} if self.by_type else sampled.seed_rows
        return converted(rows, self.device)

    @read_once
    def seed_weights(self) -> Any:
        """The weight of each seed in the loss: float32, shape (b,), from GraphSAINT with `coverage`; None (all ones) otherwise."""
        return converted(getattr(self.minibatch, "seed_weights", None), self.device)

    @read_once
    def blocks(self) -> Any:
        """The sampled edges, from the input layer to the output layer: a `TensorBlock`, or a `Block` of numpy arrays."""
        return self.minibatch.blocks if self.device is None else tensor_blocks(self.minibatch, self.device)

    @read_once
    def x(self) -> Any:
        """Features of `vertices`: float32, shape (N, f); sparse features become dense. Raises `UsageError` if a plain graph has none."""
        return self._value("x")

    def own_and_mean(self) -> OwnAndMean:
        """Return the features of the destinations of ``blocks[0]`` and the means over their sources: the input of a GraphSAGE layer.

        Both are computed where the features lie, and `x` is not made. A GraphSAGE whose first layer takes them, and whose other layers take
        blocks::

            own, mean = batch.own_and_mean()
            h = own @ W_own + mean @ W_mean + b
            for block, (V_own, V_mean, c) in zip(batch.blocks[1:], others):
                h = h.relu()
                h = h[: block.num_destinations] @ V_own + block.aggregate(h) @ V_mean + c
            loss = torch.nn.functional.cross_entropy(h, batch.y)

        This reads D + E rows of the features. `x` reads N of them and writes N, and `aggregate` reads E rows of the copy. So it pays where
        a vertex is the source of few sampled edges, up to some four, more so with wide features, and with mapped ones, whose copies would
        take memory. `x` is better where many edges share a source (LADIES, FastGCN, small graphs), and needed where the first layer is
        another or follows dropout. Sparse features, and those of a graph that ranks share, are gathered first all the same.

        Returns
        -------
        OwnAndMean
            ``(own, mean)``: float32, shape (D, f) each, on the device of the batch, without a gradient. A block with weights is summed with
            these; a row without edges is 0. By type and relation `own` is a dict by type, shape (D, f), of the types with features, and
            `mean` a dict by (source, name, destination), shape (D of the destination, f of the source), of the relations whose source has
            features; D may be 0. The bits are those of ``x[:D]`` and ``blocks[0].aggregate(x)`` on a CPU. Nothing moves between ranks.

        Raises
        ------
        UsageError
            If a plain graph has no features.

        References
        ----------
        Hamilton, Ying, Leskovec, "Inductive representation learning on large graphs", NeurIPS 2017.
        """
        made: OwnAndMean = self._own_and_mean
        return made

    @read_once
    def _own_and_mean(self) -> OwnAndMean:
        return OwnAndMean(*self._value("own_and_mean"))

    @read_once
    def y(self) -> Any:
        """Labels of `seeds`: int64, shape (b,), with -1 where a seed has no class; or float32, shape (b, t), with NaN for a missing one.

        Raises `UsageError` if a plain graph has none.
        """
        return self._value("y")

    @read_once
    def e_id(self) -> Any:
        """The positions of the sampled edges: in the adjacency of a plain graph, else in the user's list of edges: int64, shape (E,).

        Raises `UsageError` if another rank has that part of the adjacency and the loader was made without ``edge_ids=True``.
        """
        return self._value("e_id")

    @read_once
    def edge_attr(self) -> Any:
        """Features of the sampled edges: float32, shape (E, d). Raises `UsageError` if a plain graph has none."""
        return self._value("edge_attr")

    @property
    def x_dict(self) -> Any:
        """`x`, where it is a dict; this name and the next four are those of torch_geometric."""
        return self._of_types().x

    @property
    def y_dict(self) -> Any:
        """`y`, where it is a dict."""
        return self._of_types().y

    @read_once
    def edge_index_dict(self) -> Any:
        """The edges of the input layer by relation: int64, shape (2, E), sources above destinations."""
        sampled, layer = self._of_types().minibatch, self.blocks[0]
        return {key: sampled.edge_index(key) if self.device is None else block.edge_index for key, block in layer.items()}

    @property
    def e_id_dict(self) -> Any:
        """`e_id` of the input layer, which holds the edges of `edge_index_dict`."""
        return self._of_types().e_id[0]

    @property
    def edge_attr_dict(self) -> Any:
        """`edge_attr` of the input layer."""
        return self._of_types().edge_attr[0]

    def _of_types(self) -> Batch:
        if not self.by_type:
            raise UsageError(f"mini-batches of the plain graph {self.columns.name!r} have no dicts; make the loader with as_dicts=True")
        return self

    def has(self, column: str) -> bool:
        """Return True if the graph has a column: x, y, e_id or edge_attr."""
        return getattr(self.columns, column) is not None

    def _value(self, column: str) -> Any:
        value = getattr(self.columns, column)
        if value is None:
            raise UsageError(_MISSING[column].format(name=self.columns.name))
        return converted(value, self.device)

    def digest(self) -> str:
        """Return the SHA-256 of the sampled arrays: equal mini-batches have equal digests on every machine."""
        return str(self.minibatch.digest())

    def to(self, device: Any = "cpu", non_blocking: bool = False) -> Batch:
        """Return the mini-batch as torch tensors on a device; `x` and `y` are not copied on the CPU.

        Each tensor is copied when it is first read. A batch in pinned memory copies all of its tensors at once. So does any batch with
        `non_blocking`, which reads them first if need be, as they stand here. Copies from pinned memory to a GPU are then not waited for,
        as those of ``tensor.to(device, non_blocking=True)``: write to the pinned tensors only after the device is done.

        Raises `UsageError` if torch knows no such device, or sees no GPU for it.
        """
        check_switches(non_blocking=non_blocking)
        place = device_of(device)
        if not (non_blocking or self._pinned):
            return self._at(place)
        if self._place == place:
            return self
        return self._on_host()._changed(lambda tensor: tensor.to(place, non_blocking=non_blocking), place)

    def pin_memory(self) -> Batch:
        """Return the mini-batch as torch tensors in pinned memory of the host, from which a GPU copies while the host goes on.

        All values that its graph has are read now: `vertices`, `seeds`, `seed_rows`, `seed_weights`, `blocks`, `x`, `y`, `e_id` and
        `edge_attr`, with what you have written to them. A batch in pinned memory is returned as it is. A pickle or a deep copy of it has
        the same values in other memory; a shallow copy shares `x`, `y`, `e_id` and `edge_attr`.
        torch's ``DataLoader(pin_memory=True)`` calls this method.

        Raises `UsageError` if torch sees no GPU, or the batch lies on one.
        """
        if self._pinned:
            return self
        import torch

        if not torch.cuda.is_available():
            raise UsageError("pin_memory: torch sees no GPU, and pinned memory is for copies to one; leave it out")
        if self._place is not None and self._place.type != "cpu":
            raise UsageError(
                f"pin_memory: the batch lies on {self.device}, not on the host; call it before batch.to(device), or not at all"
            )
        made = self._on_host()._changed(lambda tensor: tensor.pin_memory(), "cpu")
        held = {name: each(vars(made)[name], lambda tensor: tensor.detach()) for name in _OF_GRAPH if name in vars(made)}
        made.columns, made._pinned = self.columns.holding(**held), True
        return made

    @read_once
    def _pinned(self) -> bool:
        """True if all tensors lie in pinned memory; unknown to pickles and copies, as the tensors are."""
        return False

    def _on_host(self) -> Batch:
        """Return the mini-batch as tensors on the host."""
        return self if self._place is not None and self._place.type == "cpu" else self.to("cpu")

    @property
    def _place(self) -> torch.device | None:
        """The device of the tensors; None for numpy arrays. An unpickled batch may name one that is not here."""
        import torch

        return None if self.device is None else torch.device(self.device)

    def _at(self, device: Any) -> Batch:
        """Return the mini-batch on a device, with the attributes that a user has added; nothing is read."""
        made = copy.copy(self)
        made.device = device
        return made

    def _changed(self, change: Callable[[torch.Tensor], torch.Tensor], device: Any) -> Batch:
        """Return the mini-batch on a device, with tensors that `change` makes of all of this one."""
        made, held = self._at(device), [name for name in _OF_GRAPH if self.has(name)]
        values = {name: getattr(self, name) for name in ("vertices", "seeds", "seed_rows", "seed_weights", *held)}
        vars(made).update(
            {name: each(value, lambda one: change(one.detach() if one.requires_grad else one)) for name, value in values.items()}
        )
        made.blocks = changed_blocks(self.blocks, change, device)
        return made

    def to_pyg(self, layout: EdgeLayout = "edge_index") -> Any:
        """Return the mini-batch in the format of torch_geometric, on its device.

        Parameters
        ----------
        layout : {"edge_index", "EdgeIndex", "adj_t", "SparseTensor"}
            How edges are given: int64 of shape (2, E); the same as a `torch_geometric.EdgeIndex`, sorted by destination; a sparse CSR
            tensor of torch, which shares the columns of the block; or torch-sparse's `SparseTensor`.

        Returns
        -------
        Data, or HeteroData where values are dicts
            Of each type ``n_id``, ``num_sampled_nodes`` and, where they are known, ``x`` and ``batch``, the tree of each vertex. Of each
            type with seeds ``input_id``, ``batch_size``, ``y`` of the seeds and ``seed_time``, seeds first. Of each relation
            ``num_sampled_edges``. With the frontier ``new`` each has one set of edges, ``edge_index`` or ``adj_t``, and where they are
            known ``e_id``, ``edge_attr`` and ``edge_weight``. Else every layer has edges of its own: ``adjs`` lists from the input layer on
            ``(edges, e_id, size)``, for ``conv((x, x[:size[1]]), edges)``, or dicts of such by relation; ``layer_edge_attr`` and
            ``layer_edge_weight`` list theirs. Of HGSampling there are no numbers by hop. Tensors may be those of the batch: what is written
            to them is written to it.

        Raises
        ------
        UsageError
            If there is no such layout.
        ImportError
            If torch_geometric, or torch-sparse for its layout, is missing.
        """
        from .dialects import to_pyg

        return to_pyg(self._on_device, layout)

    def to_dgl(self) -> tuple[Any, Any, list[Any]]:
        """Return the mini-batch in the format of DGL: ``(input_nodes, output_nodes, blocks)`` of int32, on its device.

        The nodes are tensors, or dicts of them by type. On the CPU the blocks share their columns with the batch. They hold
        ``srcdata[dgl.NID]``, ``dstdata[dgl.NID]`` and, where they are known, ``edata[dgl.EID]``, ``edata["feat"]`` and
        ``edata["weight"]``; the first block ``srcdata["feat"]``, the last one ``dstdata["label"]`` unless a seed repeats. Raises
        ImportError if DGL is missing.
        """
        from .dialects import to_dgl

        return to_dgl(self._on_device)

    @property
    def _on_device(self) -> Batch:
        return self.to("cpu") if self.device is None else self

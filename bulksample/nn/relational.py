"""Models of heterogeneous graphs: GraphSAGE and attention per relation, summed over the relations into a type.

    h_T^0 = x_T W_T + b_T                        or a learned row for each vertex, or one for all, where a type has no features
    h_D^l = h_D W_D + b_D + sum over r = (S, name, D) of message_r(h_S, h_D)

A relation without edges adds zero. Types and relations that cannot reach the target type in the remaining layers have no weights.
Schlichtkrull et al., "Modeling relational data with graph convolutional networks", ESWC 2018, without shared bases.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import nn

from ..distributed.matrix.layout import Layout, TypeLayouts
from ..graph import Key
from ..graph.minibatch import Block, LayerBlocks
from .aggregate import aggregate, matrix_of
from .dropout import PassNames, epilogue
from .layers import Input, xavier
from .model import BatchNorm, Model, check_blocks, check_heads, has_hooks
from .segments import segment_softmax, weighted_sum
from .type_input import LearnedInputs, TypeInput

Rows = dict[str, torch.Tensor]


class Schema(NamedTuple):
    """The types and relations of a graph, as a model sees them."""

    counts: Mapping[str, int]  # vertices of each type
    widths: Mapping[str, int]  # features of each vertex of a type; 0: it has none
    relations: tuple[Key, ...]
    target: str  # the type to predict; of links, that of their sources
    link_target: str | None = None  # the type of the destinations of links; it may be `target`

    @property
    def targets(self) -> tuple[str, ...]:
        """The types of which the last layer gives rows, each once."""
        return tuple(dict.fromkeys((self.target, self.link_target or self.target)))

    def to_json(self) -> dict[str, Any]:
        """Return what a graph must share with that of a model: the relations in their order, and the targets."""
        return {"relations": [list(key) for key in self.relations], "target": self.target, "link_target": self.link_target}

    def types_of_layers(self, layers: int) -> list[tuple[str, ...]]:
        """Return the types whose rows each layer takes, from the input to the output: layers + 1 entries, the last the targets alone."""
        needed: list[tuple[str, ...]] = [self.targets]
        for _ in range(layers):
            into = {source for source, _, destination in self.relations if destination in needed[0]}
            needed.insert(0, tuple(name for name in self.counts if name in into or name in needed[0]))
        return needed


class RelationalLayer(nn.Module):
    """A layer over relations, which end in the `destinations`, the types that get new rows; `message` says what a relation adds."""

    def __init__(
        self, relations: Sequence[Key], destinations: Sequence[str], width_in: int, width_out: int, generator: torch.Generator,
        heads: int = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        self.relations, self.destinations = tuple(relations), tuple(destinations)
        self.width_in, self.width_out, self.heads, self.width = width_in, width_out, heads, width_out // heads
        self.own = nn.ParameterList(xavier(width_in, width_out, generator) for _ in destinations)
        self.bias = nn.ParameterList(nn.Parameter(torch.zeros(width_out)) for _ in destinations)
        self.draw_weights(generator)

    @abstractmethod
    def draw_weights(self, generator: torch.Generator) -> None:
        """Make the weights of the relations."""

    @abstractmethod
    def of_sources(self, number: int, source: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return what relation `number` computes of each source, whatever its edges: from shape (S, width_in), of S rows each."""

    @abstractmethod
    def message(self, number: int, block: Block, source: tuple[torch.Tensor, ...], destination: torch.Tensor) -> torch.Tensor:
        """Return what relation `number` adds to its destinations: shape (D, width_out), zeros for a destination without edges.

        `source` is `of_sources` of the sources of the block, `destination` the rows of its destinations, shape (D, width_in).
        """

    def own_rows(self, name: str, before: torch.Tensor) -> torch.Tensor:
        """Return what vertices of a type have without their edges and the bias: shape (D, width_out) from shape (D, width_in)."""
        return torch.mm(before, self.own[self.destinations.index(name)])

    def forward(self, block: LayerBlocks, x: Rows) -> Rows:
        """Return the new rows of each type among the destinations of the layer, without the bias."""
        rows = {}
        for name in self.destinations:
            before = x[name][: block.destinations[name]]
            rows[name] = self.own_rows(name, before)
            for number, key in enumerate(self.relations):
                if key[2] == name and (edges := block.relations[key]).num_edges:
                    rows[name] = rows[name] + self.message(number, edges, self.of_sources(number, x[key[0]]), before)
        return rows


class RelationalSage(RelationalLayer):
    """message_r = (mean over u of h_u) W_r."""

    def draw_weights(self, generator: torch.Generator) -> None:
        self.mean = nn.ParameterList(xavier(self.width_in, self.width_out, generator) for _ in self.relations)

    def of_sources(self, number: int, source: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (source @ self.mean[number] if self.width_out < self.width_in else source,)

    def message(self, number: int, block: Block, source: tuple[torch.Tensor, ...], destination: torch.Tensor) -> torch.Tensor:
        mean = aggregate(block, source[0])
        return mean if self.width_out < self.width_in else mean @ self.mean[number]


class RelationalGat(RelationalLayer):
    """message_r = sum over u of alpha_vu z_u,  z = h W_r,  alpha_vu = softmax over u of LeakyReLU(a_r . z_u + h_v C_r).

    Heads are concatenated. The entries of a row of a block without weights stand for equally many neighbors, so the softmax of a sample
    needs no correction; those of a block with weights stand for as many as their weights say.
    """

    def draw_weights(self, generator: torch.Generator) -> None:
        self.weight = nn.ParameterList(xavier(self.width_in, self.width_out, generator) for _ in self.relations)
        self.source = nn.ParameterList(xavier(self.heads, self.width, generator) for _ in self.relations)
        self.destination = nn.ParameterList(xavier(self.width_in, self.heads, generator) for _ in self.relations)

    def of_sources(self, number: int, source: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = (source @ self.weight[number]).view(-1, self.heads, self.width)
        return z, (z * self.source[number]).sum(-1)

    def message(self, number: int, block: Block, source: tuple[torch.Tensor, ...], destination: torch.Tensor) -> torch.Tensor:
        (z, scores_of_sources), pattern = source, matrix_of(block)
        sent = scores_of_sources[pattern.column_index()]
        scores = F.leaky_relu(sent + (destination @ self.destination[number])[pattern.row_index()], 0.2)
        if block.weights is None:
            return weighted_sum(pattern, segment_softmax(pattern, scores), z).reshape(-1, self.width_out)
        many = pattern.weights_or_ones()[:, None]  # how many neighbors an entry stands for
        alpha = segment_softmax(pattern, scores + many.clamp(min=torch.finfo(many.dtype).tiny).log())
        return weighted_sum(pattern, torch.where(many > 0, alpha, 0.0), z).reshape(-1, self.width_out)


class RelationalGnn(Model):
    """A graph neural network over heterogeneous mini-batches, "hetero-sage" or "hetero-gat".

    Dropout is on hidden rows, and on features and learned rows of the input; `norm` normalizes the rows of each type after every hidden
    layer; `heads` are those of the hidden layers of "hetero-gat", and the output layer has one. A type without features has a learned row
    for each vertex (`featureless` "embedding"), or one for all of them ("constant"). If learned rows of vertices lie in the block rows
    `blocks`, making the model is collective; by default every rank holds them all. Raises `UsageError` if `hidden` is not a multiple of
    `heads`.
    """

    def __init__(
        self, name: str, schema: Schema, hidden: int, layers: int, outputs: int, dropout: float = 0.0, input_dropout: float = 0.0,
        norm: Literal["none", "batch", "layer"] = "none", heads: int = 4, featureless: str = "embedding", seed: int = 0,
        blocks: TypeLayouts | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if name == "hetero-gat":
            check_heads([hidden], heads)
        self.name, self.schema, self.outputs = name, schema, outputs
        self.dropout, self.input_dropout, self.activation = dropout, input_dropout, F.elu if name == "hetero-gat" else F.relu
        self.generator = torch.Generator().manual_seed(seed)
        self.types = schema.types_of_layers(layers)
        rows = {kind: schema.counts[kind] if featureless == "embedding" else 1 for kind in self.types[0]}
        divided = [kind for kind in self.types[0] if blocks and not schema.widths[kind] and featureless == "embedding"]
        members = {kind: blocks.members(kind) for kind in divided} if blocks else {}
        inputs = {kind: TypeInput(schema.widths[kind], rows[kind], hidden, self.generator, members.get(kind)) for kind in self.types[0]}
        self.inputs = nn.ModuleList(inputs.values())
        self.learned = LearnedInputs(blocks, {kind: inputs[kind] for kind in divided}) if blocks and divided else None
        self.layers = nn.ModuleList(
            self._layer(self.types[i + 1], hidden, outputs if last else hidden, 1 if last else heads)
            for i, last in ((i, i == layers - 1) for i in range(layers))
        )
        made = BatchNorm if norm == "batch" else nn.LayerNorm
        hidden_types = self.types[1:-1] if norm != "none" else []
        self.norms = nn.ModuleList(nn.ModuleList(made(hidden) for _ in kinds) for kinds in hidden_types)

    def _layer(self, destinations: Sequence[str], width_in: int, width_out: int, heads: int) -> RelationalLayer:
        relations = [key for key in self.schema.relations if key[2] in destinations]
        kind = RelationalGat if self.name == "hetero-gat" else RelationalSage
        return kind(relations, destinations, width_in, width_out, self.generator, heads)

    def describe(self) -> dict[str, int]:
        """Return the bytes of the learned rows of types without features; their gradients and each of Adam's moments take as many."""
        learned = [one for one in self.inputs if isinstance(one, TypeInput) and one.bias is None]
        return {"embedding_bytes": sum(4 * one.rows * one.weight.shape[1] for one in learned)}

    @property
    def size(self) -> int:
        parts = [one for one in self.inputs if isinstance(one, TypeInput) and one.members is not None]
        return super().size + sum(one.rows * one.weight.shape[1] - one.weight.numel() for one in parts)

    @property
    def shards(self) -> dict[str, nn.Parameter]:
        """The learned rows of each type of which this rank holds a block row."""
        if self.learned is None:
            return {}
        return {f"inputs.{self.types[0].index(kind)}.weight": one.weight for kind, one in self.learned.inputs.items()}

    def learned_blocks(self, name: str) -> Layout:
        """Return the block rows of one of `shards`, by its name here or in a model that holds this one."""
        assert self.learned is not None
        return self.learned.blocks.of[self.types[0][int(name.split(".")[-2])]]

    def look_up(self, x: Any) -> Any:
        return x if self.learned is None else self.learned.look_up(x, next(self.layers.parameters()).device)

    def add_shard_gradients(self, codec: str) -> None:
        if self.learned is not None:
            self.learned.add_gradients(codec)

    def forward(
        self, blocks: Sequence[LayerBlocks], x: Mapping[str, Input], degrees: torch.Tensor | None = None, names: PassNames | None = None
    ) -> torch.Tensor:
        """Compute the output rows of the destinations of the target type in the last block; of links, then those of the other end's type.

        There are L blocks, from the input layer to the output layer, or `UsageError` is raised. `x` has the features of all vertices of the
        mini-batch by type, or their ids where a type has none; degrees are ignored. `names`, of these vertices, are those of `Gnn.forward`.
        The result has the shape (destinations, outputs).
        """
        _, h = self.last_rows(blocks, x, names)
        return h[self.schema.target] if len(h) == 1 else torch.cat([h[name] for name in self.schema.targets])

    def last_rows(self, blocks: Sequence[LayerBlocks], x: Mapping[str, Input], names: PassNames | None = None) -> tuple[Rows, Rows]:
        """Return the rows of each type that enter the last layer, and those that it gives; see `forward`."""
        check_blocks(self.layers, blocks)
        h = before = self.input_rows(x, names)
        for i, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            before, h = h, self.between(i, layer(block, h), names)
        return before, h

    def input_rows(self, x: Mapping[str, Input], names: PassNames | None = None) -> Rows:
        """Return the rows that enter the first layer, of features and learned rows; see `forward`."""
        rows = {}
        for name, layer in zip(self.types[0], self.inputs, strict=True):
            learned = isinstance(layer, TypeInput) and layer.bias is None
            made: torch.Tensor = layer(x[name] if learned else self.drop_input(x[name], names, kind=name))
            rows[name] = cast(torch.Tensor, self.drop_input(made, names, kind=name)) if learned else made
        return rows

    def between(self, i: int, z: Rows, names: PassNames | None = None) -> Rows:
        """Return the rows that follow layer i: with the bias; but after the last layer with norm, activation and dropout.

        They may lie in the memory of z.
        """
        layer, rows, kernels = cast(RelationalLayer, self.layers[i]), {}, None if names is None else names.kernels
        for place, name in enumerate(layer.destinations):
            h, bias, reuse = z[name], cast(torch.Tensor | None, layer.bias[place]), not has_hooks(layer)
            if i < len(self.layers) - 1:
                if len(self.norms):
                    norm = cast(nn.ModuleList, self.norms[i])[place]
                    h, bias, reuse = norm(epilogue(h, bias, kernels=kernels, reuse=reuse)), None, not has_hooks(norm)
                rows[name] = self.activated(h, bias, self.dropout, names, i + 1, name, reuse=reuse)
            else:
                rows[name] = epilogue(h, bias, kernels=kernels, reuse=reuse)
        return rows

"""The models: L layers with normalization, activation and dropout between them.

    h^0 = x;   h^l = dropout(act(norm(layer_l(h^(l-1)))))  for l < L;   logits = layer_L(h^(L-1))

A model takes blocks, so the same weights run on mini-batches of any sampler and, layer by layer, on the whole graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import nn

from ..backends.dropout import Mask, kept_parts
from ..config import MODELS
from ..errors import UsageError
from ..graph.minibatch import Block
from .dropout import PassNames, epilogue
from .gather import OwnAndMean
from .layers import FirstInput, GatLayer, GcnLayer, Input, Layer, PoolLayer, SageLayer

if TYPE_CHECKING:
    from ..config.train import TrainOptions


class Model(nn.Module):
    """A module that the loop trains. Its dropout draws by the names of rows, and what else is random from its own generator.

    The loop seeds the generator anew for every step; torch's global generator is left to other threads.
    """

    generator: torch.Generator
    input_dropout: float
    activation: Callable[[torch.Tensor], torch.Tensor] = staticmethod(F.relu)

    def describe(self) -> dict[str, int]:
        """Return the model's lines of the report."""
        return {}

    @property
    def size(self) -> int:
        """Number of parameters, those that other ranks hold included."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def shards(self) -> dict[str, nn.Parameter]:
        """The parameters of which each rank holds a block row, by name; all others are the same on every rank."""
        return {}

    @property
    def replicated(self) -> list[nn.Parameter]:
        """The parameters that are the same on every rank, in their order: all but `shards`."""
        sharded = {id(shard) for shard in self.shards.values()}
        return [parameter for parameter in self.parameters() if id(parameter) not in sharded]

    def look_up(self, x: FirstInput | None) -> FirstInput | None:
        """Replace what names learned rows of other ranks by these rows; collective if `shards` holds any. None stays None.

        Every batch is looked up once before `forward`; with gradients enabled, `add_shard_gradients` ends the step.
        """
        return x

    def add_shard_gradients(self, codec: str) -> None:
        """Set the gradients of `shards` to the sums over all look-ups of the step on all ranks; collective if there are any."""

    def drop_input(self, x: Input, names: PassNames | None, place: int = 0, kind: str | None = None) -> Input:
        """Apply dropout to the input while the model is in training mode; for sparse rows, to the stored values.

        `place` is among the dropouts of the input, and `kind` the type of the rows.
        """
        mask = self.mask(self.input_dropout, names, x.shape[0], 0, place, kind)
        if mask is None:
            return x
        assert names is not None
        if isinstance(x, torch.Tensor):
            return epilogue(x, mask=mask, kernels=names.kernels)
        return names.kernels.drop_entries(x.packed(), mask)

    def activated(
        self, z: torch.Tensor, bias: torch.Tensor | None, p: float, names: PassNames | None, layer: int, kind: str | None = None,
        reuse: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        """Compute dropout(act(z + b)), dropout with probability p while the model is in training mode; `reuse` is that of `epilogue`."""
        mask, kernels = self.mask(p, names, len(z), layer, 0, kind), None if names is None else names.kernels
        if self.activation is F.relu:
            return epilogue(z, bias, relu=True, mask=mask, kernels=kernels, reuse=reuse)
        return epilogue(self.activation(epilogue(z, bias, kernels=kernels, reuse=reuse)), mask=mask, kernels=kernels)

    def mask(self, p: float, names: PassNames | None, rows: int, layer: int, place: int, kind: str | None) -> Mask | None:
        """Return the mask of one dropout; None outside of training mode. Raises `UsageError` if the pass has no names."""
        if not (self.training and p):
            return None
        if names is None:
            raise UsageError("dropout draws by the names of rows: give the pass names=PassNames.of(minibatch), or call model.eval()")
        return names.mask(p, rows, layer, place, kind)


def has_hooks(module: nn.Module) -> bool:
    """Return True if hooks see the output of a module."""
    return bool(module._forward_hooks)


class Gnn(Model):
    """A graph neural network over blocks.

    Parameters
    ----------
    name : {"sage", "sage-pool", "gcn", "gat"}
    widths : sequence of int
        Widths of the input, the hidden layers and the output: L + 1 numbers.
    dropout, input_dropout : float
        Dropout on hidden rows, and on the input (for sparse inputs, on the stored values).
    batch_norm : bool
        Add a batch norm after every hidden layer. Its statistics are those of this rank's mini-batch.
    heads : int
        Attention heads of the hidden layers of "gat"; the output layer has one.
    seed : int
        Seed of the initial weights.
    layer_norm : bool
        Add a layer norm after every hidden layer.
    average_heads : bool
        Average the heads of hidden layers instead of concatenating them.

    Raises
    ------
    UsageError
        If the name is unknown, a hidden width is not a multiple of `heads`, or dropout is refused by `kept_parts`.
    """

    def __init__(
        self, name: str, widths: Sequence[int], dropout: float = 0.0, input_dropout: float = 0.0, batch_norm: bool = False,
        heads: int = 4, seed: int = 0, layer_norm: bool = False, average_heads: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if name not in MODELS:
            raise UsageError(f"there is no model {name!r}; use one of {', '.join(MODELS)}")
        self.name, self.widths, self.heads = name, tuple(widths), heads
        if name == "gat" and not average_heads:
            check_heads(widths[1:-1], heads)
        pairs = list(pairwise(widths))
        self.generator = torch.Generator().manual_seed(seed)
        inner = [i < len(pairs) - 1 for i in range(len(pairs))]
        self.layers = nn.ModuleList(
            self._layer(name, a, b, heads if hidden else 1, average_heads) for (a, b), hidden in zip(pairs, inner, strict=True)
        )
        norm = nn.LayerNorm if layer_norm else BatchNorm
        self.norms = nn.ModuleList(norm(width) for width in widths[1:-1] if batch_norm or layer_norm)
        for option, p in (("dropout", dropout), ("input_dropout", input_dropout)):
            kept_parts(p, option)
        self.dropout, self.input_dropout = dropout, input_dropout
        self.activation = F.elu if name == "gat" else F.relu

    def forward(self, blocks: Sequence[Block], x: FirstInput, degrees: torch.Tensor, names: PassNames | None = None) -> torch.Tensor:
        """Compute the logits of the destinations of the last block.

        Parameters
        ----------
        blocks : L blocks, from the input layer to the output layer
        x : shape (num_sources of blocks[0], width of the input)
            Or, for a model of "sage" without input dropout, an `OwnAndMean` in place of the input and of the first block: then there
            are L - 1 blocks.
        degrees : shape (num_sources of the first of these blocks,)
            (Weighted) degrees in the whole graph.
        names : PassNames, optional
            Of these sources; only dropout in training mode needs them.

        Raises
        ------
        UsageError
            If the number of blocks is not L, or names are missing.
        """
        steps: Sequence[Block | None] = [None, *blocks] if isinstance(x, OwnAndMean) else blocks
        check_blocks(self.layers, steps)
        h: FirstInput = x if isinstance(x, OwnAndMean) else self.drop_input(x, names)
        for i, (layer, block) in enumerate(zip(self.layers, steps, strict=True)):
            hooked = has_hooks(layer)  # which see the whole output, and may keep it
            z = layer(block, h, degrees if block is None else degrees[: block.num_sources], biased=hooked)
            h = self.between(i, z, names, reuse=not hooked, biased=hooked)
        assert isinstance(h, torch.Tensor)
        return h

    def checked(self, features: int, outputs: int) -> Gnn:
        """Return the model itself; raise `UsageError` if it takes other features, or gives another number of outputs."""
        if (self.widths[0], self.widths[-1]) != (features, outputs):
            widths = ", ".join(map(str, self.widths))
            raise UsageError(f"the model has widths {widths}, but the graph {features} features; use widths {features}, ..., {outputs}")
        return self

    def between(self, i: int, z: torch.Tensor, names: PassNames | None = None, reuse: bool = False, biased: bool = False) -> torch.Tensor:
        """Apply what follows the products of layer i: the bias; normalization, activation and dropout but after the last layer.

        With `reuse` the result may lie in the memory of z; with `biased`, z has the bias.
        """
        bias = None if biased else cast(Layer, self.layers[i]).bias
        kernels = None if names is None else names.kernels
        if i == len(self.layers) - 1:
            return epilogue(z, bias, kernels=kernels, reuse=reuse)
        if len(self.norms):
            norm = self.norms[i]
            z, bias, reuse = norm(epilogue(z, bias, kernels=kernels, reuse=reuse)), None, reuse and not has_hooks(norm)
        return self.activated(z, bias, self.dropout, names, i + 1, reuse=reuse)

    def _layer(self, name: str, width_in: int, width_out: int, heads: int, averaged: bool) -> Layer:
        if name == "gat":
            return GatLayer(width_in, width_out, heads, self.generator, averaged)
        kinds: dict[str, type[SageLayer | PoolLayer | GcnLayer]] = {"sage": SageLayer, "sage-pool": PoolLayer, "gcn": GcnLayer}
        return kinds[name](width_in, width_out, self.generator)


def check_heads(widths: Sequence[int], heads: int) -> None:
    """Raise `UsageError` if a hidden width is not a multiple of the number of heads."""
    if uneven := [width for width in widths if width % heads]:
        fits = f"use hidden {-(-uneven[0] // heads) * heads}"
        raise UsageError(f"hidden widths must be multiples of the number of heads: got {uneven[0]} with {heads} heads; {fits}")


def check_blocks(layers: nn.ModuleList, blocks: Sequence[Any]) -> None:
    """Raise `UsageError` unless there is a block for each layer."""
    if len(blocks) != len(layers):
        fits = "use one fanout for each layer"
        raise UsageError(f"a model of {len(layers)} layers needs as many blocks; the mini-batch has {len(blocks)}: {fits}")


class BatchNorm(nn.BatchNorm1d):
    """A batch norm that uses its running statistics for batches of fewer than two rows."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if self.training and len(input) < 2:
            return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        return super().forward(input)


def build(config: TrainOptions, num_features: int, num_classes: int, seed: int) -> Gnn:
    """Make the model of a configuration, with initial weights drawn from `seed`."""
    widths = [num_features, *[config.hidden] * (config.layers - 1), num_classes]
    return Gnn(config.model, widths, config.dropout, config.input_dropout, config.batch_norm, config.heads, seed, bool(config.layer_norm))


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switch a model to evaluation mode; afterwards, also after an error, each of its modules is in the mode that it was in before.

    So a module that the user keeps in evaluation mode, such as a frozen batch norm, stays in it.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training

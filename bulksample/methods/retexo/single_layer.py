"""One layer of a network, trained alone on inputs that do not change.

    z = layer(x);   h = act(norm(z));   logits = h W + b with a head of its own, or z itself for the last layer

The layer and its norm may belong to a `Gnn`, so that training its layers one after another trains that network.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from ...nn.layers import Layer
from ...nn.model import Model
from ...views.full_graph import FrozenInput


class SingleLayerModel(Model):
    """A layer, the norm and activation that follow it, and a head.

    Parameters
    ----------
    layer : Layer
    norm : Module, optional
    head : Linear, optional
        Without a head the layer makes the logits.
    activation : function
    generator : torch.Generator
    input_dropout, dropout : float
        Dropout on the input of the layer's weights, which for a linear layer is the aggregate; and on the input of the head.
    """

    def __init__(
        self, layer: Layer, norm: nn.Module | None, head: nn.Linear | None, activation: Callable[[torch.Tensor], torch.Tensor],
        generator: torch.Generator, input_dropout: float = 0.0, dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layer, self.norm, self.head = layer, norm, head
        self.activation, self.generator = activation, generator
        self.input_dropout, self.dropout = input_dropout, dropout

    def forward(self, x: FrozenInput) -> torch.Tensor:
        """Compute the logits of this rank's rows: shape (m, classes). Local."""
        return self.logits(self.rows(x))

    def rows(self, x: FrozenInput) -> torch.Tensor:
        """Compute z of this rank's rows: shape (m, width of the layer). Local."""
        return x.layer(self.layer, self, clean=True)

    def hidden(self, z: torch.Tensor) -> torch.Tensor:
        """Compute h, the input of the next layer of a network, from z."""
        return self.activation(z if self.norm is None else self.norm(z))

    def logits(self, z: torch.Tensor) -> torch.Tensor:
        """Compute the logits from z."""
        return z if self.head is None else self.head(self.drop(self.hidden(z), self.dropout))


def head(width: int, classes: int, generator: torch.Generator, bias: bool = True) -> nn.Linear:
    """Make a dense layer with initial weights from a generator."""
    made: nn.Linear = nn.utils.skip_init(nn.Linear, width, classes, bias=bias)  # type: ignore[no-untyped-call]
    nn.init.xavier_uniform_(made.weight, generator=generator)
    if bias:
        nn.init.zeros_(made.bias)
    return made

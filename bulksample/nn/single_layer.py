"""One layer of a network, trained alone on inputs that do not change.

    z = layer(x);   h = act(norm(z));   logits = h W + b with a head of its own, or z itself for the last layer

The layer and its norm may be those of a `Gnn`, so that training the stages one after another trains that network.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from ..views.full_graph import FrozenInput
from .layers import Layer
from .model import Model


class Stage(Model):
    """A layer, what follows it, and a head.

    Parameters
    ----------
    layer : Layer
    norm : Module, optional
    head : Linear, optional
        Without one the layer makes the logits.
    activation : function
    generator : torch.Generator
    input_dropout, dropout : float
        On what the layer mixes: where it is linear, dense inputs are aggregated as they are; and on what the head is given.
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
        """Logits of the own rows: shape (m, classes). Local."""
        return self.logits(self.rows(x))

    def rows(self, x: FrozenInput) -> torch.Tensor:
        """z of the own rows: shape (m, width of the layer). Local."""
        return x.layer(self.layer, self, clean=True)

    def hidden(self, z: torch.Tensor) -> torch.Tensor:
        """h, the input of the next layer of a network."""
        return self.activation(z if self.norm is None else self.norm(z))

    def logits(self, z: torch.Tensor) -> torch.Tensor:
        return z if self.head is None else self.head(self.drop(self.hidden(z), self.dropout))


def head(width: int, classes: int, generator: torch.Generator, bias: bool = True) -> nn.Linear:
    """A dense layer whose initial weights come from a generator."""
    made = nn.utils.skip_init(nn.Linear, width, classes, bias=bias)
    nn.init.xavier_uniform_(made.weight, generator=generator)
    if bias:
        nn.init.zeros_(made.bias)
    return made

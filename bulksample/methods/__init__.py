"""Methods that reduce communication. Each overrides the hooks of the training loop that its paper changes.

The table names the class of every method; `load` imports it. Reading the table loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ..errors import UsageError

if TYPE_CHECKING:
    from ..training.method import Method


class Entry(NamedTuple):
    """The place of a method's class."""

    module: str
    class_name: str


METHODS: dict[str, Entry] = {
    "sync": Entry("bulksample.training.method", "Method"),
    "full": Entry("bulksample.methods.full", "Full"),
    "retexo": Entry("bulksample.methods.retexo.method", "RETEXO"),
    "retexo-federated": Entry("bulksample.methods.retexo.federated", "FederatedRETEXO"),
    "grappa": Entry("bulksample.methods.grappa.method", "Grappa"),
    "cofree": Entry("bulksample.methods.cofree", "CoFree"),
    "bns": Entry("bulksample.methods.bns", "BNS"),
    "adaqp": Entry("bulksample.methods.adaqp.method", "AdaQP"),
    "random-tma": Entry("bulksample.methods.averaging.tma", "RandomTMA"),
    "super-tma": Entry("bulksample.methods.averaging.tma", "SuperTMA"),
    "psgd-pa": Entry("bulksample.methods.averaging.psgd_pa", "PSGDPA"),
    "llcg": Entry("bulksample.methods.averaging.llcg", "LLCG"),
}


def load(name: str) -> type[Method]:
    """Import the class of a method; raises `UsageError` if there is no such method."""
    if name not in METHODS:
        raise UsageError(f"there is no method {name!r}; use one of {', '.join(METHODS)}")
    module, class_name = METHODS[name]
    method: type[Method] = getattr(import_module(module), class_name)
    return method

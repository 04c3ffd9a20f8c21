"""Methods that reduce communication. Each overrides the hooks of the training loop that its paper changes.

The table names the class and the options of every method; `load` imports the class. Reading the table loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ..config.options import Options
from ..errors import UsageError, unknown
from .adaqp.options import AdaQPOptions
from .averaging.options import AveragingOptions, LLCGOptions, SuperTMAOptions
from .bns.options import BNSOptions
from .cofree.options import CoFreeOptions
from .grappa.options import GrappaOptions
from .retexo.options import FederatedRETEXOOptions, RETEXOOptions

if TYPE_CHECKING:
    from ..training.method import Method


class Entry(NamedTuple):
    """The class of a method, by module and name, and its options."""

    module: str
    class_name: str
    options: tuple[type[Options], ...] = ()


METHODS: dict[str, Entry] = {
    "sync": Entry("bulksample.training.method", "Method"),
    "full": Entry("bulksample.methods.full", "Full"),
    "retexo": Entry("bulksample.methods.retexo.method", "RETEXO", (RETEXOOptions,)),
    "retexo-federated": Entry("bulksample.methods.retexo.federated", "FederatedRETEXO", (FederatedRETEXOOptions,)),
    "grappa": Entry("bulksample.methods.grappa.method", "Grappa", (GrappaOptions,)),
    "cofree": Entry("bulksample.methods.cofree.method", "CoFree", (CoFreeOptions,)),
    "bns": Entry("bulksample.methods.bns.method", "BNS", (BNSOptions,)),
    "adaqp": Entry("bulksample.methods.adaqp.method", "AdaQP", (AdaQPOptions,)),
    "random-tma": Entry("bulksample.methods.averaging.tma", "RandomTMA", (AveragingOptions,)),
    "super-tma": Entry("bulksample.methods.averaging.tma", "SuperTMA", (AveragingOptions, SuperTMAOptions)),
    "psgd-pa": Entry("bulksample.methods.averaging.psgd_pa", "PSGDPA", (AveragingOptions,)),
    "llcg": Entry("bulksample.methods.averaging.llcg", "LLCG", (AveragingOptions, LLCGOptions)),
}


def load(name: str) -> type[Method]:
    """Import the class of a method; raises `UsageError` if there is no such method."""
    if name not in METHODS:
        raise UsageError(unknown("method", name, METHODS))
    method: type[Method] = getattr(import_module(METHODS[name].module), METHODS[name].class_name)
    return method

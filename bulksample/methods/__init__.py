"""Methods that reduce communication. Each overrides the hooks of the training loop that its paper changes.

The table names the class and the options of every method; `load` imports the class. Reading the table loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ..config.options import Options
from ..errors import UsageError, unknown
from . import options

if TYPE_CHECKING:
    from ..training.method import Method


class Entry(NamedTuple):
    """The class of a method, by module and name, and its options."""

    module: str
    class_name: str
    options: tuple[type[Options], ...] = ()


METHODS: dict[str, Entry] = {
    "sync": Entry("bulksample.training.method", "Method"),
    "full": Entry("bulksample.methods.full", "FullGraphMethod"),
    "retexo": Entry("bulksample.methods.retexo.method", "RETEXO", (options.RETEXOOptions,)),
    "retexo-federated": Entry("bulksample.methods.retexo.federated", "FederatedRETEXO", (options.FederatedRETEXOOptions,)),
    "grappa": Entry("bulksample.methods.grappa.method", "Grappa", (options.GrappaOptions,)),
    "cofree": Entry("bulksample.methods.cofree", "CoFree", (options.CoFreeOptions,)),
    "bns": Entry("bulksample.methods.bns", "BNS", (options.BNSOptions,)),
    "adaqp": Entry("bulksample.methods.adaqp.method", "AdaQP", (options.AdaQPOptions,)),
    "random-tma": Entry("bulksample.methods.averaging.variants", "RandomTMA", (options.AveragingOptions,)),
    "super-tma": Entry("bulksample.methods.averaging.variants", "SuperTMA", (options.AveragingOptions, options.SuperTMAOptions)),
    "psgd-pa": Entry("bulksample.methods.averaging.variants", "PSGDPA", (options.AveragingOptions,)),
    "llcg": Entry("bulksample.methods.averaging.variants", "LLCG", (options.AveragingOptions, options.LLCGOptions)),
}


def load(name: str) -> type[Method]:
    """Import the class of a method; raises `UsageError` if there is no such method."""
    if name not in METHODS:
        raise UsageError(unknown("method", name, METHODS))
    method: type[Method] = getattr(import_module(METHODS[name].module), METHODS[name].class_name)
    return method

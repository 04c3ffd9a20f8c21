"""Methods: what reduces communication, each as the few hooks of the one training loop that it changes."""

from __future__ import annotations

from ..config.train import TrainConfig
from ..errors import UsageError
from ..training.method import Method
from .adaqp.method import AdaQP
from .averaging.llcg import Llcg
from .averaging.psgd_pa import PsgdPa
from .averaging.tma import RandomTma, SuperTma
from .bns import Bns
from .cofree import CoFree
from .full import Full
from .grappa.method import Grappa
from .retexo.federated import Federated
from .retexo.method import Retexo

_ALL: tuple[type[Method], ...] = (Method, Full, Retexo, Federated, Grappa, CoFree, Bns, AdaQP, RandomTma, SuperTma, PsgdPa, Llcg)
METHODS: dict[str, type[Method]] = {method.name: method for method in _ALL}

__all__ = ["METHODS", "Method", "make"]


def make(config: TrainConfig) -> Method:
    """The method that a configuration names; raises `UsageError` where there is none, or its options have no meaning."""
    if config.method not in METHODS:
        raise UsageError(f"there is no method {config.method!r}; {', '.join(METHODS)} would fit")
    made = METHODS[config.method](config)
    if config.graph not in (None, *made.graphs):
        raise UsageError(f"the method {config.method!r} needs a graph that is {' or '.join(made.graphs)}; got {config.graph}")
    return made

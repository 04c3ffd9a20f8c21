"""Synthetic graphs: the same graph on any machine, from any back end, in chunks of any size."""

from .blockmodel import PRESETS, BlockModel
from .dcsbm import dcsbm
from .rmat import rmat

__all__ = ["PRESETS", "BlockModel", "dcsbm", "rmat"]

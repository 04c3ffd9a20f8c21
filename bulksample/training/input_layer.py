"""Choose how the first layer reads its input: features where they lie (fused), or rows that were gathered first.

    GraphSAGE: h = X_own W_own + (A X) W_mean        GCN: h = D' (D A X' + X'_own) W,  X' = D' X

A first layer needs own rows and means alone, and no weights to make them. So both are computed from the features at once,
on the thread that fetches; the rows of sources are never copied, and vertices of the last hop get no numbers. The loss has the bits of
gathered rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from torch import nn

from ..config.train import TrainOptions
from ..errors import UsageError
from ..graph.minibatch import Block
from ..layer_costs import narrows, reads_in_place
from ..loading.loader import BulkLoader
from ..nn.layers import GatLayer, GcnLayer, PoolLayer, SageLayer, input_factors
from ..nn.model import Gnn
from ..samplers import NodeWise, Sampler
from ..views.features import FeatureSource
from ..views.view import View


class InPlace(NamedTuple):
    """The features that a first layer averages where they lie, and the blocks whose rows it gathers all the same."""

    features: FeatureSource
    gathers: Callable[[Block], bool] | None = None  # None: none of them, so no block needs numbers


def read_in_place(
    config: TrainOptions, loader: BulkLoader, view: View, sampler: Sampler, module: nn.Module | None = None
) -> InPlace | None:  # fmt: skip
    """Return the features whose own rows and means the first layer computes where they lie; None if it gathers rows.

    With input_layer "auto", the first mini-batch of the loader decides, by `reads_in_place`: ranks may decide apart, since every mini-batch
    has the bits of gathered rows. A block for which W comes first is gathered. `module` is the user's, if there is one. Raises `UsageError`
    for "fused" where the first layer needs gathered rows.
    """
    if config.input_layer == "gathered" or why_gathered(config, view, sampler, module):
        return None
    width_in, width_out = view.num_features, config.hidden if config.layers > 1 or config.task != "nodes" else view.num_classes
    if config.input_layer == "auto" and not _pays(loader, width_in, width_out):
        return None
    features, gathers = view.features, None
    if config.model == "gcn":
        assert view.all_degrees is not None
        features = features.scaled(input_factors(view.all_degrees))
    if config.input_layer == "auto" and width_in > width_out:  # else no block is narrowed
        gathers = partial(_narrows, width_in, width_out)
    return InPlace(features, gathers)


def why_gathered(config: TrainOptions, view: View, sampler: Sampler, module: nn.Module | None = None) -> str:
    """Return `gathers_because`; raises `UsageError` for "fused" if it gives a reason."""
    why = gathers_because(config, view, sampler, module)
    if config.input_layer == "fused" and why:
        raise UsageError(f"the input layer needs gathered rows: {why}; got input_layer fused: use auto or gathered")
    return why


def _pays(loader: BulkLoader, width_in: int, width_out: int) -> bool:
    first = loader.first()
    if first is None:
        return False
    block = first.blocks[0]
    return reads_in_place(width_in, width_out, block.num_sources, block.num_destinations, block.num_edges)


def _narrows(width_in: int, width_out: int, block: Block) -> bool:
    return narrows(width_in, width_out, block.num_sources, block.num_destinations, block.num_edges)


def gathers_because(config: TrainOptions, view: View, sampler: Sampler, module: nn.Module | None = None) -> str:
    """Say why the first layer of a run needs gathered rows; empty if it does not."""
    if config.is_own_model or not (module is None or _takes_parts(module)):
        return "a model of yours takes the rows of all vertices, x"
    if config.is_relational:
        return f"model {config.model} multiplies the features of each type first"
    if config.model not in ("sage", "gcn"):
        return f"model {config.model} sends transformed rows"
    if config.input_dropout:
        return f"input_dropout {config.input_dropout} changes them"
    if config.model == "gcn" and config.feature_norm != "none":
        return f"rows of gcn with feature_norm {config.feature_norm} have two factors"
    if not (isinstance(sampler, NodeWise) and sampler.draws_by_row):
        return f"sampler {config.sampler} has few vertices for many edges"
    if view.features.is_sparse:
        return "the features are sparse, and multiplied first"
    return "" if view.features.can_average else "the features lie on other ranks, beyond the memory of the device, or not row after row"


def _takes_parts(module: nn.Module) -> bool:
    """Return True if a module passes its input to a first layer of ours and to nothing else: a subclass may read or change x."""
    return type(module) is Gnn and type(module.layers[0]) in (SageLayer, GcnLayer, PoolLayer, GatLayer)

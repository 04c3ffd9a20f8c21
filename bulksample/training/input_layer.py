"""Choose how the first layer reads its input: features where they lie (fused), or rows that were gathered first.

    GraphSAGE: h = X_own W_own + (A X) W_mean        GCN: h = D' (D A X' + X'_own) W,  X' = D' X

A first layer needs own rows and means alone, and no weights to make them. So both are computed from the features at once,
on the thread that fetches; the rows of sources are never copied, and vertices of the last hop get no numbers. The loss has the bits of
gathered rows.
"""

from __future__ import annotations

from torch import nn

from ..config.train import TrainOptions
from ..errors import UsageError
from ..layer_costs import reads_in_place
from ..loading.loader import BulkLoader
from ..nn.layers import GatLayer, GcnLayer, PoolLayer, SageLayer, input_factors
from ..nn.model import Gnn
from ..samplers import NodeWise, Sampler
from ..views.features import FeatureSource
from ..views.view import View


def read_in_place(
    config: TrainOptions, loader: BulkLoader, view: View, sampler: Sampler, module: nn.Module | None = None
) -> FeatureSource | None:  # fmt: skip
    """Return the features whose own rows and means the first layer computes where they lie; None if it gathers rows.

    With input_layer "auto", the first mini-batch of the loader decides, by `reads_in_place`. `module` is the user's, if there is one.
    Raises `UsageError` for "fused" where the first layer needs gathered rows.
    """
    if config.input_layer == "gathered":
        return None
    if why_gathered(config, view, sampler, module) or (config.input_layer == "auto" and not _pays(config, loader, view)):
        return None
    if config.model == "sage":
        return view.features
    assert view.all_degrees is not None
    return view.features.scaled(input_factors(view.all_degrees))


def why_gathered(config: TrainOptions, view: View, sampler: Sampler, module: nn.Module | None = None) -> str:
    """Return `gathers_because`; raises `UsageError` for "fused" if it gives a reason."""
    why = gathers_because(config, view, sampler, module)
    if config.input_layer == "fused" and why:
        raise UsageError(f"the input layer needs gathered rows: {why}; got input_layer fused: use auto or gathered")
    return why


def _pays(config: TrainOptions, loader: BulkLoader, view: View) -> bool:
    first = loader.first()
    if first is None:
        return False
    block, width_out = first.blocks[0], config.hidden if config.layers > 1 or config.task == "links" else view.num_classes
    return reads_in_place(view.num_features, width_out, block.num_sources, block.num_destinations, block.num_edges)


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
    if not (isinstance(sampler, NodeWise) and sampler.draws_by_row):
        return f"sampler {config.sampler} has few vertices for many edges"
    if view.features.is_sparse:
        return "the features are sparse, and multiplied first"
    return "" if view.features.in_place else "the features lie on other ranks, beyond the memory of the device, or not row after row"


def _takes_parts(module: nn.Module) -> bool:
    """Return True if a module passes its input to a first layer of ours and to nothing else: a subclass may read or change x."""
    return type(module) is Gnn and type(module.layers[0]) in (SageLayer, GcnLayer, PoolLayer, GatLayer)

"""Predict how the first layer of a run reads its input, by the rule of training: features where they lie, or gathered rows."""

from __future__ import annotations

from ..layer_costs import reads_in_place
from .request import PlanRequest
from .sizes import Sizes
from .traffic import CandidateGrid


def fuses_input(request: PlanRequest, sizes: Sizes, grid: CandidateGrid) -> bool:
    """Return True if own rows and means of the first layer are computed where the features lie (`train --input-layer auto`)."""
    here = grid.placed == "replicated" or (grid.placed in ("host", "machine") and not request.has_devices)
    if not here or request.sampler != "sage":
        return False
    hop = sizes.hops[-1]
    return reads_in_place(request.feature_width, request.widths[1], hop.sources, hop.destinations, hop.block_edges)

"""The placement of a run: what its options name, where its method can train."""

from __future__ import annotations

from collections.abc import Sequence

from ..config.train import TrainOptions
from ..distributed.comm.base import Comm
from ..distributed.matrix.grid import choose_order
from ..distributed.matrix.placement import Placement
from ..errors import UsageError


def placed(config: TrainOptions, method: str, topologies: Sequence[str], features: Sequence[str], comm: Comm) -> Placement:
    """Return the placement that a run asks for; sends nothing.

    Parameters
    ----------
    method : str
    topologies, features : sequences of str
        The placements on which the method can train; the first topology is its default.

    Raises
    ------
    UsageError
        On every rank, if the method cannot train there, or the placement does not fit the ranks.
    """
    if config.graph not in (None, *topologies):
        raise UsageError(f"the method {method!r} needs a {' or '.join(topologies)} graph; got graph {config.graph}")
    placement = Placement.of(config, topologies[0])
    for what, where, fits in (("topology", placement.topology, topologies), ("features", placement.features, features)):
        if where not in fits:
            raise UsageError(f"the method {method!r} needs {what} {' or '.join(fits)}; got {what} {where}")
    choose_order(comm, placement.grid_order)
    return placement

"""Open relations in block rows by the policy of a placement."""

from __future__ import annotations

from collections.abc import Sequence

from ...backends.base import Backend
from ...graph import Graph
from .placement import Placement
from .relation_blocks import PartitionedRelations, RelationBlock
from .relation_owner import OwnerRelations
from .relation_rows import RowsRelations
from .type_layouts import TypeLayouts


def open_relations(
    placement: Placement, graph: Graph, backend: Backend, blocks: TypeLayouts, held: Sequence[RelationBlock]
) -> PartitionedRelations:  # fmt: skip
    """Return relations in block rows, for samplers; collective. See `PartitionedRelations` for the arguments."""
    if placement.exchange == "owner":
        return OwnerRelations(graph, backend, blocks, held)
    return RowsRelations(graph, backend, blocks, held, placement.oblivious)

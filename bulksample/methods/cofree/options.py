"""Options of CoFree-GNN."""

from typing import ClassVar, Literal

from pydantic import Field

from ...config.options import Options


class CoFreeOptions(Options):
    """Options of training on parts of the edges."""

    group, title = "cofree", "Method cofree"
    methods: ClassVar[tuple[str, ...]] = ("cofree",)
    vertex_cut: Literal["random", "degree"] = Field("degree", description="The rule that assigns edges to ranks.")
    drop_edge: float = Field(0.0, ge=0, lt=1, description="The share of edges that each mask leaves out.")
    edge_masks: int = Field(10, ge=1, description="Number of masks; they are drawn once and used in turn.")

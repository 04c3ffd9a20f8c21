"""Options of Grappa."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ...config.options import Options


class GrappaOptions(Options):
    """Options of views that are swapped."""

    group, title = "grappa", "Method grappa"
    methods: ClassVar[tuple[str, ...]] = ("grappa",)
    view: Literal["strict", "halo", "base"] = Field(
        "halo", description="The part of the graph that a rank sees: its chunks alone, with their halo, or its own chunk.",
    )  # fmt: skip
    view_chunks: int = Field(2, ge=1, description="Chunks of a view, including the rank's own.")
    chunking: Literal["static", "fresh"] = Field("static", description="Chunks are block rows (static), or drawn anew for every view.")
    swap_every: int = Field(10, ge=0, description="Epochs on a view; 0 keeps the first view.")
    halo_rows: int | None = Field(None, ge=1, description="Largest number of halo rows on a rank; all by default.")
    seed_weights: Literal["node", "batch", "none", "tree"] = Field(
        "node", description="Weights of seeds: by coverage of each seed or of the batch, none, or by the sampled tree.",
    )  # fmt: skip
    weight_hops: int = Field(0, ge=0, description="Hops of the coverage; 0 takes as many as there are layers.")
    weight_cap: float = Field(1.0, gt=0, le=1, description="Quantile above which weights of a step are cut; 1 cuts none.")
    shrink: Literal["ess"] | Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="ess, or a number from 0 (uniform weights) to 1 (weights as they are). Default: ess, or 1 for tree weights.",
    )  # fmt: skip
    full_graph: bool = Field(False, description="Make one pass over the whole view in each step.")

    def check_together(self) -> None:
        if self.halo_rows and self.view != "halo":
            raise ValueError(f"halo_rows limits the halo of a view; got {self.halo_rows} with view {self.view!r}: use view halo")

"""Options of the methods, a class for each. No torch is imported here."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ..config.options import Options

AVERAGING = ("random-tma", "super-tma", "psgd-pa", "llcg")  # methods that average the weights of trainers
_ELASTIC = ("trainers", "listen", "grace", "redivide_after", "max_update")  # options of trainers that may fail


class AdaQPOptions(Options):
    """Options of messages of few bits."""

    group, title = "adaqp", "Method adaqp"
    methods: ClassVar[tuple[str, ...]] = ("adaqp",)
    bits: Literal["2", "4", "8", "16", "32", "uniform", "random", "adaptive"] = Field(
        "adaptive", description="Bits of a number in a message; uniform, random and adaptive choose among 2, 4 and 8.",
    )  # fmt: skip
    reassign_every: int = Field(20, ge=2, description="Epochs between two choices of bits.")
    variance_weight: float = Field(0.5, ge=0, le=1, description="Weight of noise against time in the choice of bits.")
    noise_weights: Literal["sum_of_squares", "squared_sum"] = Field(
        "sum_of_squares", description="Noise that a message adds: the variance (sum_of_squares), or as published (squared_sum).",
    )  # fmt: skip
    links: str = Field("even", description="Speed of links: even, measured, or a JSON file with theta and gamma of each pair of ranks.")
    message_header: Literal["bf16", "fp32"] = Field("bf16", description="Type of the scale and the offset of a message.")
    message_rounding: Literal["stochastic", "nearest"] = Field("stochastic", description="Rounding of numbers in a message.")
    message_coding: Literal["plain", "difference", "feedback"] = Field(
        "plain", description="What is rounded: rows, their change since the last message, or rows plus the last error.",
    )  # fmt: skip


class BNSOptions(Options):
    """Options of boundary-node sampling."""

    group, title = "bns", "Method bns"
    methods: ClassVar[tuple[str, ...]] = ("bns",)
    boundary_share: float = Field(0.1, gt=0, le=1, description="The probability with which a halo row travels.")


class CoFreeOptions(Options):
    """Options of training on parts of the edges."""

    group, title = "cofree", "Method cofree"
    methods: ClassVar[tuple[str, ...]] = ("cofree",)
    vertex_cut: Literal["random", "degree"] = Field("degree", description="The rule that assigns edges to ranks.")
    drop_edge: float = Field(0.0, ge=0, lt=1, description="The share of edges that each mask leaves out.")
    edge_masks: int = Field(10, ge=1, description="Number of masks; they are drawn once and used in turn.")


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


class RETEXOOptions(Options):
    """Options of training layer by layer."""

    group, title = "retexo", "Method retexo"
    methods: ClassVar[tuple[str, ...]] = ("retexo",)
    refine: int = Field(0, ge=0, lt=2**20, description="Rounds of the whole network after the last stage.")


class FederatedRETEXOOptions(Options):
    """Options of training layer by layer with many clients."""

    group, title = "retexo-federated", "Method retexo-federated"
    methods: ClassVar[tuple[str, ...]] = ("retexo-federated",)
    client_vertices: int = Field(1, ge=1, description="Largest number of vertices of a client.")


class AveragingOptions(Options):
    """Options of trainers on parts, whose weights are averaged."""

    group, title = "averaging", f"Methods {', '.join(AVERAGING)}"
    methods: ClassVar[tuple[str, ...]] = AVERAGING
    free: ClassVar[tuple[str, ...]] = ("listen", "join", "token_file", "grace", "redivide_after", "max_update")
    interval: str = Field(
        "epoch", pattern=r"^(epoch|[1-9][0-9]*|[0-9]+(\.[0-9]+)?s)$",
        description="Interval between averages: epoch, a number of steps, or seconds such as 2s.",
    )  # fmt: skip
    interval_growth: float = Field(1.0, ge=1, description="Length of each interval over the one before.")
    average_by: Literal["responders", "steps", "vertices"] = Field(
        "responders", description="Weight of a trainer in an average: 1 (responders), its steps, or its vertices.",
    )  # fmt: skip
    lost_parts: int = Field(0, ge=0, description="Number of parts without a trainer, to measure what losing them costs.")
    tolerate_failures: bool = Field(False, description="Trainers are separate processes and may die, be late or join.")
    trainers: int = Field(3, ge=1, description="Number of trainers beside the server, with --tolerate-failures.")
    listen: str = Field("127.0.0.1:0", description="HOST:PORT for trainers; port 0 starts trainers on this machine.")
    join: str | None = Field(None, description="Be a trainer of the run that listens at HOST:PORT, with its options.")
    token_file: str | None = Field(
        None, description="File of mode 600 with the token of the run, for --listen and --join; BULKSAMPLE_TOKEN by default.",
    )  # fmt: skip
    max_update: float = Field(
        1000.0, gt=0, description="Norm of a trainer's update, in norms of the weights it was given, above which the server refuses it.",
    )  # fmt: skip
    grace: float | None = Field(None, gt=0, description="Seconds to wait for late trainers; by default 5, or 3 slow steps if longer.")
    redivide_after: float | None = Field(
        None, ge=0, description="Seconds after which the part of a lost trainer is divided among the others; never by default.",
    )  # fmt: skip

    def check_together(self) -> None:
        if self.interval.endswith("s") and not self.tolerate_failures:
            raise ValueError(f"an interval in seconds needs tolerate_failures; got {self.interval!r}: use a number of steps")
        elastic = [name for name in _ELASTIC if getattr(self, name) != type(self).model_fields[name].default]
        if elastic and not self.tolerate_failures:
            raise ValueError(f"{elastic[0]} is for trainers that may fail; use tolerate_failures")
        if self.token_file and not (self.tolerate_failures or self.join):
            raise ValueError(f"token_file is for trainers that may fail; got {self.token_file}: use tolerate_failures, or join='HOST:PORT'")
        if self.tolerate_failures and self.average_by == "steps" and self.interval.endswith("s"):
            raise ValueError(
                f"a server cannot know the steps of an interval in seconds; got average_by steps with interval {self.interval}: "
                "use responders or vertices, or a number of steps"
            )
        if self.tolerate_failures and self.interval_growth != 1:
            raise ValueError(f"intervals grow only if trainers are ranks of a job; got interval_growth {self.interval_growth}: use 1")


class SuperTMAOptions(Options):
    """Options of parts made of random clusters."""

    group, title = "super-tma", "Method super-tma"
    methods: ClassVar[tuple[str, ...]] = ("super-tma",)
    clusters: int | None = Field(None, ge=1, description="Number of clusters of all parts together; by default 16 for each part.")


class LLCGOptions(Options):
    """Options of a server that corrects averages."""

    group, title = "llcg", "Method llcg"
    methods: ClassVar[tuple[str, ...]] = ("llcg",)
    server_steps: int = Field(1, ge=0, description="Steps on the whole graph after every average.")
    server_lr: float | None = Field(None, gt=0, description="Learning rate of these steps; --lr by default.")

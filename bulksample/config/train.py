"""What a run is asked to do: typed, bounded, and the same on every rank.

Every option is declared here and nowhere else, in the class of its group; see `options`. An option of a new method goes into a group
of its own, which names the method and is added to the bases of `TrainConfig`. No torch in here, so a bad option is refused before
anything heavy is loaded.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from ..errors import UsageError
from .options import BulkSize, Fanouts, Options, SamplerOptions, Several, fanout_list

DEFAULT_FANOUTS = (15, 10, 5)

# Fields that do not change what is computed, only how far, how fast or where: a resumed run may set them anew.
FREE = frozenset({
    "epochs", "patience", "bulk_size", "backend", "threads", "sampling_threads", "timeout", "checkpoint", "checkpoint_every", "resume",
    "metrics", "track", "quiet", "memory_budget", "graph", "replication", "exchange", "partition", "cache_bytes", "cache_by",
    "overlap", "fetch_together", "listen", "join", "grace", "redeal_after", "device", "device_comm",
})  # fmt: skip

AVERAGED = ("random-tma", "super-tma", "psgd-pa", "llcg")  # methods that average the weights of trainers
ELASTIC = ("trainers", "listen", "grace", "redeal_after")  # options of trainers that may fail


class Common(Options):
    """What every command that draws anything is asked."""

    title = "Common"
    seed: int = Field(0, ge=0, lt=2**64, description="Everything random is a function of it.")


class Method(Options):
    """How ranks work together."""

    title = "Common"
    method: str = Field("sync", description="How ranks work together: sync averages gradients at every step.")


class Model(Options):
    """The network."""

    group, title = "model", "Model"
    model: Literal["sage", "sage-pool", "gcn", "gat"] = Field("sage", description="The layer.")
    layers: int = Field(3, ge=1, le=64, description="As many as there are fanouts, unless given.")
    hidden: int = Field(256, ge=2, description="Width of the hidden layers.")
    heads: int = Field(4, ge=1, description="Attention heads of the hidden layers (gat).")
    dropout: float = Field(0.5, ge=0, lt=1, description="On hidden rows.")
    input_dropout: float = Field(0.0, ge=0, lt=1, description="On the input; of sparse features, on the stored values.")
    batch_norm: bool = Field(False, description="After every hidden layer.")
    layer_norm: bool = Field(False, description="After every hidden layer, over each row.")


class Sampling(Options):
    """What is drawn, and how much at once."""

    group, title = "sampling", "Sampling"
    sampler: str = Field("sage", description="sage, ladies, fastgcn, labor, full, shadow or saint.")
    fanouts: Fanouts = Field(DEFAULT_FANOUTS, description="Per hop from the seeds on; -1 takes all.")
    sampler_options: SamplerOptions = Field({}, description="Of the sampler, such as replace=true or importance=squared_sum.")
    frontier: Literal["all", "new"] = Field("all", description="all: expand every vertex again in each layer; new: only fresh ones.")
    batch_size: int = Field(1024, ge=1, description="Seeds of one minibatch, on one rank.")
    bulk_size: BulkSize = Field("auto", description="Minibatches sampled in one call, or auto.")
    memory_budget: int | None = Field(None, ge=1, description="Bytes for sampled minibatches, for --bulk-size auto.")
    seeds: Literal["train", "val", "test", "all"] | None = Field(None, description="The seeds; train where there is such a mask.")


class Data(Options):
    """What is learned from."""

    group, title = "data", "Data"
    task: Literal["nodes", "links"] = Field("nodes", description="Classify vertices, or tell edges from pairs that are none.")
    decoder: Literal["dot", "mlp"] = Field("dot", description="The score of a pair (links).")
    exclude_targets: Literal["none", "self", "both"] = Field(
        "none", description="No messages along the edges that a minibatch is asked about, or along their reverse too (links).",
    )  # fmt: skip
    label: str | None = Field(None, description="Another column of the graph as the label.")
    feature_norm: Literal["none", "l1", "l2"] = Field("none", description="Divide each row by its norm.")
    feature_storage: Literal["given", "fp16", "bf16"] = Field("given", description="As what features are held, if replicated.")


class Optimiser(Options):
    """How weights move."""

    group, title = "optimiser", "Optimiser"
    epochs: int = Field(10, ge=0, lt=2**20)
    lr: float = Field(0.003, gt=0, description="Learning rate of Adam.")
    weight_decay: float = Field(0.0, ge=0)


class Evaluation(Options):
    """Which weights are best."""

    group, title = "evaluation", "Evaluation"
    metric: str = Field(
        "accuracy", pattern=r"^(accuracy|f1|f1_macro|f1_micro|rocauc|mrr|hits@[1-9][0-9]*)$",
        description="accuracy, f1 (macro), f1_micro or rocauc; of links mrr or hits@10; decides which weights are best.",
    )  # fmt: skip
    eval_every: int = Field(1, ge=1, description="Evaluate after so many epochs, and after the last.")
    patience: int = Field(0, ge=0, description="Stop after so many evaluations without a better one; 0 never does.")


class Distribution(Options):
    """Where the graph lies."""

    group, title = "distribution", "Distribution"
    graph: Literal["replicated", "partitioned"] | None = Field(None, description="Whole on every rank, or in block rows.")
    replication: int = Field(1, ge=1, description="c of the p/c x c process grid, where the graph is partitioned.")
    exchange: Literal["owner", "rows", "rows-oblivious"] = Field("owner", description="Of rows, where the graph is partitioned.")
    partition: str = Field("block", description="block, random, metis, super, or a file that `bulksample partition` wrote.")


class Traffic(Options):
    """What travels between ranks, and how."""

    group, title = "traffic", "Traffic"
    form: Literal["strong", "naive"] = Field("strong", description="naive: full-graph methods send the constant input in every epoch.")
    overlap: bool = Field(True, description="Full-graph methods compute rows without remote neighbours while messages travel.")
    feature_codec: Literal["fp32", "fp16", "bf16", "int8", "int4", "int2"] = Field("fp32", description="How features travel.")
    cache_bytes: int = Field(0, ge=0, description="Of every rank, for features that are often asked for, if partitioned.")
    cache_by: Literal["degree", "frequency"] = Field("degree", description="Which features are hot; frequency in the first minibatches.")
    fetch_together: int = Field(1, ge=1, description="Minibatches that fetch features at once, each row once, if partitioned.")
    gradient_codec: Literal["fp32", "fp16", "bf16"] = Field("fp32", description="How gradients travel.")


class Running(Options):
    """On what it runs, and how long a rank is waited for."""

    group, title = "running", "Running"
    backend: str = Field("auto", description="auto, native, reference or cuda.")
    threads: int | None = Field(None, ge=1, description="Per rank; a fair share of the processors unless given.")
    timeout: float = Field(300.0, gt=0, description="Seconds that a rank waits for the others.")


class Computing(Options):
    """Where the model is trained."""

    group, title = "computing", "Computing"
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where the model is trained; auto: on a GPU that is there and can.")
    precision: Literal["fp32", "tf32", "bf16"] = Field("fp32", description="Of products with weights; sums over edges are fp32.")
    device_comm: Literal["auto", "host", "nccl", "mpi"] = Field("auto", description="How devices reach each other; auto: NCCL if it can.")


class Ahead(Options):
    """How the threads of a rank are divided."""

    group, title = "running", "Running"
    sampling_threads: int | None = Field(None, ge=0, description="Of --threads, that sample ahead; 0: none. By their number unless given.")


class Output(Options):
    """What is written and kept."""

    group, title = "output", "Output"
    checkpoint: str | None = Field(None, description="Directory for checkpoints, written after every epoch.")
    checkpoint_every: int = Field(0, ge=0, description="And after so many steps.")
    resume: str | None = Field(None, description="auto: the newest checkpoint of --checkpoint, if any; or the path of one.")
    metrics: str | None = Field(None, description="JSON lines of every epoch; CHECKPOINT/metrics.jsonl, or beside --json, unless given.")
    track: Several = Field((), description="tensorboard:DIR, wandb:PROJECT or mlflow:URI; may be repeated.")
    quiet: bool = Field(False, description="No progress bar, no table.")


class AdaQP(Options):
    """Messages of few bits."""

    group, title = "adaqp", "Method adaqp"
    methods: ClassVar[tuple[str, ...]] = ("adaqp",)
    bits: Literal["2", "4", "8", "16", "32", "uniform", "random", "adaptive"] = Field("adaptive", description="Of a number in a message.")
    reassign_every: int = Field(20, ge=2, description="Epochs between two assignments of widths.")
    variance_weight: float = Field(0.5, ge=0, le=1, description="Of noise against time, in choosing widths.")
    noise_weights: Literal["sum_of_squares", "squared_sum"] = Field("sum_of_squares", description="squared_sum is as published.")
    links: str = Field("even", description="even, measured, or a JSON file with theta and gamma of each pair of ranks.")
    message_header: Literal["bf16", "fp32"] = Field("bf16", description="The grid of a message.")
    message_rounding: Literal["stochastic", "nearest"] = Field("stochastic")
    message_coding: Literal["plain", "difference", "feedback"] = Field("plain")


class BNS(Options):
    """A sample of the boundary."""

    group, title = "bns", "Method bns"
    methods: ClassVar[tuple[str, ...]] = ("bns",)
    boundary_share: float = Field(0.1, gt=0, le=1, description="The probability with which a halo row travels.")


class CoFree(Options):
    """Parts that never speak of rows."""

    group, title = "cofree", "Method cofree"
    methods: ClassVar[tuple[str, ...]] = ("cofree",)
    vertex_cut: Literal["random", "degree"] = Field("degree", description="How edges are dealt.")
    drop_edge: float = Field(0.0, ge=0, lt=1, description="The share of edges that each of the masks leaves out.")
    edge_masks: int = Field(10, ge=1, description="Masks that are drawn once and used in turn.")


class Grappa(Options):
    """Views that are swapped."""

    group, title = "grappa", "Method grappa"
    methods: ClassVar[tuple[str, ...]] = ("grappa",)
    view: Literal["strict", "halo", "base"] = Field("halo", description="What a rank sees of the graph.")
    view_chunks: int = Field(2, ge=1, description="Chunks of a view, the rank's own included.")
    chunking: Literal["static", "fresh"] = Field("static", description="static: the block rows; fresh: dealt anew for every view.")
    swap_every: int = Field(10, ge=0, description="Epochs on a view; 0 keeps the first.")
    halo_rows: int | None = Field(None, ge=1, description="At most so many rows of the halo on a rank.")
    seed_weights: Literal["node", "batch", "none", "tree"] = Field("node", description="By coverage of a seed by its view.")
    weight_hops: int = Field(0, ge=0, description="Hops that coverage is of; 0: as many as there are layers.")
    weight_cap: float = Field(1.0, gt=0, le=1, description="Quantile at which weights of a step are cut; 1 cuts none.")
    shrink: Literal["ess"] | Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="ess, or from 0, uniform weights, to 1, weights as they are. ess, or 1 where weights are of trees."
    )
    full_graph: bool = Field(False, description="A step is one pass over the whole view.")


class Retexo(Options):
    """Layer by layer."""

    group, title = "retexo", "Method retexo"
    methods: ClassVar[tuple[str, ...]] = ("retexo",)
    refine: int = Field(0, ge=0, lt=2**20, description="Rounds end to end after the last stage.")


class RetexoFederated(Options):
    """Layer by layer, with many clients."""

    group, title = "retexo-federated", "Method retexo-federated"
    methods: ClassVar[tuple[str, ...]] = ("retexo-federated",)
    client_vertices: int = Field(1, ge=1, description="Vertices of a client, at most.")


class Averaging(Options):
    """Trainers on parts, whose weights are averaged."""

    group, title = "averaging", f"Methods {', '.join(AVERAGED)}"
    methods: ClassVar[tuple[str, ...]] = AVERAGED
    interval: str = Field(
        "epoch", pattern=r"^(epoch|[1-9][0-9]*|[0-9]+(\.[0-9]+)?s)$",
        description="Between averages: epoch, a number of steps, or seconds such as 2s.",
    )  # fmt: skip
    interval_growth: float = Field(1.0, ge=1, description="Of each interval over the one before.")
    average_by: Literal["responders", "steps", "vertices"] = Field("responders", description="Weights of an average.")
    lost_parts: int = Field(0, ge=0, description="Parts that are dealt and that nobody trains on.")
    tolerate_failures: bool = Field(False, description="Trainers are processes of their own and may die, be late or join.")
    trainers: int = Field(3, ge=1, description="So many, beside this process, where failures are tolerated.")
    listen: str = Field("127.0.0.1:0", description="HOST:PORT for trainers; with port 0, trainers are started here.")
    join: str | None = Field(None, description="Be a trainer of the run that listens at HOST:PORT, with its options.")
    grace: float | None = Field(None, gt=0, description="Seconds to wait for late trainers; 5 or 3 slow steps unless given.")
    redeal_after: float | None = Field(
        None, ge=0, description="Seconds after which the part of a lost trainer is dealt to the others; never unless given.",
    )  # fmt: skip


class SuperTMA(Options):
    """Super-nodes."""

    group, title = "super-tma", "Method super-tma"
    methods: ClassVar[tuple[str, ...]] = ("super-tma",)
    clusters: int | None = Field(None, ge=1, description="Super-nodes of all parts together; 16 for each part unless given.")


class LLCG(Options):
    """A server that corrects."""

    group, title = "llcg", "Method llcg"
    methods: ClassVar[tuple[str, ...]] = ("llcg",)
    server_steps: int = Field(1, ge=0, description="On the whole graph, after every average.")
    server_lr: float | None = Field(None, gt=0, description="Learning rate of those; --lr unless given.")


class TrainConfig(
    Method, Common, Model, Sampling, Data, Optimiser, Evaluation, Distribution, Traffic, Running, Ahead, Computing, Output,
    AdaQP, BNS, CoFree, Grappa, Retexo, RetexoFederated, Averaging, SuperTMA, LLCG,
):  # fmt: skip
    """One training run. `TrainConfig.of` raises `UsageError` where pydantic would raise its own error."""

    @model_validator(mode="before")
    @classmethod
    def _depth(cls, given: Any) -> Any:
        """Layers follow the fanouts, or the fanouts the layers, where only one of them is given."""
        if not isinstance(given, dict):
            return given
        given = {key: value for key, value in given.items() if value is not None}
        if given.get("task") == "links":
            given.setdefault("metric", "mrr")
        if "fanouts" in given and "layers" not in given:
            with suppress(UsageError):  # which the field itself will raise
                given["layers"] = len(fanout_list(given["fanouts"]))
        if "layers" in given and "fanouts" not in given and str(given["layers"]).isdigit():
            given["fanouts"] = (DEFAULT_FANOUTS + DEFAULT_FANOUTS[-1:] * int(given["layers"]))[: int(given["layers"])]
        return given

    @model_validator(mode="after")
    def _together(self) -> TrainConfig:
        if self.sampler != "shadow" and self.layers != len(self.fanouts):
            raise ValueError(f"{self.layers} layers need as many fanouts; got {','.join(map(str, self.fanouts))}")
        if self.resume and self.resume == "auto" and not self.checkpoint:
            raise ValueError("resume auto looks for checkpoints where checkpoint says; give --checkpoint DIR")
        if self.checkpoint_every and not self.checkpoint:
            raise ValueError("checkpoint_every needs a place; give --checkpoint DIR")
        if self.batch_norm and self.layer_norm:
            raise ValueError("batch_norm and layer_norm stand in the same place; one of them would fit")
        self.refuse_strangers(self.method)
        if self.halo_rows and self.view != "halo":
            raise ValueError(f"halo_rows are of a view with a halo; got {self.view!r}")
        self._averaged()
        self._linked()
        return self

    def _linked(self) -> None:
        """Raise `ValueError` for what has no meaning for the task."""
        ranked = self.metric == "mrr" or self.metric.startswith("hits@")
        if ranked != (self.task == "links"):
            fit = "mrr or hits@10" if self.task == "links" else "accuracy, f1 or rocauc"
            raise ValueError(f"the metric of the task {self.task!r} was {self.metric!r}; {fit} would fit")
        if (self.decoder, self.exclude_targets) != ("dot", "none") and self.task != "links":
            raise ValueError(f"a decoder, and targets to exclude, are of the task 'links'; got {self.task!r}")
        if self.task == "links" and self.method not in ("sync", *AVERAGED):
            raise ValueError(f"the task 'links' is of the methods {', '.join(('sync', *AVERAGED))}; got {self.method!r}")
        if self.task == "links" and self.method == "sync" and self.graph == "partitioned":
            raise ValueError("link prediction needs the edges beside it; graph replicated would fit")

    def _averaged(self) -> None:
        """Raise `ValueError` for options of methods that average weights, where they have no meaning."""
        if self.method in AVERAGED and self.interval.endswith("s") and not self.tolerate_failures:
            raise ValueError(f"an interval by the clock needs tolerate_failures; got {self.interval!r}: a number of steps would fit")
        apart = [name for name in ELASTIC if getattr(self, name) != type(self).model_fields[name].default]
        if apart and not self.tolerate_failures:
            raise ValueError(f"{apart[0]} is of trainers that may fail; give --tolerate-failures")
        if self.tolerate_failures and self.interval_growth != 1:
            raise ValueError(f"intervals grow where trainers are ranks of a job; got {self.interval_growth}: 1 would fit")

    def computed(self) -> dict[str, Any]:
        """The part that decides what is computed: equal parts give equal runs."""
        return {key: value for key, value in self.model_dump(mode="json").items() if key not in FREE}


class Epoch(Options):
    """Which minibatches of an epoch are sampled, and how they are witnessed."""

    group, title = "epoch", "Epoch"
    epoch: int = Field(0, ge=0, description="Its number, which the draws depend on.")
    minibatches: int | None = Field(None, ge=1, description="Only the first so many of the epoch.")
    drop_last: bool = Field(False, description="Leave out a last minibatch that is not full.")
    digest: bool = Field(True, description="Witness the minibatches by a SHA-256 (not timed).")


class SampleConfig(Common, Sampling, Epoch, Distribution, Running):
    """One epoch of sampling, by the options of `TrainConfig` that say what is drawn and where, and a few of its own."""

    @model_validator(mode="before")
    @classmethod
    def _given(cls, given: Any) -> Any:
        return {key: value for key, value in given.items() if value is not None} if isinstance(given, dict) else given

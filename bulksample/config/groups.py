"""Groups of options that every method of training shares. Each option is declared here and nowhere else."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from ..errors import UsageError, instead_of
from . import DEFAULT_FANOUTS, MODELS, RELATIONAL_MODELS, FeaturePlacement
from .metrics import check_exists
from .options import BulkSize, Fanouts, Options, SamplerOptions, Splits, Warmup, Words


class SeedOptions(Options):
    """The seed of everything random."""

    title = "Common"
    seed: int = Field(0, ge=0, lt=2**64, description="Seed of everything random.")


class ModelOptions(Options):
    """The network."""

    group, title = "model", "Model"
    model: str = Field(
        "sage", description=f"Type of the layers: {', '.join(MODELS)}; of a heterogeneous graph {', '.join(RELATIONAL_MODELS)}; or "
        "PACKAGE.MODULE:FACTORY, a model of your own.",
    )  # fmt: skip
    layers: int = Field(3, ge=1, le=64, description="Number of layers; by default the number of fanouts.")
    hidden: int = Field(256, ge=2, description="Width of the hidden layers.")
    heads: int = Field(4, ge=1, description="Attention heads of the hidden layers (gat, hetero-gat).")
    dropout: float = Field(0.5, ge=0, lt=1, description="Dropout of hidden rows.")
    input_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout of the input; of sparse features, of the stored values.")
    batch_norm: bool = Field(False, description="Batch norm after every hidden layer.")
    layer_norm: bool | None = Field(None, description="Layer norm, over each row, after every hidden layer; by default for retexo alone.")

    @field_validator("model")
    @classmethod
    def _model_exists(cls, model: str) -> str:
        if model not in (*MODELS, *RELATIONAL_MODELS) and not re.fullmatch(r"[\w.]+:\w+", model):
            raise ValueError(f"model: got {model!r}; {instead_of(model, [*MODELS, *RELATIONAL_MODELS, 'PACKAGE.MODULE:FACTORY'])}")
        return model

    @property
    def is_own_model(self) -> bool:
        """True if the model is the user's own."""
        return self.model not in (*MODELS, *RELATIONAL_MODELS)

    @property
    def is_relational(self) -> bool:
        """True if the model is one of heterogeneous graphs."""
        return self.model in RELATIONAL_MODELS

    def check_graph(self, name: str, plain: bool) -> None:
        """Raise `UsageError` if the model does not suit a graph: models of relations suit every graph, the others plain ones."""
        if not plain and not self.is_relational:
            raise UsageError(f"graph {name!r} is heterogeneous; got model {self.model}: use model {' or '.join(RELATIONAL_MODELS)}")

    def check_together(self) -> None:
        """Raise `ValueError` if an option of our layers is set beside a model of the user's own."""
        for name in ("hidden", "heads", "dropout", "input_dropout", "batch_norm", "layer_norm") if self.is_own_model else ():
            if getattr(self, name) != ModelOptions.model_fields[name].default:
                raise ValueError(f"{name} is an option of the models {', '.join(MODELS)}; got model {self.model}: set it in your model")


class SamplingOptions(Options):
    """The sampler, and the size of its bulks."""

    group, title = "sampling", "Sampling"
    free: ClassVar[tuple[str, ...]] = ("bulk_size", "memory_budget")
    sampler: Literal["sage", "ladies", "fastgcn", "labor", "full", "shadow", "saint"] = Field("sage", description="The sampler.")
    fanouts: Fanouts = Field(DEFAULT_FANOUTS, description="Fanout of each hop, from the seeds outwards; -1 takes all neighbors.")
    sampler_options: SamplerOptions = Field({}, description="Options of the sampler, such as replace=true or importance=squared_sum.")
    frontier: Literal["all", "new"] = Field("all", description="all: expand every vertex again in each layer; new: only new vertices.")
    batch_size: int = Field(1024, ge=1, description="Seeds of one mini-batch on one rank.")
    bulk_size: BulkSize = Field("auto", description="Mini-batches sampled in one call, or auto.")
    memory_budget: int | None = Field(None, ge=1, description="Bytes for sampled mini-batches, for --bulk-size auto.")
    seeds: Literal["train", "val", "test", "all"] | None = Field(
        None, description="Split of the seeds; by default train. Without masks, sample takes all, and train wants the option.",
    )  # fmt: skip


class LocalityOptions(Options):
    """The groups of near seeds from which mini-batches are drawn."""

    group, title = "sampling", "Sampling"
    seed_locality: int | None = Field(
        None, ge=1, description="G, groups of seeds in part order; a mini-batch draws from one of them, the rows of which its rank holds.",
    )  # fmt: skip


class DataOptions(Options):
    """The task, the labels and the features."""

    group, title = "data", "Data"
    free: ClassVar[tuple[str, ...]] = ("sampling_weights", "edge_labels")  # paths; a checkpoint holds a hash of the numbers
    task: Literal["nodes", "links", "edges"] = Field(
        "nodes", description="Prediction of labels of vertices (nodes), of links, or of labels of edges.",
    )  # fmt: skip
    edge_labels: str | None = Field(
        None, description="File .npz, .csv or .parquet of labelled edges: source, destination, label, split, time, feature_* (edges).",
    )  # fmt: skip
    target_relation: str | None = Field(
        None, description="Relation SOURCE:NAME:DESTINATION whose ends edge_labels joins; by default the only one (edges).",
    )  # fmt: skip
    target: Literal["class", "multilabel", "regression"] | None = Field(
        None, description="Labels as one class, several classes at once, or numbers; by default what the graph holds (nodes, edges).",
    )  # fmt: skip
    decoder: Literal["dot", "mlp"] = Field("dot", description="Score of a pair of vertices (links).")
    exclude_targets: Literal["none", "self", "both"] = Field(
        "none", description="Edges left out of a mini-batch: its own examples (self), or also their reverse (both) (links, edges).",
    )  # fmt: skip
    balance_classes: bool = Field(
        False, description="Draw the seeds of an epoch with replacement, all classes equally often, in place of each seed once (class).",
    )  # fmt: skip
    sampling_weights: str | None = Field(
        None, description="File .npy with a weight for each vertex of the trained type; the seeds of an epoch are drawn with replacement, "
        "in proportion to it.",
    )  # fmt: skip
    label: str | None = Field(None, description="Another column of the graph, or of edge_labels, as the label.")
    feature_norm: Literal["none", "l1", "l2"] = Field("none", description="Norm by which each row of the features is divided.")
    feature_storage: Literal["given", "fp16", "bf16"] = Field(
        "given", description="Storage type of replicated features: that of the graph (given), fp16 or bf16.",
    )  # fmt: skip

    @field_validator("sampling_weights", mode="before")
    @classmethod
    def _is_a_path(cls, weights: Any) -> Any:
        if not isinstance(weights, str):
            raise ValueError(f"sampling_weights: got a {type(weights).__name__}; write the numbers to a file with numpy.save, and name it")
        if weights == "class":
            raise ValueError("sampling_weights: got 'class'; use balance_classes, or a file")
        return weights


class TimeOptions(Options):
    """The type of the seeds of a heterogeneous graph, and the rule of time."""

    group, title = "relations", "Heterogeneous graphs"
    target_type: str | None = Field(None, description="Vertex type of the seeds, which is predicted; by default the only one with labels.")
    seed_times: str | None = Field(
        None, description="Column of the target type with the time of each seed; by default the times of its vertices.",
    )  # fmt: skip
    time_by: Literal["auto", "vertices", "edges"] = Field(
        "auto", description="Times that count: of vertices or of edges; auto: the kind that the graph has.",
    )  # fmt: skip
    strategy: Literal["uniform", "last"] = Field(
        "uniform", description="Neighbors drawn among those of the past: random ones (uniform), or the newest (last).",
    )  # fmt: skip
    strict: bool = Field(False, description="Leave out neighbors of exactly the time of the seed; later ones are never drawn.")


class FeaturelessOptions(Options):
    """The input of types without features of a heterogeneous graph."""

    group, title = "relations", "Heterogeneous graphs"
    featureless: Literal["embedding", "constant"] = Field(
        "embedding", description="Input of types without features: a learned embedding of each vertex, or one learned row (constant).",
    )  # fmt: skip


class OptimizerOptions(Options):
    """The optimizer, Adam, its learning rate at each step, and the largest norm of its gradient."""

    group, title = "optimiser", "Optimizer"
    free: ClassVar[tuple[str, ...]] = ("epochs",)
    epochs: int = Field(10, ge=0, lt=2**20, description="Number of epochs.")
    lr: float = Field(0.003, gt=0, description="Learning rate of Adam.")
    weight_decay: float = Field(0.0, ge=0, description="Weight decay of Adam.")
    lr_schedule: Literal["constant", "linear", "cosine", "step"] = Field(
        "constant", description="Learning rate after the warm-up: constant, falling to the end of the run along a line or a cosine, or "
        "falling by a factor every few epochs (step).",
    )  # fmt: skip
    warmup: Warmup = Field("0", description="Steps over which the learning rate rises from almost 0 to --lr, or epochs such as 2epochs.")
    lr_end_factor: float = Field(
        0.0, ge=0, le=1, description="Share of --lr that is left at the end of the run (lr_schedule linear and cosine).",
    )  # fmt: skip
    lr_step_size: int = Field(5, ge=1, description="Epochs between two falls of the learning rate (lr_schedule step).")
    lr_gamma: float = Field(0.1, gt=0, le=1, description="Factor of each fall of the learning rate (lr_schedule step).")
    clip_norm: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="Largest norm of the gradient of a step over all parameters, which is scaled down to "
        "it; by default it is not.",
    )  # fmt: skip

    @property
    def follows_epochs(self) -> bool:
        """True if the learning rate of a step depends on the number of epochs."""
        return self.lr_schedule in ("linear", "cosine")

    def computed(self) -> dict[str, Any]:
        """Return the options that decide the result; a schedule that ends with the run is named with its epochs, which are free else."""
        decisive = super().computed()
        return decisive | ({"lr_schedule": f"{self.lr_schedule} over {self.epochs} epochs"} if self.follows_epochs else {})


class EvaluationOptions(Options):
    """The scores of a run, and the one that picks the best weights."""

    group, title = "evaluation", "Evaluation"
    free: ClassVar[tuple[str, ...]] = ("patience", "eval_memory")
    metric: str | None = Field(
        None, description="Score that picks the best weights: accuracy, f1 (macro), f1_micro, rocauc; multilabel rocauc, ap, f1, f1_micro; "
        "regression mae, r2; links mrr, hits@10. By default the first.",
    )  # fmt: skip

    @field_validator("metric")
    @classmethod
    def _metric_exists(cls, metric: str | None) -> str | None:
        if metric is not None:
            check_exists(metric)
        return metric

    evaluate: Literal["exact", "sampled", "none"] = Field(
        "exact", description="Scores over all neighbors (exact), over sampled ones (sampled), or none: the newest weights are the best.",
    )  # fmt: skip
    eval_every: int = Field(1, ge=0, description="Epochs between evaluations; the last epoch is always evaluated. 0: none.")
    eval_splits: Splits = Field((), description="Splits to score, such as val,test; by default all that the graph has.")
    eval_fanouts: Fanouts = Field((), description="Fanout of each hop for --evaluate sampled; by default 20 for each layer.")
    eval_seeds: int = Field(0, ge=0, description="Vertices of a split to score for --evaluate sampled, drawn once; 0: all.")
    eval_memory: int | None = Field(
        None, ge=1, description="Bytes of each rank for exact scores, which stream if it is too little; by default a quarter of the free.",
    )  # fmt: skip
    patience: int = Field(0, ge=0, description="Evaluations without a better score before training stops; 0 never stops.")

    @property
    def evaluation(self) -> str:
        """The kind of evaluation: exact, sampled or none."""
        return self.evaluate if self.eval_every else "none"

    def check_together(self) -> None:
        """Raise `ValueError` if an option of evaluation has nothing to decide."""
        for name in ("eval_fanouts", "eval_seeds"):
            if getattr(self, name) and self.evaluation != "sampled":
                raise ValueError(f"{name} is an option of sampled scores; got {self.evaluation} ones: use evaluate sampled")
        if self.eval_memory and self.evaluation != "exact":
            raise ValueError(f"eval_memory is an option of exact scores; got {self.evaluation} ones: use evaluate exact, or leave it out")
        if self.eval_splits and self.evaluation == "none":
            raise ValueError("eval_splits names splits to score, and nothing is evaluated; leave it out")
        if self.patience and (self.evaluation == "none" or (self.eval_splits and "val" not in self.eval_splits)):
            raise ValueError(f"patience {self.patience} counts scores of val, which is not evaluated; use patience 0, or score val")


class DistributionOptions(Options):
    """The placement of the graph on the ranks."""

    group, title = "distribution", "Distribution"
    free: ClassVar[tuple[str, ...]] = (
        "graph", "topology", "features", "replication", "feature_replication", "grid_order", "exchange", "partition",
    )  # fmt: skip
    graph: Literal["replicated", "partitioned"] | None = Field(
        None, description="Topology and features on every rank (replicated), or in block rows (partitioned); by default what the method "
        "prefers.",
    )  # fmt: skip
    topology: Literal["replicated", "partitioned"] | None = Field(None, description="The adjacency alone; by default as --graph.")
    features: FeaturePlacement | None = Field(
        None, description="The features alone; host: one copy in the memory of each machine; machine: divided among its devices. "
        "By default as the topology.",
    )  # fmt: skip
    replication: int = Field(1, ge=1, description="c of the p/c x c process grid of what is in block rows.")
    feature_replication: int | None = Field(None, ge=1, description="c of features in block rows, if it is another.")
    grid_order: Literal["auto", "rows", "columns"] = Field(
        "auto", description="Ranks that are neighbors on a machine: those of a process row or column; auto: where more bytes travel.",
    )  # fmt: skip
    exchange: Literal["owner", "rows", "rows-oblivious"] = Field("owner", description="Exchange of rows of a partitioned graph.")
    partition: str = Field("block", description="block, random, metis, super, stream, or a file or folder of `bulksample partition`.")

    def check_together(self) -> None:
        """Raise `ValueError` if `graph`, which stands for topology and features, contradicts one of them."""
        for name, value in (("topology", self.topology), ("features", self.features)):
            if self.graph and value not in (None, self.graph):
                raise ValueError(f"graph stands for topology and features; got graph {self.graph} and {name} {value}: leave graph out")


MOST_VIRTUAL_RANKS = 2**16


class VirtualRankOptions(Options):
    """The mini-batches of a step."""

    group, title = "distribution", "Distribution"
    free: ClassVar[tuple[str, ...]] = ("virtual_ranks",)
    virtual_ranks: int | None = Field(
        None, ge=1, le=MOST_VIRTUAL_RANKS,
        description="Mini-batches of a step, which the ranks share (gradient accumulation, if there are fewer ranks); by default as "
        "many as there were ranks at the first start.",
    )  # fmt: skip


class TrafficOptions(Options):
    """The data that travels between ranks, and its form."""

    group, title = "traffic", "Traffic"
    free: ClassVar[tuple[str, ...]] = ("overlap", "cache_bytes", "cache_by", "fetch_together")
    form: Literal["strong", "naive"] = Field("strong", description="naive: full-graph methods send the constant input in every epoch.")
    overlap: bool = Field(True, description="Full-graph methods compute rows without remote neighbors while messages travel.")
    feature_codec: Literal["fp32", "fp16", "bf16", "int8", "int4", "int2"] = Field("fp32", description="Type of features that travel.")
    cache_bytes: int = Field(0, ge=0, description="Bytes of each rank for a cache of often fetched features (partitioned).")
    cache_by: Literal["degree", "frequency", "inclusion"] = Field(
        "degree", description="Order of features in the cache: by degree, by frequency in the first mini-batches, or by the probability of "
        "inclusion in a mini-batch, which gives each rank rows of its own.",
    )  # fmt: skip
    fetch_together: int = Field(1, ge=1, description="Mini-batches that fetch features at once, each row once (partitioned).")
    gradient_codec: Literal["fp32", "fp16", "bf16"] = Field("fp32", description="Type of gradients that travel.")

    def check_together(self) -> None:
        """Raise `ValueError` if the rows of a cache are chosen, and there is none."""
        if self.cache_by != "degree" and not self.cache_bytes:
            raise ValueError(f"cache_by {self.cache_by} chooses the rows of a cache; got cache_bytes 0: use cache_bytes, or leave it out")


class RunningOptions(Options):
    """Back end, threads, deadline and check of the data."""

    group, title = "running", "Running"
    free: ClassVar[tuple[str, ...]] = ("backend", "threads", "timeout", "check")
    backend: str = Field("auto", description="Back end that samples: auto, native, reference or cuda.")
    threads: int | None = Field(None, ge=1, description="Threads of each rank; by default a fair share of the processors.")
    timeout: float = Field(300.0, gt=0, lt=1e6, description="Seconds that a rank waits for the others.")
    check: Literal["auto", "full", "none"] = Field(
        "auto", description="Hashes of the store to check: of files that changed since the last time (auto), of all (full), or none.",
    )  # fmt: skip


class ThreadOptions(Options):
    """The threads of a rank that sample mini-batches while the others train."""

    group, title = "running", "Running"
    free: ClassVar[tuple[str, ...]] = ("sampling_threads",)
    sampling_threads: int | None = Field(
        None, ge=0, description="Threads of --threads that sample ahead; 0: none. The default depends on their number.",
    )  # fmt: skip


class MemoryOptions(Options):
    """The memory that the arrays of a step leave."""

    group, title = "running", "Running"
    free: ClassVar[tuple[str, ...]] = ("allocator",)
    allocator: Literal["auto", "keep", "system"] = Field(
        "auto", description="Memory that a step frees: kept for the next (keep), left to malloc (system), or kept where possible (auto).",
    )  # fmt: skip


class ComputingOptions(Options):
    """The device of the model, and its arithmetic."""

    group, title = "computing", "Computing"
    free: ClassVar[tuple[str, ...]] = ("device", "device_comm", "input_layer")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Device of the model; auto: a GPU that supports all options.")
    precision: Literal["fp32", "tf32", "bf16"] = Field("fp32", description="Precision of products with weights; sums over edges are fp32.")
    device_comm: Literal["auto", "host", "nccl", "mpi"] = Field(
        "auto", description="Communication between devices; auto: NCCL if it is possible.",
    )  # fmt: skip
    input_layer: Literal["auto", "fused", "gathered"] = Field(
        "auto", description="Own rows and means of the first layer: computed where features lie (fused), of rows that were copied first "
        "(gathered), or by the fewest bytes (auto).",
    )  # fmt: skip


class OutputOptions(Options):
    """Checkpoints, metrics and trackers."""

    group, title = "output", "Output"
    free: ClassVar[tuple[str, ...]] = ("checkpoint", "checkpoint_every", "resume", "metrics", "track", "quiet")
    checkpoint: str | None = Field(None, description="Directory for checkpoints, written after every epoch.")
    checkpoint_every: int = Field(0, ge=0, description="Steps between further checkpoints; 0: none.")
    resume: str | None = Field(
        None, description="auto: the newest checkpoint of --checkpoint, if any; or the folder of a checkpoint or of several."
    )
    metrics: str | None = Field(None, description="File of JSON lines, one an epoch; by default beside --checkpoint or --json.")
    track: Words = Field((), description="tensorboard:DIR, wandb:PROJECT or mlflow:URI; may be repeated.")
    quiet: bool = Field(False, description="No progress, no table.")

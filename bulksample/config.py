"""What a training run is asked to do: typed, bounded, and the same on every rank.

No torch in here, so a bad option is refused before anything heavy is loaded.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from .errors import UsageError

DEFAULT_FANOUTS = (15, 10, 5)

# Fields that do not change what is computed, only how far, how fast or where: a resumed run may set them anew.
FREE = frozenset({
    "epochs", "patience", "bulk_size", "backend", "threads", "sampling_threads", "timeout", "checkpoint", "checkpoint_every", "resume",
    "metrics", "quiet", "memory_budget", "graph", "replication", "exchange", "partition", "cache_bytes", "cache_by",
    "overlap", "fetch_together", "listen", "join", "grace",
})  # fmt: skip

GRAPPA = (
    "view", "view_chunks", "chunking", "swap_every", "halo_rows", "seed_weights", "weight_hops", "weight_cap", "shrink", "full_graph",
)  # fmt: skip

COFREE = ("vertex_cut", "drop_edge", "edge_masks")

ADAQP = ("bits", "reassign_every", "variance_weight", "noise_weights", "links", "message_header", "message_rounding", "message_coding")


AVERAGED = ("random-tma", "super-tma", "psgd-pa", "llcg")  # methods that average the weights of trainers
AVERAGING = ("interval", "interval_growth", "average_by", "lost_parts", "tolerate_failures", "trainers", "listen", "join", "grace")


class TrainConfig(BaseModel):
    """One training run. `TrainConfig.of` raises `UsageError` where pydantic would raise its own error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str = "sync"
    model: Literal["sage", "sage-pool", "gcn", "gat"] = "sage"
    layers: Annotated[int, Field(ge=1, le=64)] = 3
    hidden: Annotated[int, Field(ge=2)] = 256
    heads: Annotated[int, Field(ge=1)] = 4
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    input_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    batch_norm: bool = False
    layer_norm: bool = False

    sampler: str = "sage"
    fanouts: tuple[int, ...] = DEFAULT_FANOUTS
    sampler_options: dict[str, bool | int | float | str] = {}
    frontier: Literal["all", "new"] = "all"
    batch_size: Annotated[int, Field(ge=1)] = 1024
    bulk_size: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    memory_budget: Annotated[int, Field(ge=1)] | None = None
    backend: str = "auto"

    graph: Literal["replicated", "partitioned"] | None = None  # as the method asks, unless given
    replication: Annotated[int, Field(ge=1)] = 1
    exchange: Literal["owner", "rows", "rows-oblivious"] = "owner"
    partition: str = "block"
    form: Literal["strong", "naive"] = "strong"
    overlap: bool = True
    feature_storage: Literal["given", "fp16", "bf16"] = "given"
    feature_codec: Literal["fp32", "fp16", "bf16", "int8", "int4", "int2"] = "fp32"
    cache_bytes: Annotated[int, Field(ge=0)] = 0
    cache_by: Literal["degree", "frequency"] = "degree"
    fetch_together: Annotated[int, Field(ge=1)] = 1

    refine: Annotated[int, Field(ge=0, lt=2**20)] = 0  # retexo: rounds end to end after the last stage
    client_vertices: Annotated[int, Field(ge=1)] = 1  # retexo-federated: of one client, at most
    gradient_codec: Literal["fp32", "fp16", "bf16"] = "fp32"

    view: Literal["strict", "halo", "base"] = "halo"  # grappa: this and what follows
    view_chunks: Annotated[int, Field(ge=1)] = 2
    chunking: Literal["static", "fresh"] = "static"
    swap_every: Annotated[int, Field(ge=0)] = 10
    halo_rows: Annotated[int, Field(ge=1)] | None = None
    seed_weights: Literal["node", "batch", "none", "tree"] = "node"
    weight_hops: Annotated[int, Field(ge=0)] = 0  # as many as there are layers
    weight_cap: Annotated[float, Field(gt=0, le=1)] = 1.0
    shrink: Literal["ess"] | Annotated[float, Field(ge=0, le=1)] | None = None  # ess, or 1 where weights are of trees
    full_graph: bool = False

    vertex_cut: Literal["random", "degree"] = "degree"  # cofree: how edges are dealt
    drop_edge: Annotated[float, Field(ge=0, lt=1)] = 0.0  # cofree: the share of edges that a mask leaves out
    edge_masks: Annotated[int, Field(ge=1)] = 10  # cofree
    boundary_share: Annotated[float, Field(gt=0, le=1)] = 0.1  # bns: the probability of a halo row

    bits: Literal["2", "4", "8", "16", "32", "uniform", "random", "adaptive"] = "adaptive"  # adaqp: of a number in a message
    reassign_every: Annotated[int, Field(ge=2)] = 20  # adaqp: epochs between two assignments of widths
    variance_weight: Annotated[float, Field(ge=0, le=1)] = 0.5  # adaqp: of noise against time
    noise_weights: Literal["sum_of_squares", "squared_sum"] = "sum_of_squares"
    links: str = "even"
    message_header: Literal["bf16", "fp32"] = "bf16"
    message_rounding: Literal["stochastic", "nearest"] = "stochastic"
    message_coding: Literal["plain", "difference", "feedback"] = "plain"

    interval: Annotated[str, Field(pattern=r"^(epoch|[1-9][0-9]*|[0-9]+(\.[0-9]+)?s)$")] = "epoch"  # between two averages of weights
    interval_growth: Annotated[float, Field(ge=1)] = 1.0
    average_by: Literal["responders", "steps", "vertices"] = "responders"
    lost_parts: Annotated[int, Field(ge=0)] = 0  # parts that are dealt and that nobody trains on
    clusters: Annotated[int, Field(ge=1)] | None = None  # super-tma: 16 for each part unless given
    server_steps: Annotated[int, Field(ge=0)] = 1  # llcg: on the whole graph, after every average
    server_lr: Annotated[float, Field(gt=0)] | None = None  # llcg: as lr unless given
    tolerate_failures: bool = False  # trainers are processes of their own and may die, be late or join again
    trainers: Annotated[int, Field(ge=1)] = 3
    listen: str = "127.0.0.1:0"
    join: str | None = None
    grace: Annotated[float, Field(gt=0)] = 5.0

    epochs: Annotated[int, Field(ge=0, lt=2**20)] = 10
    lr: Annotated[float, Field(gt=0)] = 0.003
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    seeds: Literal["train", "val", "test", "all"] | None = None
    label: str | None = None
    feature_norm: Literal["none", "l1", "l2"] = "none"

    task: Literal["nodes", "links"] = "nodes"
    decoder: Literal["dot", "mlp"] = "dot"  # of links
    metric: Annotated[str, Field(pattern=r"^(accuracy|f1|f1_macro|f1_micro|rocauc|mrr|hits@[1-9][0-9]*)$")] = "accuracy"
    eval_every: Annotated[int, Field(ge=1)] = 1
    patience: Annotated[int, Field(ge=0)] = 0

    checkpoint: str | None = None
    checkpoint_every: Annotated[int, Field(ge=0)] = 0
    resume: str | None = None

    timeout: Annotated[float, Field(gt=0)] = 300.0
    threads: Annotated[int, Field(ge=1)] | None = None
    sampling_threads: Annotated[int, Field(ge=0)] | None = None  # of them; see dist.placement.divide
    metrics: str | None = None
    quiet: bool = False

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
            given["layers"] = len(given["fanouts"])
        if "layers" in given and "fanouts" not in given and isinstance(given["layers"], int):
            given["fanouts"] = (DEFAULT_FANOUTS + DEFAULT_FANOUTS[-1:] * given["layers"])[: given["layers"]]
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
        if self.refine and self.method != "retexo":
            raise ValueError(f"refine is of the method 'retexo'; got {self.method!r}")
        if self.client_vertices > 1 and self.method != "retexo-federated":
            raise ValueError(f"client_vertices is of the method 'retexo-federated'; got {self.method!r}")
        if self.method != "grappa" and (given := [name for name in GRAPPA if getattr(self, name) != type(self).model_fields[name].default]):
            raise ValueError(f"{given[0]} is of the method 'grappa'; got {self.method!r}")
        if self.method != "cofree" and (given := [name for name in COFREE if getattr(self, name) != type(self).model_fields[name].default]):
            raise ValueError(f"{given[0]} is of the method 'cofree'; got {self.method!r}")
        if self.boundary_share != 0.1 and self.method != "bns":
            raise ValueError(f"boundary_share is of the method 'bns'; got {self.method!r}")
        if self.halo_rows and self.view != "halo":
            raise ValueError(f"halo_rows are of a view with a halo; got {self.view!r}")
        if self.method != "adaqp" and (given := [name for name in ADAQP if getattr(self, name) != type(self).model_fields[name].default]):
            raise ValueError(f"{given[0]} is of the method 'adaqp'; got {self.method!r}")
        self._averaged()
        self._linked()
        return self

    def _linked(self) -> None:
        """Raise `ValueError` for what has no meaning for the task."""
        ranked = self.metric == "mrr" or self.metric.startswith("hits@")
        if ranked != (self.task == "links"):
            fit = "mrr or hits@10" if self.task == "links" else "accuracy, f1 or rocauc"
            raise ValueError(f"the metric of the task {self.task!r} was {self.metric!r}; {fit} would fit")
        if self.decoder != "dot" and self.task != "links":
            raise ValueError(f"a decoder is of the task 'links'; got {self.task!r}")
        if self.task == "links" and self.method not in ("sync", *AVERAGED):
            raise ValueError(f"the task 'links' is of the methods {', '.join(('sync', *AVERAGED))}; got {self.method!r}")
        if self.task == "links" and self.method == "sync" and self.graph == "partitioned":
            raise ValueError("link prediction needs the edges beside it; graph replicated would fit")

    def _averaged(self) -> None:
        """Raise `ValueError` for options of methods that average weights, where they have no meaning."""
        of = {"clusters": ("super-tma",), "server_steps": ("llcg",), "server_lr": ("llcg",)} | dict.fromkeys(AVERAGING, AVERAGED)
        for name, methods in of.items():
            if self.method not in methods and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} is of the method {' or '.join(map(repr, methods))}; got {self.method!r}")
        if self.method in AVERAGED and self.interval.endswith("s") and not self.tolerate_failures:
            raise ValueError(f"an interval by the clock needs tolerate_failures; got {self.interval!r}: a number of steps would fit")
        apart = [name for name in ("trainers", "listen", "grace") if getattr(self, name) != type(self).model_fields[name].default]
        if apart and not self.tolerate_failures:
            raise ValueError(f"{apart[0]} is of trainers that may fail; give --tolerate-failures")
        if self.tolerate_failures and self.interval_growth != 1:
            raise ValueError(f"intervals grow where trainers are ranks of a job; got {self.interval_growth}: 1 would fit")

    @staticmethod
    def of(**values: Any) -> TrainConfig:
        """A configuration from keyword arguments; None stands for the default.

        Raises
        ------
        UsageError
            If a key is unknown, with the nearest that exists, or a value is out of its range.
        """
        known = TrainConfig.model_fields
        for key in values:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"{', '.join(known)} would fit"
                raise UsageError(f"there is no option {key!r}; {hint}")
        try:
            return TrainConfig(**values)
        except ValidationError as error:
            raise UsageError("; ".join(explained(item) for item in error.errors())) from None

    def computed(self) -> dict[str, Any]:
        """The part that decides what is computed: equal parts give equal runs."""
        return {key: value for key, value in self.model_dump(mode="json").items() if key not in FREE}


def explained(item: Any) -> str:
    """One pydantic error in one sentence, with the value found."""
    place = ".".join(str(part) for part in item["loc"])
    message = item["msg"].removeprefix("Value error, ")
    return f"{place}: {message[0].lower()}{message[1:]}; got {item['input']!r}" if place else message

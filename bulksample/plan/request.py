"""The request of a plan: a graph by its sizes, a sampler and a model, and the machine. Options of `train` keep its bounds and its help."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from ..config import FeaturePlacement
from ..config.epochs import EpochLengthOptions, check_locality
from ..config.groups import (
    ComputingOptions,
    DistributionOptions,
    EvaluationOptions,
    LocalityOptions,
    ModelOptions,
    SamplingOptions,
    TrafficOptions,
)
from ..config.options import Options
from ..distributed.matrix.codec import codec_named
from ..distributed.matrix.grid import check_replication
from ..errors import UsageError
from ..samplers import make
from ..sparse import MAX_VERTICES
from .profiles import DEVICES, NETWORKS, DeviceProfile, NetworkProfile, Rate, named, network_named

_UNITS = {"": 1, "b": 1} | {f"{x}{b}": base**i for i, x in enumerate("kmgt", 1) for b, base in (("b", 1000), ("ib", 1024))}


def parse_bytes(text: Any) -> Any:
    """Read ``80GB``, ``74.5 GiB`` or ``80e9`` as a number of bytes; return a number unchanged. Raises `UsageError`."""
    if not isinstance(text, str):
        return text
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([a-z]*)", text.strip().lower())
    size = float(match[1]) * _UNITS.get(match[2], 0) if match else 0.0
    if not 1 <= size < math.inf:
        raise UsageError(f"a size must be a number with an optional unit; got {text!r}; use 80GB, 74.5GiB or 80000000000")
    return int(size)


def _numbers(text: Any) -> Any:
    """Read ``4,8,16`` as whole numbers; return anything but text unchanged."""
    if not isinstance(text, str):
        return text
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"whole numbers joined by commas are needed; got {text!r}; use 4,8,16") from None


def _whole(text: Any) -> Any:
    return int(text) if isinstance(text, str) and text.isdigit() else text


def _of_train(group: type[Options], name: str) -> Any:
    """Return the field that declares an option of `train`: default, bounds and help."""
    return group.model_fields[name]


_Positive = Annotated[int, Field(ge=1)]
_Bytes = Annotated[_Positive, BeforeValidator(parse_bytes)]
_Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Numbers = Annotated[tuple[_Positive, ...], BeforeValidator(_numbers)]


class GraphSizes(Options):
    """The graph, by its sizes alone."""

    title = "Graph"
    vertices: int = Field(ge=1, le=MAX_VERTICES, description="Number of vertices, n.")
    edges: int = Field(ge=0, lt=2**63, description="Number of directed edges, as stored.")
    feature_width: int = Field(ge=0, le=MAX_VERTICES, description="Numbers in a feature row.")
    feature_bytes: Annotated[Literal[2, 4], BeforeValidator(_whole)] = Field(4, description="Bytes of each number in memory.")
    feature_codec: Literal["fp32", "fp16", "bf16", "int8", "int4", "int2"] = _of_train(TrafficOptions, "feature_codec")
    weighted: bool = Field(False, description="Edges have weights.")
    classes: int = Field(2, ge=1, description="Classes of the labels.")
    seeds: _Positive | None = Field(None, description="Number of training vertices. Default: all vertices.")


class PlannedTraining(Options):
    """The sampler and the model. `plan` knows fewer of them than `train`."""

    title = "Training"
    sampler: Literal["sage", "ladies", "fastgcn"] = Field("sage", description="Sampler.")
    fanouts: tuple[int, ...] = _of_train(SamplingOptions, "fanouts")
    frontier: Literal["all", "new"] = _of_train(SamplingOptions, "frontier")
    batch_size: int = _of_train(SamplingOptions, "batch_size")
    drop_last: bool = _of_train(EpochLengthOptions, "drop_last")
    steps_per_epoch: int | None = _of_train(EpochLengthOptions, "steps_per_epoch")
    seed_locality: int | None = _of_train(LocalityOptions, "seed_locality")
    model: Literal["sage", "gcn"] = Field("sage", description="Layer of the model.")
    hidden: int = _of_train(ModelOptions, "hidden")
    evaluate: Literal["exact", "sampled", "none"] = _of_train(EvaluationOptions, "evaluate")
    eval_every: int = _of_train(EvaluationOptions, "eval_every")
    eval_fanouts: tuple[int, ...] = _of_train(EvaluationOptions, "eval_fanouts")
    eval_seeds: int = _of_train(EvaluationOptions, "eval_seeds")
    scored: Annotated[int, Field(ge=0)] | None = Field(None, description="Vertices of val and test to score. Default: as many as seeds.")
    eval_memory: _Bytes | None = Field(
        None, description="Memory of a rank for exact evaluation, such as 4GB, which streams beyond it. Default: all that gathering needs.",
    )  # fmt: skip


class Machine(Options):
    """The ranks, the device of each, and the network between them."""

    title = "Machine"
    ranks: _Numbers = Field((4, 8, 16, 32, 64, 128), description="Numbers of ranks to plan for, one device each.")
    replication: _Numbers | None = Field(None, description="Values of c to consider, such as 1,2,4. Default: every divisor of p.")
    graph: Literal["auto", "replicated", "partitioned", "published"] = Field(
        "auto", description="Placement of the graph. published: A on every rank, H in block rows.",
    )  # fmt: skip
    topology: Literal["replicated", "partitioned"] | None = Field(None, description="Placements to compare: this one of A. Default: all.")
    features: FeaturePlacement | None = Field(None, description="Placements to compare: this one of H. Default: all.")
    feature_replication: int | None = _of_train(DistributionOptions, "feature_replication")
    grid_order: Literal["auto", "rows", "columns"] = _of_train(DistributionOptions, "grid_order")
    exchange: Literal["owner", "rows", "rows-oblivious"] = _of_train(DistributionOptions, "exchange")
    device_comm: Literal["auto", "host", "nccl", "mpi"] = _of_train(ComputingOptions, "device_comm")
    host_memory: _Bytes | None = Field(None, description="Memory of a machine, such as 500GB. Default: enough.")
    device: str = Field("a100-80gb", description=f"Device of a rank: {', '.join(DEVICES)}.")
    device_memory: _Bytes | None = Field(None, description="Memory of a device, such as 80GB or 74.5GiB. Default: that of --device.")
    reserve: float = Field(0.1, ge=0, lt=1, description="Share of the memory left to the framework and to fragmentation.")
    network: str | None = Field(
        None, description=f"Network: {', '.join(NETWORKS)}, or a file of `bulksample info --network`. Default: the usual one of --device.",
    )  # fmt: skip
    devices_per_node: _Positive | None = Field(None, description="Devices of a node. Default: that of --network.")
    latency: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(None, description="Seconds before a message arrives.")
    inside: _Rate | None = Field(None, description="Bytes a second from a device to others of its node.")
    between: _Rate | None = Field(None, description="Bytes a second from a device to other nodes.")


class PlanRequest(GraphSizes, PlannedTraining, Machine):
    """One plan. `PlanRequest.of` raises `UsageError` for values that are missing, out of range or do not go together."""

    @model_validator(mode="after")
    def _check_together(self) -> PlanRequest:
        if self.edges > self.vertices**2:
            raise ValueError(f"{self.vertices} vertices have at most {self.vertices**2} edges; got {self.edges}")
        if self.seeds is not None and self.seeds > self.vertices:
            raise ValueError(f"there are {self.vertices} vertices; {self.seeds} of them cannot be seeds")
        if not self.ranks or (self.replication is not None and not self.replication):
            raise ValueError("ranks and replication must name at least one number; use 4,8")
        for p in self.ranks:
            if self.graph == "replicated" and p not in (self.replication or [p]):
                raise ValueError(f"a replicated graph is on every rank; use c = {p} for p = {p}")
            for c in self.replication or ():
                check_replication(c, p)
        check_locality(self.seed_locality, self.steps_per_epoch)
        if idle := [p for p in self.ranks if not self.steps(p)]:
            raise ValueError(
                f"drop_last leaves no step: {self.minibatches} full mini-batches of {self.batch_size} seeds, for {idle[0]} ranks; use a "
                "lower batch_size, or leave drop_last out"
            )
        make(self.sampler, self.fanouts, frontier=self.frontier)  # refuses fanouts that it cannot draw
        self.machine(), self.connection()
        return self

    @property
    def degree(self) -> float:
        """d, the mean number of neighbors."""
        return self.edges / self.vertices

    @property
    def minibatches(self) -> int:
        """M, the mini-batches of a pass over all seeds, without a last one that `drop_last` leaves out."""
        each, more = divmod(self.seeds or self.vertices, self.seed_locality or 1)
        larger, smaller = (size // self.batch_size if self.drop_last else -(-size // self.batch_size) for size in (each + 1, each))
        return more * larger + ((self.seed_locality or 1) - more) * smaller

    def steps(self, ranks: int) -> int:
        """T, the steps of an epoch on p ranks; with `drop_last` each rank has a mini-batch in every step."""
        return self.steps_per_epoch or (self.minibatches // ranks if self.drop_last else -(-self.minibatches // ranks))

    def trained(self, ranks: int) -> int:
        """Return the mini-batches of an epoch over all p ranks."""
        return self.steps(ranks) * ranks if self.steps_per_epoch or self.drop_last else self.minibatches

    @property
    def evaluation(self) -> str:
        """The kind of evaluation: exact, sampled or none."""
        return self.evaluate if self.eval_every else "none"

    @property
    def scored_vertices(self) -> int:
        """S, the vertices of val and test that sampled scores draw for."""
        count = min(self.seeds or self.vertices, self.vertices) if self.scored is None else self.scored
        return min(count, 2 * self.eval_seeds) if self.eval_seeds else count

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of the L + 1 matrices of rows: the input, between layers, and the output."""
        return (self.feature_width, *[self.hidden] * (len(self.fanouts) - 1), self.classes)

    @property
    def parameters(self) -> int:
        """Number of parameters of the model."""
        products = 2 if self.model == "sage" else 1
        return sum(products * a * b + b for a, b in zip(self.widths, self.widths[1:], strict=False))

    @property
    def row_bytes(self) -> int:
        """Bytes of a feature row in a message."""
        return codec_named(self.feature_codec).row_bytes(self.feature_width)

    @property
    def has_devices(self) -> bool:
        """True if ranks compute on devices with a memory of their own."""
        return self.device != "cpu"

    def machine(self) -> DeviceProfile:
        """Return the device, with `device_memory` in place of its own."""
        device: DeviceProfile = named(DEVICES, self.device, "device")
        if self.device_memory is None:
            return device
        return replace(device, memory=Rate(self.device_memory, "given", "device-memory"))

    def connection(self) -> NetworkProfile:
        """Return the network, with the rates of the request in place of its own."""
        network = network_named(self.network or self.machine().network)
        values = {name: getattr(self, name) for name in ("latency", "inside", "between")}
        rates = {name: Rate(value, "given", name) for name, value in values.items() if value is not None}
        if self.latency is not None:
            rates["latency_inside"] = Rate(min(self.latency, network.latency_inside.value), "given", "latency")
        return replace(network, **rates, per_node=self.devices_per_node or network.per_node)

"""What a plan is asked for: a graph by its sizes, a sampler and a model, the machine."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..config.options import explained
from ..config.train import DEFAULT_FANOUTS
from ..distributed.matrix.codec import codec_named
from ..errors import UsageError
from ..samplers import make
from ..sparse import MAX_VERTICES
from .profiles import DEVICES, NETWORKS, Device, Network, Rate, named

_UNITS = {"": 1, "b": 1} | {f"{x}{b}": base**i for i, x in enumerate("kmgt", 1) for b, base in (("b", 1000), ("ib", 1024))}

_Positive = Annotated[int, Field(ge=1)]
_Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PlanRequest(BaseModel):
    """One plan. `PlanRequest.of` raises `UsageError` where pydantic would raise its own error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    vertices: Annotated[int, Field(ge=1, le=MAX_VERTICES)]
    edges: Annotated[int, Field(ge=0, lt=2**63)]
    features: Annotated[int, Field(ge=0, le=MAX_VERTICES)]
    feature_bytes: Literal[2, 4] = 4
    feature_codec: Literal["fp32", "fp16", "bf16", "int8", "int4", "int2"] = "fp32"
    weighted: bool = False
    classes: _Positive = 2
    seeds: _Positive | None = None

    sampler: Literal["sage", "ladies", "fastgcn"] = "sage"
    fanouts: tuple[int, ...] = DEFAULT_FANOUTS
    frontier: Literal["all", "new"] = "all"
    batch_size: _Positive = 1024
    model: Literal["sage", "gcn"] = "sage"
    hidden: Annotated[int, Field(ge=2)] = 256
    evaluation: bool = True

    ranks: tuple[_Positive, ...] = (4, 8, 16, 32, 64, 128)
    replication: tuple[_Positive, ...] | None = None
    graph: Literal["auto", "replicated", "partitioned", "published"] = "auto"
    exchange: Literal["owner", "rows", "rows-oblivious"] = "owner"

    device: str = "a100-80gb"
    device_memory: _Positive | None = None
    reserve: Annotated[float, Field(ge=0, lt=1)] = 0.1
    network: str | None = None
    devices_per_node: _Positive | None = None
    latency: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    inside: _Rate | None = None
    between: _Rate | None = None

    @model_validator(mode="before")
    @classmethod
    def _given(cls, values: Any) -> Any:
        return {key: value for key, value in values.items() if value is not None} if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _together(self) -> PlanRequest:
        if self.edges > self.vertices**2:
            raise ValueError(f"{self.vertices} vertices have at most {self.vertices**2} edges; got {self.edges}")
        if self.seeds is not None and self.seeds > self.vertices:
            raise ValueError(f"there are {self.vertices} vertices; {self.seeds} of them cannot be seeds")
        if not self.ranks or (self.replication is not None and not self.replication):
            raise ValueError("ranks and replication must name at least one number; 4,8 would fit")
        for p in self.ranks:
            if self.graph == "replicated" and p not in (self.replication or [p]):
                raise ValueError(f"a replicated graph is on every rank: c = {p} would fit p = {p}")
            for c in self.replication or ():
                if p % c:
                    fits = ", ".join(map(str, divisors(p)))
                    raise ValueError(f"replication must divide the number of ranks: got c = {c} with p = {p}; c in {{{fits}}} would fit")
        return self

    @staticmethod
    def of(**values: Any) -> PlanRequest:
        """A request from keyword arguments; None stands for the default.

        Raises
        ------
        UsageError
            If a value is missing or out of its range, or no sampler, device or network has that name.
        """
        try:
            request = PlanRequest(**values)
        except ValidationError as error:
            raise UsageError("; ".join(explained(item) for item in error.errors())) from None
        make(request.sampler, request.fanouts, frontier=request.frontier)  # refuses fanouts that it could not draw
        request.machine(), request.connection()
        return request

    @property
    def degree(self) -> float:
        """d, the mean number of neighbours."""
        return self.edges / self.vertices

    @property
    def minibatches(self) -> int:
        """M, those of an epoch over all ranks."""
        return -(-(self.seeds or self.vertices) // self.batch_size)

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the rows before the first layer, between layers, and after the last: L + 1 of them."""
        return (self.features, *[self.hidden] * (len(self.fanouts) - 1), self.classes)

    @property
    def parameters(self) -> int:
        """Numbers in the model."""
        products = 2 if self.model == "sage" else 1
        return sum(products * a * b + b for a, b in zip(self.widths, self.widths[1:], strict=False))

    @property
    def row_bytes(self) -> int:
        """Of a feature row that travels."""
        return codec_named(self.feature_codec).row_bytes(self.features)

    def machine(self) -> Device:
        """The device, with the memory that was given."""
        device: Device = named(DEVICES, self.device, "device")
        if self.device_memory is None:
            return device
        return replace(device, memory=Rate(self.device_memory, "given", "device-memory"))

    def connection(self) -> Network:
        """The network, with the numbers that were given."""
        network: Network = named(NETWORKS, self.network or self.machine().network, "network")
        given = {name: getattr(self, name) for name in ("latency", "inside", "between")}
        rates = {name: Rate(value, "given", name) for name, value in given.items() if value is not None}
        return replace(network, **rates, per_node=self.devices_per_node or network.per_node)


def divisors(p: int) -> list[int]:
    """The replications that p ranks can have, ascending."""
    return [c for c in range(1, p + 1) if p % c == 0]


def parse_bytes(text: str) -> int:
    """``80GB``, ``74.5 GiB`` or a number of bytes; raises `UsageError`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([a-z]*)", text.strip().lower())
    if not found or found[2] not in _UNITS or not (size := int(float(found[1]) * _UNITS[found[2]])):
        raise UsageError(f"a size must be a number and perhaps a unit; got {text!r}; 80GB, 74.5GiB or 80000000000 would fit")
    return size

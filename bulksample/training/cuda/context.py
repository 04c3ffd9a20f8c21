"""Where a rank computes: on the host, or on a device. The loop asks a `ComputeContext` and cannot tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, cast

import torch

from ... import backends
from ...adjacency import Adjacency, LocalAdjacency
from ...backends.base import Backend
from ...backends.cuda.backend import Cuda
from ...backends.cuda.nvrtc import DeviceLauncher, local_rank, share_pool
from ...config.train import TrainConfig
from ...distributed.comm.base import Comm
from ...distributed.matrix.owner import OwnerAdjacency
from ...errors import BackendUnavailable, UsageError
from ...nn.model import Model
from ...samplers import NodeWise, Sampler
from ...views.features import ExchangedFeatures, Features, FeatureSource
from ...views.partitioned import BlockView
from ...views.view import View
from ...views.whole import WholeShare
from . import edges  # noqa: F401  # how attention and pooling see a block there
from .blocks import DeviceOwnerAdjacency
from .bulks import BulkStreamSync, DeviceAdjacency
from .cuda_context import CudaContext
from .exchange import DeviceExchange, travels
from .features import DeviceFeatures, MovedFeatures, heat_of, room_for_features
from .inference import DeviceShare
from .rows import placed_block
from .streams import cuda_stages
from .tensors import Staged, TensorComm, over_devices

DEVICES = ("auto", "cpu", "cuda")
_BY = {"samples": "samples_by", "features": "features_by"}
CHUNK_NUMBERS = 2**28  # of exact inference, held at once: many small chunks would leave a device idle


class ComputeContext:
    """The host.

    Attributes
    ----------
    where : torch.device
    ahead : bool
        Whether samples are made beside the threads that compute.
    """

    where = torch.device("cpu")
    ahead = False

    def __init__(self, precision: str = "fp32") -> None:
        if precision == "tf32":
            raise UsageError("precision tf32 is of devices; fp32 or bf16 would fit on a cpu")
        self.precision = precision

    def backend(self, config: TrainConfig, threads: int) -> Backend:
        """Where samples are drawn."""
        return drawing(config.backend, threads)

    def view(self, view: View, over: TensorComm, sampler: Sampler, ahead: bool) -> View:
        """The graph as this rank sees it, brought to where it computes; collective.

        Parameters
        ----------
        over : TensorComm
            What `tensors` gave.
        ahead : bool
            Whether another thread samples meanwhile.
        """
        return view

    def model(self, model: Model) -> Model:
        """A model, brought there."""
        return model

    def arithmetic(self) -> AbstractContextManager[Any]:
        """Forward passes inside are of the precision that was asked for; weights, gradients and aggregation are float32."""
        return torch.autocast(self.where.type, torch.bfloat16) if self.precision == "bf16" else nullcontext()

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """A range of a profiler's timeline."""
        return nullcontext()

    def budget(self) -> int | None:
        """Bytes for sampled minibatches; None leaves that to the loader."""
        return None

    def tensors(self, comm: Comm) -> TensorComm:
        """How tensors travel between ranks; collective."""
        return Staged(comm)

    def told(self, over: TensorComm) -> str:
        """What the user is told of how the ranks reach each other; empty where there is nothing to tell."""
        return ""

    def describe(self) -> dict[str, Any]:
        """For the report."""
        return {"device": self.where.type, "precision": self.precision}


class CudaComputeContext(ComputeContext):
    """A device.

    Parameters
    ----------
    card : Card
    precision : {"fp32", "tf32", "bf16"}
    device_comm : {"auto", "host", "nccl", "mpi"}

    Attributes
    ----------
    settled : bool
        Whether the host waits at the end of every phase for what it has started: slower, but the seconds of a phase are its own.
    """

    ahead = True
    settled = False

    def __init__(self, card: CudaContext, precision: str = "fp32", device_comm: str = "auto") -> None:
        self.card, self.where, self.precision, self._device_comm = card, card.where, precision, device_comm
        self._lies: dict[str, Any] = {}
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"

    def backend(self, config: TrainConfig, threads: int) -> Backend:
        return self.card.engine if config.backend in ("auto", "cuda") else drawing(config.backend, threads)

    def view(self, view: View, over: TensorComm, sampler: Sampler, ahead: bool) -> View:
        card = self.card
        view.adjacency, view.features = self._adjacency(view.adjacency, over, sampler, ahead), self._features(view, over)
        view.share.chunk = CHUNK_NUMBERS
        if isinstance(view.share, WholeShare):
            view.share.compute_on(view.features, card.put(view.share.all_degrees))
        if view.all_degrees is not None:
            view.all_degrees = card.put(view.all_degrees)
        view.share, view.order, view.where = DeviceShare(card, view.share), BulkStreamSync(card), self.where
        view.bring = partial(placed_block, card)
        if self.where.type == "cuda":
            torch.cuda.synchronize(self.where)  # what was put there was not put by the streams that read it
        return view

    def _adjacency(self, adjacency: Adjacency, over: TensorComm, sampler: Sampler, ahead: bool) -> Adjacency:
        """A on the device, if that is where minibatches are drawn; block rows ask each other by `over` where that is safe."""
        if adjacency.collective:
            self._lies["samples_by"] = "host"
        if adjacency.backend is not self.card.engine:
            return adjacency
        if isinstance(adjacency, OwnerAdjacency) and isinstance(sampler, NodeWise):
            column = adjacency.grid.column_comm
            apart = over.among(column) if over.concurrent or not ahead else Staged(column)
            self._lies["samples_by"] = apart.name
            return DeviceOwnerAdjacency(adjacency, self.card, apart)
        return DeviceAdjacency(adjacency, self.card) if isinstance(adjacency, LocalAdjacency) else adjacency

    def _features(self, view: View, over: TensorComm) -> FeatureSource:
        """Rows that other ranks hold are fetched by devices where they can reach each other, else on the host."""
        free, source, graph = self.card.kernels.free_bytes, view.features, view.adjacency.whole_matrix
        made: DeviceExchange | DeviceFeatures | None = None
        if isinstance(view, BlockView) and travels(source) and over.name != "host":
            room, among = room_for_features(free, view.block.adjacency), over.among(view.grid.column_comm)
            made = DeviceExchange(self.card, cast(ExchangedFeatures, source), among, room)
        elif isinstance(source, Features) and not source.is_sparse and graph is not None:
            made = DeviceFeatures(self.card, source, heat_of(graph), room_for_features(free, graph))
        if isinstance(view, BlockView):
            self._lies["features_by"] = over.name if made else "host"
        self._lies["features_on"] = str(made.held) if made else "host"
        if made is None:
            return MovedFeatures(self.card, source)
        self._lies["features_device_bytes"] = made.held.nbytes
        return made

    def model(self, model: Model) -> Model:
        """Its random numbers are drawn there, too: not those of a host."""
        there = torch.Generator(self.where)
        for module in model.modules():
            if isinstance(module, Model):
                module.generator = there
        return model.to(self.where)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        with self.card.stages.train.on(name):
            yield
            if self.settled and self.where.type == "cuda":
                torch.cuda.current_stream(self.where).synchronize()

    def budget(self) -> int:
        return self.card.kernels.free_bytes // 8

    def tensors(self, comm: Comm) -> TensorComm:
        return over_devices(comm, self.where, self._device_comm)

    def told(self, over: TensorComm) -> str:
        others = [f"; {what} by {self._lies[key]}" for what, key in _BY.items() if key in self._lies]
        return f"between devices: {over.name} ({over.why}){''.join(others)}"

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), **self._lies}


def make_compute_context(config: TrainConfig) -> ComputeContext:
    """Where the ranks of a configuration compute; `auto` is a device where there is one that can do all that is asked.

    Raises
    ------
    BackendUnavailable
        If a device was asked for, and there is none.
    UsageError
        If what was asked for does not run there.
    """
    if config.device == "cpu":
        return _host(config)
    beyond = not_on_a_device(config)
    missing = no_device()
    if config.device == "auto" and (beyond or missing):
        return _host(config)
    if missing:
        raise BackendUnavailable(f"device 'cuda' was asked for, but {missing}; --device cpu would fit")
    if beyond:
        raise UsageError(f"{beyond}; --device cpu would fit")
    return CudaComputeContext(open_card(), config.precision, config.device_comm)


def _host(config: TrainConfig) -> ComputeContext:
    if config.device_comm in ("nccl", "mpi"):
        raise UsageError(f"device_comm {config.device_comm} is of tensors on devices, and this run computes on the cpu; auto would fit")
    return ComputeContext(config.precision)


def not_on_a_device(config: TrainConfig) -> str | None:
    """What of a configuration does not run on a device; None where all does."""
    if config.exclude_targets != "none":
        return "exclude_targets takes edges out of minibatches on the host, and device 'cuda' was asked for"
    return None


def no_device() -> str | None:
    """Why there is no device to train on, or None where there is one."""
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees none"
    return backends.why_not("cuda")


def drawing(name: str, threads: int) -> Backend:
    """Where samples are drawn. On a device it allocates from torch's pool, so that both share what is free there."""
    backend = backends.make(name, threads)
    if backend.name == "cuda" and torch.cuda.is_available():
        share_pool(torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete)
    return backend


def open_card() -> CudaContext:
    """This rank's device."""
    where = torch.device("cuda", local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(where)
    engine = cast(Cuda, drawing("cuda", 1))
    return CudaContext(engine, where, cuda_stages(cast(DeviceLauncher, engine.device.launch)))

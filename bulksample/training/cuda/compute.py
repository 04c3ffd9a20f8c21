"""The GPU on which a rank trains: the CUDA form of `training.compute.ComputeContext`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch

from ...adjacency import Adjacency
from ...backends.base import Backend
from ...backends.cuda.backend import Cuda
from ...backends.cuda.nvrtc import DeviceLauncher, local_rank
from ...config.train import TrainOptions
from ...distributed.comm.base import Comm
from ...distributed.matrix.inference_memory import DEVICE_CHUNK_NUMBERS
from ...distributed.matrix.owner import OwnerAdjacency
from ...errors import UsageError
from ...local_adjacency import LocalAdjacency
from ...nn.model import Model
from ...profiling import profiled
from ...samplers import LayerWise, NodeWise, Sampler
from ...sparse import CSR
from ...views.features import Features, FeatureSource
from ...views.inference_share import InferenceShare
from ...views.plain_view import WholeShare
from ...views.type_features import RemoteFeatures, TypeFeatures
from ...views.view import View
from ..compute import ComputeContext, sampling_backend
from ..tensor_comm import TensorComm
from .cuda_context import CudaContext, open_streams
from .device_adjacency import DeviceAdjacency
from .device_comms import choose_tensor_comm
from .device_dropout import DeviceKernels
from .device_features import DeviceFeatures, DeviceTypeFeatures, HostFetchedFeatures, access_counts, room_for_features
from .device_owner import DeviceOwnerAdjacency
from .device_remote_features import DeviceRemoteFeatures, can_fetch_on_devices
from .device_rows import DeviceShare, block_on_device
from .streams import CudaStreamSync

_TRANSPORTS = {"samples": "samples_by", "features": "features_by"}


class CudaComputeContext(ComputeContext):
    """Place the model, the features and, if it samples, the graph on a GPU; if `synchronous`, the host waits at the end of phases."""

    ahead = has_device = True
    synchronous = False

    def __init__(self, cuda: CudaContext, precision: str = "fp32", device_comm: str = "auto") -> None:
        self.cuda, self.where, self.precision, self._device_comm = cuda, cuda.where, precision, device_comm
        self._placement: dict[str, Any] = {}
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"

    def backend(self, config: TrainOptions, threads: int) -> Backend:
        return self.cuda.engine if config.backend in ("auto", "cuda") else sampling_backend(config.backend, threads)

    def move_view(self, view: View, over: TensorComm, sampler: Sampler) -> View:
        if isinstance(view.features, TypeFeatures):
            if isinstance(sampler, LayerWise):
                raise UsageError(f"sampler {sampler.name} cuts the union of relations on the host; got a GPU: use device cpu, or sage")
            self._move_relations(view, view.features)
        else:
            self._move_plain(view, over, sampler)
        view.stream_sync, view.where, view.kernels = CudaStreamSync(self.cuda), self.where, DeviceKernels(self.cuda)
        self.synchronize()  # for copies to the GPU, which ran on another stream than those that read them
        return view

    def _move_plain(self, view: View, over: TensorComm, sampler: Sampler) -> None:
        cuda = self.cuda
        view.adjacency, view.features = self._adjacency(view.adjacency, over, sampler), self._features(view, over)
        share = cast(InferenceShare, view.share)
        share.chunk_numbers = DEVICE_CHUNK_NUMBERS
        if isinstance(share, WholeShare):
            share.compute_on(view.features, cuda.put(share.all_degrees))
        if view.all_degrees is not None:
            view.all_degrees = cuda.put(view.all_degrees)
        view.share, view.block_mover = DeviceShare(cuda, share), partial(block_on_device, cuda)

    def _move_relations(self, view: View, source: TypeFeatures) -> None:
        """Move a heterogeneous graph: its relations if they are whole here and the GPU samples, and its features type by type."""
        relations = cast(LocalAdjacency, view.adjacency)
        view.features = features = DeviceTypeFeatures(self.cuda, source, relations)
        if relations.collective:
            self._placement["samples_by"] = "host"
        elif relations.backend is self.cuda.engine:
            view.adjacency = DeviceAdjacency(relations, self.cuda)
        if source.blocks is not None:
            self._placement["features_by"] = "host"
        self._placement |= features.describe()

    def synchronize(self) -> None:
        if self.where.type == "cuda":
            torch.cuda.synchronize(self.where)

    def _adjacency(self, adjacency: Adjacency, over: TensorComm, sampler: Sampler) -> Adjacency:
        """Move the adjacency to the GPU if that samples; of block rows only those of owners, which exchange through `over`."""
        if adjacency.collective:
            self._placement["samples_by"] = "host"
        if adjacency.backend is not self.cuda.engine:
            return adjacency
        if isinstance(adjacency, OwnerAdjacency) and isinstance(sampler, (NodeWise, LayerWise)):
            between_owners = over.among(adjacency.grid.column_comm, later=True)
            self._placement["samples_by"] = between_owners.name
            return DeviceOwnerAdjacency(adjacency, self.cuda, between_owners)
        return DeviceAdjacency(adjacency, self.cuda) if isinstance(adjacency, LocalAdjacency) else adjacency

    def _features(self, view: View, over: TensorComm) -> FeatureSource:
        """Fetch rows of other ranks from GPU to GPU if these reach each other, else over the host."""
        free, source = self.cuda.kernels.free_bytes, view.features
        matrix = view.adjacency.whole_matrix if view.block_rows is None else view.block_rows.block.adjacency
        made: DeviceRemoteFeatures | DeviceFeatures | None = None
        if can_fetch_on_devices(source) and over.name != "host":
            remote, room = cast(RemoteFeatures, source), room_for_features(free, cast(CSR, matrix).nbytes())
            made = DeviceRemoteFeatures(self.cuda, remote, over.among(remote.column), room)
        elif isinstance(source, Features) and not source.is_sparse and matrix is not None:
            made = self._placed(source, matrix)
        if isinstance(source, RemoteFeatures):
            self._placement["features_by"] = over.name if made else "host"
        self._placement["features_on"] = str(made.held) if made else "host"
        if made is None:
            return HostFetchedFeatures(self.cuda, source)
        self._placement["features_device_bytes"] = made.held.nbytes
        return made

    def _placed(self, source: Features, matrix: CSR) -> DeviceFeatures | None:
        """Place features by the memory left beside the graph; None, with a warning, if the shared copy of a machine cannot be pinned."""
        try:
            room = room_for_features(self.cuda.kernels.free_bytes, matrix.nbytes())
            return DeviceFeatures(self.cuda, source, access_counts(matrix), room)
        except RuntimeError as error:  # CuPy's errors of the driver are some
            if not source.shared:
                raise
            warnings.warn(f"the host gathers features, since the driver does not pin the machine's copy of them: {error}", stacklevel=2)
            return None

    def move_model(self, model: Model) -> Model:
        """Move a model to the GPU, with a generator there, whose numbers differ from those of a CPU run; masks of dropout do not."""
        generator = torch.Generator(self.where)
        for module in model.modules():
            if isinstance(module, Model):
                module.generator = generator
        return model.to(self.where)

    def send(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.cuda.send(tensor)

    def start_read(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        return self.cuda.start_read(tensor)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        with profiled(name), self.cuda.streams.train.on(name):
            yield
            if self.synchronous and self.where.type == "cuda":
                torch.cuda.current_stream(self.where).synchronize()

    def budget(self) -> int:
        return self.cuda.kernels.free_bytes // 8

    def tensors(self, comm: Comm) -> TensorComm:
        return choose_tensor_comm(comm, self.where, self._device_comm)

    def transport_note(self, over: TensorComm) -> str:
        others = [f"; {what} by {self._placement[key]}" for what, key in _TRANSPORTS.items() if key in self._placement]
        return f"between devices: {over.name} ({over.why}){''.join(others)}"

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), **self._placement, "l2_fetch_bytes": self.cuda.kernels.launch.l2_fetch_bytes}


def open_cuda() -> CudaContext:
    """Open this rank's GPU."""
    where = torch.device("cuda", local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(where)
    engine = cast(Cuda, sampling_backend("cuda", 1))
    return CudaContext(engine, where, open_streams(cast(DeviceLauncher, engine.device.launch)))

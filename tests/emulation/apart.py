"""A device for torch whose tensors are none of the host's: what mixes the two, or reads one as the other, fails as on a GPU.

A tensor says that it lies on "meta", a device that torch knows without having it, and keeps its numbers on the host where only its
operations find them. So `numpy()` of one is refused, and so is a sum of one and of a tensor of the host.
"""

from contextlib import contextmanager
from functools import partial

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

from bulksample.nn.model import Model
from bulksample.training.cuda.compute import CudaComputeContext
from bulksample.training.cuda.cuda_context import CudaContext, DeviceStreams
from bulksample.training.cuda.device_comms import GroupTensorComm
from bulksample.training.tensor_comm import TensorArrival

from . import order
from .host import emulated

WHERE = torch.device("meta")
READS = []  # operations in which the host waited for the device
COPIES = []  # copies between the two for which it did not wait: "send" or "read"
ACROSS = {torch.ops.aten.copy_, torch.ops.aten._to_copy}  # what takes tensors of both
SIZED = {
    getattr(torch.ops.aten, name)
    for name in ("nonzero", "_unique2", "unique_dim", "unique_consecutive", "masked_select", "bincount", "_local_scalar_dense")
}  # what makes the host wait for the device, for a size or a number
INDEXED = {torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_}  # by indices of the host as well


class Apart(torch.Tensor):
    """A tensor of the device; `held` has its numbers."""

    @staticmethod
    def __new__(cls, held):
        laid = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        return torch.Tensor._make_wrapper_subclass(cls, held.size(), device=WHERE, requires_grad=held.requires_grad, **laid)

    def __init__(self, held):
        self.held = held
        order.operation(made=[_memory(held)])

    def tolist(self):
        """The interface of a tensor on a device, which torch refuses for classes of our own."""
        READS.append("tolist")
        order.operation([self.held.data_ptr()])
        order.host_waits()
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return carried_out(func, args, kwargs or {})


class Apartness(TorchDispatchMode):
    """While it is on, what is made on the device is made there."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return carried_out(func, args, kwargs or {})


def carried_out(func, args, kwargs):
    """Run an operation on the numbers; the result is on the device of the arguments, or on the one that was named."""
    given = []
    tree_map(lambda value: given.append(value) if isinstance(value, torch.Tensor) else None, (args, kwargs))
    there = {id(tensor.held): tensor for tensor in given if isinstance(tensor, Apart)}
    if any(t.device == WHERE for t in given if not isinstance(t, Apart)):
        raise RuntimeError(f"{func} is given a tensor that nobody put on the device")
    packet = func.overloadpacket
    checked = given[:1] if packet in INDEXED else given
    if packet in INDEXED and any(isinstance(t, torch.Tensor) and not isinstance(t, Apart) and t.dim() for t in args[1]) and there:
        READS.append(f"{packet} by indices of the host")  # which are copied to the device first
        order.host_waits()
    strangers = [t for t in checked if not isinstance(t, Apart) and (t.dim() or packet in INDEXED)]
    if packet not in ACROSS and strangers and any(isinstance(t, Apart) for t in given):
        raise RuntimeError(f"{func} is given tensors of the device and of the host")
    if there:
        order.operation(*_accesses(func, args, kwargs))
    if (there or packet == torch.ops.aten._to_copy) and waits(packet, args, kwargs):
        READS.append(str(packet))
        order.host_waits()
    onto = bool(there) if packet != torch.ops.aten.copy_ else isinstance(args[0], Apart)
    if kwargs.get("device") is not None:
        onto, kwargs = torch.device(kwargs["device"]) == WHERE, {**kwargs, "device": "cpu"}
    made = func(*tree_map(_held, args), **tree_map(_held, kwargs))
    return tree_map(lambda out: _placed(out, there) if onto and isinstance(out, torch.Tensor) else out, made)


def _accesses(func, args, kwargs):
    """The addresses that an operation reads, and those that it writes; a view is neither."""
    schema, name = func._schema, func.overloadpacket.__name__
    if any(one.alias_info is not None and not one.alias_info.is_write for one in schema.returns) or name.startswith("new_"):
        return [], []
    reads, writes = [], []
    for place, one in enumerate(schema.arguments):
        value = args[place] if place < len(args) else kwargs.get(one.name)
        written = one.alias_info is not None and one.alias_info.is_write
        for tensor in value if isinstance(value, list | tuple) else [value]:
            if isinstance(tensor, Apart) and (written or not name.endswith("_like")):
                (writes if written else reads).append(tensor.held.untyped_storage().data_ptr())
    return reads, writes


def _memory(held):
    """The owner, the address and the bytes of a tensor's memory."""
    storage = held.untyped_storage()
    return storage, storage.data_ptr(), storage.nbytes()


def waits(packet, args, kwargs):
    """True if the host waits for the device in an operation on its tensors."""
    if packet == torch.ops.aten.copy_:
        return isinstance(args[0], Apart) != isinstance(args[1], Apart) and (not isinstance(args[0], Apart) or args[1].dim() > 0)
    if packet == torch.ops.aten._to_copy:
        return isinstance(args[0], Apart) != (torch.device(kwargs.get("device") or args[0].device) == WHERE)
    if packet == torch.ops.aten.repeat_interleave:
        return kwargs.get("output_size") is None
    by_mask = packet in INDEXED and any(one is not None and one.dtype == torch.bool for one in args[1])
    return packet in SIZED or by_mask


def _placed(made, there):
    return there[id(made)] if id(made) in there else Apart(made)


def _held(value):
    return value.held if isinstance(value, Apart) else value


class ApartStage:
    """A stream on which everything is done at once; `order` finds what a device could do in another order."""

    def __init__(self, clock):
        self.clock = clock

    @contextmanager
    def on(self, name):
        with Apartness(), order.queued_on(self.clock):
            yield

    def record(self):
        return self.clock.record()

    def wait(self, event):
        self.clock.wait(event)


class ApartCard(CudaContext):
    """A CUDA context with such tensors."""

    def __init__(self, **options):
        sample, fetch, train = self.clocks = [order.Clock(name) for name in DeviceStreams._fields]
        engine = emulated(**options, arrays=order.arrays, launcher=partial(order.OrderedLauncher, sample))
        super().__init__(engine, WHERE, DeviceStreams(ApartStage(sample), ApartStage(fetch), ApartStage(train)))
        order.set_default_stream(train)

    def synchronize(self):
        """Let the host wait for all streams, and each of them for the others."""
        order.all_wait(self.clocks)

    def tensor(self, array):
        return Apart(super().tensor(array))

    def array(self, tensor):
        return super().array(tensor.contiguous().held)

    def put(self, array):
        if isinstance(array, Apart):
            return array
        READS.append("put")
        assert not isinstance(array, torch.Tensor) or array.device.type == "cpu"
        there = Apart((array if isinstance(array, torch.Tensor) else torch.tensor(array)).clone())
        order.host_waits()
        return there

    def send(self, tensor):
        assert not isinstance(tensor, Apart)
        COPIES.append("send")
        return Apart(tensor.clone())

    def start_read(self, tensor):
        COPIES.append("read")
        with self.streams.train.on("read"):
            order.operation([tensor.held.data_ptr()])
            copied = self.streams.train.record()

        def finish():
            READS.append("event")
            order.host_waits_for(copied)
            return tensor.held

        return finish


class ApartPlace(CudaComputeContext):
    """A place on it, for one thread: the one that makes it."""

    def __init__(self, **options):
        super().__init__(ApartCard(**options))

    def synchronize(self):
        self.cuda.synchronize()

    def move_model(self, model):
        """The same parameters, as on a GPU, now there, but for rows that ranks divide; and one generator for all."""
        there = torch.Generator()
        for module in model.modules():
            if isinstance(module, Model):
                module.generator = there
            module._buffers |= {name: self.cuda.put(buffer) for name, buffer in module._buffers.items()}
        for parameter in model.parameters():
            if not isinstance(parameter, Apart) and not any(parameter is shard for shard in model.shards.values()):
                torch.utils.swap_tensors(parameter, torch.nn.Parameter(self.cuda.put(parameter.detach())))
        return model


class ApartComm(GroupTensorComm):
    """A communicator that moves such tensors from device to device, as NCCL does; gloo stands for it."""

    def __init__(self, comm, parent=None):
        super().__init__(comm, "gloo", parent)

    def allreduce(self, tensor, kind):
        order.operation([], [tensor.held.data_ptr()])
        with _disable_current_modes():
            super().allreduce(tensor.held, kind)

    def among(self, comm, later=False):
        return ApartComm(comm, self)

    def start_alltoall(self, parts, kind, incoming=None):
        order.operation([part.held.untyped_storage().data_ptr() for part in parts])
        with _disable_current_modes():
            arrival = super().start_alltoall([part.held for part in parts], kind, incoming)

        def finish():
            with _disable_current_modes():
                whole, counts = arrival.whole()
            return Apart(whole), counts

        return TensorArrival(finish)

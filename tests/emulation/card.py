"""A device for training without one: torch's host tensors, the emulated back end, and streams that only take notes."""

from contextlib import nullcontext

import torch

from bulksample.training.cuda.compute import CudaComputeContext
from bulksample.training.cuda.cuda_context import CudaContext, DeviceStreams
from bulksample.training.cuda.device_comms import GroupTensorComm

from .host import emulated


class NotedStage:
    """Writes down what it is asked: (stage, "record" or "wait", event); everything is done at once."""

    def __init__(self, name, notes):
        self.name, self.notes = name, notes

    def on(self, name):
        return nullcontext()

    def record(self):
        event = f"{self.name} {sum(note[0] == self.name and note[1] == 'record' for note in self.notes)}"
        self.notes.append((self.name, "record", event))
        return event

    def wait(self, event):
        self.notes.append((self.name, "wait", event))


def emulated_card(notes=None, **options):
    """A `CudaContext` on the host; options are those of `emulated`."""
    notes = [] if notes is None else notes
    return CudaContext(emulated(**options), torch.device("cpu"), DeviceStreams(*(NotedStage(n, notes) for n in DeviceStreams._fields)))


def emulated_place(precision="fp32", notes=None, **options):
    """A `ComputeContext` on it."""
    return CudaComputeContext(emulated_card(notes, **options), precision)


class Reaching(CudaComputeContext):
    """A device that reaches those of other ranks, as over NCCL; gloo stands for it."""

    def tensors(self, comm):
        return GroupTensorComm(comm, "gloo")


def reaching_place(**options):
    """A `ComputeContext` on an emulated GPU that reaches those of other ranks."""
    return Reaching(emulated_card(**options))

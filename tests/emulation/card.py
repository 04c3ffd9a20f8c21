"""A device for training without one: torch's host tensors, the emulated back end, and streams that only take notes."""

from contextlib import nullcontext

import torch

from bulksample.device.card import Card
from bulksample.device.place import DevicePlace
from bulksample.device.streams import Stages
from bulksample.device.tensors import Grouped

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
    """A `Card` on the host; options are those of `emulated`."""
    notes = [] if notes is None else notes
    return Card(emulated(**options), torch.device("cpu"), Stages(*(NotedStage(name, notes) for name in Stages._fields)))


def emulated_place(precision="fp32", notes=None, **options):
    """A `Place` on it."""
    return DevicePlace(emulated_card(notes, **options), precision)


class Reaching(DevicePlace):
    """A device that reaches those of other ranks, as over NCCL; gloo stands for it."""

    def tensors(self, comm):
        return Grouped(comm, "gloo")


def reaching_place(**options):
    """A `Place` on an emulated card that reaches those of other ranks."""
    return Reaching(emulated_card(**options))

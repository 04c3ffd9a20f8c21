"""A trainer that joined a server over TCP: it trains on its part, answers when it is asked, and goes on from the average.

Vertices that the server deals to it later are trained on from the next epoch on; weights and moments stay. It may be killed at any
time; started again with the same words, it gets a part that nobody has and the weights of now. Where the server is gone, it ends.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...config.train import TrainConfig
from ...errors import PeerLost, UsageError
from ...training.batches import BatchSource, MiniBatchSource
from ...training.isolated_batches import IsolatedBatches, part_loader
from ...version import __version__
from .frames import BadFrame, Frame, Kind, Line, connected
from .participant import SCALARS, Dealt, Participant, load_vector, vector_of
from .roster import vector_frame

if TYPE_CHECKING:
    from ...training.loop import Trainer
    from .method import Averaging

_IDLE_SECONDS = 0.05  # of a trainer without seeds


def invited(address: str, timeout: float) -> TrainConfig:
    """What the run at an address asks of its trainers; raises `PeerLost`, or `UsageError` where it is of another version."""
    line = connected(address, timeout)
    try:
        line.send(Frame(Kind.ASK), timeout)
        told = _expected(line, line.receive(timeout), Kind.INVITE).json()
    finally:
        line.close()
    own = dict.fromkeys(("checkpoint", "resume", "metrics", "track", "memory_budget", "listen"))  # no file is written for a server
    own |= {"checkpoint_every": 0, "patience": 0, "epochs": 2**20 - 1, "eval_every": 2**20, "quiet": True}
    own |= {"device": "cpu" if told["device"] == "cpu" else "auto"}  # of its own machine
    return TrainConfig.of(**{**told, **own, "join": address, "timeout": timeout})


class Joined(Participant):
    """The party that trains."""

    def __init__(self, config: TrainConfig, fingerprint: str) -> None:
        assert config.join is not None
        self._config, self._line = config, connected(config.join, config.timeout)
        self.trainers, self.serves = config.trainers, False
        hello = {"version": __version__, "graph": fingerprint}
        self._line.send(Frame(Kind.HELLO, json.dumps(hello).encode()), config.timeout)
        told = self._receive(Kind.WELCOME).json()
        self.part, self._split = int(told["part"]), str(told["split"])
        self._members = self._receive(Kind.MEMBERS).numbers("int32")
        self._round, self._since, self._made, self.ended = -1, torch.zeros(3), 0, False
        self._coming: np.ndarray | None = None

    def _receive(self, kind: Kind) -> Frame:
        """The next frame, to be of a kind; vertices that are dealt meanwhile are for the next epoch."""
        while (frame := self._line.receive(self._config.timeout)).kind == Kind.MEMBERS and kind != Kind.MEMBERS:
            self._coming = frame.numbers("int32")
        return _expected(self._line, frame, kind)

    def dealt_anew(self) -> np.ndarray | None:
        coming, self._coming = self._coming, None
        if coming is not None:
            self._steps.train_on(None, 1)  # the view of before is let go before there is another
        return coming

    def share(self, dealt: Dealt | None) -> tuple[np.ndarray | None, str]:
        return self._members, self._split

    def batches(self, trainer: Trainer) -> BatchSource:
        self._steps = IsolatedBatches({}, lambda: None)
        self.settle(trainer)
        return self._steps

    def settle(self, trainer: Trainer) -> None:
        config = self._config
        assert self.part is not None
        loader = part_loader(trainer, self.part, config.batch_size)
        self._idle = loader.steps == 0
        self._interval = 0
        if not config.interval.endswith("s"):
            self._interval = max(1, loader.steps) if config.interval == "epoch" else int(config.interval)
        self._steps.train_on(MiniBatchSource(loader, trainer.view, trainer.ledger), max(1, loader.steps))

    def meet(self, trainer: Trainer) -> None:
        """Say that all is loaded, and begin with the weights of now."""
        self._line.send(Frame(Kind.READY), self._config.timeout)
        self._go_on(trainer, self._receive(Kind.PUSH))

    def _go_on(self, trainer: Trainer, push: Frame) -> None:
        load_vector(trainer.model, push.numbers("float32")[:-SCALARS])
        self._since, self._made, self._round = torch.zeros(3), 0, push.round

    def end_step(self, trainer: Trainer, method: Averaging, sums: torch.Tensor) -> torch.Tensor:
        """Look whether the server asks; at the end of an interval of steps, answer unasked."""
        self._since += sums
        self._made += 1
        if self._idle:
            time.sleep(_IDLE_SECONDS)
        while (frame := self._line.poll()) is not None and frame.kind == Kind.MEMBERS:
            self._coming = frame.numbers("int32")
        if frame is not None and frame.kind == Kind.END:
            self.ended = True
        elif frame is not None:
            self._answer(trainer, method, _expected(self._line, frame, Kind.PULL).round)
        elif self._made == self._interval:
            self._answer(trainer, method, self._round)
        return torch.tensor([0.0, 0.0, float(self.ended or sums[2] > 0)])

    def _answer(self, trainer: Trainer, method: Averaging, number: int) -> None:
        """Send the own weights, and go on from what comes back."""
        share = np.float32(method.share(trainer, self._made))
        own = np.append(np.concatenate([vector_of(trainer.model), self._since.numpy()]), share)
        self._line.send(vector_frame(Kind.ANSWER, own, number, self._made), self._config.timeout)
        while True:
            frame = self._line.receive(self._config.timeout)
            if frame.kind == Kind.END:
                self.ended = True
                return
            if frame.kind == Kind.MEMBERS:
                self._coming = frame.numbers("int32")
            elif frame.kind != Kind.PULL:  # which was on its way when this answer left
                break
        self._go_on(trainer, _expected(self._line, frame, Kind.PUSH))

    def describe(self) -> dict[str, Any]:
        return {"part": self.part, "ended": self.ended}


def _expected(line: Line, frame: Frame, kind: Kind) -> Frame:
    """The frame, if it is of that kind; raises `UsageError` where the other end refuses."""
    if frame.kind == Kind.REFUSE:
        raise UsageError(f"{line.name} refuses: {frame.payload.decode(errors='replace')}")
    if frame.kind == Kind.END:
        raise PeerLost(f"the run at {line.name} has ended")
    if frame.kind != kind:
        raise BadFrame(f"{line.name} sent a frame of kind {frame.kind.name}; {kind.name} was due")
    return frame

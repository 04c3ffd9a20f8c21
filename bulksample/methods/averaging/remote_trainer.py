"""A trainer in a process of its own that joins a server over TCP, trains on its part, and continues from each average.

If the server changes the vertices of its part, the trainer uses them from the next epoch on and keeps its weights and moments. A
trainer may be killed at any time; a new one started by the same command gets a free part and the current weights. A trainer
ends when its server is gone.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import torch

from ...training.batches import BatchSource
from ...training.context import TrainingContext
from ...training.loaders import IsolatedBatches, part_loader, steps_of
from ...version import __version__
from ..config import TrainConfig
from .frames import Frame, Kind
from .handshake import expect, join, token_of_trainer
from .participant import SCALARS, AveragingRule, Participant, Partitioning, load_vector, vector_of
from .trainer_registry import vector_frame

_IDLE_SECONDS = 0.05  # a step of a trainer without seeds


def invited_config(address: str, timeout: float, token_file: str | None = None) -> TrainConfig:
    """Ask the server at an address for the configuration of its trainers; the token is in a file or in the environment.

    Raises `PeerLost` if no server answers. Raises `UsageError` if there is no token, the server refuses it, or has an option that this
    version does not know.
    """
    connection = join(address, token_of_trainer(token_file), timeout)
    try:
        connection.send(Frame(Kind.ASK), timeout)
        config = expect(connection, connection.receive(timeout), Kind.INVITE).json()
    finally:
        connection.close()
    of_trainer = dict.fromkeys(("checkpoint", "resume", "metrics", "track", "memory_budget", "listen"))  # a trainer writes no files
    of_trainer |= {"checkpoint_every": 0, "patience": 0, "epochs": 2**20 - 1, "eval_every": 2**20, "quiet": True}
    of_trainer |= {"device": "cpu" if config["device"] == "cpu" else "auto"}  # the device of the trainer's machine
    of_trainer |= {"allocator": "system" if config["allocator"] == "system" else "auto"}  # likewise
    return TrainConfig.of(**{**config, **of_trainer, "join": address, "token_file": token_file, "timeout": timeout})


class RemoteTrainer(Participant):
    """A trainer that talks to its server over TCP."""

    def __init__(self, config: TrainConfig, fingerprint: str) -> None:
        assert config.join is not None
        self._config, self._connection = config, join(config.join, token_of_trainer(config.token_file), config.timeout)
        self.trainers, self.serves = config.trainers, False
        hello = {"version": __version__, "graph": fingerprint}
        self._connection.send(Frame(Kind.HELLO, json.dumps(hello).encode()), config.timeout)
        welcome = self._receive(Kind.WELCOME).json()
        self.part, self._split, self._joined_in = int(welcome["part"]), str(welcome["split"]), int(welcome["round"])
        self._members = self._receive(Kind.MEMBERS)  # the vertices that it trains on
        self._round, self._sums, self._steps_made, self.ended = -1, torch.zeros(3), 0, False
        self._new_members: Frame | None = None

    def _receive(self, kind: Kind) -> Frame:
        """Return the next frame, which must be of the given kind. New vertices that arrive before it are kept for the next epoch."""
        while (frame := self._connection.receive(self._config.timeout)).kind == Kind.MEMBERS and kind != Kind.MEMBERS:
            self._new_members = frame
        return expect(self._connection, frame, kind)

    def new_vertices(self) -> np.ndarray | None:
        if self._new_members is None:
            return None
        self._members, self._new_members = self._new_members, None
        self._batches.train_on(None, 1)  # releases the old view before there is another
        return self._members.numbers("int32")

    def receive_part(self, partitioning: Partitioning | None) -> tuple[np.ndarray | None, str]:
        return self._members.numbers("int32"), self._split

    def batches(self, context: TrainingContext) -> BatchSource:
        assert self.part is not None
        # as in a job, where rank 0 is the server; a trainer that joins later draws words of its own
        context.random_rank = self.part + 1 + (self.trainers + 1) * self._joined_in
        self._batches = IsolatedBatches({})
        self.use_view(context)
        return self._batches

    def use_view(self, context: TrainingContext) -> None:
        config = self._config
        assert self.part is not None
        loader = part_loader(context, self.part, config.batch_size, self._joined_in)
        self._idle = loader.steps == 0
        self._interval = 0
        if not config.interval.endswith("s"):
            self._interval = max(1, loader.steps) if config.interval == "epoch" else int(config.interval)
        self._batches.train_on(steps_of(context, loader, context.view), max(1, loader.steps))

    def wait_for_all(self, context: TrainingContext) -> None:
        """Report that the part is loaded, and begin with the current weights."""
        self._connection.send(Frame(Kind.READY), self._config.timeout)
        self._continue_from(context, self._receive(Kind.PUSH))

    def _continue_from(self, context: TrainingContext, push: Frame) -> None:
        load_vector(context.model, push.numbers("float32")[:-SCALARS])
        self._sums, self._steps_made, self._round = torch.zeros(3), 0, push.round

    def end_step(self, context: TrainingContext, rule: AveragingRule, sums: torch.Tensor) -> torch.Tensor:
        """Send the weights to the server if it requests them, or at the end of an interval of steps."""
        self._sums += sums
        self._steps_made += 1
        if self._idle:
            time.sleep(_IDLE_SECONDS)
        while (frame := self._connection.poll()) is not None and frame.kind == Kind.MEMBERS:
            self._new_members = frame
        if frame is not None and frame.kind == Kind.END:
            self.ended = True
        elif frame is not None:
            self._answer(context, expect(self._connection, frame, Kind.PULL).round)
        elif self._steps_made == self._interval:
            self._answer(context, self._round)
        return torch.tensor([0.0, 0.0, float(self.ended or sums[2] > 0)])

    def _answer(self, context: TrainingContext, number: int) -> None:
        """Send this trainer's weights to the server as its answer in a round, and train on from the average that it returns."""
        vertices = np.array([self._members.round], np.float32)  # the number of their list, from which the server knows the weight
        vector = np.concatenate([vector_of(context.model), self._sums.numpy(), vertices])
        self._connection.send(vector_frame(Kind.ANSWER, vector, number, self._steps_made), self._config.timeout)
        while True:
            frame = self._connection.receive(self._config.timeout)
            if frame.kind == Kind.END:
                self.ended = True
                return
            if frame.kind == Kind.MEMBERS:
                self._new_members = frame
            elif frame.kind != Kind.PULL:  # a PULL was on its way when this answer left
                break
        self._continue_from(context, expect(self._connection, frame, Kind.PUSH))

    def describe(self) -> dict[str, Any]:
        return {"part": self.part, "ended": self.ended}

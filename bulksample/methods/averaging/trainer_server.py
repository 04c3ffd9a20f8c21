"""The server of trainers that may die, be late, or join again: separate processes that talk to it over TCP (see `trainer_registry`).

    round k     after the interval: PULL to all present trainers; average those that answer within the grace period; PUSH

An epoch of the loop is a round here. The weight of a trainer in an average follows from the part that it was given, never from what it
sends. A round without an answer, or with an average that is not finite, keeps the weights. If no trainer is left for `--timeout`
seconds, the run ends. A part without a trainer for `--redivide-after` seconds is divided among the present trainers, and given
back when a trainer joins. This is the one exception to the rule that a lost rank ends the job. It needs processes outside
MPI, because an MPI launcher ends all processes when one dies.

An answer must be finite and its update not too large:

    refused     |w - w_pushed| > R max(1, |w_pushed|)      Euclidean norms of the parameters; R: --max-update
    refused     a weight, a statistic of batch norm, a loss or a count that is not finite; a loss or count above 1e30

The rule stops trainers that are broken, not trainers that lie: who knows the token may send any update within it. Adam changes no
parameter by more than about 3 lr in a step, so honest updates stay far below R = 1000; see bench/results/serving.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
import torch

from ...backends.native import processors
from ...distributed.comm.base import Comm
from ...distributed.comm.launchers import PREFIXES
from ...distributed.comm.primitives import SentCount
from ...errors import DataError, PeerLost, UsageError
from ...training.batches import BatchSource, WholeGraphSource
from ...training.context import TrainingContext
from ...training.loaders import steps_alone
from ...version import __version__
from ..config import TrainConfig
from .frames import Frame, Kind, listen
from .handshake import TOKEN, shared_token, token_of_server
from .participant import SCALARS, AveragingRule, Participant, Partitioning, PartTable, load_vector, vector_of
from .trainer_registry import Member, TrainerRegistry, vector_frame

_END_SECONDS = 5.0  # for trainers that this process started to end
_QUEUED_FRAMES, _QUEUED_BYTES = 4, 2**20  # the largest frames, and the bytes beside them, that may wait for a trainer
_LARGEST = 1e30  # of a loss or a count; sums of them stay finite in float32


class TrainerServer(Participant):
    """A server that averages, and starts trainers on this machine, with the store of `directory`, if the listening port is 0."""

    def __init__(self, config: TrainConfig, comm: Comm, fingerprint: str, directory: str | None) -> None:
        if comm.size > 1:
            raise UsageError(f"trainers that may fail are processes outside the job; got {comm.size} ranks: use one process")
        self._config, self._comm, self._fingerprint, self._directory = config, comm, fingerprint, directory
        self.trainers, self.serves, self.part = config.trainers, True, None
        self._starts_trainers = config.listen.endswith(":0")
        self._token = token_of_server(config.token_file, self._starts_trainers)
        self._listener = listen(config.listen)
        self._children: list[subprocess.Popen[bytes]] = []
        self._registry: TrainerRegistry | None = None
        self._counted: dict[str, SentCount] = {}
        self.rounds: list[dict[str, Any]] = []
        self._parts_divided = 0
        self._weights: dict[int, list[float]] = {}  # of each part in an average, for each list of vertices that its trainer was given
        if self._starts_trainers and directory is None:
            raise UsageError("trainers read the graph from a store; got a graph in memory and listen with port 0: use a store or a port")

    @property
    def address(self) -> str:
        """The address at which trainers join."""
        host, port = self._listener.getsockname()[:2]
        return f"{host}:{port}"

    @property
    def registry(self) -> TrainerRegistry:
        """The trainers of the run."""
        assert self._registry is not None
        return self._registry

    def receive_part(self, partitioning: Partitioning | None) -> tuple[np.ndarray | None, str]:
        assert partitioning is not None
        if partitioning.fault:
            raise DataError(partitioning.fault) if partitioning.damaged else UsageError(partitioning.fault)
        assert partitioning.split_part is not None
        self._split, self._parts = partitioning.split, PartTable(partitioning.assignment, partitioning.split_part)
        self._count_examples = partitioning.count_examples
        return None, partitioning.split

    def batches(self, context: TrainingContext) -> BatchSource:
        return WholeGraphSource()

    def wait_for_all(self, context: TrainingContext) -> None:
        """Admit trainers, and start them if the listening port was 0."""
        config = self._config
        parameters = sum(parameter.numel() for parameter in context.model.parameters())
        threads = config.threads or max(1, processors() // config.trainers)  # of this machine, shared among the trainers
        invitation = config.model_dump(mode="json", exclude={"token_file"}) | {"threads": threads}
        self._registry = registry = TrainerRegistry(
            self._listener, self._token, config.trainers, invitation, {"version": __version__, "graph": self._fingerprint},
            self._welcome, lambda: self._current_weights(context),
            lambda answer, pushed: fault_of(answer, pushed, parameters, config.max_update), config.grace, config.timeout, config.quiet,
        )  # fmt: skip
        registry.answer_bytes = 4 * (len(vector_of(context.model)) + SCALARS)
        registry.server.max_queued_bytes = _QUEUED_FRAMES * max(registry.answer_bytes, 4 * self._parts.n) + _QUEUED_BYTES
        registry.round = context.epoch
        token = shared_token(config.token_file)
        if token and not (config.quiet and self._starts_trainers):
            joins = f"`bulksample train FOLDER --join {self.address}` joins, with {token}"
            print(f"bulksample: listening; {joins}", file=sys.stderr, flush=True)
        atexit.register(self.close)
        if self._starts_trainers:
            self._start_trainers()
        registry.wait_for(config.trainers, time.monotonic() + config.timeout)
        self._next = time.monotonic()
        self._count_traffic()

    def _welcome(self, part: int) -> list[Frame]:
        """Return the frames for a new trainer of a part, after that part has its original vertices again."""
        self._send_members(self._parts.give_back(part))
        self._weights.pop(part, None)
        welcome = {"part": part, "split": self._split, "round": self.registry.round}
        return [Frame(Kind.WELCOME, json.dumps(welcome).encode()), self._members(part)]

    def _members(self, part: int) -> Frame:
        """Return the MEMBERS frame of a part: its vertices and the number of this list. Record the weight of the trainer for that list."""
        vertices, weights = self._parts.members(part), self._weights.setdefault(part, [])
        weights.append(self._weight(vertices))
        return Frame(Kind.MEMBERS, vertices.astype("<i4").tobytes(), round=len(weights) - 1)

    def _weight(self, vertices: np.ndarray) -> float:
        """Return a_m of a trainer that was given some vertices."""
        config = self._config
        if config.average_by == "vertices":
            return float(len(vertices))
        if config.average_by == "steps":
            return float(max(1, steps_alone(config, self._count_examples(vertices))) if config.interval == "epoch" else config.interval)
        return 1.0

    def _send_members(self, parts: list[int]) -> None:
        """Send the trainers of some parts their new vertices."""
        for member in self.registry.admitted:
            if member.part in parts:
                self.registry.send(member, self._members(member.part))

    def _divide_vacant_parts(self) -> None:
        """Divide every part that has had no trainer for too long among the present trainers."""
        seconds, present = self._config.redivide_after, [member.part for member in self.registry.present if member.part is not None]
        for part in [] if seconds is None else self.registry.vacant(seconds):
            receivers = self._parts.lend(part, present)
            if receivers:
                self._send_members(receivers)
                self._parts_divided += 1
                self._print(f"part {part} was divided among trainers {', '.join(map(str, receivers))}")

    def _print(self, text: str) -> None:
        if not self._config.quiet:
            print(f"bulksample: {text}", file=sys.stderr, flush=True)

    def _current_weights(self, context: TrainingContext) -> Frame:
        vector = np.concatenate([vector_of(context.model), np.zeros(SCALARS, np.float32)])
        return vector_frame(Kind.PUSH, vector, self.registry.round)

    def end_step(self, context: TrainingContext, rule: AveragingRule, sums: torch.Tensor) -> torch.Tensor:
        """Make a round: 8 (|theta| + 4) bytes for each trainer that answers (kind "model"), 32 for each frame header (kind "control")."""
        config, registry = self._config, self.registry
        pull = config.interval.endswith("s")
        if pull:
            self._next = max(self._next + float(config.interval[:-1]), time.monotonic())
            registry.attend_until(self._next)
        registry.wait_for(1, time.monotonic() + config.timeout)
        if not registry.present:
            raise PeerLost(f"no trainer is left in round {registry.round}, and none joined within {config.timeout:g} s")
        answered = registry.collect(registry.round, pull)
        totals = self._average(context, rule, answered)
        steps = {str(member.part): member.answer.steps for member in answered if member.answer is not None}
        self.rounds.append({"round": registry.round, "responders": sorted(map(int, steps)), "steps": steps})
        registry.round += 1
        if answered:
            registry.push(self._current_weights(context), answered)
        self._divide_vacant_parts()
        totals[2] = sums[2]
        self._count_traffic()
        return totals

    def _average(self, context: TrainingContext, rule: AveragingRule, answered: list[Member]) -> torch.Tensor:
        """Give the model the average of some answers, if there are any and it is finite; return seeds, loss and no stop request."""
        number, before, vectors = self.registry.round, vector_of(context.model), []
        for member in answered:
            assert member.answer is not None
            vectors.append(member.answer.numbers("float32"))
            weights, trained_on = self._weights[member.part], int(vectors[-1][-1])  # the number of a list of vertices
            vectors[-1][-1] = weights[trained_on if 0 <= trained_on < len(weights) else -1]
        if not vectors:
            self._print(f"no trainer answered in round {number}; the weights stay")
            return torch.zeros(3)
        average = rule.average(context, vectors)
        if not np.isfinite(average).all():
            load_vector(context.model, before)
            self._print(f"the average of round {number} is not finite; the weights stay: use a lower lr")
            return torch.zeros(3)
        return torch.from_numpy(np.append(average[-SCALARS:-2], np.float32(0)))

    def _count_traffic(self) -> None:
        """Add the frames since the last call to the tally of this process."""
        for kind, now in self.registry.server.traffic.items():
            before = self._counted.get(kind, SentCount(0, 0))
            self._comm.count(kind, now.messages - before.messages, now.bytes - before.bytes)
        self._counted = dict(self.registry.server.traffic)

    def close(self) -> None:
        """Send END to all trainers, and wait for those that this process started."""
        if self._registry is not None:
            self._registry.end()
        until = time.monotonic() + _END_SECONDS
        for child in self._children:
            try:
                child.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._children.clear()

    def _start_trainers(self) -> None:
        """Start trainers as processes of this machine; they end when this process ends."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(PREFIXES)}
        environment[TOKEN] = os.fsdecode(self._token)  # not in the command, which all users of the machine can see
        command = [sys.executable, "-m", "bulksample", "train", str(self._directory), "--join", self.address, "--quiet"]
        for number in range(1, self.trainers + 1):  # trainers take the devices of the machine in turn, after this process
            of_child = environment | {"LOCAL_RANK": str(number)}
            self._children.append(subprocess.Popen(command, env=of_child, stdin=subprocess.DEVNULL))

    def describe(self) -> dict[str, Any]:
        counts = {name: getattr(self._registry, name, 0) for name in ("joined", "lost", "late", "refused")}
        averages = sum(bool(one["responders"]) for one in self.rounds)
        return {"trainers": self.trainers, "averages": averages, **counts, "parts_redivided": self._parts_divided, "rounds": self.rounds}


def fault_of(answer: Frame, pushed: Frame, parameters: int, max_update: float) -> str:
    """Return the reason to refuse an answer, or an empty string.

    `answer` and `pushed` are the weights of a trainer and those that it continued from: vectors as `participant` describes them, whose
    first `parameters` numbers are parameters. `max_update` is R, the largest norm of an update in norms of the pushed parameters.
    """
    weights, start = np.frombuffer(answer.payload, "<f4"), np.frombuffer(pushed.payload, "<f4")
    if not np.isfinite(weights).all():
        return "sent weights that are not finite; use a lower lr"
    if (np.abs(weights[-SCALARS:]) > _LARGEST).any():
        return f"sent a loss or a count above {_LARGEST:g}; use a lower lr"
    update, norm = update_norms(weights[:parameters], start[:parameters])
    if update > max_update * norm:
        return (
            f"sent an update of norm {update:.3g}; at most {max_update:g} x {norm:.3g} is accepted: use a lower lr, or a higher max_update"
        )
    return ""


def update_norms(weights: np.ndarray, start: np.ndarray) -> tuple[float, float]:
    """Return the norm of an update, and that of the parameters before it or 1 if that is larger."""
    before = start.astype(np.float64)
    update, norm = (float(np.sqrt(np.square(one).sum())) for one in (weights - before, before))  # without BLAS, whose threads would spin
    return update, max(1.0, norm)

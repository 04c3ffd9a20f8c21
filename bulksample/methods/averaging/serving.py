"""The server of trainers that may die, be late, or join again: processes of their own, which talk to it over TCP (`methods.averaging.roster`).

    round k     when the interval has passed: PULL to all that are there; average over those who answer within the grace; PUSH

An epoch of the loop is a round here. A round without an answer keeps the weights; where nobody is left for `--timeout` seconds, the
run ends. A part that nobody has had for `--redeal-after` seconds is dealt to those that are there, and given back to a trainer that
joins. This is the one exception to the rule that a rank that dies ends the job, and it shares no MPI world with anything: of
a job over MPI, a launcher ends all processes when one dies.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...config.train import TrainConfig
from ...distributed.comm.base import Comm, SentCount
from ...distributed.comm.launchers import PREFIXES
from ...errors import PeerLost, UsageError
from ...training.batches import BatchSource, WholeGraphSource
from ...version import __version__
from .dealing import Dealing
from .frames import Frame, Kind, listening
from .participant import SCALARS, Dealt, Participant, vector_of
from .roster import Roster, vector_frame

if TYPE_CHECKING:
    from ...training.loop import Trainer
    from .method import Averaging

_END_SECONDS = 5.0  # for trainers that were started here to end


class Serving(Participant):
    """The party that averages.

    Parameters
    ----------
    source : str, optional
        The directory of the graph; with it trainers are started here, where the port is 0.
    """

    def __init__(self, config: TrainConfig, comm: Comm, fingerprint: str, source: str | None) -> None:
        if comm.size > 1:
            raise UsageError(f"trainers that may fail are no ranks of a job; got {comm.size} ranks: one process would fit")
        self._config, self._comm, self._mark, self._source = config, comm, fingerprint, source
        self.trainers, self.serves, self.part = config.trainers, True, None
        self._door = listening(config.listen)
        self._starts = config.listen.endswith(":0")
        self._children: list[subprocess.Popen[bytes]] = []
        self._roster: Roster | None = None
        self._counted: dict[str, SentCount] = {}
        self.rounds: list[dict[str, Any]] = []
        self._dealt_again = 0
        if self._starts and source is None:
            raise UsageError("trainers are started for a graph in a folder; of one in memory, a port of your own would fit")

    @property
    def address(self) -> str:
        """Where trainers find this server."""
        host, port = self._door.getsockname()[:2]
        return f"{host}:{port}"

    def share(self, dealt: Dealt | None) -> tuple[np.ndarray | None, str]:
        assert dealt is not None
        if dealt.fault:
            raise UsageError(dealt.fault)
        assert dealt.cut is not None
        self._split, self._dealing = dealt.split, Dealing(dealt.assignment, dealt.cut)
        return None, dealt.split

    def batches(self, trainer: Trainer) -> BatchSource:
        return WholeGraphSource()

    def meet(self, trainer: Trainer) -> None:
        """Let trainers in."""
        config = self._config
        asked = {"version": __version__, "graph": self._mark}
        self._roster = Roster(
            self._door, config.trainers, self._invitation(), asked, self._welcome, lambda: self._now(trainer),
            config.grace, config.timeout, config.quiet,
        )  # fmt: skip
        self._roster.answer_bytes = 4 * (len(vector_of(trainer.model)) + SCALARS)
        self._roster.round = trainer.epoch
        if not config.quiet or not self._starts:
            print(f"bulksample: listening; `bulksample train FOLDER --join {self.address}` joins", file=sys.stderr, flush=True)
        atexit.register(self.close)
        if self._starts:
            self._start()
        self._roster.gather(config.trainers, time.monotonic() + config.timeout)
        self._next = time.monotonic()
        self._count()

    def _invitation(self) -> dict[str, Any]:
        """What a trainer does: the same, without all that is the server's."""
        threads = self._config.threads or max(1, len(os.sched_getaffinity(0)) // self._config.trainers)
        return self._config.model_dump(mode="json") | {"threads": threads}

    def _welcome(self, part: int) -> list[Frame]:
        """A part has its own vertices again, whoever had them meanwhile."""
        self._tell(self._dealing.give_back(part))
        told = {"part": part, "split": self._split}
        return [Frame(Kind.WELCOME, json.dumps(told).encode()), self._members(part)]

    def _members(self, part: int) -> Frame:
        return Frame(Kind.MEMBERS, self._dealing.members(part).astype("<i4").tobytes())

    def _tell(self, parts: list[int]) -> None:
        """Tell trainers the vertices of their parts, where these have changed."""
        assert self._roster is not None
        for member in self._roster.admitted:
            if member.part in parts:
                self._roster.tell(member, self._members(member.part))

    def _deal_again(self) -> None:
        """Deal the parts that nobody has had for too long to the trainers that are there."""
        assert self._roster is not None
        after = self._config.redeal_after
        there = [member.part for member in self._roster.present if member.part is not None]
        for part in [] if after is None else self._roster.vacant(after):
            told = self._dealing.lend(part, there)
            if told:
                self._tell(told)
                self._dealt_again += 1
                self._say(f"part {part} was dealt to trainers {', '.join(map(str, told))}")

    def _say(self, what: str) -> None:
        if not self._config.quiet:
            print(f"bulksample: {what}", file=sys.stderr, flush=True)

    def _now(self, trainer: Trainer) -> Frame:
        assert self._roster is not None
        now = np.concatenate([vector_of(trainer.model), np.zeros(SCALARS, np.float32)])
        return vector_frame(Kind.PUSH, now, self._roster.round)

    def end_step(self, trainer: Trainer, method: Averaging, sums: torch.Tensor) -> torch.Tensor:
        """A round; 8 (|theta| + 4) bytes for each that answers (kind "model"), 32 for the header of every frame (kind "control")."""
        assert self._roster is not None
        config, roster = self._config, self._roster
        pull = config.interval.endswith("s")
        if pull:
            self._next = max(self._next + float(config.interval[:-1]), time.monotonic())
            roster.attend_until(self._next)
        roster.gather(1, time.monotonic() + config.timeout)
        if not roster.present:
            raise PeerLost(f"no trainer is left in round {roster.round}, and none joined within {config.timeout:g} s")
        answered = roster.collect(roster.round, pull)
        totals = torch.zeros(3)
        if answered:
            answers = [member.answer.numbers("float32") for member in answered if member.answer is not None]
            result = method.averaged(trainer, answers)
            totals[:2] = torch.from_numpy(result[-SCALARS:-2].copy())
        steps = {str(member.part): member.answer.steps for member in answered if member.answer is not None}
        self.rounds.append({"round": roster.round, "responders": sorted(map(int, steps)), "steps": steps})
        if not answered:
            self._say(f"nobody answered in round {roster.round}; the weights stay")
        roster.round += 1
        if answered:
            roster.push(vector_frame(Kind.PUSH, result, roster.round), answered)
        self._deal_again()
        totals[2] = sums[2]
        self._count()
        return totals

    def _count(self) -> None:
        """Tell the tally of this process what travelled since the last call."""
        assert self._roster is not None
        for kind, now in self._roster.traffic.items():
            before = self._counted.get(kind, SentCount(0, 0))
            self._comm.count(kind, now.messages - before.messages, now.bytes - before.bytes)
        self._counted = dict(self._roster.traffic)

    def close(self) -> None:
        """Tell all trainers, and wait for those that were started here."""
        if self._roster is not None:
            self._roster.end()
        until = time.monotonic() + _END_SECONDS
        for child in self._children:
            try:
                child.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._children.clear()

    def _start(self) -> None:
        """Trainers as processes of this machine, which end with this one."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(PREFIXES)}
        command = [sys.executable, "-m", "bulksample", "train", str(self._source), "--join", self.address, "--quiet"]
        for number in range(1, self.trainers + 1):  # which take the devices of the machine in turn, after this process
            own = environment | {"LOCAL_RANK": str(number)}
            self._children.append(subprocess.Popen(command, env=own, stdin=subprocess.DEVNULL))

    def describe(self) -> dict[str, Any]:
        counts = {name: getattr(self._roster, name, 0) for name in ("joined", "lost", "late")}
        averages = sum(bool(one["responders"]) for one in self.rounds)
        return {
            "trainers": self.trainers, "averages": averages, **counts, "parts_dealt_again": self._dealt_again, "rounds": self.rounds,
        }  # fmt: skip

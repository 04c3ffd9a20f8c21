"""Callbacks of training runs: one keeps what is reported, one ends the run; and the losses of a run by processes."""

import json


class Recorder:
    """Keeps the loss of every step in `losses` and the line of every epoch in `lines`."""

    def __init__(self):
        self.losses, self.lines, self.ended = [], [], False

    def begin(self, epoch, epochs, steps):
        self.began = (epoch, epochs, steps)

    def step(self, epoch, step, loss):
        self.losses.append(loss)

    def epoch(self, line):
        self.lines.append(line)

    def end(self):
        self.ended = True


class Crash(Exception):
    """Raised by `CrashesAt`."""


class CrashesAt(Recorder):
    """Ends the run after a number of steps, as a crash would."""

    def __init__(self, steps):
        super().__init__()
        self.left = steps

    def step(self, epoch, step, loss):
        super().step(epoch, step, loss)
        self.left -= 1
        if not self.left:
            raise Crash("as asked")


_PROCESSES = """
import json, sys
import bulksample as bs
from recorder import Recorder

recorder, (folder, options) = Recorder(), sys.argv[1:]
comm = bs.init()
bs.train(folder, comm=comm, callbacks=[recorder], **json.loads(options))
if comm.rank == 0:
    print("losses", json.dumps(recorder.losses))
"""


def losses_of_processes(ranks, folder, **options):
    """The loss of every step of a run on a stored graph by so many processes."""
    from launch import run_ranks  # which the processes themselves do not need

    ended = run_ranks(ranks, ["-c", _PROCESSES, str(folder), json.dumps(options)])
    assert ended.code == 0, ended
    return json.loads(next(line for line in ended.out.splitlines() if line.startswith("losses ")).removeprefix("losses "))

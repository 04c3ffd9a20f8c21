"""Commands of `bulksample` in this process, alone or on ranks that are threads."""

from __future__ import annotations

import contextlib
import json
import threading

import typer

from bulksample.distributed.comm import world
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.samplers import Sampler

SMALL = ("--fanouts", "3,2", "--hidden", 4, "--batch-size", 16, "--epochs", 1, "--threads", 1)


def command(*arguments):
    """Run a command; errors of the package are raised."""
    from bulksample.cli.app import app

    typer.main.get_command(app).main([str(argument) for argument in arguments], prog_name="bulksample", standalone_mode=False)


def train(folder, *arguments):
    command("train", folder, *SMALL, *arguments)


class Calls:
    """Every call of a sampler by a command: the number of its mini-batches, their seeds, and the adjacency, rank by rank."""

    def __init__(self, ranks):
        self.sizes, self.seeds, self.adjacency = ([[] for _ in range(ranks)] for _ in range(3))


def sample(monkeypatch, folder, *arguments, ranks=1):
    """Run `bulksample sample` on some ranks; return the JSON object and the calls of the sampler."""
    local, calls, original = threading.local(), Calls(ranks), Sampler.sample_bulk
    result = folder.parent / "result.json"

    def counted(self, adjacency, seeds, *more):
        calls.sizes[local.comm.rank].append(len(seeds))
        calls.seeds[local.comm.rank].append(seeds)
        calls.adjacency[local.comm.rank].append(adjacency)
        return original(self, adjacency, seeds, *more)

    def run(comm):
        local.comm = comm
        command("sample", folder, *arguments, "--overwrite", "--json", result)

    with monkeypatch.context() as patch:
        patch.setattr(Sampler, "sample_bulk", counted)
        patch.setattr(world, "world", lambda timeout: contextlib.nullcontext(local.comm))
        run(SerialComm()) if ranks == 1 else on_threads(ranks, run)
    return json.loads(result.read_text()), calls

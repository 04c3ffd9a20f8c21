"""When memory runs out, one line names the work and the option to lower, and the exit code is 2."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from launch import ROOT
from waiting import PATIENCE

from bulksample.cli.process import out_of_memory
from bulksample.data import edges, rmat, store
from bulksample.evaluation import inference
from bulksample.nn.model import Gnn
from bulksample.samplers import Sampler
from bulksample.views import features

TRAIN = ["train", "--fanouts", "3,3", "--hidden", "8", "--batch-size", "64", "--epochs", "1", "--threads", "1", "--quiet"]
PIB = 2**50


def of_numpy(*_, **__):
    return np.empty(PIB, np.uint8)


def of_torch(*_, **__):
    return torch.empty(PIB, dtype=torch.uint8)


def of_cpp(*_, **__):
    raise MemoryError("std::bad_alloc")


def of_the_kernel(*_, **__):
    raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


@pytest.mark.parametrize(
    ("place", "name", "allocate", "work", "reason", "lower"),
    [
        (Sampler, "sample_bulk", of_cpp, "sampling mini-batches", "std::bad_alloc", "--bulk-size"),
        (features, "gather_rows", of_numpy, "fetching features", "Unable to allocate 1.00 PiB", "--feature-storage fp16"),
        (Gnn, "forward", of_torch, "training", "allocate", "--hidden"),
        (inference, "infer_with_hidden", of_torch, "evaluating all vertices", "allocate", "--hidden"),
    ],
)
def test_training_names_its_work_and_what_to_lower(command, graph, monkeypatch, place, name, allocate, work, reason, lower):
    monkeypatch.setattr(place, name, allocate)
    ended = command(TRAIN[0], graph, *TRAIN[1:])
    assert ended.code == 2, ended
    assert ended.err.startswith(f"bulksample: memory ran out while {work}: "), ended
    assert reason in ended.err
    assert lower in ended.err.rpartition("; ")[2]
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("allocate", [of_numpy, of_the_kernel])
def test_other_commands_do_as_well(command, tmp_path, monkeypatch, allocate):
    monkeypatch.setattr(edges, "distinct", allocate)
    ended = command("data", "make", "rmat", "--scale", "6", "-o", tmp_path / "g")
    assert ended.code == 2, ended
    assert "memory ran out while generating the graph: " in ended.err
    assert "use a lower --scale or --edge-factor" in ended.err


@pytest.mark.long
def test_a_limit_of_the_system_is_named_by_the_native_back_end(tmp_path):
    """One mini-batch of all neighbors does not fit, and the loader has halved its bulk down to it."""
    store.save(rmat.rmat(15, 64, seed=1), tmp_path / "g")
    code = """
import resource, sys
import numpy, scipy.sparse, typer, bulksample.cli.app, bulksample.training.environment
from bulksample import cli
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (48 << 20), resource.getrlimit(resource.RLIMIT_AS)[1]))
cli.main()
"""
    flags = ["--fanouts=-1,-1", "--batch-size", "32768", "--bulk-size", "1", "--seeds", "all", "--threads", "1", "--backend", "native"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    line = [sys.executable, "-c", code, "sample", str(tmp_path / "g"), *flags]
    ended = subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert ended.returncode == 2, ended
    assert ended.stderr == (
        "bulksample: memory ran out while sampling mini-batches: std::bad_alloc; "
        "use a smaller --batch-size, --bulk-size or --memory-budget, or smaller --fanouts\n"
    )


@pytest.mark.parametrize("error", [RuntimeError("the size of tensor a must match"), OSError(errno.ENOENT, "no such file"), ValueError("8")])
def test_other_errors_are_not_taken_for_it(error):
    assert not out_of_memory(error)

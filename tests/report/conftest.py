"""Results of real runs on a small graph, made once for all tests of reports."""

import json
from pathlib import Path

import pytest
from communities import community_graph

from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.run import train
from bulksample.training.callbacks import JsonLines

OPTIONS = {"fanouts": (5, 5), "hidden": 8, "batch_size": 32, "epochs": 3, "threads": 1, "lr": 0.01}


def keep(folder: Path, name: str, ranks: int = 1, **options) -> Path:
    """Train on `ranks` ranks, and write NAME.json and NAME.jsonl as `bulksample train` does."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = JsonLines(folder / f"{name}.jsonl")
    reports = on_threads(ranks, lambda comm: train(community_graph(), comm, [lines], **{**OPTIONS, **options}))
    file = folder / f"{name}.json"
    file.write_text(json.dumps(reports[0]))
    return file


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A folder with runs on 1 and 2 ranks, and one with another seed."""
    folder = tmp_path_factory.mktemp("trained")
    keep(folder, "one")
    keep(folder, "two", ranks=2)
    keep(folder, "one-other", seed=1)
    return folder

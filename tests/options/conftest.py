"""Stores of the tiny graphs, written once, and what tests and the runs without an option share."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from commands import sample
from plain import graph, labelled_pairs, trainer
from trainers import RUN_TOKEN

from bulksample.data import store
from bulksample.data.link_split import hold_out
from bulksample.samplers import Sampler
from bulksample.training.method import Method


@pytest.fixture(autouse=True)
def run_token(monkeypatch):
    """The token of servers and trainers that are given no file."""
    monkeypatch.setenv("BULKSAMPLE_TOKEN", RUN_TOKEN)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """The store of `plain.graph()`."""
    place = tmp_path_factory.mktemp("tiny") / "graph"
    store.save(graph(), place)
    return place


@pytest.fixture(scope="session")
def links(tmp_path_factory):
    """The store of a graph of 60 vertices without its held-out edges, and these."""
    place = tmp_path_factory.mktemp("tiny") / "links"
    whole = hold_out(graph(), "to", 0.1, 0.1, 5, seed=0)
    whole.save(place)
    return place


@pytest.fixture(scope="session")
def edge_labels(tmp_path_factory):
    """A file of 90 labelled pairs of the 60 vertices."""
    place = tmp_path_factory.mktemp("tiny") / "edges.npz"
    np.savez(place, **labelled_pairs())
    return place


@pytest.fixture
def drawn(monkeypatch, folder):
    """Run `bulksample sample` on the tiny graph; return its JSON and the calls of the sampler."""
    return lambda *arguments, **options: sample(monkeypatch, folder, *arguments, **options)


@pytest.fixture
def threads_seen(monkeypatch):
    """Train; return the threads of torch in a step, of the back end, and the names of the threads that sampled."""
    before = torch.get_num_threads()
    computing, sampling, loss, draw = [], [], Method.loss, Sampler.sample_bulk

    def computed(self, *arguments):
        computing.append(torch.get_num_threads())
        return loss(self, *arguments)

    def sampled(self, *arguments):
        sampling.append(threading.current_thread() is threading.main_thread())
        return draw(self, *arguments)

    def run(**options):
        computing.clear()
        made = trainer(graph(), **options)
        sampling.clear()  # what the loader has drawn to choose its bulk
        made.run()
        return set(computing), made.context.view.adjacency.backend.threads, set(sampling)

    monkeypatch.setattr(Method, "loss", computed)
    monkeypatch.setattr(Sampler, "sample_bulk", sampled)
    yield run
    torch.set_num_threads(before)

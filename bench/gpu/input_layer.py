"""Measure the input of a first layer of GraphSAGE on a card, for the benchmark: computed where features lie, and of rows gathered first."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from harness import alternate

from bulksample import Stream
from bulksample.graph.minibatch import InputHop

from .inputs import adjacency_on, sampler_of


def input_layer(bench: Any) -> dict[str, Any]:
    """Time own rows and means of the input block of a mini-batch both ways, in alternation, by storage type; they are equal to the bit."""
    import torch

    from bulksample.nn.aggregate import own_and_mean
    from bulksample.training.cuda.device_features import DeviceFeatures
    from bulksample.training.cuda.device_rows import block_on_device
    from bulksample.views.features import Features

    (minibatch,) = sampler_of("sage").sample_bulk(adjacency_on(bench.cuda, bench.large), bench.seeds(1), Stream(1))
    block, vertices = block_on_device(bench.cuda, minibatch.blocks[0]), minibatch.vertices
    own = vertices[: block.num_destinations]

    def in_place(features: DeviceFeatures) -> Any:
        with bench.cuda.streams.fetch.on("fetch"):
            hop = InputHop(block.indptr, vertices.index_select(0, block.indices), block.weights)
        return features.start_own_and_mean(own, hop)()

    found: dict[str, Any] = {"sources": block.num_sources, "destinations": block.num_destinations, "edges": block.num_edges}
    for storage in ("given", "fp16"):
        held = Features(bench.graph, storage=storage)
        features = DeviceFeatures(bench.cuda, held, np.zeros(bench.graph.n), held.nbytes())
        bench.gpu.synchronize()  # samples and features are made on other streams than they are read
        ways: dict[str, Callable[[], Any]] = {
            "in place": partial(in_place, features),
            "gathered": lambda features=features: own_and_mean(block, features.fetch(vertices)),
        }
        if not all(torch.equal(one, other) for one, other in zip(*(work() for work in ways.values()), strict=True)):
            raise AssertionError(f"own rows or means differ between both ways, features stored as {storage}")
        figures = alternate({name: partial(bench.waited, work) for name, work in ways.items()}, bench.rounds)
        seconds = {name: statistics.median(values) for name, values in figures.items()}
        found["float32" if storage == "given" else storage] = {
            "seconds": seconds,
            "gathered_to_in_place": seconds["gathered"] / seconds["in place"],
        }
    return found

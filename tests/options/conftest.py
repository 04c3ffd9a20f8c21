"""Stores of the tiny graphs, written once."""

from __future__ import annotations

import pytest
from plain import graph

from bulksample.data import store
from bulksample.data.edge_split import split_edges


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
    whole, held = split_edges(graph(), 0.1, 0.1, 5, seed=0)
    store.save(whole, place)
    held.save(place)
    return place

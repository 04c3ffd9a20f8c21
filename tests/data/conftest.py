"""Stores to be copied and damaged."""

import pytest
from samples import small_graph

from bulksample.data import store


@pytest.fixture(scope="session")
def stores(tmp_path_factory):
    """A whole store with dense features and one with sparse ones, to be copied."""
    folder = tmp_path_factory.mktemp("whole")
    store.save(small_graph(), folder / "dense")
    store.save(small_graph(sparse=True), folder / "sparse")
    return folder

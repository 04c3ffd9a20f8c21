"""Stores that tests of training on a device share."""

import pytest
from communities import community_graph

from bulksample.data import store


@pytest.fixture(scope="session")
def stored(tmp_path_factory):
    """A folder with a store of 150 vertices for every kind of features and weights."""
    folder = tmp_path_factory.mktemp("graphs")
    for kind in ("plain", "half", "sparse", "weighted"):
        store.save(community_graph(150, **({} if kind == "plain" else {kind: True})), folder / kind)
    return folder

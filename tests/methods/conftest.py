"""The stores that tests of methods train on."""

import pytest
from communities import community_graph

from bulksample.data import store

KINDS = {
    "plain": {}, "sparse": {"sparse": True}, "weighted": {"weighted": True}, "wide": {"width": 40}, "small": {"n": 40},
    "tiny": {"n": 5, "classes": 2},
}  # fmt: skip


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A folder with a store of every kind."""
    folder = tmp_path_factory.mktemp("graphs")
    for name, kind in KINDS.items():
        store.save(community_graph(**kind), folder / name)
    return folder

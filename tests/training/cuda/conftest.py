"""Stores that tests of training on a device share."""

import pytest
from communities import community_graph
from emulation import order

from bulksample.data import store


@pytest.fixture(scope="session")
def stored(tmp_path_factory):
    """A folder with a store of 150 vertices for every kind of features and weights."""
    folder = tmp_path_factory.mktemp("graphs")
    for kind in ("plain", "half", "sparse", "weighted"):
        store.save(community_graph(150, **({} if kind == "plain" else {kind: True})), folder / kind)
    return folder


@pytest.fixture(autouse=True)
def the_order_of_streams():
    """No work on an emulated device may be in another order on a real one; see `emulation.order`."""
    order.begin_anew()
    yield
    assert not order.FAULTS, "\n".join(order.FAULTS)

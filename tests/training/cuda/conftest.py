"""Stores that tests of training on a device share."""

import pytest
from communities import community_graph
from emulation import order

from bulksample.data import store
from bulksample.training.weights import Adam


@pytest.fixture(scope="session")
def stored(tmp_path_factory):
    """A folder with a store of 150 vertices for every kind of features and weights."""
    folder = tmp_path_factory.mktemp("graphs")
    for kind in ("plain", "half", "sparse", "weighted"):
        store.save(community_graph(150, **({} if kind == "plain" else {kind: True})), folder / kind)
    return folder


@pytest.fixture(autouse=True)
def one_adam(monkeypatch):
    """Runs on a CPU and on an emulated device make the same updates to the bit."""
    monkeypatch.setattr(Adam, "fused_on", ())


@pytest.fixture(autouse=True)
def the_order_of_streams():
    """No work on an emulated device may be in another order on a real one; see `emulation.order`."""
    order.begin_anew()
    yield
    assert not order.FAULTS, "\n".join(order.FAULTS)

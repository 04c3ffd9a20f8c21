"""The graphs that loaders are tested on."""

import pytest


@pytest.fixture(params=["simple", "parallel"])
def data(request):
    """A Data without and with parallel edges."""
    from pyg_graphs import make_data

    return make_data() if request.param == "simple" else make_data(120, 4000, simple=False)

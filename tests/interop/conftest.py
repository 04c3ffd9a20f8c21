"""The graphs that loaders are tested on."""

from dataclasses import replace

import numpy as np
import pytest
from communities import community_graph

_KINDS = {"plain": {}, "sparse": {"sparse": True}, "weighted": {"weighted": True, "half": True}}


@pytest.fixture(params=["simple", "parallel"])
def data(request):
    """A Data without and with parallel edges."""
    from pyg_graphs import make_data

    return make_data() if request.param == "simple" else make_data(120, 4000, simple=False)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Stores by kind, and their graphs."""
    folder = tmp_path_factory.mktemp("graphs")
    graphs = {kind: community_graph(**options) for kind, options in _KINDS.items()}
    for kind, graph in graphs.items():
        graph.save(folder / kind)
    return folder, graphs


@pytest.fixture(scope="module")
def with_edges(tmp_path_factory):
    """A store whose edge features name the ends of each edge, and its graph."""
    graph = community_graph(n=120, degree=10)
    a = graph.adjacency
    graph = replace(graph, edge_features=np.stack([a.row_of_entry(), a.indices, np.arange(a.nnz)], axis=1).astype(np.float32))
    path = tmp_path_factory.mktemp("graphs") / "edges"
    graph.save(path)
    return path, graph

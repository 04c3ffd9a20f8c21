"""In a graph with as many edges as vertices, the name of an attribute decides whether it is of vertices or edges, as in torch_geometric."""

import pytest
import torch
from torch_geometric.data import Data

from bulksample.interop.pyg import (
    ClusterData,
    ClusterLoader,
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    LaborLoader,
    LinkNeighborLoader,
    NeighborLoader,
    ShaDowKHopSampler,
)

N = 16


def as_many_edges_as_vertices(**known):
    """Return a ring whose attributes have 16 rows each: `number` and `age` of vertices, `edge_ends` and `edge_weight` of edges."""
    source = torch.arange(N)
    edges = torch.stack([source, (source + 1) % N])
    return Data(
        **known, edge_index=edges, number=source, age=source.float(), edge_ends=edges.T.contiguous(), edge_weight=source.float() + 1
    )


@pytest.mark.filterwarnings("ignore:Unable to accurately infer")
@pytest.mark.parametrize("known", [{"num_nodes": N}, {"x": torch.ones(N, 2)}, {}], ids=["num_nodes", "x", "neither"])
@pytest.mark.parametrize(
    "made",
    [
        lambda data: NeighborLoader(data, [1, 1], batch_size=3, seed=0),
        lambda data: LaborLoader(data, [1, 1], batch_size=3, seed=0),
        lambda data: LinkNeighborLoader(data, [1], edge_label_index=data.edge_index[:, :4], batch_size=2, seed=0),
        lambda data: ClusterLoader(ClusterData(data, num_parts=4, log=False), batch_size=1, seed=0),
        lambda data: GraphSAINTNodeSampler(data, batch_size=5, num_steps=2, seed=0),
        lambda data: GraphSAINTEdgeSampler(data, batch_size=3, num_steps=2, seed=0),
        lambda data: ShaDowKHopSampler(data, depth=1, num_neighbors=1, batch_size=3, seed=0),
    ],
    ids=["neighbor", "labor", "link", "cluster", "saint-node", "saint-edge", "shadow"],
)
def test_an_attribute_with_edge_in_its_name_is_of_edges_and_all_others_are_of_vertices(made, known):
    data = as_many_edges_as_vertices(**known)
    theirs = data.subgraph(torch.tensor([0, 1, 2, 7]))  # torch_geometric's own rule
    assert (theirs.number.tolist(), theirs.edge_ends.tolist()) == ([0, 1, 2, 7], [[0, 1], [1, 2]])
    shapes = set()
    for batch in made(data):
        shapes.add((batch.num_nodes, batch.num_edges))
        assert batch.number.tolist() == batch.age.tolist()
        assert len(batch.number) == batch.num_nodes
        assert batch.number[batch.edge_index].T.tolist() == batch.edge_ends.tolist()
        assert (batch.edge_weight - 1).tolist() == batch.edge_ends[:, 0].tolist()
    assert any(vertices != edges for vertices, edges in shapes)

"""Edges of weight 0 in the loaders of other libraries: batches are those of the graph without these edges, by any way to take neighbors."""

import numpy as np
import pytest
import torch
from pyg_graphs import make_data
from pyg_typed import typed_data
from torch_geometric.loader import NodeLoader
from torch_geometric.utils import subgraph

from bulksample import Selection, Stream, UsageError, backends
from bulksample.interop.dgl import FastGCNSampler, LaborSampler, LadiesSampler, MultiLayerFullNeighborSampler, NeighborSampler
from bulksample.interop.dgl.blocks import read_graph
from bulksample.interop.edge_graph import EdgeSampler
from bulksample.interop.pyg import BulkSampler, FastGCNLoader, LadiesLoader, LinkNeighborLoader, NeighborLoader
from bulksample.local_adjacency import LocalAdjacency


def hiding(simple):
    """A graph that hides a third of its edges by the weight 0, also one of two parallel ones; and the rest as a graph of its own."""
    data = make_data(simple=simple)
    data.weight[torch.arange(data.num_edges) % 3 == 1] = 0
    cut = data.edge_subgraph(data.weight > 0)
    return data, cut


def edges_by_name(batch):
    """The edges of a batch by their ends and `edge_attr`, sorted."""
    return sorted(zip(*batch.n_id[batch.edge_index].tolist(), batch.edge_attr.tolist(), strict=True))


LAWS = ["sage", "labor", "full"]


def batches(data, fanouts, law, form, seeds):
    sampler = BulkSampler(data, fanouts, sampler=law, weight_attr="weight", subgraph_type=form)
    return NodeLoader(data, sampler, input_nodes=torch.arange(seeds), batch_size=30)


@pytest.mark.parametrize("form", ["directional", "bidirectional", "induced"])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("simple", [True, False], ids=["simple", "parallel"])
def test_all_neighbors_by_weight(simple, law, form):
    data, cut = hiding(simple)
    for hidden, shown in zip(*(batches(graph, [-1, -1], law, form, 90) for graph in (data, cut)), strict=True):
        assert sorted(hidden.n_id.tolist()) == sorted(shown.n_id.tolist())
        assert edges_by_name(hidden) == edges_by_name(shown)
        assert (hidden.weight > 0).all()
    if form == "induced":  # torch_geometric's own subgraph of the graph without these edges
        kept, _ = subgraph(hidden.n_id, cut.edge_index)
        assert hidden.num_edges == kept.shape[1]


@pytest.mark.parametrize("fanout", [4, 300])
@pytest.mark.parametrize("law", LAWS[:2])
@pytest.mark.parametrize("simple", [True, False], ids=["simple", "parallel"])
def test_drawn_neighbors_by_weight(simple, law, fanout):
    """A fanout beyond all degrees takes all; parallel edges of a vertex that LABOR drew come without those of weight 0."""
    data, cut = hiding(simple)
    degrees = torch.bincount(cut.edge_index[1], minlength=300)
    for form in ("directional", "induced"):
        for batch in batches(data, [fanout], law, form, 300):
            assert (batch.weight > 0).all()
            if fanout == 300 and form == "directional":
                assert torch.equal(torch.bincount(batch.edge_index[1], minlength=30)[: batch.batch_size], degrees[batch.input_id])


@pytest.mark.parametrize("loader", [LadiesLoader, FastGCNLoader])
@pytest.mark.parametrize("simple", [True, False], ids=["simple", "parallel"])
def test_layers_by_weight(simple, loader):
    data, cut = hiding(simple)
    for count in (-1, 60):
        batches = [list(loader(graph, [count, count], batch_size=100, weight_attr="weight")) for graph in (data, cut)]
        for hidden, shown in zip(*batches, strict=True):
            assert (hidden.weight > 0).all()
            if count == -1:
                assert edges_by_name(hidden) == edges_by_name(shown)


def test_links_by_weight():
    data, cut = hiding(True)
    asked = {"edge_label_index": cut.edge_index[:, :40], "batch_size": 20, "weight_attr": "weight"}
    for hidden, shown in zip(LinkNeighborLoader(data, [-1, -1], **asked), LinkNeighborLoader(cut, [-1, -1], **asked), strict=True):
        assert edges_by_name(hidden) == edges_by_name(shown)


@pytest.mark.parametrize("times", [None, "vertices", "edges"])
@pytest.mark.parametrize("form", ["directional", "induced"])
def test_typed_neighbors_by_weight(form, times):
    data = typed_data(times=times)
    if times and form == "induced":
        pytest.skip("an induced subgraph in time is refused")
    cut = data.clone()
    for key in data.edge_types:
        data[key].weight[torch.arange(data[key].num_edges) % 3 == 1] = 0
        some = data[key].weight > 0
        for name, column in list(data[key].items()):
            cut[key][name] = column[:, some] if name == "edge_index" else column[some]
    options = {"input_nodes": ("paper", torch.arange(30)), "batch_size": 10, "weight_attr": "weight", "subgraph_type": form}
    options |= {} if times is None else {"time_attr": "time", "input_time": torch.full((30,), 9)}
    for hidden, shown in zip(NeighborLoader(data, [-1, -1], **options), NeighborLoader(cut, [-1, -1], **options), strict=True):
        for key in data.edge_types:
            assert sorted(hidden[key].edge_attr.tolist()) == sorted(shown[key].edge_attr.tolist()), key
        assert all(sorted(hidden[kind].n_id.tolist()) == sorted(shown[kind].n_id.tolist()) for kind in data.node_types)


class DglLike:
    """A stand-in for the part of a DGLGraph that `read_graph` reads; DGL is not needed for that."""

    is_homogeneous = True

    def __init__(self, data):
        self.data, self.edata = data, {"w": data.weight, "m": data.weight > 0, "id": data.edge_attr}

    def edges(self, order):
        return self.data.edge_index[0], self.data.edge_index[1]

    def num_nodes(self):
        return self.data.num_nodes


DGL = {
    "prob": lambda: NeighborSampler([-1, -1], prob="w"), "mask": lambda: NeighborSampler([-1, -1], mask="m"),
    "full prob": lambda: MultiLayerFullNeighborSampler(2, prob="w"), "full mask": lambda: MultiLayerFullNeighborSampler(2, mask="m"),
    "large": lambda: NeighborSampler([400, 400], prob="w"), "labor": lambda: LaborSampler([-1, -1], prob="w"),
    "ladies": lambda: LadiesSampler([-1, -1], prob="w"), "fastgcn": lambda: FastGCNSampler([-1, -1], prob="w"),
}  # fmt: skip


@pytest.mark.parametrize("name", DGL)
@pytest.mark.parametrize("simple", [True, False], ids=["simple", "parallel"])
def test_dgl_samplers_by_weight_or_mask(simple, name):
    found = []
    for data in hiding(simple):
        graph = DglLike(data)
        given = DGL[name]()
        (relation,) = read_graph(graph, given.prob).relations
        sampler = EdgeSampler(relation, given.sampler)
        adjacency = LocalAdjacency(sampler.edges.matrix, backends.make("native"), entries=True)
        (minibatch,) = sampler.sample_bulk(adjacency, Selection.of([np.arange(25)], data.num_nodes), Stream(2))
        edges = [relation.ids_of(layer[relation.key]) for layer in minibatch.entries]
        found.append([sorted(data.edge_attr[own].tolist()) for own in edges])
        assert all((data.weight[own] > 0).all() for own in edges)
    assert found[0] == found[1]


def test_a_mask_and_weights_are_refused_together():
    with pytest.raises(UsageError, match="use one of them"):
        NeighborSampler([2], prob="w", mask="m")


def test_the_full_sampler_reads_given_weights():
    data, _ = hiding(True)
    assert BulkSampler(data, [-1], sampler="full", weight_attr="weight").sampler.base.weighted
    assert BulkSampler(data, [-1], sampler="full").sampler.base.name == "full"

"""Graphs with types and times as `HeteroData`, and a search that finds every neighborhood in another way."""

import numpy as np
import torch
from torch_geometric.data import HeteroData

COUNTS = {"paper": 60, "author": 40, "venue": 5, "alone": 3}
EDGES = {
    ("paper", "cites", "paper"): 300,
    ("author", "writes", "paper"): 200,
    ("paper", "in", "venue"): 60,
    ("paper", "rev_writes", "author"): 200,
    ("venue", "funds", "author"): 0,
}


def typed_data(seed=0, times=None):
    """Random edges, parallel ones among them, an empty relation and a type without edges; `times` is "vertices" or "edges"."""
    rng = np.random.default_rng(seed)
    data = HeteroData()
    for name, count in COUNTS.items():
        data[name].x = torch.from_numpy(rng.standard_normal((count, 4), np.float32))
        data[name].column = torch.arange(count) * 10
        if times == "vertices" and name in ("paper", "author"):
            data[name].time = torch.from_numpy(rng.integers(0, 20, count))
    for key, m in EDGES.items():
        ends = [rng.integers(0, max(1, COUNTS[end] - 2), m) for end in (key[0], key[2])]
        data[key].edge_index = torch.from_numpy(np.stack(ends))
        data[key].edge_attr = torch.arange(m)
        data[key].weight = torch.from_numpy(rng.integers(1, 5, m)).float()
        if times == "edges" and key[1] != "in":
            data[key].time = torch.from_numpy(rng.integers(0, 20, m))
    return data


def allowed(data, key, edge, bound):
    """True if the time of an edge, or of its source, is not above the bound; what has no time is always there."""
    source = data[key].edge_index[0, edge]
    for store, place in ((data[key], edge), (data[key[0]], source)):
        if bound is not None and "time" in store and int(store.time[place]) > bound:
            return False
    return True


def reached(data, seeds, hops, bound=None):
    """Return all vertices by type and all edges by relation within some hops of seeds (type, id), by search, not by a sampler."""
    seen, frontier, edges = set(seeds), set(seeds), {key: set() for key in data.edge_types}
    for _ in range(hops):
        found = set()
        for key in data.edge_types:
            source, destination = data[key].edge_index.tolist()
            for i in range(len(source)):
                if (key[2], destination[i]) in frontier and allowed(data, key, i, bound):
                    edges[key].add(i)
                    found.add((key[0], source[i]))
        frontier = found - seen
        seen |= found
    return {name: {v for kind, v in seen if kind == name} for name in data.node_types}, edges


def assert_rows_belong(batch, data):
    """Attributes belong to `n_id` and `e_id`, and edges are those that `e_id` names."""
    for name in data.node_types:
        for column in ("x", "column"):
            torch.testing.assert_close(batch[name][column], data[name][column][batch[name].n_id])
        assert sum(batch[name].num_sampled_nodes) == batch[name].num_nodes
    for key in data.edge_types:
        torch.testing.assert_close(batch[key].edge_attr, data[key].edge_attr[batch[key].e_id])
        source, destination = batch[key].edge_index
        ends = torch.stack([batch[key[0]].n_id[source], batch[key[2]].n_id[destination]])
        torch.testing.assert_close(ends, data[key].edge_index[:, batch[key].e_id])
        assert sum(batch[key].num_sampled_edges) == len(source)

"""Vertices that a user names, by ids or by a mask: what is accepted and what is refused, wherever they come in."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from zoo import random_matrix

import bulksample as bs
from bulksample import Stream
from bulksample.data.columns import read_columns
from bulksample.graph.selection import Selection, vertex_ids
from bulksample.interop.dgl.samplers import distinct_vertices
from bulksample.interop.pyg import BulkSampler, LinkNeighborLoader, NeighborLoader
from bulksample.loading.loader import BulkLoader
from bulksample.rng import Law

N = 40
MASK = np.arange(N) % 3 == 0
IDS = np.flatnonzero(MASK)
MATRIX = random_matrix(N, 300, 1)
GRAPH = bs.Graph(MATRIX, labels=np.zeros(N, np.int64), num_classes=1)
DATA = Data(x=torch.zeros(N, 1), edge_index=torch.from_numpy(np.stack([MATRIX.indices, MATRIX.row_of_entry()]).astype(np.int64)))


def of_split_file(given, folder):
    np.savez(folder / "split.npz", train=np.asarray(given))
    return np.flatnonzero(read_columns(GRAPH, split=folder / "split.npz").masks["train"])


def of_bulk_loader(given, _):
    sampler = bs.samplers.make("sage", [2])
    loader = BulkLoader(bs.LocalAdjacency(MATRIX, bs.backends.make()), sampler, given, batch_size=N, shuffle=False)
    return next(iter(loader)).seeds


ENTRANCES = {
    "vertex_ids": lambda given, _: vertex_ids(given, N),
    "Selection.of": lambda given, _: Selection.of([given], N).vertices,
    "BulkLoader": of_bulk_loader,
    "Loader": lambda given, _: next(iter(bs.Loader(GRAPH, fanouts=[2], seeds=given, shuffle=False, out="numpy"))).seeds,
    "NeighborLoader": lambda given, _: next(iter(NeighborLoader(DATA, [2], given, batch_size=N))).n_id[: len(IDS)].numpy(),
    "DGL": lambda given, _: distinct_vertices(given, N),
    "a split file": of_split_file,
}


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(
    "given",
    [IDS, IDS.astype(np.int32), IDS.astype(np.uint64), IDS.tolist(), torch.from_numpy(IDS), MASK, MASK.tolist(), torch.from_numpy(MASK)],
    ids=["int64", "int32", "uint64", "list", "tensor", "mask", "list of bools", "mask as tensor"],
)
def test_ids_and_masks_name_the_same_vertices(entrance, given, tmp_path):
    assert ENTRANCES[entrance](given, tmp_path).tolist() == IDS.tolist()


REFUSED = {
    "a short mask": (MASK[:-1], rf"got bool of shape \({N - 1},\); use integer ids of shape \(m,\), or a mask: bool of shape \({N},\)"),
    "a long mask": (np.append(MASK, True), rf"got bool of shape \({N + 1},\)"),
    "a mask of uint8": (MASK.astype(np.uint8), rf"got uint8 of shape \({N},\); use integer ids .* or a mask: bool"),
    "a short mask of uint8": (MASK[:-1].astype(np.uint8), rf"got uint8 of shape \({N - 1},\)"),
    "a mask in a column": (MASK[:, None], rf"got bool of shape \({N}, 1\)"),
    "floats": ([0.0, 1.5], r"got float64 of shape \(2,\)"),
    "whole floats": (np.array([0.0, 1.0]), r"got float64 of shape \(2,\)"),
    "a negative id": ([3, -1], "vertex -1"),
    "an id too high": ([3, N], f"vertex {N}"),
    "an id beyond int64": (np.array([2**64 - 1], np.uint64), "vertex"),
    "a number": (3, r"got int64 of shape \(\)"),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("case", REFUSED)
def test_anything_else_is_refused_wherever_it_comes_in(entrance, case, tmp_path):
    given, message = REFUSED[case]
    with pytest.raises((bs.UsageError, bs.DataError), match=message):
        ENTRANCES[entrance](given, tmp_path)


def test_a_ragged_list_is_refused():
    with pytest.raises(bs.UsageError, match="got a list that is no array"):
        vertex_ids([[0, 1], [2]], N)


def test_an_empty_list_names_no_vertex():
    assert vertex_ids([], N).dtype == np.int64
    assert Selection.of([[], [2]], N).sizes.tolist() == [0, 1]


@pytest.mark.parametrize("lists", [3, None, "train"])
def test_a_selection_wants_lists(lists):
    with pytest.raises(bs.UsageError, match=f"a selection wants a list of vertices for each mini-batch; got {lists!r}"):
        Selection.of(lists, N)


def test_a_mask_keeps_the_input_ids_of_torch_geometric():
    """`input_id` is the vertex if a mask was given, and the position if ids were given."""
    by_mask, by_ids = (next(iter(NeighborLoader(DATA, [2], given, batch_size=N))).input_id.tolist() for given in (MASK, IDS))
    assert (by_mask, by_ids) == (IDS.tolist(), list(range(len(IDS))))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (torch.tensor([[0, 1], [2, N]]), f"edge_label_index: destination: entry 1 is vertex {N}"),
        (torch.tensor([[0, -1], [2, 3]]), "edge_label_index: source: entry 1 is vertex -1"),
        (torch.tensor([[0.0, 1], [2, 3]]), r"edge_label_index: got float32 of shape \(2, 2\); use integers of shape \(2, m\)"),
        (torch.tensor([0, 1, 2]), r"edge_label_index: got int64 of shape \(3,\)"),
    ],
)
def test_pairs_of_link_loaders_are_vertices(pairs, message):
    with pytest.raises((bs.UsageError, bs.DataError), match=message):
        LinkNeighborLoader(DATA, [2], edge_label_index=pairs)


def test_a_matrix_is_no_adjacency_and_a_name_no_sampler():
    sampler, adjacency = bs.samplers.make("sage", [2]), bs.LocalAdjacency(MATRIX, bs.backends.make())
    with pytest.raises(bs.UsageError, match=r"adjacency: got a CSR; use LocalAdjacency\("):
        BulkLoader(MATRIX, sampler, IDS, batch_size=4)
    with pytest.raises(bs.UsageError, match=r"sampler: got 'sage'; use samplers.make\("):
        BulkLoader(adjacency, "sage", IDS, batch_size=4)


@pytest.mark.parametrize("fanouts", [5, "15", [2.5], None])
def test_fanouts_of_drop_in_loaders_are_lists_of_whole_numbers(fanouts):
    from bulksample.interop.dgl import NeighborSampler

    for made in (lambda: BulkSampler(DATA, fanouts), lambda: NeighborSampler(fanouts)):
        with pytest.raises(bs.UsageError, match="fanouts must be a list of whole numbers, one for each hop"):
            made()


def test_an_adj_t_in_coordinates_is_refused():
    coordinates = torch.sparse_coo_tensor(DATA.edge_index.flip(0), torch.ones(DATA.num_edges), (N, N))
    for made in (lambda data: NeighborLoader(data, [2]), bs.from_pyg):
        with pytest.raises(bs.UsageError, match=r"adj_t: got a torch tensor of layout sparse_coo; use adj_t.to_sparse_csr\(\)"):
            made(Data(adj_t=coordinates, num_nodes=N))


def test_parts_keep_the_names_of_their_rows(backend):
    """Walkers at one vertex draw apart; halves of a bulk draw as the whole does."""
    walkers = np.tile(np.arange(30, dtype=np.int32), 4)
    bulk = Selection(np.arange(4) * 7, np.arange(5) * 30, np.repeat([5, 6, 5, 7], 30), N, walkers)
    draw = Stream(3).draw(Law.REPLACEMENT)
    whole = backend.sample_rows(MATRIX, bulk, 1, draw).columns
    halves = [bulk.parts(0, 2), bulk.parts(2, 9)]
    assert [half.names.tolist() for half in halves] == [walkers[:60].tolist()] * 2
    assert [half.minibatches.tolist() for half in halves] == [[0, 7], [14, 21]]
    assert np.concatenate([backend.sample_rows(MATRIX, half, 1, draw).columns for half in halves]).tolist() == whole.tolist()
    assert all(len(np.unique(one)) > 1 for one in whole.reshape(4, 30))

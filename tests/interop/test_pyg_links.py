"""Edges as examples: labels, negatives and triplets stand where torch_geometric puts them."""

import pytest
import torch
from pyg_graphs import make_data, same
from torch_geometric.loader import LinkLoader
from torch_geometric.sampler import NegativeSampling

from bulksample import UsageError
from bulksample.interop.pyg import BulkSampler, LinkNeighborLoader

DISJOINT = pytest.mark.parametrize("disjoint", [False, True])


def ends(batch):
    return batch.n_id[batch.edge_label_index]


@DISJOINT
def test_without_negatives_examples_are_the_edges(data, disjoint):
    loader = LinkNeighborLoader(data, [3, 2], batch_size=40, disjoint=disjoint)
    assert len(loader) == -(-data.num_edges // 40)
    for part, batch in zip(torch.arange(data.num_edges).split(40), loader, strict=True):
        torch.testing.assert_close(batch.input_id, part)
        torch.testing.assert_close(ends(batch), data.edge_index[:, part])
        torch.testing.assert_close(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        torch.testing.assert_close(batch.x, data.x[batch.n_id])


@DISJOINT
@pytest.mark.parametrize("ratio", [1.0, 0.5, 2.5])
def test_binary_negatives_follow_the_examples(disjoint, ratio):
    data = make_data()
    for batch in LinkNeighborLoader(data, [3], batch_size=20, neg_sampling_ratio=ratio, disjoint=disjoint):
        positive = len(batch.input_id)
        negative = -int(-positive * ratio // 1)
        torch.testing.assert_close(ends(batch)[:, :positive], data.edge_index[:, batch.input_id])
        torch.testing.assert_close(batch.edge_label, torch.cat([torch.ones(positive), torch.zeros(negative)]))
        if disjoint and ratio == 1.0:  # torch_geometric numbers trees modulo the examples, so others do not line up
            tree = batch.batch[batch.edge_label_index]
            torch.testing.assert_close(tree[0], tree[1])


def test_labels_of_the_user_are_shifted_by_one_beside_negatives():
    data = make_data()
    label = torch.arange(data.num_edges) % 3
    batch = next(iter(LinkNeighborLoader(data, [3], batch_size=20, edge_label=label, neg_sampling="binary")))
    torch.testing.assert_close(batch.edge_label[:20], label[:20] + 1)
    assert (batch.edge_label[20:] == 0).all()
    batch = next(iter(LinkNeighborLoader(data, [3], batch_size=20, edge_label=label)))
    torch.testing.assert_close(batch.edge_label, label[:20])


@DISJOINT
@pytest.mark.parametrize("amount", [1, 3])
def test_triplets(disjoint, amount):
    data = make_data()
    chosen = data.edge_index[:, 100:150]
    loader = LinkNeighborLoader(
        data, [3, 2], chosen, batch_size=20, neg_sampling=NegativeSampling("triplet", amount), disjoint=disjoint, shuffle=True
    )
    for batch in loader:
        torch.testing.assert_close(batch.n_id[batch.src_index], chosen[0, batch.input_id])
        torch.testing.assert_close(batch.n_id[batch.dst_pos_index], chosen[1, batch.input_id])
        assert batch.dst_neg_index.shape == ((len(batch.input_id),) if amount == 1 else (len(batch.input_id), amount))
        assert "edge_label_index" not in batch


def test_negatives_are_uniform_and_new_in_every_epoch():
    data = make_data(20, 60)
    loader, counts, epochs = LinkNeighborLoader(data, [1], batch_size=1000, neg_sampling_ratio=10.0), torch.zeros(20), []
    for _ in range(20):
        (batch,) = loader
        epochs.append(ends(batch)[:, data.num_edges :])
        counts += torch.bincount(epochs[-1].reshape(-1), minlength=20)
    assert not torch.equal(epochs[0], epochs[1])
    total = counts.sum()
    assert (counts / total - 1 / 20).abs().max() < 4 * (1 / 20 * 19 / 20 / total) ** 0.5


def test_negatives_by_weight():
    data, weight = make_data(20, 60), torch.zeros(20)
    weight[3], weight[7] = 1.0, 3.0
    law = NegativeSampling("binary", 10.0, src_weight=weight, dst_weight=weight)
    (batch,) = LinkNeighborLoader(data, [1], batch_size=1000, neg_sampling=law)
    counts = torch.bincount(ends(batch)[:, data.num_edges :].reshape(-1), minlength=20)
    assert set(counts.nonzero().view(-1).tolist()) == {3, 7}
    total = int(counts.sum())
    assert abs(counts[7] / total - 0.75) < 4 * (0.75 * 0.25 / total) ** 0.5
    with pytest.raises(UsageError, match="one for each of the 20 vertices"):
        LinkNeighborLoader(data, [1], neg_sampling=NegativeSampling("binary", 1, src_weight=weight[:9]))


def test_a_loader_of_edges_can_be_called_and_repeats(data):
    one, other = (LinkNeighborLoader(data, [2], batch_size=20, neg_sampling="binary", seed=4) for _ in range(2))
    batch = one(torch.tensor([3, 30]))
    torch.testing.assert_close(ends(batch)[:, :2], data.edge_index[:, [3, 30]])
    assert same(batch, other([3, 30]))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_for_torch_geometrics_own_link_loader(data, workers):
    loader = LinkLoader(data, BulkSampler(data, [2, 2]), batch_size=300, neg_sampling="binary", num_workers=workers)
    for part, batch in zip(torch.arange(data.num_edges).split(300), loader, strict=True):
        torch.testing.assert_close(ends(batch)[:, : len(part)], data.edge_index[:, part])


def test_a_sampler_whose_weights_would_be_lost_is_refused():
    data = make_data()
    with pytest.raises(UsageError, match="would lose its weights"):
        next(iter(LinkNeighborLoader(data, [9], neighbor_sampler=BulkSampler(data, [9], sampler="ladies"))))


def test_triplets_have_no_labels_and_links_no_times():
    data = make_data()
    with pytest.raises(ValueError, match="edge_label"):
        LinkNeighborLoader(data, [2], edge_label=torch.ones(data.num_edges), neg_sampling="triplet")
    with pytest.raises(UsageError, match="edge_label_time"):
        LinkNeighborLoader(data, [2], edge_label_time=torch.ones(data.num_edges))

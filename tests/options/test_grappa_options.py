"""The options of Grappa: the chunks that a rank sees, the weights of its seeds, and its steps, enumerated."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from plain import copied, graph, sage, trained, trainer

from bulksample.distributed.comm.threads import on_threads

GRAPPA = {"method": "grappa", "seeds": "all", "quiet": True}
P, CHUNKS = 3, np.array_split(np.arange(60), 3)


def seen(folder, p=P, epochs=0, **options):
    """The vertices of every rank's view, after some epochs."""

    def rank(comm):
        made = trainer(folder, comm, **{**GRAPPA, "epochs": epochs, **options})
        made.run()
        return sorted(made.method.local.vertices.tolist())

    return on_threads(p, rank)


def sources_of(vertices):
    """Everything that some vertices aggregate."""
    a = graph().adjacency
    return set(a.indices[np.isin(a.row_of_entry(), list(vertices))].tolist())


def two_chunks(rank, shift=1):
    return {*CHUNKS[rank].tolist(), *CHUNKS[(rank + shift) % P].tolist()}


def test_view_is_one_chunk_or_several_with_or_without_their_halo(folder):
    assert seen(folder, view="base") == [chunk.tolist() for chunk in CHUNKS]
    assert seen(folder, view="strict") == [sorted(two_chunks(rank)) for rank in range(P)]
    assert seen(folder, view="halo") == [sorted(two_chunks(rank) | sources_of(two_chunks(rank))) for rank in range(P)]


def test_view_chunks_is_their_number(folder):
    for count in (1, 3):
        expected = [sorted(v for j in range(count) for v in CHUNKS[(rank + j) % P].tolist()) for rank in range(P)]
        assert seen(folder, view="strict", view_chunks=count) == expected


@pytest.mark.long
def test_swap_every_moves_on_to_other_chunks(folder):
    """Of three chunks a rank sees its own and, in turn, the next one and the one after."""
    for epochs, shift in ((1, 1), (2, 1), (3, 2), (4, 2), (5, 1)):
        assert seen(folder, view="strict", swap_every=2, epochs=epochs) == [sorted(two_chunks(rank, shift)) for rank in range(P)]


def test_chunking_fresh_draws_the_chunk_of_every_vertex(folder):
    """Views of one chunk are a partition; a fresh one is no block row, has parts of binomial size, and changes with the view."""
    found = [seen(folder, view="base", chunking="fresh", swap_every=1, epochs=epochs) for epochs in (1, 2)]
    for parts in found:
        assert sorted(v for part in parts for v in part) == list(range(60))
        assert all(abs(len(part) - 20) < 5 * np.sqrt(60 * 2 / 9) for part in parts)
        assert parts != [chunk.tolist() for chunk in CHUNKS]
    assert found[0] != found[1]


def test_halo_rows_limits_the_halo_of_a_rank(folder):
    limit = 4
    for rank, vertices in enumerate(seen(folder, view="halo", halo_rows=limit)):
        assert len(sources_of(two_chunks(rank)) - two_chunks(rank)) > limit
        assert len(set(vertices) - two_chunks(rank)) == limit
        assert set(vertices) - two_chunks(rank) <= sources_of(two_chunks(rank))


def coverage(rank, hops, shift=1):
    """The share of walks from each vertex of a rank's own chunk that stay in its strict view: dense products."""
    a, inside = graph().adjacency, np.isin(np.arange(60), list(two_chunks(rank, shift)))
    walk = np.zeros((60, 60))
    walk[a.row_of_entry(), a.indices] = 1 / a.degrees[a.row_of_entry()]
    stays = np.ones(60)
    for _ in range(hops):
        stays = np.where(a.degrees > 0, walk @ (stays * inside), 1.0)
    return stays[CHUNKS[rank]]


def weights_of(folder, **options):
    """For each rank, the weights of the seeds of its chunk; and the method."""

    def rank(comm):
        method = trainer(folder, comm, **{**GRAPPA, "view": "strict", **options}).method
        return method._final(method._raw), method

    return on_threads(P, rank)


def normalised(shares):
    """Weights whose mean over all ranks is one among seeds with neighbors; a seed that has none weighs one."""
    linked = [graph().adjacency.degrees[chunk] > 0 for chunk in CHUNKS]
    own = np.concatenate([share[some] for share, some in zip(shares, linked, strict=True)])
    return [np.where(some, share / own.mean(), 1.0) for share, some in zip(shares, linked, strict=True)], own


def test_weight_hops_are_the_steps_of_the_walks_that_stay(folder):
    for hops in (1, 3):
        expected, _ = normalised([coverage(rank, hops) for rank in range(P)])
        for (found, _), wanted in zip(weights_of(folder, weight_hops=hops, shrink=1.0), expected, strict=True):
            np.testing.assert_allclose(found, wanted)


def test_seed_weights_none_and_batch_are_alike_for_all_seeds_of_a_rank(folder):
    expected, _ = normalised([coverage(rank, 2) for rank in range(P)])
    for (found, _), wanted in zip(weights_of(folder, seed_weights="batch", shrink=1.0), expected, strict=True):
        np.testing.assert_allclose(found, wanted.mean())
        assert np.ptp(wanted) > 0.1
    for found, _ in weights_of(folder, seed_weights="none"):
        np.testing.assert_array_equal(found, 1.0)


def test_shrink_mixes_with_uniform_weights(folder):
    """By default as much as the effective share of the seeds, (sum w)^2 / (n sum w^2)."""
    expected, own = normalised([coverage(rank, 2) for rank in range(P)])
    for shrink in (0.25, "ess"):
        amount = own.sum() ** 2 / (len(own) * np.square(own).sum()) if shrink == "ess" else shrink
        for (found, _), wanted in zip(weights_of(folder, shrink=shrink), expected, strict=True):
            np.testing.assert_allclose(found, 1 - amount + amount * wanted)


def test_weight_cap_cuts_above_its_quantile(folder):
    expected, _ = normalised([coverage(rank, 2) for rank in range(P)])
    for (found, _), wanted in zip(weights_of(folder, weight_cap=0.5, shrink=1.0), expected, strict=True):
        middle = np.sort(wanted)[(len(wanted) - 1) // 2]
        np.testing.assert_allclose(found, np.minimum(wanted, middle))
        assert wanted.max() > middle


def test_full_graph_is_one_pass_over_the_view(folder):
    """Alone a rank sees everything, so its loss is that of a dense pass; there is one step an epoch."""
    options = {**GRAPPA, "full_graph": True, "batch_size": 4, "epochs": 2}
    start = copied(trainer(folder, **options).model)
    report, recorder, _ = trained(folder, **options)
    labelled = np.flatnonzero(graph().labels >= 0)
    loss = F.cross_entropy(sage(graph(), start)[labelled], torch.from_numpy(graph().labels[labelled]))
    assert report["steps"] == len(recorder.losses) == 2
    torch.testing.assert_close(recorder.losses[0], loss.item(), rtol=1e-4, atol=1e-5)

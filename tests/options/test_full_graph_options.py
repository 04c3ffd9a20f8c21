"""The options of methods that train on whole graphs: BNS, CoFree and RETEXO, by enumeration and by law."""

import numpy as np
from plain import graph, trained, trainer
from rank_traffic import halo_rows, sent_in_steps

from bulksample.distributed.comm.threads import on_threads

WHOLE = {"fanouts": (-1, -1)}


def test_boundary_share_is_the_chance_of_a_halo_row_to_travel(folder):
    """Rows of 3 numbers travel forward and their gradients back, each row with probability q; 5 standard deviations are allowed."""
    epochs, share, rows = 10, 0.5, halo_rows()
    sent = sent_in_steps(folder, method="bns", boundary_share=share, epochs=epochs) - epochs * 2 * 16
    drawn = sent / (2 * 4 * 3)
    assert drawn == int(drawn)
    assert abs(drawn - epochs * rows * share) < 5 * np.sqrt(epochs * rows * share * (1 - share))


def test_boundary_rows_are_divided_by_their_chance(folder):
    def rank(comm):
        made = trainer(folder, comm, **WHOLE, method="bns", boundary_share=0.25)
        made.method.begin_round(made.context)
        drawn = made.method.sample.incoming[1 - comm.rank]
        sent = np.ones((int(drawn.sum()), 2), np.float32)
        return made.method.sample.unpack(sent, len(drawn), 2, 1 - comm.rank, "1 forward")[:, 0], drawn

    for rows, drawn in on_threads(2, rank):
        np.testing.assert_array_equal(rows, np.where(drawn, 4.0, 0.0))


def edges_of_ranks(folder, **options):
    """For each rank, the edges (v, u) of its part of the edges."""

    def rank(comm):
        local = trainer(folder, comm, **WHOLE, method="cofree", **options).method.local
        rows, columns = local.vertices[(matrix := local.relations[0].matrix).row_of_entry()], local.vertices[matrix.indices]
        return list(zip(rows.tolist(), columns.tolist(), strict=True))

    return on_threads(2, rank)


def test_vertex_cut_follows_the_end_of_lower_degree_or_both_ends(folder):
    degrees = graph().adjacency.degrees
    every = sorted(zip(graph().adjacency.row_of_entry().tolist(), graph().adjacency.indices.tolist(), strict=True))
    torn = {}
    for cut in ("degree", "random"):
        parts = edges_of_ranks(folder, vertex_cut=cut)
        assert sorted(edge for part in parts for edge in part) == every
        where = {min(edge, key=lambda v: (degrees[v], v)): set() for edge in every}
        for rank, part in enumerate(parts):
            for edge in part:
                where[min(edge, key=lambda v: (degrees[v], v))].add(rank)
        torn[cut] = sum(len(ranks) > 1 for ranks in where.values())
    assert torn["degree"] == 0 < torn["random"]


def test_drop_edge_is_the_share_of_pairs_that_a_mask_leaves_out(folder):
    share, masks = 0.4, 8
    made = trainer(folder, **WHOLE, method="cofree", drop_edge=share, edge_masks=masks)
    a = graph().adjacency
    pairs = len({frozenset(edge) for edge in zip(a.row_of_entry().tolist(), a.indices.tolist(), strict=True)})
    kept = sum(each.rows.block.num_edges for each in made.method._passes) / masks / a.nnz
    assert abs(kept - (1 - share)) < 5 * np.sqrt(2 * share * (1 - share) / (masks * pairs))


def test_edge_masks_are_used_in_turn(folder):
    """With weights that hardly move, the losses of an epoch come back when its mask does."""
    losses = trained(folder, **WHOLE, method="cofree", drop_edge=0.5, edge_masks=3, epochs=7, lr=1e-30)[1].losses
    assert len(set(losses[:3])) == 3
    assert losses[3:] == losses[:4]


def test_refine_adds_rounds_of_the_whole_network(folder):
    """One stage of E rounds for each layer and one for the features alone; then the whole network."""
    _, plain, _ = trained(folder, **WHOLE, method="retexo", epochs=2)
    _, refined, made = trained(folder, **WHOLE, method="retexo", epochs=2, refine=3)
    assert len(refined.lines) == len(plain.lines) + 3
    assert len(made.model.layers) == 2


def test_client_vertices_is_the_size_of_a_client(folder):
    """Each of two ranks has 30 vertices, so 8 clients of at most 4; a pair is a vertex and another client with a neighbor."""
    size, a = 4, graph().adjacency
    client = np.arange(60) // 30 * 8 + np.arange(60) % 30 // size
    at, of = client[a.row_of_entry()], client[a.indices]
    pairs = {(u, c) for u, c, own in zip(a.indices.tolist(), at.tolist(), of.tolist(), strict=True) if c != own}
    options = {**WHOLE, "method": "retexo-federated", "client_vertices": size}
    found = on_threads(2, lambda comm: trained(folder, comm, **options)[0]["clients"])[0]
    assert (found["clients"], found["pairs"]) == (16, len(pairs))

"""A heterogeneous graph whose labels can be learned through one relation alone, and dense matrices of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from bulksample import Graph, VertexType, relation_from_edges

PAPERS, AUTHORS, VENUES, CLASSES = 120, 40, 6, 3


def planted(target="class", times=False, edge_times=False, seed=0) -> Graph:
    """Papers with noise as features and authors whose features show a class: the class of a paper is that of its authors.

    Venues have no features, and one relation has no edges. With `times`, papers appear one after another and authors at time 0; with
    `edge_times`, the edges have times instead, and papers a column ``asked``.
    """
    rng = np.random.default_rng(seed)
    of_author, of_paper = np.arange(AUTHORS) % CLASSES, rng.integers(0, CLASSES, PAPERS)
    signal = np.eye(CLASSES, dtype=np.float32)[of_author] + rng.normal(0, 0.1, (AUTHORS, CLASSES)).astype(np.float32)
    into = np.repeat(np.arange(PAPERS), 3)
    by = rng.integers(0, AUTHORS // CLASSES, len(into)) * CLASSES + of_paper[into]
    labels = {
        "class": of_paper,
        "multilabel": np.eye(CLASSES, dtype=np.int8)[of_paper],
        "regression": (of_paper[:, None] - 1.0).astype(np.float32),
    }[target]
    part = rng.permutation(PAPERS) % 4
    masks = {"train": part < 2, "val": part == 2, "test": part == 3}
    noise = rng.normal(size=(PAPERS, 2)).astype(np.float32)
    clock = np.arange(PAPERS) // 2
    paper = VertexType(
        "paper", PAPERS, noise, labels, CLASSES if target != "regression" else 1, masks, clock if times else None,
        {"asked": clock + 5, "other": (of_paper + 1) % CLASSES},
    )  # fmt: skip
    author = VertexType("author", AUTHORS, signal, times=np.zeros(AUTHORS, np.int64) if times else None)
    venue = VertexType("venue", VENUES)
    cited, citing = rng.integers(0, PAPERS, (2, 400))
    stamps = {name: rng.integers(0, PAPERS // 2, size) for name, size in (("writes", len(by)), ("cites", 400))} if edge_times else {}
    relations = (
        relation_from_edges(author, "writes", paper, by, into, times=stamps.get("writes")),
        relation_from_edges(paper, "cites", paper, cited, citing, times=stamps.get("cites")),
        relation_from_edges(paper, "printed in", venue, np.arange(PAPERS), rng.integers(0, VENUES, PAPERS)),
        relation_from_edges(venue, "prints", paper, rng.integers(0, VENUES, PAPERS), np.arange(PAPERS)),
        relation_from_edges(author, "reviews", venue, [], []),
    )
    return Graph.of((paper, author, venue), relations, "planted").validate()


def shop(times=False, edge_times=False, seed=0) -> Graph:
    """Users buy items of their own group: features show the group. Users and items appear one after another, or purchases have times.

    Items have a reverse relation, two purchases in ten are repeated, and one relation is on its own: users know users.
    """
    rng = np.random.default_rng(seed)
    groups, users, items = 4, 60, 40
    of_user, of_item = np.arange(users) % groups, np.arange(items) % groups

    def kind(name, of):
        x = (np.eye(groups)[of] + rng.normal(0, 0.1, (len(of), groups))).astype(np.float32)
        return VertexType(name, len(of), x, times=np.sort(rng.integers(0, 20, len(of))) if times else None)

    user, item = kind("user", of_user), kind("item", of_item)
    by = rng.integers(0, users, 300)
    bought = rng.integers(0, items // groups, 300) * groups + of_user[by]
    by, bought = np.concatenate([by, by[:60]]), np.concatenate([bought, bought[:60]])
    when = rng.integers(0, 50, len(by)) if edge_times else None
    one, other = rng.integers(0, users, (2, 100))
    relations = (
        relation_from_edges(user, "buys", item, by, bought, times=when),
        relation_from_edges(item, "rev_buys", user, bought, by, times=when),
        relation_from_edges(user, "knows", user, one, other, times=rng.integers(0, 50, 100) if edge_times else None),
    )
    return Graph.of((user, item), relations, "shop").validate()


def until(graph: Graph, t: int | None) -> Graph:
    """The relations as they were known at time t, without times; all of them if t is None."""
    relations = []
    for relation in graph.relations:
        born = graph.type(relation.source).times
        times = relation.times if relation.times is not None else None if born is None else born[relation.adjacency.indices]
        keep = np.ones(relation.edges, bool) if times is None or t is None else times <= t
        relations.append(replace(relation, adjacency=relation.adjacency.keep(keep), edge_ids=None, times=None))
    return replace(graph, relations=tuple(relations))


def mean_matrix(graph: Graph, key) -> torch.Tensor:
    """The adjacency of a relation, by weight if it has weights, with rows that add up to one, dense; rows without edges stay zero."""
    matrix = graph.relation(key).adjacency
    dense = np.zeros(matrix.shape, np.float32)
    np.add.at(dense, (matrix.row_of_entry(), matrix.indices), matrix.entries() * graph.relation(key).weight_unit)
    return torch.from_numpy(dense / np.where(dense.any(1, keepdims=True), dense.sum(1, keepdims=True), 1))


def all_sage_logits(graph: Graph, model) -> torch.Tensor:
    """The logits of all vertices of the target type by dense products with the weights of a "hetero-sage" of any depth."""
    return all_sage_rows(graph, model)[model.schema.target]


def all_sage_rows(graph: Graph, model) -> dict[str, torch.Tensor]:
    """The output rows of all vertices of the target types; see `all_sage_logits`."""
    h = {}
    for name, own in zip(model.types[0], model.inputs, strict=True):
        x = graph.type(name).features
        rows = own.weight.expand(graph.type(name).count, -1) if own.bias is None else torch.from_numpy(np.array(x)) @ own.weight + own.bias
        h[name] = rows.detach()
    for i, layer in enumerate(model.layers):
        out = {name: h[name] @ w + b for name, w, b in zip(layer.destinations, layer.own, layer.bias, strict=True)}
        for key, weight in zip(layer.relations, layer.mean, strict=True):
            out[key[2]] = out[key[2]] + mean_matrix(graph, key) @ h[key[0]] @ weight
        h = {name: rows.detach() if i == len(model.layers) - 1 else rows.detach().relu() for name, rows in out.items()}
    return h


def without_parallel_edges(graph: Graph) -> Graph:
    """The same with one edge for each pair of ends that a relation joins."""
    relations = []
    for relation in graph.relations:
        rows, columns = relation.adjacency.row_of_entry(), relation.adjacency.indices
        kept = np.append(True, (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1]))[: relation.edges]
        times = None if relation.times is None else relation.times[kept]
        relations.append(replace(relation, adjacency=relation.adjacency.keep(kept), edge_ids=None, times=times))
    return replace(graph, relations=tuple(relations))

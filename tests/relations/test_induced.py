"""The subgraph of a heterogeneous graph induced by some vertices, against sets of edges with all their columns."""

from dataclasses import replace

import numpy as np
import pytest
from planted_relations import planted, shop

from bulksample import Graph, Relation, VertexType
from bulksample.graph.induced import induced
from bulksample.sparse import CSR


def rich() -> Graph:
    """Parallel edges with ids, times and features, weights, sparse features of vertices and other columns."""
    graph = shop(edge_times=True)
    rng = np.random.default_rng(3)
    user, item = graph.types
    sparse = CSR.from_edges(np.arange(item.count), np.arange(item.count) % 3, (item.count, 3), np.ones(item.count, np.float32))
    item = replace(item, features=sparse, extra={"price": rng.integers(0, 9, item.count)})
    buys, back, knows = graph.relations
    weighted = knows.adjacency.with_values(rng.integers(1, 50, knows.edges))
    relations = (
        replace(buys, features=rng.normal(size=(buys.edges, 2)).astype(np.float32)),
        back,
        replace(knows, adjacency=weighted, weight_unit=0.5),
    )
    return Graph.of((user, item), relations, "rich").validate()


def edges_of(graph: Graph, relation: Relation, members: dict[str, np.ndarray], whole: Graph) -> list[tuple]:
    """Every edge with its columns; its ends are named as in the whole graph."""
    matrix = relation.adjacency
    columns = [
        members[relation.destination][matrix.row_of_entry()].tolist(),
        members[relation.source][matrix.indices].tolist(),
        matrix.entries().tolist(),
        relation.ids_of(np.arange(relation.edges)).tolist(),
    ]
    columns += [column.tolist() for column in (relation.times, relation.features) if column is not None]
    return [tuple(map(str, edge)) for edge in zip(*columns, strict=True)]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("make", [rich, planted])
def test_it_has_the_edges_within_the_set_with_all_their_columns(make, share):
    graph = make()
    vertices = np.flatnonzero(np.random.default_rng(1).random(graph.n) < share).astype(np.int32)
    part = induced(graph, vertices).validate()
    kind, own = np.searchsorted(graph.offsets, vertices, side="right") - 1, vertices
    members = {one.name: own[kind == place] - graph.offsets[place] for place, one in enumerate(graph.types)}
    everyone = {one.name: np.arange(one.count) for one in graph.types}
    assert [relation.key for relation in part.relations] == [relation.key for relation in graph.relations]
    for mine, whole in zip(part.relations, graph.relations, strict=True):
        rows, columns = (set(members[name].tolist()) for name in (whole.destination, whole.source))
        expected = [
            edge for edge in edges_of(graph, whole, everyone, graph) if int(edge[0]) in rows and int(edge[1]) in columns
        ]  # fmt: skip
        assert edges_of(part, mine, members, graph) == expected
        assert mine.weight_unit == whole.weight_unit


def test_columns_of_vertices_are_rows_of_the_whole():
    graph = rich()
    vertices = np.array([0, 5, 59, 60, 61, 99], np.int32)  # users, then items 0, 1 and 39
    part = induced(graph, vertices)
    (user, item), (users, items) = graph.types, part.types
    assert np.array_equal(users.features, user.features[[0, 5, 59]])
    assert np.array_equal(items.features.to_scipy().toarray(), item.features.to_scipy().toarray()[[0, 1, 39]])
    assert np.array_equal(items.extra["price"], item.extra["price"][[0, 1, 39]])
    papers = planted(times=True)
    chosen = np.array([3, 4, 100], np.int32)
    paper, cut = papers.type("paper"), induced(papers, chosen).type("paper")
    assert isinstance(cut, VertexType)
    assert cut.num_classes == paper.num_classes
    for own, whole in (
        (cut.labels, paper.labels),
        (cut.times, paper.times),
        *((cut.masks[name], mask) for name, mask in paper.masks.items()),
    ):
        assert np.array_equal(own, whole[chosen])

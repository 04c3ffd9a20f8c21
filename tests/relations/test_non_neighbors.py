"""The destinations without an edge from a source, at a time: against lists made by hand."""

import numpy as np
import pytest
from planted_relations import shop

from bulksample import DataError, Graph, VertexType, relation_from_edges
from bulksample.graph.links import NonNeighbors, link_times


def plain(graph, relation, source, until):
    """Eligible destinations in the order of time, and of their ids where times are equal."""
    a, times = relation.adjacency, graph.type(relation.destination).times
    joined = set(a.row_of_entry()[a.indices == source].tolist())
    known = [w for w in range(a.shape[0]) if until is None or times is None or times[w] <= until]
    known.sort(key=lambda w: 0 if times is None else times[w])
    return [w for w in known if w not in joined and not (relation.source == relation.destination and w == source)]


@pytest.mark.parametrize("name", ["buys", "knows"])
@pytest.mark.parametrize("times", [False, True])
def test_every_eligible_destination_has_one_place(name, times):
    graph = shop(times=times)
    relation = graph.relation(name)
    others, until = NonNeighbors(graph, relation), np.array([1, 7, 19]) if times else np.array([0])
    for source in range(relation.adjacency.shape[1]):
        for t in until:
            one, when = np.array([source]), np.array([t]) if times else None
            existing = others.existing(one, when)
            count = int(others.eligible(one, existing)[0])
            expected = plain(graph, relation, source, t if times else None)
            found = others.at(np.full(count, source), np.repeat(existing, count), np.arange(count))
            assert found.tolist() == expected


@pytest.mark.parametrize("name", ["buys", "knows"])
@pytest.mark.parametrize("times", [False, True])
def test_by_weight_every_eligible_destination_has_as_many_places(name, times):
    graph = shop(times=times)
    relation = graph.relation(name)
    n = relation.adjacency.shape[0]
    weights, t = np.arange(n) * 5 % 4, 7 if times else None
    others = NonNeighbors(graph, relation, weights=weights)
    for source in range(relation.adjacency.shape[1]):
        one = np.array([source])
        existing = others.existing(one, None if t is None else np.array([t]))
        expected = plain(graph, relation, source, t)
        count = int(others.eligible(one, existing)[0])
        found = others.at(np.full(count, source), np.repeat(existing, count), np.arange(count))
        assert found.tolist() == np.repeat(expected, weights[expected]).tolist()
        places = np.arange(n)
        joined = others.joined(np.full(n, source), places)
        assert sorted(others.anyone(places[~joined])) == sorted(plain(graph, relation, source, None))


def test_links_have_the_time_of_their_edge_or_of_the_later_end():
    graph = shop(edge_times=True)
    assert link_times(graph, graph.relations[0]) is graph.relations[0].times
    graph = shop(times=True)
    a, (user, item) = graph.relations[0].adjacency, graph.types
    expected = [max(user.times[u], item.times[v]) for v, u in zip(a.row_of_entry(), a.indices, strict=True)]
    assert link_times(graph, graph.relations[0]).tolist() == expected
    assert link_times(shop(), shop().relations[0]) is None


def test_edges_before_all_destinations_are_refused():
    one, late = VertexType("a", 2), VertexType("b", 2, times=np.array([6, 5]))
    graphs = [Graph.of((one, late), (relation_from_edges(one, "r", late, [0, 1, 1], [1, 0, 1], times=[5, t, t]),)) for t in (5, 4)]
    assert link_times(graphs[0], graphs[0].relations[0]).tolist() == [5, 5, 5]
    with pytest.raises(DataError, match=r"2 edges of relation a:r:b have times before 5, when the first 'b' came to be"):
        link_times(graphs[1], graphs[1].relations[0])
    loop = relation_from_edges(late, "r", late, [0, 0], [0, 1], times=[1, 5])
    assert link_times(Graph.of((late,), (loop,)), loop) is loop.times, "a loop is no link"

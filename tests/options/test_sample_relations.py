"""The options of `bulksample sample` on a heterogeneous graph: edges counted by hand, and mini-batches as they are drawn."""

from dataclasses import replace

import pytest
from commands import sample
from planted_relations import planted

from bulksample import UsageError
from bulksample.samplers import Sampler

ONE_HOP = ("--sampler", "full", "--fanouts", "-1", "--threads", 1)


def edges(monkeypatch, tmp_path, graph, *arguments, ranks=1):
    """The edges that one hop of all neighbors draws."""
    graph.save(tmp_path / "g", overwrite=True)
    return sample(monkeypatch, tmp_path / "g", *ONE_HOP, *arguments, ranks=ranks)[0]["sampled_edges"]


def drawn_by(monkeypatch, tmp_path, graph, *arguments):
    """The mini-batches that the command draws, with all neighbors unless arguments say otherwise."""
    found, original = [], Sampler.sample_bulk

    def kept(self, *given):
        found.extend(made := original(self, *given))
        return made

    with monkeypatch.context() as patch:
        patch.setattr(Sampler, "sample_bulk", kept)
        edges(monkeypatch, tmp_path, graph, "--bulk-size", 1, *arguments)
    return found


def in_time(graph, asked, strict=False):
    """The number of edges into training papers whose sources are not later than the papers are asked about; sources without times count."""
    count = 0
    for relation in graph.relations:
        if relation.destination == "paper":
            rows, sources = relation.adjacency.row_of_entry(), relation.adjacency.indices
            stamps = graph.type(relation.source).times
            early = True if stamps is None else stamps[sources] < asked[rows] + (not strict)
            count += int((graph.type("paper").masks["train"][rows] & early).sum())
    return count


def test_seeds_are_of_the_type_with_labels_unless_a_target_type_is_named(monkeypatch, tmp_path):
    graph, train = planted(), planted().type("paper").masks["train"]
    into_papers = sum(r.adjacency.degrees[train].sum() for r in graph.relations if r.destination == "paper")
    into_venues = sum(r.edges for r in graph.relations if r.destination == "venue")
    assert into_papers != into_venues
    assert edges(monkeypatch, tmp_path, graph) == into_papers
    assert edges(monkeypatch, tmp_path, graph, "--target-type", "venue") == into_venues


def test_seed_times_is_the_column_of_the_times_of_the_seeds(monkeypatch, tmp_path):
    graph = planted(times=True)
    paper = graph.type("paper")
    assert edges(monkeypatch, tmp_path, graph) == in_time(graph, paper.times)
    assert (
        edges(monkeypatch, tmp_path, graph, "--seed-times", "asked") == in_time(graph, paper.extra["asked"]) > in_time(graph, paper.times)
    )


def test_strict_leaves_out_papers_of_the_time_of_the_seed(monkeypatch, tmp_path):
    graph = planted(times=True)
    clock = graph.type("paper").times
    assert edges(monkeypatch, tmp_path, graph, "--strict") == in_time(graph, clock, strict=True) < in_time(graph, clock)


def test_time_by_chooses_the_times_that_count(monkeypatch, tmp_path):
    """Papers and edges have times: by those of edges, an author without a time is drawn for early edges alone."""
    graph = planted(edge_times=True)
    clock = graph.type("paper").extra["asked"]
    graph = replace(graph, types=(replace(graph.types[0], times=clock), *graph.types[1:]))
    count = 0
    for relation in graph.relations:
        if relation.destination == "paper":
            rows = relation.adjacency.row_of_entry()
            early = True if relation.times is None else relation.times <= clock[rows]
            count += int((graph.type("paper").masks["train"][rows] & early).sum())
    assert in_time(graph, clock) != count
    try:
        found = [edges(monkeypatch, tmp_path, graph, "--time-by", by) for by in ("vertices", "edges")]
    except UsageError as error:  # without the option: both have times
        raise AssertionError(error) from error
    assert found == [in_time(graph, clock), count]


def test_strategy_last_draws_the_newest_papers(monkeypatch, tmp_path):
    graph = planted(times=True)
    cites, times = graph.relation(("paper", "cites", "paper")).adjacency, graph.type("paper").times
    minibatches = drawn_by(monkeypatch, tmp_path, graph, "--sampler", "sage", "--fanouts", 2, "--strategy", "last")
    seen = 0
    for mini in minibatches:
        block, rows = mini.blocks[0]["paper", "cites", "paper"], mini.rows["paper"]
        for row, seed in zip(rows.seed_rows, rows.seeds, strict=True):
            drawn = times[rows.vertices[block.indices[block.indptr[row] : block.indptr[row + 1]]]]
            past = times[cites.indices[cites.indptr[seed] : cites.indptr[seed + 1]]]
            assert sorted(drawn) == sorted(past[past <= times[seed]])[-2:]
            seen += len(drawn)
    assert seen


@pytest.mark.parametrize("placement", [
    ("--graph", "partitioned"), ("--topology", "partitioned", "--features", "replicated", "--partition", "random"),
    ("--graph", "partitioned", "--exchange", "rows", "--replication", 2), ("--graph", "partitioned", "--exchange", "rows-oblivious"),
    ("--features", "partitioned"), ("--graph", "partitioned", "--replication", 2, "--features", "partitioned", "--feature-replication", 1),
], ids=lambda placement: " ".join(map(str, placement)))  # fmt: skip
def test_no_placement_changes_a_minibatch(monkeypatch, tmp_path, placement):
    graph = planted(times=True)
    graph.save(tmp_path / "g")
    common = ("--fanouts", "3,2", "--batch-size", 9, "--threads", 1)
    alone = sample(monkeypatch, tmp_path / "g", *common)[0]
    together = sample(monkeypatch, tmp_path / "g", *common, *placement, ranks=4)[0]
    same = ("digest", "sampled_edges", "input_vertices", "minibatches")
    assert [together[name] for name in same] == [alone[name] for name in same]
    assert alone["input_vertices"] > alone["minibatches"] * 9
    assert (together["bytes_sent"]["features"] > 0) == ("--features" in placement and "replicated" not in placement)
    partitioned = "--graph" in placement or "--topology" in placement
    assert (sum(together["read_bytes"]) > 0) == partitioned


def test_ladies_draws_from_the_union_of_relations(monkeypatch, tmp_path):
    planted().save(tmp_path / "g")
    found = sample(monkeypatch, tmp_path / "g", "--sampler", "ladies", "--fanouts", "7,7", "--batch-size", 60)[0]
    assert found["minibatches"] == 1
    assert 60 < found["input_vertices"] <= 60 + 7 + 7


@pytest.mark.parametrize(("arguments", "message"), [
    (("--target-type", "book"), "has no type 'book'; use paper, author, venue"),
    (("--sampler", "saint"), "sampler 'saint' works on one relation"),
    (("--sampler", "ladies", "--fanouts", "5"), "ladies draws from all relations together, whatever their times: use sage, labor or full"),
    (("--seed-times", "when"), "seed_times: type 'paper' has no column 'when'; use asked, other"),
    (("--exchange", "rows"), "exchange is for a topology in block rows; got rows with the topology replicated"),
    (("--seed-locality", 2), "seed_locality is for graphs of one vertex type; .* is heterogeneous"),
    (("--target-type", "venue"), "known of each; it has no column of whole numbers that could say so: make the graph with"),
])  # fmt: skip
def test_what_does_not_suit_the_graph_is_refused(monkeypatch, tmp_path, arguments, message):
    planted(times=True).save(tmp_path / "g")
    with pytest.raises(UsageError, match=message):
        sample(monkeypatch, tmp_path / "g", "--threads", 1, *arguments)


def test_a_type_of_seeds_is_asked_for_where_none_has_labels(monkeypatch, tmp_path):
    graph = planted()
    paper = replace(graph.types[0], labels=None, num_classes=0)
    replace(graph, types=(paper, *graph.types[1:])).save(tmp_path / "g")
    with pytest.raises(UsageError, match="target_type: name the type of the seeds, of paper, author, venue"):
        sample(monkeypatch, tmp_path / "g", "--threads", 1)


def test_options_of_relations_are_refused_on_a_graph_of_one_type(monkeypatch, tmp_path):
    from plain import graph

    graph().save(tmp_path / "g")
    with pytest.raises(UsageError, match=r"strategy is an option of heterogeneous graphs; .* holds a graph of one vertex type"):
        sample(monkeypatch, tmp_path / "g", "--strategy", "last")

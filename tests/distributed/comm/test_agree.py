"""Settings are compared over ranks, and every rank explains a difference."""

from dataclasses import replace

import numpy as np
import pytest
from communities import community_graph

from bulksample import UsageError
from bulksample.distributed.comm.agree import agree, checked_on_rank_0, fingerprint
from bulksample.distributed.comm.machines import fair_threads
from bulksample.distributed.comm.threads import on_threads


def test_equal_settings_pass():
    assert on_threads(3, lambda comm: agree(comm, {"version": "1", "lr": 0.1}, {"graph": "5e1f"})) == [None] * 3


def test_a_difference_is_named_with_both_values_on_every_rank():
    def body(comm):
        with pytest.raises(UsageError, match=r"do not agree on lr: 0.1 on rank 0, 0.2 on rank 2"):
            agree(comm, {"version": "1", "lr": 0.2 if comm.rank == 2 else 0.1})

    on_threads(3, body)


def test_what_is_named_by_a_hash_is_not_shown():
    def body(comm):
        with pytest.raises(UsageError, match=r"^the ranks do not agree on graph: another on rank 1 than on rank 0; start all ranks with"):
            agree(comm, {"lr": 0.1}, {"graph": "5e1f" if comm.rank == 1 else "90ab"})

    on_threads(3, body)


def test_ranks_of_other_commands_are_told_so():
    """A setting that one of them lacks is no value of it."""

    def body(comm):
        with pytest.raises(UsageError, match=r"^the ranks do not agree on the command: rank 1 runs another one than rank 0; start all"):
            agree(comm, {"version": "1", **({"epochs": 2} if comm.rank else {"minibatches": 3})})

    on_threads(2, body)


@pytest.mark.parametrize("error", [UsageError("results exist"), PermissionError(13, "Permission denied", "kept")])
def test_what_rank_0_finds_wrong_is_raised_by_all(error):
    def check():
        raise error

    def body(comm):
        with pytest.raises(UsageError, match=r"results exist|Permission denied: 'kept'"):
            checked_on_rank_0(comm, check)

    on_threads(3, body)


def test_the_fingerprint_distinguishes_graphs():
    graph = community_graph()
    same = community_graph()
    assert fingerprint(graph) == fingerprint(same)
    labels = graph.labels.copy()
    labels[7] = (labels[7] + 1) % graph.num_classes
    features = graph.features.copy()
    features[3, 2] += 1
    indices = graph.adjacency.indices.copy()
    indices[5] += 1
    others = [
        replace(graph, labels=labels),
        replace(graph, features=features),
        replace(graph, features=graph.features.astype(np.float16)),
        replace(graph, adjacency=type(graph.adjacency)(graph.adjacency.indptr, indices, None, graph.adjacency.shape)),
        replace(graph, masks={}),
    ]
    assert len({fingerprint(other) for other in [graph, *others]}) == len(others) + 1


def test_ranks_of_one_machine_share_its_processors():
    shares = on_threads(4, fair_threads)
    assert len(set(shares)) == 1
    assert shares[0] == max(1, on_threads(1, fair_threads)[0] // 4)

"""The choice of a grid, its explanation, and the message of a plan that nothing fits."""

import json
import re
import subprocess
import sys

import pytest
from uniform import papers, request
from waiting import PATIENCE

from bulksample import UsageError
from bulksample.plan import make_plan
from bulksample.plan.choice import grids
from bulksample.plan.explain import as_json, explain


def said(plan):
    return " ".join(explain(plan))


def test_every_grid_is_there_once():
    rows = make_plan(papers(ranks=(4, 6), evaluate="none")).rows
    assert [(row.grid.ranks, row.grid.replication, row.grid.graph) for row in rows] == [
        (4, 1, "partitioned"), (4, 2, "partitioned"), (4, 4, "replicated"),
        (6, 1, "partitioned"), (6, 2, "partitioned"), (6, 3, "partitioned"), (6, 6, "replicated"),
    ]  # fmt: skip


def test_only_requested_layouts_are_candidates():
    assert [grid.replication for grid in grids(papers(graph="replicated"), 8)] == [8]
    assert [(grid.replication, grid.graph) for grid in grids(papers(graph="published", ranks=(8,), replication=(1, 8)), 8)] == [
        (1, "published"), (8, "replicated"),
    ]  # fmt: skip


def test_the_fastest_grid_that_fits_is_chosen():
    plan = make_plan(papers(evaluate="none"))
    for p in plan.request.ranks:
        fitting = [row for row in plan.rows if row.grid.ranks == p and row.fits]
        chosen = plan.chosen[p]
        assert chosen in fitting
        assert chosen.seconds.epoch == min(row.seconds.epoch for row in fitting)
        assert chosen.memory.total <= plan.budget
        assert chosen.grid.replication == max(row.grid.replication for row in fitting)  # here the largest c is also the fastest


def test_papers100m_on_128_a100():
    """Rare exact evaluation limits c to 32; without it everything fits on each device, and ranks send only gradients."""
    plan = make_plan(papers(ranks=(128,), eval_every=1000))
    row = plan.chosen[128]
    assert (row.grid.replication, row.grid.graph, row.bulk_size, row.largest_bulk) == (32, "partitioned", 10, 10)
    assert re.search(r"p = 128: c = 32, k = 10; A and H in 4 block rows", said(plan))
    assert "c = 64 needs 9" in said(plan)
    assert "without it, c = 128 fits" in said(plan)
    alone = make_plan(papers(ranks=(128,), evaluate="none")).chosen[128]
    assert (alone.grid.replication, alone.traffic.total) == (128, alone.traffic.gradients)


def test_an_exact_evaluation_after_each_epoch_takes_longer_than_the_epoch_and_prefers_fewer_copies():
    row = make_plan(papers(ranks=(128,))).chosen[128]
    assert row.grid.replication == 1
    assert row.evaluation.seconds > row.seconds.epoch
    assert row.whole_epoch == row.seconds.epoch + row.evaluation.seconds


def test_papers100m_on_8_h200():
    plan = make_plan(papers(ranks=(8,), device="h200"))
    row = plan.chosen[8]
    assert (row.grid.replication, row.largest_bulk, row.bulk_size) == (2, 148, 32)
    assert row.memory.total == pytest.approx(102.8e9, rel=2e-3)
    assert plan.untested[8].grid.graph == "replicated"


def test_a_plan_is_a_json_object():
    plan = make_plan(papers(ranks=(16,)))
    found = json.loads(json.dumps(as_json(plan)))
    assert set(found) == {
        "request",
        "rates",
        "measured_files",
        "minibatches",
        "minibatch",
        "hops",
        "parameters",
        "usable_bytes",
        "rows",
        "placements",
        "codecs",
        "explanation",
    }
    assert [row["chosen"] for row in found["rows"]].count(True) == 1
    for row in found["rows"]:
        sent = dict(row["bytes_sent"])
        assert sent.pop("total") == pytest.approx(sum(sent.values()))
    assert all(rate["origin"] in ("measured", "published", "assumed", "given") for rate in found["rates"].values() if "origin" in rate)


def test_a_message_names_a_device_and_ranks_that_fit():
    with pytest.raises(UsageError, match=r"nothing fits into 7\.2 GB") as caught:
        make_plan(papers(ranks=(4, 8), device_memory=8 * 10**9))
    message = str(caught.value)
    assert "p = 8, c = 1" in message
    needed = re.search(r"use a device of ([\d.]+) GB", message)[1]
    assert make_plan(papers(ranks=(8,), device_memory=int(1.005e9 * float(needed)))).chosen[8].grid.replication == 1
    p = int(re.search(r"or p = (\d+) with c = 1", message)[1])
    assert make_plan(papers(ranks=(p,), device_memory=8 * 10**9)).chosen
    with pytest.raises(UsageError, match=r"nothing fits into 7\.2 GB"):
        make_plan(papers(ranks=(p // 2,), device_memory=8 * 10**9, replication=(1,)))


def test_more_ranks_do_not_help_where_a_minibatch_is_too_large():
    with pytest.raises(UsageError, match="more ranks alone are not enough"):
        make_plan(papers(ranks=(4,), device_memory=10**9))


def test_leaving_out_evaluation_is_suggested_if_only_it_does_not_fit():
    with pytest.raises(UsageError, match="leave out exact evaluation"):
        make_plan(papers(ranks=(8,), graph="replicated"))


def test_some_ranks_may_be_too_few():
    plan = make_plan(papers(ranks=(8, 64), device_memory=30 * 10**9))
    assert list(plan.chosen) == [64]
    assert "p = 8: nothing fits into 27 GB" in said(plan)


def test_no_larger_c_is_named_if_none_was_requested():
    plan = make_plan(papers(ranks=(8,), replication=(1, 2), device_memory=10**12, eval_every=1000))
    assert plan.chosen[8].grid.replication == 2
    assert "No larger c was requested" in said(plan)


def test_a_small_graph_is_replicated():
    row = make_plan(request(ranks=(4,))).chosen[4]
    assert row.grid.graph == "replicated"
    assert row.traffic.total == row.traffic.gradients


def test_planning_needs_neither_torch_nor_mpi():
    code = "import sys, bulksample.plan, bulksample.cli.plan; print([m for m in ('torch', 'mpi4py', 'cupy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.strip() == "[]", done.stderr

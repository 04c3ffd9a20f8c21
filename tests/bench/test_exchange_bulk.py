"""The curve of `rows` and `owner` over the bulk begins at the measured words, and its break-even is interpolated."""

import bench_exchange_bulk
import keep
import pytest


@pytest.mark.parametrize("sampler", ["GraphSAGE 15,10,5, batch 1024", "LADIES 512,512,512, batch 512"])
def test_a_bulk_of_one_has_the_measured_words(sampler):
    measured = {row["replication"]: row for row in keep.read("exchange", "threads")["results"][sampler] if row["ranks"] == 4}
    points = [point for point in keep.read("exchange", "bulk")["results"][sampler] if point["minibatches"] == 1]
    assert {point["replication"] for point in points} == {1, 2}
    for point in points:
        for policy in ("rows", "owner"):
            words = measured[point["replication"]][policy]
            assert point[policy] + point[f"{policy}_once"] == words["words"]
            assert point[f"{policy}_once"] * 4 == words["once_bytes"]


def test_what_is_kept_follows_from_its_words():
    kept = keep.read("exchange", "bulk")
    for name, points in kept["results"].items():
        for point in points:
            assert point["quotient"] == pytest.approx(point["rows"] / point["owner"])
            bulks, extra = point["even_after_bulks"], point["owner_once"] - point["rows_once"]
            if bulks:
                assert bulks * (point["rows"] - point["owner"]) >= extra > (bulks - 1) * (point["rows"] - point["owner"])
        assert kept["break_even"][name] == {str(c): bench_exchange_bulk.break_even(points, c) for c in (1, 2)}


def test_the_break_even_lies_where_both_send_alike():
    """Quotients of 4 at one mini-batch and 1 / 4 at sixteen cross one at four, if both axes are logarithmic."""
    points = [{"replication": 1, "minibatches": k, "quotient": q} for k, q in ((1, 4.0), (16, 0.25))]
    assert bench_exchange_bulk.break_even(points, 1) == pytest.approx(4)
    assert bench_exchange_bulk.break_even(points[:1], 1) is None

"""Memory that runs out in the extension is an error, loses nothing and changes nothing; and the sweep would notice if it did."""

import pytest

from sweep import allocations, scarce

pytestmark = pytest.mark.skipif(bool(scarce.missing()), reason=scarce.missing())
HELD = {"blocks": 3, "mapped": 0, "most_mapped": 2**20, "resident": 2**26}


def case(of, operation, first, last, **more):
    about = {"group": of, "of": of, "operation": operation, "threads": 3, "cold": False, "onwards": False}
    return about | {"first": first, "last": last} | more


def test_every_allocation_of_gather_is_refused_with_an_error():
    cases = allocations._spans("gather", "gather", "gather", 3, False)
    assert len(cases) == 2  # one allocation, and all from one on
    assert cases[0]["last"] >= 10
    for one in cases:
        found = allocations.run(one)
        assert (found["passed"], found["refusals"]) == (True, {"MemoryError": 2 * one["last"]}), found


def test_the_first_call_of_a_process_may_find_no_memory_at_all():
    found = allocations.run(case("samplers", "sage", 20, 26, cold=True, onwards=True))
    assert (found["passed"], found["seen"]) == (True, "MemoryError")


def test_threads_that_cannot_be_made_are_not_needed():
    """A large mini-batch asks for its crew after its first blocks; the requests of threads are among these."""
    found = allocations.run(case("samplers", "sage, one large mini-batch", 20, 60))
    assert found["passed"], found["seen"]
    assert found["refusals"]["the same result"] >= 2


def test_vertices_are_looked_up_without_memory():
    """numpy's own indexing by int32 reads a null pointer where it has no memory for a buffer."""
    found = allocations.run(case("samplers", "fastgcn, first bulk", 12, 16, onwards=True))
    assert (found["passed"], found["seen"]) == (True, "MemoryError")


def test_a_loader_takes_smaller_bulks():
    found = allocations.run(case("loader", "one epoch", 300, 302))
    assert found["seen"] in ("a smaller bulk", "MemoryError, a smaller bulk"), found


@pytest.mark.long
@pytest.mark.parametrize("group", [*allocations.OPERATIONS, "first call", "OpenMP team"])
def test_what_cannot_be_had_is_an_error(group):
    of, name = {"first call": ("SpGEMM", "spgemm"), "OpenMP team": ("SpGEMM", "spgemm")}.get(group, (group, None))
    name = name or next(iter(allocations.OPERATIONS[group]))
    cases = allocations._spans(group, of, name, 3, group in ("first call", "OpenMP team"))
    assert [outcome for outcome in map(allocations.run, cases[::4]) if not outcome["passed"]] == []


@pytest.mark.parametrize(
    ("found", "seen"),
    [
        ({"seen": {"another result": 1}}, "another result"),
        ({"seen": {"MemoryError, and then another result": 1}}, "and then another result"),
        ({"seen": {"RuntimeError: x": 1}}, "RuntimeError"),
        ({"died": -6, "said": "terminate called"}, "terminate called"),
        ({"seen": {}, "ends": [{"died": 1, "said": "request 1\nlibgomp: Out of memory"}]}, "libgomp"),
        ({"seen": {"MemoryError": 2}, "held": [HELD, HELD | {"blocks": 4}]}, "3 blocks become 4"),
        ({"seen": {"MemoryError": 2}, "held": [HELD, HELD | {"mapped": 2**21}]}, "stay mapped"),
        ({"seen": {"MemoryError": 2}, "held": [HELD, HELD | {"resident": 2**27}]}, "resident memory grows"),
    ],
)
def test_only_errors_and_the_same_result_pass(monkeypatch, found, seen):
    monkeypatch.setattr(allocations, "starved", lambda: type("Process", (), {"ask": lambda self, case: found})())
    outcome = allocations.run(case("gather", "gather", 1, 1))
    assert not outcome["passed"]
    assert seen in outcome["seen"]


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setattr(allocations, "missing", lambda: "there is no C++ compiler")
    (only,) = allocations.cases(1)
    assert allocations.run(only) == {"passed": False, "seen": "there is no C++ compiler"}

"""Memory that runs out in the extension is an error, loses nothing and changes nothing; and the sweep would notice if it did."""

import pytest
from sweep import allocations, scarce

pytestmark = pytest.mark.skipif(bool(scarce.missing()), reason=scarce.missing())
HELD = {"blocks": 3, "mapped": 0, "most_mapped": 2**20, "resident": 2**26}


def case(of, operation, first, last, **more):
    about = {"group": of, "of": of, "operation": operation, "threads": 3, "cold": False, "onwards": False}
    return about | {"first": first, "last": last} | more


@pytest.mark.parametrize("onwards", [False, True])
def test_gather_and_its_conversions_refuse_and_go_on(onwards):
    found = allocations.run(case("gather", "gather", 1, 13, onwards=onwards))
    assert (found["passed"], found["seen"], found["refusals"]) == (True, "MemoryError", {"MemoryError": 26})


def test_the_first_call_of_a_process_may_find_no_memory_at_all():
    found = allocations.run(case("samplers", "sage", 20, 26, cold=True, onwards=True))
    assert (found["passed"], found["seen"]) == (True, "MemoryError")


def test_threads_that_cannot_be_made_are_not_needed():
    """A large mini-batch asks for its crew after its first blocks; the requests of threads are among these."""
    found = allocations.run(case("samplers", "sage, one large mini-batch", 20, 60))
    assert found["passed"], found["seen"]
    assert found["refusals"]["the same result"] >= 2


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

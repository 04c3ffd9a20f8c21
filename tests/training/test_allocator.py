"""Memory that steps free is kept for the next ones, does not grow, and goes back to the system at the end."""

import importlib
import json
import platform
import subprocess
import sys

import pytest
from communities import community_graph

import bulksample as bs
from bulksample.backends.native import unavailable_because
from bulksample.distributed.comm.threads import on_threads
from bulksample.training import allocator

on_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or unavailable_because() is not None, reason="needs glibc and the native extension"
)

# A process of its own: what other tests have freed would serve this one.
PREAMBLE = """
import json, resource, sys
import numpy as np
import bulksample as bs

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20
"""

TRAINING = """
class Watch(bs.Callback):
    seen = []

    def step(self, epoch, step, loss):
        self.seen.append((resource.getrusage(resource.RUSAGE_SELF).ru_minflt, resident()))

kept, batch, hidden, epochs = sys.argv[1], *map(int, sys.argv[2:])
rng = np.random.default_rng(0)
n, classes = 20_000, rng.integers(0, 4, 20_000)
graph = bs.from_edges(rng.integers(0, n, 300_000), rng.integers(0, n, 300_000), num_nodes=n, x=rng.normal(size=(n, 16)).astype(np.float32),
                      y=classes, train_mask=rng.random(n) < 0.9)
options = {"fanouts": [10, 5], "batch_size": batch, "hidden": hidden, "threads": 1, "evaluate": "none", "bulk_size": 1}
report = bs.train(graph, callbacks=[Watch()], epochs=epochs, allocator=kept, **options)
faults, sizes = zip(*Watch.seen)
print(json.dumps({"allocator": report["allocator"], "faults": faults, "resident": sizes}))
"""


def in_a_process(code, *arguments):
    command = [sys.executable, "-c", PREAMBLE + code, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=500).stdout)


@on_glibc
def test_steps_touch_few_fresh_pages():
    """Arrays of 40 MB are beyond the largest threshold of glibc, which maps them anew for every use.

    The heap still grows once or twice after the first steps, by some ten thousand pages, so twenty steps are counted.
    """
    faults = {}
    for kept in ("keep", "system"):
        made = in_a_process(TRAINING, kept, 4000, 600, 5)
        assert made["allocator"] == kept
        faults[kept] = (made["faults"][-1] - made["faults"][4]) / (len(made["faults"]) - 5)
    assert faults["system"] > 100  # of 2 MB where the system gives huge pages unasked
    assert faults["keep"] < faults["system"] / 10


@on_glibc
@pytest.mark.long
def test_memory_does_not_grow_over_steps_of_varying_sizes():
    """The mini-batches differ, and the last one of an epoch is smaller."""
    resident = in_a_process(TRAINING, "keep", 500, 64, 40)["resident"]
    assert len(resident) > 1400
    assert max(resident[1000:]) < 1.05 * max(resident[50:1000])


@on_glibc
def test_free_pages_go_back_after_some_steps_and_at_the_end():
    """An array of 300 MB lies below one that lives on, so the heap cannot just shrink."""
    code = """
from bulksample.training.allocator import STEPS, FreedMemory

def use():
    before, array = resident(), np.ones(290 * 2**17)  # fits below, also where a small array lies there
    return resident() - before

import bulksample._native
seen = {}
with FreedMemory("keep") as memory:
    start = resident()
    first = np.ones(300 * 2**17)
    above = np.ones(2**20)
    del first
    seen["freed"] = resident() - start
    for _ in range(STEPS - 1):
        memory.end_step()
    seen["kept"] = resident() - start
    seen["fresh"] = use()
    memory.end_step()
    seen["returned"] = resident() - start
    with FreedMemory("keep"), FreedMemory("system"):
        use()
    seen["kept by the other"] = resident() - start
seen["ended"] = resident() - start
print(json.dumps(seen))
"""
    seen = in_a_process(code)
    assert min(seen["freed"], seen["kept"], seen["kept by the other"]) > 280
    assert seen["fresh"] < 10
    assert max(seen["returned"], seen["ended"]) < 30


SMALL = {"fanouts": [3, 3], "batch_size": 64, "hidden": 8, "epochs": 1, "quiet": True}


@on_glibc
def test_a_run_gives_free_pages_back_while_it_steps(monkeypatch):
    calls, kernels = [], importlib.import_module("bulksample._native")
    monkeypatch.setattr(allocator, "STEPS", 3)
    monkeypatch.setattr(kernels, "return_free_pages", lambda: calls.append("pages"))
    for kept in ("keep", "system"):
        steps = bs.train(community_graph(n=120), allocator=kept, **{**SMALL, "batch_size": 4})["steps"]
        assert steps >= 6
        assert calls == ["pages"] * (steps // 3)
        monkeypatch.setattr(kernels, "return_free_pages", pytest.fail)


@on_glibc
def test_ranks_that_are_threads_keep_memory_together():
    reports = on_threads(2, lambda comm: bs.train(community_graph(n=120), comm=comm, allocator="keep", **SMALL))
    assert [report["allocator"] for report in reports] == ["keep", "keep"]


def test_an_allocator_that_is_none_is_refused():
    with pytest.raises(bs.UsageError, match="allocator: got 'jemalloc'; use auto"):
        bs.train(community_graph(n=120), allocator="jemalloc", **SMALL)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("MALLOC_TOP_PAD_", "0", "MALLOC_TOP_PAD_ is set"),
        ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=9", "GLIBC_TUNABLES sets glibc.malloc.mmap_max"),
    ],
)
def test_settings_of_the_user_are_left_alone(monkeypatch, variable, value, said):
    monkeypatch.setenv(variable, value)
    assert bs.train(community_graph(n=120), **SMALL)["allocator"] == f"system: {said}"
    with pytest.raises(bs.UsageError, match=f"allocator: got 'keep', which needs malloc of glibc with its default settings \\({said}\\)"):
        bs.train(community_graph(n=120), allocator="keep", **SMALL)


def test_without_the_extension_memory_is_left_to_malloc(monkeypatch):
    monkeypatch.setattr(allocator, "unavailable_because", lambda: "no compiler")
    assert bs.train(community_graph(n=120), **SMALL)["allocator"] == "system: no compiler"


@on_glibc
def test_malloc_of_another_library_is_recognised(tmp_path):
    """A library that is loaded first and has a malloc of its own, as jemalloc does."""
    source, library = tmp_path / "other.c", tmp_path / "other.so"
    source.write_text(
        "#include <string.h>\n#include <sys/mman.h>\n"
        "static char *next, *end;\n"
        "void* malloc(size_t n) {\n"
        "  n = (n + 31) / 16 * 16;\n"
        "  if ((size_t)(end - next) < n) {\n"
        "    size_t more = n > (1 << 28) ? n : (1 << 28);\n"
        "    next = mmap(0, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), end = next + more;\n"
        "  }\n"
        "  char* p = next; next += n; *(size_t*)p = n - 16; return p + 16;\n"
        "}\n"
        "void free(void* p) { (void)p; }\n"
        "void* calloc(size_t a, size_t b) { return memset(malloc(a * b), 0, a * b); }\n"
        "void* realloc(void* p, size_t n) {\n"
        "  void* q = malloc(n); if (p) { size_t m = *(size_t*)((char*)p - 16); memcpy(q, p, m < n ? m : n); } return q;\n"
        "}\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-fno-builtin", str(source), "-o", str(library)], check=True)
    code = "import bulksample._native as n; print(n.why_memory_is_not_kept())"
    command = [sys.executable, "-c", code]
    said = [subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout.strip()
            for env in (None, {"LD_PRELOAD": str(library), "PYTHONPATH": ":".join(sys.path)})]  # fmt: skip
    assert said == ["", "malloc is not that of glibc"]

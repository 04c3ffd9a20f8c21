"""The emulation shows the mistakes that a device would keep to itself; and the kernels keep to their arrays."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from .host import HostLauncher, arrays, compiler

FAULTY = Path(__file__).parent / "faulty"
pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")


def run(name, schedule, *more):
    out = arrays.empty(128, np.int32)
    HostLauncher(schedule, directory=FAULTY)(name, 1, out, *more)
    return out


@pytest.mark.parametrize("schedule", [0, 1, 3])
@pytest.mark.parametrize("kernel", ["lonely_barrier", "lonely_ballot"])
def test_a_meeting_that_some_thread_misses_is_an_error(kernel, schedule):
    with pytest.raises(RuntimeError, match=f"{kernel}, block 0: threads wait"):
        run(kernel, schedule)


def test_a_forgotten_barrier_shows_when_threads_run_in_another_order():
    forwards, backwards = run("forgotten_barrier", 0), run("forgotten_barrier", 1)
    assert (forwards[5:] == 7).all()
    assert (forwards[:5] == arrays.empty(1, np.int32)[0]).all()  # what shared memory held before: poison
    assert (forwards != backwards).any()


def test_arguments_are_counted_and_arrays_must_be_contiguous():
    launch = HostLauncher(directory=FAULTY)
    with pytest.raises(TypeError, match="one_too_many takes 2 arguments; got 1"):
        launch("one_too_many", 1, np.zeros(4, np.int32))
    with pytest.raises(AssertionError, match="contiguous"):
        launch("one_too_many", 1, np.zeros(8, np.int32)[::2], 1)


SANITIZED = """
import sys
sys.path[:0] = {path!r}
import numpy as np
from itertools import cycle
from emulation.host import HostLauncher, emulated
from bulksample.backends.cuda.kernels import kernels
from bulksample.backends.cuda.tables import STRUCTURES
if sys.argv[1] != "battery":
    HostLauncher(0, True, {faulty!r})(sys.argv[1], 1, np.zeros(100, np.int32), 100)
launched, launch = set(), HostLauncher.__call__
HostLauncher.__call__ = lambda self, name, *more: launched.add(name) or launch(self, name, *more)
structures, rules = cycle([None, *STRUCTURES]), cycle(["all", "new"])
def watched():
    engine = emulated(0, True)
    engine.device.numbering = next(structures)
    return engine
import battery, bulks
from bulksample import LocalAdjacency, Stream, backends
from zoo import ZOO
for graph in sys.argv[2:]:
    for setting in battery.SETTINGS:
        if battery.needs_weights(setting) and ZOO[graph].values is None:
            continue
        for fanouts in ((4, 3, 2), (40, -1), (300, 9, 17)):
            seeds, rule = bulks.bulk_of_seeds(ZOO[graph].shape[0]), next(rules)
            engine, sampler = watched(), battery.make(setting, fanouts, frontier=rule)
            engines = engine, backends.make("reference")
            one, other = (sampler.sample_bulk(LocalAdjacency(ZOO[graph], drawing), seeds, Stream(3)) for drawing in engines)
            assert [m.digest() for m in one] == [m.digest() for m in other], (graph, setting, fanouts, rule)
rows = np.random.default_rng(1).standard_normal((50, 33)).astype(np.float32)
for bits in (2, 4, 8):
    engine = emulated(0, True)
    engine.dequantise(engine.quantise(rows, bits, np.arange(50, dtype=np.int32)), 33, bits)
from bulksample.backends.cuda.features import FloatCSR, Cache, aggregate, gather, transposed
device, x, asked = emulated(0, True).device, rows.astype(np.float16), np.arange(49, -1, -1, dtype=np.int32)
slots = np.where(asked % 3, -1, asked // 3).astype(np.int32)
for width in (33, 8):
    held = x[:, :width].copy()
    for wanted in ("float16", "float32"):
        cache = Cache(device.put(held[np.argsort(slots)[-17:]]), device.put(slots))
        gather(device, device.put(held), width, device.put(asked), "float16", wanted, cache)
block = FloatCSR(device.put(np.arange(0, 51, 2)), device.put(asked), None, 25, 50)
aggregate(device, transposed(device, block, False), device.put(rows[:25]), 33, False)
engine = watched()
engine.random_words(1, 2, 3, 100)
engine.extract_rows(ZOO["weighted"], asked)
engine.spgemm(ZOO["weighted"], ZOO["random"])
print("never launched:", sorted(set(kernels()) - launched))
"""


def sanitized(*what):
    """Runs the program in a process of its own, in which AddressSanitizer watches every array, and UBSan every operation."""
    runtime = subprocess.run([compiler(), "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("g++ has no AddressSanitizer here")
    program = SANITIZED.format(path=[p for p in sys.path if p], faulty=FAULTY)
    environment = {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
    return subprocess.run(
        [sys.executable, "-c", program.replace("PosixPath", "__import__('pathlib').Path"), *what],
        capture_output=True,
        text=True,
        timeout=280,
        env=environment,
    )


@pytest.mark.long
@pytest.mark.parametrize("graphs", [("weighted", "single"), ("random", "star", "isolated")])
def test_all_kernels_stay_within_their_arrays_and_what_is_defined(graphs):
    done = sanitized("battery", *graphs)
    assert done.stdout.strip() == f"never launched: {[] if 'weighted' in graphs else ['count_positive']}", done.stderr[-3000:]


@pytest.mark.long
@pytest.mark.parametrize(("kernel", "found"), [("one_too_many", "heap-buffer-overflow"), ("too_far", "shift exponent 100 is too large")])
def test_a_write_past_the_end_and_a_shift_too_far_would_show(kernel, found):
    done = sanitized(kernel)
    assert found in done.stderr
    assert done.returncode

"""The emulation shows the mistakes that a device would keep to itself; and the kernels keep to their arrays."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from waiting import PATIENCE

from .host import HostLauncher, arrays, compiler, library

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


def test_what_another_thread_chooses_does_not_change_the_order_of_a_launch():
    out, words = np.zeros(2, np.int32), np.array([0, 1, 0, 0], np.uint32)
    launch = HostLauncher(2, directory=FAULTY)  # a thread that waits lets others run
    running = threading.Thread(target=launch, args=("waits_for_the_host", 1, out, words))
    running.start()
    try:
        ends = time.monotonic() + PATIENCE
        while not words[0] and time.monotonic() < ends:
            time.sleep(0.001)
        assert words[0]
        library(directory=FAULTY).bs_host_schedule(0)
    finally:
        words[1] = 0
        running.join()
    assert (out > 0).all()


def test_an_order_is_that_of_one_launch():
    """The CUDA driver's launches, which choose none, run in order whatever was launched before."""
    run("forgotten_barrier", 1)
    out = arrays.empty(128, np.int32)
    address = ctypes.c_void_p(out.ctypes.data)
    values = (ctypes.c_void_p * 1)(ctypes.addressof(address))
    assert library(directory=FAULTY).bs_host_forgotten_barrier(1, 128, values) == 0
    assert (out == run("forgotten_barrier", 0)).all()


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
from emulation.every_kernel import run_all
from emulation.host import HostLauncher, emulated
if sys.argv[1] != "battery":
    HostLauncher(0, True, {faulty!r})(sys.argv[1], 1, np.zeros(100, np.int32), 100)
print("never launched:", run_all(lambda: emulated(0, True), sys.argv[2:]))
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
        timeout=PATIENCE,
        env=environment,
    )


@pytest.mark.long
@pytest.mark.parametrize("graphs", [("weighted", "single"), ("random", "star", "isolated")])
def test_all_kernels_stay_within_their_arrays_and_what_is_defined(graphs):
    done = sanitized("battery", *graphs)
    assert done.stdout.strip() == "never launched: []", done.stderr[-3000:]


@pytest.mark.long
@pytest.mark.parametrize(("kernel", "found"), [("one_too_many", "heap-buffer-overflow"), ("too_far", "shift exponent 100 is too large")])
def test_a_write_past_the_end_and_a_shift_too_far_would_show(kernel, found):
    done = sanitized(kernel)
    assert found in done.stderr
    assert done.returncode

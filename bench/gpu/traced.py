"""Say where the time of a bulk and of a training step goes, from the trace of torch's profiler: kernels, idle time, overlap of streams."""

from __future__ import annotations

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bulksample import Stream

from .inputs import adjacency_on, sampler_of

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")  # categories of a trace's events
SAMPLES, FETCHES = ("number_found", "enter_found"), ("gather_bytes",)  # kernels that name the streams of two stages
LARGEST = 8  # kernels that are named
FIRST, LAST = 5, 25  # steps of the second epoch that are traced
Event = dict[str, Any]


def traced(bench: Any) -> dict[str, Any]:
    """Trace bulks of 1, 16 and 64 mini-batches, LADIES, and twenty steps of training."""
    adjacency, found, rounds = adjacency_on(bench.cuda, bench.large), dict[str, Any](), 2 if bench.gpu.small else 5
    trace(bench.gpu, lambda: None)  # the profiler starts
    for name, k in (("sage", 1), ("sage", 16), ("sage", 64), ("ladies", 32)):
        bulk = partial(sampler_of(name).sample_bulk, adjacency, bench.seeds(k), Stream(1))
        bulk()
        found[f"{name}, k = {k}"] = trace_summary(*trace(bench.gpu, lambda bulk=bulk: [bulk() for _ in range(rounds)]), rounds)
    found["training step"] = _training(bench)
    if missing := [name for name, own in found.items() if not own["launches"] and not bench.gpu.small]:
        raise RuntimeError(f"the profiler saw no kernel in {', '.join(missing)}")
    return found


def _training(bench: Any) -> dict[str, Any]:
    """Trace steps in the middle of a run: their kernels, and what streams do at the same time."""
    trainer, profiler, seen = bench.trainer("fp32"), _profiler(), dict[str, Any]()
    step, last = trainer._stepper.step, min(LAST, bench.sizes.minibatches - 1)
    first = min(FIRST, last - 1)

    def watched(batches: Any, epoch: int, number: int, stop: bool) -> Any:
        if (epoch, number) == (1, first):
            bench.gpu.synchronize()
            profiler.start()
            seen["began"] = time.perf_counter()
        if (epoch, number) == (1, last):
            bench.gpu.synchronize()
            seen["seconds"] = time.perf_counter() - seen["began"]
            profiler.stop()
        return step(batches, epoch, number, stop)

    trainer._stepper.step = watched
    trainer.run()
    return trace_summary(_events(profiler), seen["seconds"], last - first)


def trace(gpu: Any, work: Callable[[], Any]) -> tuple[list[Event], float]:
    """Return the events of some work, and its seconds."""
    profiler = _profiler()
    gpu.synchronize()
    with profiler:
        seconds = gpu.waited(work)
    return _events(profiler), seconds


def _profiler() -> Any:
    import torch
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])])


def _events(profiler: Any) -> list[Event]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        return [event for event in json.loads(file.read_text())["traceEvents"] if event.get("cat") in ON_DEVICE]


def trace_summary(events: Iterable[Event], seconds: float, rounds: int) -> dict[str, Any]:
    """Sum up the work of a device in `seconds` of `rounds` bulks or steps.

    Returns
    -------
    dict
        Microseconds of a round: as the host's clock saw it, and those in which the device worked; the share in which it did nothing; the
        kernels that took most, with launches and microseconds of a round; and the shares of the time of sampling and of fetching in which
        training kernels ran on other streams.
    """
    spans, of_kernel = defaultdict[str, list[tuple[float, float]]](list), defaultdict[str, list[float]](list)
    streams: dict[str, str] = {}
    for event in events:
        name, start, length = _short(event["name"]), float(event["ts"]), float(event["dur"])
        stream = str(event.get("args", {}).get("stream", event.get("tid")))
        spans[stream].append((start, start + length))
        of_kernel[name].append(length)
        for stage, names in (("sampling", SAMPLES), ("fetching", FETCHES)):
            if name in names:
                streams.setdefault(stage, stream)
    busy = _length(_union([span for own in spans.values() for span in own]))
    largest = sorted(of_kernel.items(), key=lambda item: -sum(item[1]))[:LARGEST]
    stages = {stage: _union(spans[stream]) for stage, stream in streams.items()}
    training = _union([span for stream, own in spans.items() if stream not in streams.values() for span in own])
    return {
        "microseconds": 1e6 * seconds / rounds,
        "busy_microseconds": busy / rounds,
        "idle_share": 1 - busy / (1e6 * seconds) if seconds else 0.0,
        "launches": sum(map(len, of_kernel.values())) / rounds,
        "kernels": {name: {"launches": len(own) / rounds, "microseconds": sum(own) / rounds} for name, own in largest},
        "during_training": {stage: _length(_common(own, training)) / max(_length(own), 1e-9) for stage, own in stages.items()},
    }


def _short(name: str) -> str:
    """Return the name of a kernel without types, namespaces of templates and arguments."""
    return name.removeprefix("void ").partition("<")[0].partition("(")[0].strip()[:60]


def _union(spans: list[tuple[float, float]]) -> np.ndarray:
    """Join spans that overlap: an array of starts and ends, in order."""
    joined: list[list[float]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    return np.array(joined, np.float64).reshape(-1, 2)


def _length(spans: np.ndarray) -> float:
    return float((spans[:, 1] - spans[:, 0]).sum())


def _common(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the spans that lie in both."""
    found, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        start, end = max(one[i, 0], other[j, 0]), min(one[i, 1], other[j, 1])
        if start < end:
            found.append((start, end))
        i, j = (i + 1, j) if one[i, 1] < other[j, 1] else (i, j + 1)
    return np.array(found, np.float64).reshape(-1, 2)

"""Count the bytes that kernels move between DRAM and the device, by Nsight Compute (ncu), beside those that are predicted."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from .hardware import in_process, this_gpu
from .inputs import drawn, edges_of, products, seeds_of, sizes

KERNELS = {  # and what they are part of
    "draw_16": "draw", "draw_8": "draw", "enter_found": "enter", "number_found": "number", "gather_bytes": "gather",
}  # fmt: skip
METRICS = {
    "gpu__time_duration.sum": "nanoseconds", "dram__bytes_read.sum": "bytes_read", "dram__bytes_write.sum": "bytes_written",
}  # fmt: skip
SECONDS = 45.0
MINIBATCHES, ROW = 16, 512  # of the bulk; bytes of a row of features


def counters(bench: Any) -> dict[str, Any]:
    """Count the bytes of a bulk of 16 mini-batches and of a gather of feature rows; on an emulated device nothing is counted."""
    return _counted([] if bench.gpu.small else _ncu())


def _ncu() -> list[str]:
    program = shutil.which("ncu")
    if program is None:
        raise FileNotFoundError("ncu is not on the path")
    return [
        program, "--clock-control", "none", "--profile-from-start", "off", "--csv", "--page", "details", "--print-units", "base",
        "--kernel-name-base", "function", "--kernel-name", f"regex:^({'|'.join(KERNELS)})$", "--metrics", ",".join(METRICS),
    ]  # fmt: skip


def _counted(ncu: list[str]) -> dict[str, Any]:
    """Run this module under a command that counts; return what it counted, by part of a bulk."""
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder) / "sizes.json", Path(folder) / "log.csv"
        own = in_process("gpu.counters", str(file))
        own["args"] = [*ncu, *(["--log-file", str(log)] if ncu else []), *own["args"]]
        done = subprocess.run(**own, timeout=SECONDS)
        if done.returncode:
            said = log.read_text()[-300:] if log.exists() else "nothing"
            raise RuntimeError(f"{Path(own['args'][0]).name} ended with exit code {done.returncode}; it said: {said}")
        counts = json.loads(file.read_text())
        return {"counts": counts, "parts": against_prediction(by_kernel(log.read_text()), counts) if ncu else {}}


def predicted(counts: dict[str, int]) -> dict[str, float]:
    """Return the bytes of each part by the formulas of bench/results/gpu/README.md, without words that the L2 cache saves."""
    rows, edges, held = counts["rows"], counts["edges"], counts["held"]
    new = held - counts["seeds"]
    return {
        "draw": 56 * rows + 36 * edges,
        "enter": 68 * (edges + counts["seeds"]),
        "number": 40 * edges + 68 * new + 8 * held,
        "gather": (2 * ROW + 4) * counts["gathered"],
    }


def against_prediction(kernels: dict[str, dict[str, float]], counts: dict[str, int]) -> dict[str, dict[str, float]]:
    """Add up kernels by part: their figures, their bytes, and the share of these in the prediction."""
    parts: dict[str, dict[str, float]] = {}
    for kernel, own in kernels.items():
        part = parts.setdefault(KERNELS[kernel], dict.fromkeys([*own, "bytes"], 0.0))
        for name, value in own.items():
            part[name] += value
        part["bytes"] += own["bytes_read"] + own["bytes_written"]
    foreseen = predicted(counts)
    return {name: part | {"predicted": foreseen[name], "of_predicted": part["bytes"] / foreseen[name]} for name, part in parts.items()}


def by_kernel(text: str) -> dict[str, dict[str, float]]:
    """Sum up ncu's CSV by kernel: launches, bytes read and written, nanoseconds.

    Raises
    ------
    RuntimeError
        If the text holds no measurement: a permission is missing, or no such kernel ran.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    launches: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in csv.DictReader(lines):
        if (name := METRICS.get(row.get("Metric Name") or "")) is not None:
            launches[row["Kernel Name"].partition("(")[0], row["ID"]][name] = float(row["Metric Value"].replace(",", ""))
    if not launches:
        raise RuntimeError(f"ncu measured nothing; it said: {text.strip()[-300:] or 'nothing'}")
    found: dict[str, dict[str, float]] = {}
    for (kernel, _), own in launches.items():
        sums = found.setdefault(kernel, {"launches": 0.0, **dict.fromkeys(METRICS.values(), 0.0)})
        sums["launches"] += 1
        for name, value in own.items():
            sums[name] += value
    return found


def main() -> None:
    """Draw a bulk twice, and gather rows twice; the second time of each is counted. The sizes go to the file that is named."""
    from bulksample.backends.cuda.products import gather

    gpu, large = this_gpu(), products()
    device, seeds, n = gpu.engine().device, seeds_of(large, MINIBATCHES, sizes().batch), large.shape[0]
    with device.phase("counters"):
        features, rows = device.full(n * ROW // 4, 1, np.float32), np.random.default_rng(1).integers(0, n, n).astype(np.int32)
        there, counts = device.put(rows), dict[str, int]()
        for context in (nullcontext(), gpu.counted()):
            with context:
                bulk = drawn(device, large, seeds)
                gather(device, features, ROW // 4, there)
                gpu.synchronize()
            held = [int(ends[-1]) for ends in bulk.ends]
            counts = {"seeds": held[0], "rows": sum(held[:-1]), "held": held[-1], "edges": edges_of(bulk), "gathered": n}
    Path(sys.argv[1]).write_text(json.dumps(counts), encoding="utf-8")


if __name__ == "__main__":
    main()

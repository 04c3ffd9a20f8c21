"""Read what kernels move between DRAM and the device, by Nsight Compute (ncu), beside what is predicted."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .checks import Checks
from .place import here, in_process

KERNELS = ("draw_16", "draw_8", "enter_found", "number_found", "gather_bytes")
METRICS = {
    "gpu__time_duration.sum": "nanoseconds", "dram__bytes_read.sum": "bytes_read", "dram__bytes_write.sum": "bytes_written",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "percent_of_peak",
}  # fmt: skip
SECONDS = 40.0
MINIBATCHES = 16


def counters() -> Checks:
    """Count the bytes of a bulk of 16 mini-batches and of a gather of feature rows. In a rehearsal nothing counts."""
    return {"counters": partial(_counted, [] if here().small else _ncu())}


def _ncu() -> list[str]:
    program = shutil.which("ncu") or "ncu"
    names = f"regex:^({'|'.join(KERNELS)})$"
    return [
        program, "--clock-control", "none", "--profile-from-start", "off", "--csv", "--page", "details", "--print-units", "base",
        "--kernel-name-base", "function", "--kernel-name", names, "--metrics", ",".join(METRICS),
    ]  # fmt: skip


def _counted(ncu: list[str]) -> dict[str, Any]:
    """Run `target` under a command that counts; return what it counted by kernel, and the edges of the bulk."""
    with tempfile.TemporaryDirectory() as folder:
        told, log = Path(folder) / "told.json", Path(folder) / "log.csv"
        own = in_process("gpu.counters", str(told))
        own["args"] = [*ncu, *(["--log-file", str(log)] if ncu else []), *own["args"]]
        subprocess.run(**own, check=True, timeout=SECONDS)
        edges = json.loads(told.read_text())["edges"]
        found = by_kernel(log.read_text()) if ncu else {}
    for own in found.values():
        own["bytes_per_edge"] = (own["bytes_read"] + own["bytes_written"]) / edges
    return {"edges": edges, "kernels": found}


def by_kernel(text: str) -> dict[str, dict[str, float]]:
    """Sum up ncu's CSV by kernel: launches, bytes read and written, nanoseconds, and the share of the peak of DRAM, weighted by time.

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
            sums[name] += value * (own["nanoseconds"] if name == "percent_of_peak" else 1)
    for sums in found.values():
        sums["percent_of_peak"] /= sums["nanoseconds"] or 1.0
    return found


def target() -> None:
    """Draw a bulk twice, and gather rows twice; the second time of each is counted. The edges go to the file that is named."""
    from bulksample import Stream
    from bulksample.backends.cuda.features import gather
    from bulksample.backends.cuda.node_wise import expand
    from bulksample.rng import Law

    from .graphs import FANOUTS, products, seeds_of, sizes

    place, large = here(), products()
    device, seeds, edges = place.engine().device, seeds_of(large, MINIBATCHES, sizes().batch), 0
    with device.phase("counters"):
        matrix, features = device.matrix(large), device.full(large.shape[0] * 128, 1, np.float32)
        rows = device.put(np.random.default_rng(1).integers(0, large.shape[0], large.shape[0]).astype(np.int32))
        draws = [Stream(1).draw(Law.UNIFORM, layer=hop) for hop in range(len(FANOUTS))]
        for context in (nullcontext(), place.counted()):
            with context:
                edges = sum(len(hop.columns) for hop in expand(device, matrix, seeds, FANOUTS, draws, False).hops)
                gather(device, features, 128, rows)
                place.synchronize()
    Path(sys.argv[1]).write_text(json.dumps({"edges": edges}))


if __name__ == "__main__":
    target()

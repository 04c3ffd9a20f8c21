"""Figures of real runs, read from files of JSON, in the place of estimates.

Read are what `bulksample sample --json` and `bulksample train --json` wrote, the files of `bench/bench_sampling.py`,
`bench/bench_spmm.py` and `bench/gpu.py`, and an object of rates by name. A file says something about a plan only if it was made with the
same sampler, fanouts, batch and model, and is refused otherwise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..errors import DataError, UsageError
from .profiles import Device, Rate
from .request import PlanRequest

_RATES = ("sampling", "gather", "bandwidth", "operations")
_Found = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """The machine, and what replaces expectations; None where nothing was measured.

    Attributes
    ----------
    device : with the rates that were measured
    edges, inputs : of one minibatch
    compute_seconds, gather_seconds : of one step
    """

    device: Device
    edges: float | None = None
    inputs: float | None = None
    compute_seconds: float | None = None
    gather_seconds: float | None = None
    files: tuple[str, ...] = ()


def measure(request: PlanRequest, files: list[Path]) -> Measured:
    """The request's device and what the files say; of two files that say the same, the later counts.

    Raises
    ------
    DataError
        If a file is not JSON, or none of the forms above, or a figure in it is not positive.
    UsageError
        If it was made with other settings.
    """
    measured = Measured(request.machine())
    for path in files:
        found = _load(path)
        read = next((reader for mark, reader in _READERS.items() if mark in found), _read_rates)
        try:
            measured = replace(read(request, found, measured, path.name), files=(*measured.files, path.name))
        except (DataError, UsageError):
            raise
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise DataError(f"{path}: does not hold what a file of its form holds: {type(error).__name__} {error}") from error
    return measured


def _load(path: Path) -> _Found:
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise DataError(f"{path}: must be one JSON object; got {type(found).__name__}")
    return found


def _read_sample(request: PlanRequest, found: _Found, measured: Measured, name: str) -> Measured:
    """`bulksample sample --json`."""
    _same(request, found, name, ("sampler", "fanouts", "frontier", "batch_size"))
    count = _positive(found["minibatches"], name)
    new = replace(measured, edges=_positive(found["sampled_edges"], name) / count, inputs=_positive(found["input_vertices"], name) / count)
    if found.get("graph", "replicated") != "replicated":  # then its seconds hold the exchange, which is counted apart
        return new
    rate = _positive(found["sampled_edges_per_second"], name) / _positive(found["ranks"], name)
    return replace(new, device=_with_rates(new.device, name, sampling=rate))


def _read_train(request: PlanRequest, found: _Found, measured: Measured, name: str) -> Measured:
    """`bulksample train --json`: seconds of a step, where nothing was fetched from other ranks."""
    _same(request, found, name, ("sampler", "fanouts", "model", "parameters", *(key for key in ("batch_size", "frontier") if key in found)))
    steps = _positive(found["steps"], name) * _positive(found["epochs_in_this_run"], name) / _positive(found["epochs"], name)
    phases = found["phases"]
    compute = _positive(sum(phases[phase] for phase in ("forward", "backward", "step")), name) / steps
    if found.get("graph", "replicated") != "replicated":
        return replace(measured, compute_seconds=compute)
    return replace(measured, compute_seconds=compute, gather_seconds=_positive(phases["fetch"], name) / steps)


def _read_sampling_bench(request: PlanRequest, found: _Found, measured: Measured, name: str) -> Measured:
    """`bench/bench_sampling.py`: million edges a second."""
    rate = 1e6 * _positive(found["results"][f"bulksample, frontier {request.frontier}"]["median"], name)
    return replace(measured, device=_with_rates(measured.device, name, sampling=rate))


def _read_spmm_bench(request: PlanRequest, found: _Found, measured: Measured, name: str) -> Measured:
    """`bench/bench_spmm.py`: the size with the most rows to read, and the largest dense product."""
    read = max(found["sizes"], key=lambda size: size["sources"] * size["width"])
    dense = max(found["sizes"], key=lambda size: size["sources"] * size["width"] ** 2)
    rows = 4e3 * read["edges"] * read["width"] / _positive(read["milliseconds"]["native"]["median"], name)
    operations = 2e3 * dense["sources"] * dense["width"] ** 2 / _positive(dense["milliseconds"]["dense"]["median"], name)
    return replace(measured, device=_with_rates(measured.device, name, gather=rows, bandwidth=rows, operations=operations))


def _read_gpu_bench(request: PlanRequest, found: _Found, measured: Measured, name: str) -> Measured:
    """`bench/gpu.py`: the fastest bulk, and copies of feature rows, each byte read and written; a section that failed says nothing."""
    _same(request, found, name, ("fanouts", "batch_size"))
    rates: dict[str, float] = {}
    if isinstance(found.get("sampling"), dict):
        rates["sampling"] = max(_positive(of["edges_per_second"], name) for of in found["sampling"].values())
    if isinstance(found.get("copying"), dict):
        moved = found["copying"]["bytes_per_second"]
        rates |= {"gather": _positive(moved["rows of 400 bytes"], name) / 2, "bandwidth": _positive(moved["copy"], name)}
    return replace(measured, device=_with_rates(measured.device, name, **rates))


def _read_rates(request: PlanRequest, found: _Found, measured: Measured, name: str) -> Measured:
    """An object with some of `sampling`, `gather`, `bandwidth`, `operations`, in units a second."""
    unknown = [key for key in found if key not in _RATES]
    if unknown or not found:
        raise DataError(
            f"{name}: is no result of `bulksample sample`, `bulksample train` or a benchmark, and not an object of rates "
            f"({', '.join(_RATES)}); it holds {', '.join(map(repr, unknown[:3])) or 'nothing'}"
        )
    return replace(measured, device=_with_rates(measured.device, name, **{key: _positive(value, name) for key, value in found.items()}))


_READERS: dict[str, Callable[[PlanRequest, _Found, Measured, str], Measured]] = {
    "sampled_edges": _read_sample, "phases": _read_train, "unit": _read_sampling_bench, "sizes": _read_spmm_bench, "card": _read_gpu_bench,
}  # fmt: skip


def _with_rates(device: Device, name: str, **rates: float) -> Device:
    assert set(rates) <= {field.name for field in fields(Device)}
    new = {key: Rate(value, "measured", name) for key, value in rates.items()}
    return replace(device, **new)  # type: ignore[arg-type]


def _same(request: PlanRequest, found: _Found, name: str, keys: tuple[str, ...]) -> None:
    for key in keys:
        asked = getattr(request, key)
        asked = list(asked) if isinstance(asked, tuple) else asked
        if found[key] != asked:
            raise UsageError(f"{name} was made with {key} {found[key]!r}, the plan is for {asked!r}; its figures would not fit")


def _positive(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
        raise DataError(f"{name}: a figure that must be positive is {value!r}")
    return float(value)

"""Replace estimates of a plan by figures of real runs, read from JSON files.

The files are results of `bulksample sample --json`, `bulksample train --json`, `bench/run.py sampling`, `bench/run.py spmm` and
`bench/run.py gpu`, or an object of rates by name. A file is refused unless its sampler, fanouts, batch size and model are those of the
plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..errors import DataError, UsageError
from .profiles import DeviceProfile, Rate, positive
from .request import PlanRequest

_RATES = ("sampling", "gather", "bandwidth", "operations")
_Result = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """The device of a plan, and measurements that replace expectations; None where nothing was measured."""

    device: DeviceProfile  # its measured rates included
    edges: float | None = None  # of one mini-batch
    inputs: float | None = None  # input vertices of one mini-batch
    compute_seconds: float | None = None  # of one step
    gather_seconds: float | None = None  # of one step
    fused: bool | None = None  # the input layer of the run of these seconds was; None: as in each plan
    reduce_seconds: float = 0.0  # of one all-reduce, waiting for slower ranks included
    reduce_ranks: int = 0  # that took part in it
    evaluate_seconds: float | None = None  # of one exact evaluation where every rank holds graph and features
    evaluate_ranks: int = 0
    files: tuple[str, ...] = ()  # names of the files read


def measure(request: PlanRequest, files: list[Path]) -> Measured:
    """Read measurements from files. Where two files measure the same thing, the later one counts.

    Raises `DataError` if a file is not JSON, has none of the forms above, or holds a figure that is not positive, and `UsageError` if it
    was made with other settings than those of the request.
    """
    measured = Measured(request.machine())
    for path in files:
        result = _load(path)
        read = next((reader for mark, reader in _READERS.items() if mark in result), _read_rates)
        try:
            measured = replace(read(request, result, measured, path.name), files=(*measured.files, path.name))
        except (DataError, UsageError):
            raise
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise DataError(f"{path}: lacks a part that files of its form have: {type(error).__name__} {error}") from error
    return measured


def _load(path: Path) -> _Result:
    try:
        result = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not JSON: {error}") from error
    if not isinstance(result, dict):
        raise DataError(f"{path}: must be one JSON object; got {type(result).__name__}")
    return result


def _read_sample(request: PlanRequest, result: _Result, measured: Measured, name: str) -> Measured:
    """Read a result of `bulksample sample --json`: sizes of a mini-batch, and the sampling rate of one rank."""
    _check_settings(request, result, name, ("sampler", "fanouts", "frontier", "batch_size"))
    count = _positive(result["minibatches"], name)
    edges, inputs = (_positive(result[key], name) / count for key in ("sampled_edges", "input_vertices"))
    new = replace(measured, edges=edges, inputs=inputs)
    if result.get("graph", "replicated") != "replicated":  # its seconds include the exchange, which the plan counts apart
        return new
    rate = _positive(result["sampled_edges_per_second"], name) / _positive(result["ranks"], name)
    return replace(new, device=_with_rates(new.device, name, sampling=rate))


def _read_train(request: PlanRequest, result: _Result, measured: Measured, name: str) -> Measured:
    """Read a result of `bulksample train --json`: seconds of a step; gathering and evaluation only if no rank fetched from others."""
    _check_settings(
        request, result, name, ("sampler", "fanouts", "model", "parameters", *(key for key in ("batch_size", "frontier") if key in result))
    )
    measured = replace(measured, fused=result.get("input_layer") == "fused")
    steps = _positive(result["steps"], name) * _positive(result["epochs_in_this_run"], name) / _positive(result["epochs"], name)
    phases = result["phases"]
    compute = _positive(sum(phases[phase] for phase in ("forward", "backward", "step")), name) / steps
    if phases.get("reduce") and "ranks" in result:
        measured = replace(measured, reduce_seconds=_positive(phases["reduce"], name) / steps, reduce_ranks=result["ranks"])
    if result.get("graph", "replicated") != "replicated":
        return replace(measured, compute_seconds=compute)
    if result.get("evaluation") == {"kind": "exact", "streamed": False} and phases.get("evaluate"):
        times = -(-result["epochs_in_this_run"] // _positive(result["config"]["eval_every"], name))
        measured = replace(measured, evaluate_seconds=_positive(phases["evaluate"], name) / times, evaluate_ranks=result["ranks"])
    return replace(measured, compute_seconds=compute, gather_seconds=_positive(phases["fetch"], name) / steps)


def _read_sampling_bench(request: PlanRequest, result: _Result, measured: Measured, name: str) -> Measured:
    """Read a result of `bench/run.py sampling`: million edges a second."""
    rate = 1e6 * _positive(result["results"][f"bulksample, frontier {request.frontier}"]["median"], name)
    return replace(measured, device=_with_rates(measured.device, name, sampling=rate))


def _read_spmm_bench(request: PlanRequest, result: _Result, measured: Measured, name: str) -> Measured:
    """Read a result of `bench/run.py spmm`: rates of the size with the most rows to read, and of the largest dense product."""
    read = max(result["sizes"], key=lambda size: size["sources"] * size["width"])
    dense = max(result["sizes"], key=lambda size: size["sources"] * size["width"] ** 2)
    rows = 4e3 * read["edges"] * read["width"] / _positive(read["milliseconds"]["native"]["median"], name)
    operations = 2e3 * dense["sources"] * dense["width"] ** 2 / _positive(dense["milliseconds"]["dense"]["median"], name)
    return replace(measured, device=_with_rates(measured.device, name, gather=rows, bandwidth=rows, operations=operations))


def _read_gpu_bench(request: PlanRequest, result: _Result, measured: Measured, name: str) -> Measured:
    """Read a result of `bench/run.py gpu`: the fastest bulk, and copies that read and write each byte. Failed sections are skipped."""
    _check_settings(request, result, name, ("fanouts", "batch_size"))
    rates: dict[str, float] = {}
    if isinstance(result.get("sampling"), dict):
        rates["sampling"] = max(_positive(of["edges_per_second"], name) for of in result["sampling"].values())
    if isinstance(result.get("copying"), dict):
        moved = result["copying"]["bytes_per_second"]
        rates |= {"gather": _positive(moved["rows of 400 bytes"], name) / 2, "bandwidth": _positive(moved["copy"], name)}
    return replace(measured, device=_with_rates(measured.device, name, **rates))


def _read_rates(request: PlanRequest, result: _Result, measured: Measured, name: str) -> Measured:
    """Read an object with some of `sampling`, `gather`, `bandwidth`, `operations`, in units a second."""
    unknown = [key for key in result if key not in _RATES]
    if unknown or not result:
        raise DataError(
            f"{name}: is neither a result of `bulksample sample`, `bulksample train` or a benchmark nor an object of rates "
            f"({', '.join(_RATES)}); it holds {', '.join(map(repr, unknown[:3])) or 'nothing'}"
        )
    return replace(measured, device=_with_rates(measured.device, name, **{key: _positive(value, name) for key, value in result.items()}))


_READERS: dict[str, Callable[[PlanRequest, _Result, Measured, str], Measured]] = {
    "sampled_edges": _read_sample, "phases": _read_train, "unit": _read_sampling_bench, "sizes": _read_spmm_bench, "card": _read_gpu_bench,
}  # fmt: skip


def _with_rates(device: DeviceProfile, name: str, **rates: float) -> DeviceProfile:
    assert set(rates) <= {field.name for field in fields(DeviceProfile)}
    new = {key: Rate(value, "measured", name) for key, value in rates.items()}
    return replace(device, **new)  # type: ignore[arg-type]


def _check_settings(request: PlanRequest, result: _Result, name: str, keys: tuple[str, ...]) -> None:
    for key in keys:
        wanted = getattr(request, key)
        wanted = list(wanted) if isinstance(wanted, tuple) else wanted
        if result[key] != wanted:
            raise UsageError(f"{name} was made with {key} {result[key]!r}, the plan is for {wanted!r}; use a file with the same {key}")


def _positive(value: Any, name: str) -> float:
    try:
        return positive(value)
    except ValueError as error:
        raise DataError(f"{name}: {error}") from None

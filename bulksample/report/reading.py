"""Results from files: what `train`, `sample`, `compare` and a benchmark wrote, found under the paths that a user names.

A run is the JSON object of `train` or `sample`. The JSON lines of its epochs lie beside it, as NAME.jsonl for NAME.json, or as the
only metrics.jsonl of a folder with one run. Lines without an object are a run that is still under way, or did not end well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from ..errors import DataError
from .files import Found, found_under, is_bench, is_comparison, is_run, lines_of_epochs, load

_UNTOLD = ("report", "result", "metrics", "lines")  # file names that say nothing: their folder's name does

# What else this package writes as JSON, by keys that only it has; these are said to be skipped.
_OTHERS = {
    "an answer of `bulksample plan`": {"request", "rows", "explanation"},
    "an answer of `bulksample info`": {"backends", "extras", "executable"},
    "the manifest of a graph": {"format", "arrays", "digest"},
    "the record of a run of `bulksample compare`": {"asked", "exit_code", "failure"},
}


@dataclass(frozen=True)
class Run:
    """One run of `train` or `sample`.

    Attributes
    ----------
    name : str
        Unlike that of every other run that was read.
    label : str, optional
        The method as `compare` was asked for it, alike for all its seeds.
    report : dict
        Empty where only the lines of epochs were found.
    lines : list of dict
        One for each epoch.
    """

    name: str
    path: Path
    report: Found
    lines: list[Found] = field(default_factory=list)
    label: str | None = None

    @property
    def trained(self) -> bool:
        """Whether it is of `train`."""
        return "sampled_edges" not in self.report

    @property
    def out(self) -> Path | None:
        """The folder of the comparison that it was a part of."""
        return self.path.absolute().parents[3] if self.label else None


@dataclass(frozen=True)
class Reading:
    """All that was found: runs, tables of comparisons, results of benchmarks, and what was left out, with the reason."""

    runs: list[Run]
    comparisons: list[tuple[str, Found]]
    benches: list[tuple[str, Found]]
    skipped: list[tuple[Path, str]]


def read(paths: Sequence[Path], mixed_versions: bool = False) -> Reading:
    """Read files, and all .json and .jsonl files under folders.

    Raises
    ------
    DataError
        If a path does not exist or cannot be read, is not JSON, or is named itself and is no result; if runs are of several
        versions of the package, unless `mixed_versions`; or if nothing is found at all.
    """
    files = {file: path.is_dir() for path in paths for file in found_under(path)}
    objects = {file: load(file) for file in files if file.suffix != ".jsonl"}
    comparisons = [(file, found) for file, found in objects.items() if is_comparison(found)]
    runs = _in_order([Run("", file, found, label=_label(file)) for file, found in objects.items() if is_run(found)], comparisons)
    lines = {file: lines_of_epochs(file) for file in _beside(runs, files)}
    runs = [Run(run.name, run.path, run.report, lines.pop(_lines_of(run, runs), []), run.label) for run in runs]
    runs += [Run("", file, {}, found) for file, found in lines.items() if found]
    benches = [(file, found) for file, found in objects.items() if is_bench(found)]
    known = {file for file, _ in (*comparisons, *benches)} | {run.path for run in runs} | {run.path.with_name("run.json") for run in runs}
    skipped = [(file, _reason(file, objects[file], inside)) for file, inside in files.items() if file in objects and file not in known]
    if not (runs or comparisons or benches):
        raise DataError(f"{', '.join(map(str, paths))}: no result of `bulksample train`, `sample` or `compare` is there")
    if not mixed_versions:
        _one_version(runs)
    named = [Run(name, run.path, run.report, run.lines, run.label) for name, run in zip(_names(runs), runs, strict=True)]
    return Reading(named, _titled(comparisons), _titled(benches), skipped)


def _reason(file: Path, found: Found, inside: bool) -> str:
    """What a file is that no report is made of; one that was named itself and is nothing known is an error."""
    for what, keys in _OTHERS.items():
        if keys <= found.keys():
            return f"is {what}"
    if inside:
        return "is no result of `train`, `sample` or `compare`"
    held = ", ".join(map(repr, list(found)[:4])) or "nothing"
    raise DataError(f"{file}: is no result of `bulksample train`, `sample` or `compare`; it holds {held}")


def _label(file: Path) -> str | None:
    """The method of a run of `compare`, OUT/runs/METHOD/seed-S/report.json."""
    of_compare = file.name == "report.json" and (file.parent / "run.json").exists() and file.parent.name.startswith("seed-")
    return unquote(file.parent.parent.name.replace("+", ":")) if of_compare else None


def _in_order(runs: list[Run], comparisons: list[tuple[Path, Found]]) -> list[Run]:
    """Runs of a comparison in the order in which its methods were asked for."""
    asked = {file.absolute().parent: [row["method"] for row in found["methods"]] for file, found in comparisons}
    first = {run.out: i for i, run in reversed(list(enumerate(runs)))}

    def place(numbered: tuple[int, Run]) -> tuple[int, int, int]:
        i, run = numbered
        labels = asked.get(run.out, []) if run.out else []
        return first[run.out] if run.out else i, labels.index(run.label) if run.label in labels else len(labels), i

    return [run for _, run in sorted(enumerate(runs), key=place)]


def _beside(runs: list[Run], named: Iterable[Path]) -> list[Path]:
    """The files of lines that were named, and those that belong to a run."""
    own = [file for run in runs if (file := _lines_of(run, runs)).exists()]
    return list(dict.fromkeys([*own, *(file for file in named if file.suffix == ".jsonl")]))


def _lines_of(run: Run, runs: list[Run]) -> Path:
    """Where the lines of a run would be."""
    beside = run.path.with_suffix(".jsonl")
    alone = sum(other.path.parent == run.path.parent for other in runs) == 1
    return run.path.with_name("metrics.jsonl") if alone and not beside.exists() else beside


def _one_version(runs: list[Run]) -> None:
    versions = {run.path: run.report.get("environment", {}).get("version", "one that does not say") for run in runs if run.report}
    first = next(iter(versions.items()), None)
    other = next(((path, version) for path, version in versions.items() if first and version != first[1]), None)
    if first and other:
        raise DataError(
            f"{other[0]}: was made by bulksample {other[1]}, and {first[0]} by {first[1]}: results of one version would fit, "
            "or --mixed-versions"
        )


def _names(runs: list[Run]) -> list[str]:
    """A name for each run: as short as the file and the folders above it allow, and unlike all others."""
    made = [_name(run, 0) for run in runs]
    for depth in range(1, 1 + max((len(run.path.absolute().parts) for run in runs), default=0)):
        often = Counter(made)
        made = [_name(run, depth) if often[name] > 1 else name for run, name in zip(runs, made, strict=True)]
    return made


def _name(run: Run, depth: int) -> str:
    parts = [*run.path.absolute().parent.parts, run.path.stem]
    if run.label:
        above = parts[:-4][-depth:] if depth else []
        return "/".join([*above, f"{run.label}, seed {run.report.get('seed')}"])
    if run.path.stem in _UNTOLD:
        parts.pop()
    return "/".join(parts[max(0, len(parts) - 1 - depth) :])


def _titled(found: list[tuple[Path, Found]]) -> list[tuple[str, Found]]:
    return [(file.parent.name if file.stem == "table" else file.stem, one) for file, one in found]

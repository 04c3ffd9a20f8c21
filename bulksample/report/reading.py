"""Read the results that `train`, `sample`, `compare` and benchmarks wrote, under the paths that a user names.

A run is the JSON object of `train` or `sample`. The JSON lines of its epochs are the file NAME.jsonl beside NAME.json, or metrics.jsonl
in a folder with one run. Lines without an object belong to a run that has not finished, or that failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote

from ..data.result_places import companion
from ..errors import DataError
from .files import CHECKS, JsonObject, found_under, kind_of, lines_of_epochs, load

_GENERIC = ("report", "result", "metrics", "lines")  # file names that do not name a run; the name of the folder does

# Other JSON files of this package, recognised by their keys. They are reported as skipped.
_OTHERS = {
    "a result of `bulksample plan`": {"request", "rows", "explanation"},
    "a result of `bulksample info`": {"backends", "extras", "executable"},
    "the manifest of a graph": {"format", "arrays", "digest"},
    "the record of a run of `bulksample compare`": {"asked", "exit_code", "failure"},
}


@dataclass(frozen=True)
class Run:
    """One run of `train` or `sample`."""

    name: str  # unique among the runs read together
    path: Path
    report: JsonObject  # empty if only lines of epochs were found
    lines: list[JsonObject] = field(default_factory=list)  # one for each epoch
    label: str | None = None  # the method as given to `compare`, shared by all its seeds

    @property
    def trained(self) -> bool:
        """True for a run of `train`, False for one of `sample`."""
        return "sampled_edges" not in self.report

    @property
    def comparison(self) -> Path | None:
        """Folder of the comparison that the run belongs to."""
        return self.path.absolute().parents[3] if self.label else None


@dataclass(frozen=True)
class Reading:
    """Runs, tables of comparisons, results of benchmarks, and skipped files with the reason."""

    runs: list[Run]
    comparisons: list[tuple[str, JsonObject]]
    benches: list[tuple[str, JsonObject]]
    skipped: list[tuple[Path, str]]


def read(paths: Sequence[Path], mixed_versions: bool = False) -> Reading:
    """Read files, and all .json and .jsonl files under folders.

    Raises `DataError` if a path does not exist or cannot be read, or a file is not JSON; if a file that the user named is no result; if
    runs were made by several versions of the package, unless `mixed_versions`; or if nothing is found.
    """
    files = {file: path.is_dir() for path in paths for file in found_under(path)}
    objects = {file: load(file) for file in files if file.suffix != ".jsonl"}
    by_kind = {kind: [(file, result) for file, result in objects.items() if kind_of(result) == kind] for kind in CHECKS}
    comparisons, benches = by_kind["comparison"], by_kind["bench"]
    runs = _in_order([Run("", file, result, label=_label(file)) for file, result in by_kind["run"]], comparisons)
    lines = {file: lines_of_epochs(file) for file in _beside(runs, files)}
    runs = [replace(run, lines=lines.pop(_lines_of(run, runs), [])) for run in runs]
    runs += [Run("", file, {}, epochs) for file, epochs in lines.items() if epochs]
    known = {file for file, _ in (*comparisons, *benches)} | {run.path for run in runs} | {run.path.with_name("run.json") for run in runs}
    skipped = [(file, _reason(file, objects[file], inside)) for file, inside in files.items() if file in objects and file not in known]
    if not (runs or comparisons or benches):
        raise DataError(f"{', '.join(map(str, paths))}: holds no result; use files that `bulksample train`, `sample` or `compare` wrote")
    if not mixed_versions:
        _one_version(runs)
    named = [replace(run, name=name) for name, run in zip(_names(runs), runs, strict=True)]
    return Reading(named, _titled(comparisons), _titled(benches), skipped)


def _reason(file: Path, result: JsonObject, inside: bool) -> str:
    """Return the reason for skipping a file. Raise `DataError` for an unknown file that the user named."""
    for what, keys in _OTHERS.items():
        if keys <= result.keys():
            return f"is {what}"
    if inside:
        return "is no result of `train`, `sample` or `compare`"
    keys_of_file = ", ".join(map(repr, list(result)[:4])) or "nothing"
    raise DataError(f"{file}: is no result; it holds {keys_of_file}; use a file that `bulksample train`, `sample` or `compare` wrote")


def _label(file: Path) -> str | None:
    """Return the method of a run of `compare`, from its path OUT/runs/METHOD/seed-S/report.json."""
    of_compare = file.name == "report.json" and (file.parent / "run.json").exists() and file.parent.name.startswith("seed-")
    return unquote(file.parent.parent.name.replace("+", ":")) if of_compare else None


def _in_order(runs: list[Run], comparisons: list[tuple[Path, JsonObject]]) -> list[Run]:
    """Sort the runs of a comparison by the order of the methods in its table."""
    methods = {file.absolute().parent: [row["method"] for row in table["methods"]] for file, table in comparisons}
    first = {run.comparison: i for i, run in reversed(list(enumerate(runs)))}

    def place(numbered: tuple[int, Run]) -> tuple[int, int, int]:
        i, run = numbered
        labels = methods.get(run.comparison, []) if run.comparison else []
        return first[run.comparison] if run.comparison else i, labels.index(run.label) if run.label in labels else len(labels), i

    return [run for _, run in sorted(enumerate(runs), key=place)]


def _beside(runs: list[Run], named: Iterable[Path]) -> list[Path]:
    """Return the files of lines that belong to a run, and those that the user named."""
    lines = [file for run in runs if (file := _lines_of(run, runs)).exists()]
    return list(dict.fromkeys([*lines, *(file for file in named if file.suffix == ".jsonl")]))


def _lines_of(run: Run, runs: list[Run]) -> Path:
    """Return the path at which the lines of a run are expected."""
    beside = companion(run.path, ".jsonl")
    alone = sum(other.path.parent == run.path.parent for other in runs) == 1
    return run.path.with_name("metrics.jsonl") if alone and not beside.exists() else beside


def _one_version(runs: list[Run]) -> None:
    versions = {run.path: run.report.get("environment", {}).get("version", "an unknown version") for run in runs if run.report}
    for path, version in versions.items():
        first, of_first = next(iter(versions.items()))
        if version != of_first:
            use = "use results of one version, or --mixed-versions"
            raise DataError(f"{path}: was made by bulksample {version}, and {first} by {of_first}; {use}")


def _names(runs: list[Run]) -> list[str]:
    """Name each run by its file and as many folders above it as make the name unique."""
    names = [_name(run, 0) for run in runs]
    for depth in range(1, 1 + max((len(run.path.absolute().parts) for run in runs), default=0)):
        count = Counter(names)
        names = [_name(run, depth) if count[name] > 1 else name for run, name in zip(runs, names, strict=True)]
    return [name.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for name in names]  # of files that no locale can spell


def _name(run: Run, depth: int) -> str:
    parts = [*run.path.absolute().parent.parts, run.path.stem]
    if run.label:
        above = parts[:-4][-depth:] if depth else []
        return "/".join([*above, f"{run.label}, seed {run.report.get('seed')}"])
    if run.path.stem in _GENERIC:
        parts.pop()
    return "/".join(parts[max(0, len(parts) - 1 - depth) :])


def _titled(results: list[tuple[Path, JsonObject]]) -> list[tuple[str, JsonObject]]:
    return [(file.parent.name if file.stem == "table" else file.stem, one) for file, one in results]

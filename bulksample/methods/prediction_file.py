"""Write predictions as arrays (.npz) or as a table with a row for each vertex or pair (.csv, .parquet); the ending of the name decides."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..data.atomic import new_file, save_npz
from ..data.result_places import check_ending
from ..errors import UsageError

if TYPE_CHECKING:  # importing torch would keep a wrong name waiting
    from .predict import Prediction

_ENDINGS = (".npz", ".csv", ".parquet")
_ROWS = 2**16


def check_prediction_file(file: Path) -> None:
    """Raise `UsageError` if predictions cannot be written under this name; call it before long work."""
    check_ending("out", file, *_ENDINGS, bare=False)
    if file.suffix.lower() == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UsageError(f"out: got {file}, and Parquet needs pyarrow; use pip install 'bulksample[tables]', or a .csv file")


def check_prediction_fits(file: Path, checkpoint: Path, pairs: bool = False) -> None:
    """Raise `UsageError` if the ending of a file cannot hold what a checkpoint gives, of pairs or not; reads its configuration alone."""
    from ..training.checkpoint import header  # imports torch

    config = header(checkpoint).get("config")
    _check_table(file, not pairs and isinstance(config, dict) and config.get("task") == "links")


def _check_table(file: Path, links: bool) -> None:
    if links and file.suffix.lower() != ".npz":
        fits = file.with_suffix(".npz")
        raise UsageError(
            f"out: got {file}, but link prediction gives embeddings alone, which are no table; use {fits}, or give pairs=TABLE"
        )


def arrays_of(prediction: Prediction) -> dict[str, np.ndarray]:
    """Return what a model gives for every vertex or pair, by name.

    These are `logits` or `predictions`, `embeddings`, those of heterogeneous graphs, and `source` and `destination` of pairs.
    """
    outputs = "predictions" if prediction.config.target == "regression" else "logits"
    arrays = {outputs: prediction.logits, "embeddings": prediction.embeddings, **prediction.more}
    return {name: array for name, array in arrays.items() if array is not None}


def write_predictions(file: Path, prediction: Prediction) -> list[str]:
    """Write predictions completely or not at all; return the names of the arrays, or the columns of the table.

    Raises `UsageError` if the file cannot be written, or a table is asked of link prediction, which gives embeddings alone.
    """
    if file.suffix.lower() not in (".csv", ".parquet"):
        save_npz(file, arrays := arrays_of(prediction))
        return list(arrays)
    _check_table(file, prediction.logits is None)
    table = columns_of(prediction)
    try:
        with new_file(file) as stream:
            if file.suffix.lower() == ".csv":
                for lines in _csv(table):
                    stream.write(lines.encode())
            else:
                import pyarrow
                import pyarrow.parquet

                pyarrow.parquet.write_table(pyarrow.table(table), stream)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}") from error
    return list(table)


def columns_of(prediction: Prediction) -> dict[str, np.ndarray]:
    """Return the columns of the table of predictions, one row for each vertex or pair.

    `id`, int64, is the number of the vertex, of a pair `source` and `destination` instead; `time`, int64, is when it was asked about, if it
    was. Then of classes `class`, int64, the most likely one, and `probability`, float64, its softmax; of several classes at once
    `probability_J`, float64, for each class J; of regression `prediction`, float64, or `prediction_J` for each number J; of links `score`,
    float64, and `probability`, its logistic function.
    """
    assert prediction.logits is not None, "see check_prediction_fits"
    logits = prediction.logits.astype(np.float64)
    table = {name: np.asarray(prediction.more[name]) for name in ("source", "destination") if name in prediction.more}
    table = table or {"id": np.arange(len(logits))}
    if "times" in prediction.more:
        table["time"] = np.asarray(prediction.more["times"])
    if prediction.config.target == "regression":
        return table | _numbered("prediction", logits)
    if prediction.config.target == "multilabel":
        return table | _numbered("probability", _logistic(logits), alone=False)
    if prediction.config.task == "links":
        return table | {"score": logits[:, 0], "probability": _logistic(logits)[:, 0]}
    best = logits.argmax(1)
    beside = np.exp(logits - logits[np.arange(len(logits)), best][:, None]).sum(1)
    return table | {"class": best, "probability": 1 / beside}


def _logistic(logits: np.ndarray) -> np.ndarray:
    probabilities: np.ndarray = np.exp(-np.logaddexp(0, -logits))
    return probabilities


def _numbered(name: str, values: np.ndarray, alone: bool = True) -> dict[str, np.ndarray]:
    if values.shape[1] == 1 and alone:
        return {name: values[:, 0]}
    return {f"{name}_{j}": column for j, column in enumerate(values.T)}


def _csv(table: dict[str, np.ndarray]) -> Iterator[str]:
    """Yield the lines of a table, many at a time; numbers have all their digits."""
    yield ",".join(table) + "\n"
    rows = len(next(iter(table.values())))
    for first in range(0, rows, _ROWS):
        columns = [map(repr, column[first : first + _ROWS].tolist()) for column in table.values()]
        yield "".join(",".join(cells) + "\n" for cells in zip(*columns, strict=True))

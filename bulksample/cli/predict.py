"""`bulksample predict`: write class scores and embeddings of all vertices, or scores of pairs, by the model of a checkpoint."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from ..methods.prediction_file import arrays_of, check_prediction_file, check_prediction_fits, write_predictions
from .output import Check, CheckOption, JsonOption, OverwriteOption, emit, hold_outputs
from .process import gc_paused


def predict(
    directory: Annotated[Path, typer.Argument(help="A graph in the store format, with features.")],
    checkpoint: Annotated[Path, typer.Option(help="Folder of train --checkpoint, for its newest, or one folder step-... in it.")],
    out: Annotated[
        Path,
        typer.Option("-o", "--out", help="File: .npz for logits and embeddings, .csv or .parquet for a table with id, class, probability."),
    ],
    model: Annotated[
        str | None, typer.Option(help="PACKAGE.MODULE:FACTORY of a model of your own, called with the widths of input and output.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Number of threads. Default: all processors of this process.")] = None,
    memory: Annotated[int | None, typer.Option(min=1, help="Bytes for hidden rows; more lie in files. Default: 1/4 of the free.")] = None,
    at: Annotated[int | None, typer.Option(help="Time at which all vertices are asked about. Default: their own, as in training.")] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="File .npz, .csv or .parquet of pairs: source, destination, time, feature_*; tasks edges, links.")
    ] = None,
    overwrite: OverwriteOption = False, check: CheckOption = Check.auto, json_file: JsonOption = None,
) -> None:  # fmt: skip
    """Write the class scores and embeddings of every vertex, by exact inference over all neighbors.

    A file .npz holds `logits`, float32 of shape (n, classes), whose softmax is the probability of each class, or whose logistic function is
    that of each of several classes at once. Regression writes its numbers as `predictions`, shape (n, t). `embeddings`, float32 of shape
    (n, hidden), are the rows that enter the last layer. Link prediction writes embeddings alone, a model of your own logits alone.

    A file .csv or .parquet has a row for each vertex: its `id`, and `class` and `probability` of the most likely class; of several
    classes at once `probability_0`, `probability_1`, ...; of regression `prediction`, or `prediction_0`, ...

    Of a heterogeneous graph, n counts the vertices of the type that was predicted, and `times` are those at which they were asked about;
    link prediction writes `embeddings.TYPE` of both ends.

    With `--pairs`, which the task edges needs, the rows are those of the pairs in the file, with `source` and `destination` in place of
    `id`, and no embeddings. Pairs need not be edges. Of the task links a table has the `score` of each pair, and its `probability`.
    """
    check_prediction_file(out)
    hold_outputs(overwrite, out, json_file)
    from ..data.store import manifest

    manifest(directory)  # before torch is imported
    if not checkpoint.is_dir():
        raise UsageError(f"there is no checkpoint at {checkpoint}; use the folder of train --checkpoint, or a folder step-... in it")
    with gc_paused():
        from ..methods.predict import predict as run

    check_prediction_fits(out, checkpoint, pairs is not None)
    began = time.perf_counter()
    prediction = run(directory, checkpoint, threads, check, model, memory, at, pairs)
    columns = write_predictions(out, prediction)
    emit({
        "file": str(out), "checkpoint": str(prediction.path), "step": prediction.step,
        **{name: getattr(prediction.config, name) for name in ("method", "model", "task", "target")},
        **{name: list(array.shape) for name, array in arrays_of(prediction).items()},
        **({} if out.suffix.lower() == ".npz" else {"columns": columns}),
        **prediction.scores, "warnings": prediction.warnings, "seconds": time.perf_counter() - began,
    }, json_file, f"predict {directory}")  # fmt: skip

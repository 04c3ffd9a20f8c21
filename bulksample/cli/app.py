"""The tree of commands of `bulksample`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..methods.config import TrainConfig
from ..version import __version__
from . import compare, config, data, info, partition, plan, predict, report, sample, train
from .usage import help_by_method

_OPTIONS_OF_A_METHOD = "Options of one method: bulksample train --method NAME --help"

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"bulksample {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Bulk mini-batch sampling by sparse matrix algebra, and training of graph neural networks."""


app.command("info")(info.info)
app.add_typer(config.app, name="config")
app.add_typer(data.app, name="data")
app.command("partition")(partition.partition)
app.command("plan")(plan.plan)
app.command("sample")(sample.sample)
app.command("train", cls=help_by_method(TrainConfig), epilog=_OPTIONS_OF_A_METHOD)(train.train)
app.command("predict")(predict.predict)
app.command("compare")(compare.compare)
app.command("report")(report.report)

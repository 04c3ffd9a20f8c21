"""The tree of commands of `bulksample`, help with the options of one method at a time, and `bulksample config`."""

from __future__ import annotations

from copy import copy
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ..config.file import write
from ..methods.config import TrainConfig
from ..version import __version__
from . import compare, data, info, partition, plan, predict, report, sample, train
from .configured import Requested, configured

_METHOD = "bulksample.method"
_OPTIONS_OF_A_METHOD = "Options of one method: bulksample train --method NAME --help"

config_commands = typer.Typer(no_args_is_help=True, help="Configuration files.")
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"bulksample {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Bulk mini-batch sampling by sparse matrix algebra, and training of graph neural networks."""


class HelpByMethod(TyperCommand):
    """The command `train`, whose help shows the options of a method only after ``--method NAME``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        joined = [word.removeprefix("--method=") for word in args if word.startswith("--method=")]
        apart = [value for word, value in pairwise(args) if word == "--method"]
        ctx.meta[_METHOD] = next(iter([*joined, *apart]), None)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        method = ctx.meta.get(_METHOD)
        if method is not None:
            TrainConfig.made({"method": method}, {"method": "--method"})  # refuses a method that does not exist
        foreign = {name for name, (group, _) in TrainConfig.by_name().items() if group.methods and method not in group.methods}
        shown = copy(self)
        shown.params = [one for one in self.params if one.name not in foreign]
        super(HelpByMethod, shown).format_help(ctx, formatter)


@config_commands.command("show")
@configured(TrainConfig)
def show(
    requested: Requested, resolved: Annotated[bool, typer.Option("--resolved", help="All options, defaults included.")] = False
) -> None:
    """Print the options of `train` that a file and flags set, as YAML for --config."""
    config: TrainConfig = requested.config(TrainConfig)
    print(write(config, config.method, changed=not resolved), end="")


app.command("info")(info.info)
app.add_typer(config_commands, name="config")
app.add_typer(data.app, name="data")
app.command("partition")(partition.partition)
app.command("plan")(plan.plan)
app.command("sample")(sample.sample)
app.command("train", cls=HelpByMethod, epilog=_OPTIONS_OF_A_METHOD)(train.train)
app.command("predict")(predict.predict)
app.command("compare")(compare.compare)
app.command("report")(report.report)

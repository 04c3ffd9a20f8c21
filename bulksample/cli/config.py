"""`bulksample config`: show the resolved configuration of a training run."""

from __future__ import annotations

from typing import Annotated

import typer

from ..config.file import write
from ..methods.config import TrainConfig
from .configured import Requested, configured

app = typer.Typer(no_args_is_help=True, help="Configuration files.")


@app.command("show")
@configured(TrainConfig)
def show(
    requested: Requested,
    resolved: Annotated[bool, typer.Option("--resolved", help="All options, defaults included.")] = False,
) -> None:
    """Print the options of `train` that a file and flags set, as YAML for --config."""
    config: TrainConfig = requested.config(TrainConfig)
    print(write(config, config.method, changed=not resolved), end="")

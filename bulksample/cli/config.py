"""`bulksample config`: what a configuration amounts to."""

from __future__ import annotations

from typing import Annotated

import typer

from ..config.file import write
from ..methods.config import TrainConfig
from .configured import Asked, configured

app = typer.Typer(no_args_is_help=True, help="See what a configuration amounts to.")


@app.command("show")
@configured(TrainConfig)
def show(
    asked: Asked,
    resolved: Annotated[bool, typer.Option("--resolved", help="Every option, not only those that differ from the default.")] = False,
) -> None:
    """Print the YAML of what `train` would be asked by this file and these flags; it is itself a file for --config."""
    config: TrainConfig = asked.config(TrainConfig)
    print(write(config, config.method, changed=not resolved), end="")

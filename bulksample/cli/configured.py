"""Commands that take a configuration: an option for every field, ``--config FILE``, and the flags of the published code.

What a flag says goes before what the file says, and that before the default.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from ..config.file import Given, read, write
from ..config.options import Options
from ..config.sample import SampleConfig
from ..errors import UsageError
from ..methods.config import TrainConfig
from .output import JsonOption
from .published import IGNORED, PUBLISHED, SWITCHES
from .usage import ParseError, explain

_CONFIG = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Options in YAML; a flag goes before the file.")]
_FLAGS = {"sampler_options": "--options"}
_WIDE = 12  # characters of choices; longer ones go into the help text
_METAVARS = {int: "INTEGER", float: "FLOAT", str: "TEXT"}


class Asked(dict[str, Given]):
    """The options that were asked for, by flags or in a file, which is `source`."""

    source: Path | None = None

    def config(self, wanted: type[Options]) -> Any:
        """The configuration made of them; raises `UsageError`."""
        return wanted.made({key: given.value for key, given in self.items()}, {key: given.origin for key, given in self.items()})


def configured(wanted: type[Options], from_file: bool = True) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Make a command of a function that takes the options of `wanted` as one `Asked`, then arguments of its own.

    Parameters
    ----------
    from_file : bool
        Take ``--config FILE`` and the flags of the published code, too.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        made = {**_options(wanted), **(_published(wanted) if from_file else {})}

        def command(context: typer.Context, config: Path | None = None, **values: Any) -> None:
            options = {name: values.pop(name) for name in made}
            named = {key: value for key, value in options.items() if _is_given(context, key)}
            asked = Asked(read(config, wanted, TrainConfig, SampleConfig) if config else {})
            asked.source = config
            flags = _flags(named)
            if "fanouts" in flags and "layers" not in flags:
                asked.pop("layers", None)  # those of the file follow
            asked.update(flags)
            function(asked, **values)

        own = [_parameter(one.name, one.annotation, one.default) for one in inspect.signature(function, eval_str=True).parameters.values()]
        file = [_parameter("config", _CONFIG, None)] if from_file else []
        parameters = [_parameter("context", typer.Context), *own[1:], *file, *made.values()]
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {}
        return command

    return decorate


def flag(name: str) -> str:
    """The flag of an option."""
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")


def parsed(wanted: type[Options], arguments: list[str]) -> tuple[Asked, Path | None]:
    """What the options of a command line ask for, and its --json; raises `UsageError` where it cannot be read."""
    found: list[tuple[Asked, Path | None]] = []

    def take(asked: Asked, directory: Path, json_file: JsonOption = None) -> None:
        found.append((asked, json_file))

    app = typer.Typer(add_completion=False)
    app.command()(configured(wanted)(take))
    try:
        typer.main.get_command(app).main(["DIR", *arguments], "train", standalone_mode=False)
    except ParseError as error:
        raise UsageError(explain(error)) from None
    return found[0]


def words(config: Options) -> tuple[str, ...]:
    """The options of a command line for what differs from the default; the layers follow the fanouts."""
    found: list[str] = []
    for name, (_, field) in type(config).by_name().items():
        value = getattr(config, name)
        if value == field.default or name in ("method", "layers"):
            continue
        if isinstance(value, dict):
            value = ",".join(f"{key}={inner}" for key, inner in value.items())
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        found += [flag(name) if value else f"--no-{name.replace('_', '-')}"] if isinstance(value, bool) else [flag(name), text]
    return tuple(found)


def keep(config: Options, asked: Asked, method: str | None, *files: Path | None) -> None:
    """Write the resolved configuration beside what a run writes: to each of these files, but never over the one that was read."""
    for file in files:
        try:
            if file is not None and not (asked.source and file.exists() and file.samefile(asked.source)):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(write(config, method), encoding="utf-8")
        except OSError as error:
            print(f"bulksample: the configuration was not kept: {error}", file=sys.stderr)


def beside(json_file: Path | None) -> Path | None:
    """The file of the configuration of a run that writes this file: r.config.yaml beside r.json."""
    return None if json_file is None or str(json_file) == "-" else json_file.with_suffix(".config.yaml")


def _is_given(context: typer.Context, name: str) -> bool:
    return getattr(context.get_parameter_source(name), "name", None) == "COMMANDLINE"


def _flags(named: dict[str, Any]) -> dict[str, Given]:
    """The options that flags gave, under our names; raises `UsageError` where two flags give the same one."""
    found: dict[str, Given] = {}
    for key, value in named.items():
        if key in IGNORED:
            print(f"bulksample: {flag(key)}, of the published code, changes nothing here: {IGNORED[key]}", file=sys.stderr)
            continue
        name = PUBLISHED.get(key, key.removeprefix("no_"))
        if name in found:
            raise UsageError(f"{flag(key)} says {name} as {found[name].origin} does, and both were given; one of them would fit")
        means = "replicated" if key == "replicate_graph" else False if key.startswith("no_") else value
        found[name] = Given(means, flag(key))
    return found


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _options(wanted: type[Options]) -> dict[str, inspect.Parameter]:
    """Options of the command line for every field."""
    made = [one for name, (group, field) in wanted.by_name().items() for one in _of_field(name, field, group.title)]
    return {one.name: one for one in made}


def _of_field(name: str, field: FieldInfo, panel: str) -> list[inspect.Parameter]:
    """The option of a field; of a switch that is off, the flag that says so, too, which is not shown."""
    given, said = None if field.is_required() else field.default, field.description or ""
    if given is False:
        on = typer.Option(flag(name), help=said, rich_help_panel=panel)
        off = typer.Option(flag(f"no_{name}"), hidden=True)
        return [_parameter(name, Annotated[bool, on], False), _parameter(f"no_{name}", Annotated[bool, off], False)]
    if given is True:
        return [_parameter(name, Annotated[bool, typer.Option(help=said, rich_help_panel=panel)], True)]
    metavar = _metavar(field.annotation)
    if len(metavar) > _WIDE:
        said, metavar = f"{metavar.replace('|', ', ')}. {said}", "NAME"
    default = ",".join(map(str, given)) if isinstance(given, tuple) else str(given) if given not in (None, {}) else None
    asked = typer.Option(flag(name), help=said, metavar=metavar, rich_help_panel=panel)
    kind: Any = list[str] if field.annotation == tuple[str, ...] else str
    return [_parameter(name, Annotated[kind | None, asked], default or None)]


def _published(wanted: type[Options]) -> dict[str, inspect.Parameter]:
    hidden = [name for name in (*PUBLISHED, *IGNORED) if PUBLISHED.get(name, name) in wanted.model_fields or name in IGNORED]
    return {
        name: _parameter(name, Annotated[bool, typer.Option(flag(name), hidden=True)], False) if name in SWITCHES
        else _parameter(name, Annotated[str | None, typer.Option(flag(name), hidden=True)], None)
        for name in hidden
    }  # fmt: skip


def _metavar(annotation: Any) -> str:
    """The choices of an option, or the kind of its values."""
    if get_origin(annotation) is Literal:
        return "|".join(map(str, get_args(annotation)))
    if annotation in _METAVARS:
        return _METAVARS[annotation]
    if get_origin(annotation) is Annotated:
        kind, *metadata = get_args(annotation)
        return "TEXT" if any(isinstance(one, BeforeValidator) for one in metadata) else _metavar(kind)
    kinds = [_metavar(inner) for inner in get_args(annotation) if inner is not type(None)]
    return kinds[0] if len(kinds) == 1 else "TEXT"

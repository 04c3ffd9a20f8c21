"""Commands that take a configuration: a flag for every option, ``--config FILE``, and the flags of the published code.

A flag overrides the file, and the file overrides the default.

Flags of the code published with the matrix-based sampling paper are there so that its command lines run here; ``--help`` does not show
them. The published code partitions the graph unless ``--replicate-graph`` is given; here the method decides.

References
----------
Tripathy, Yelick and Buluç, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, and the flags in the
README of its code, github.com/PASSIONLab/CAGNET, branch distributed-sampling.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from ..config.file import Given, read, write
from ..config.foreign import difference, ours
from ..config.options import Options
from ..config.train import SampleConfig
from ..data.atomic import is_device, write_file
from ..data.result_places import companion
from ..errors import UsageError
from ..methods.config import TrainConfig
from .output import JsonOption, Write

# The base of all errors of a command line that cannot be parsed; Typer takes it from click, or brings its own copy.
ParseError: Any = typer.BadParameter.__mro__[2]
_CONFIG = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Options in YAML. Flags override them.")]
_FLAGS = {"sampler_options": "--options"}
_NOT_OF_A_CONFIGURATION = (  # options that messages name
    "columns", "header", "ids", "out", "overwrite", "pairs", "schema", "scheme", "separator", "skip", "undirected", "vertices",
)  # fmt: skip
_OFF = {"undirected": "--directed"}
_OF_FILE = re.compile(r"\S+:\d+: ")  # a message about a line of a file
_WIDE = 12  # characters of choices; longer ones go into the help text
_METAVARS = {int: "INTEGER", float: "FLOAT", str: "TEXT"}
# The option with the same meaning, by flag
PUBLISHED = {
    "n_bulkmb": "bulk_size", "samp_num": "fanouts", "sample_method": "sampler", "n_epochs": "epochs", "n_layers": "layers",
    "n_hidden": "hidden", "bulk_batch_fetch": "fetch_together", "replicate_graph": "graph",  # a switch: replicated
}  # fmt: skip
# Flags without an effect here, and the reason
IGNORED = {
    "semibulk": "columns are extracted for each mini-batch separately",
    "n_darts": "draws are exact and need no darts",
    "timing": "phases are always timed",
}
SWITCHES = ("replicate_graph", "timing")


class Requested(dict[str, Given]):
    """The options that flags and a configuration file, `source`, set, by name."""

    source: Path | None = None

    def config(self, options: type[Options]) -> Any:
        """Return the configuration made of these options and of defaults; raise `UsageError`."""
        return options.made({key: given.value for key, given in self.items()}, {key: given.origin for key, given in self.items()})


def configured(options: type[Options], from_file: bool = True) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Turn a function into a command with a flag for every option. The function receives them as one `Requested`, then its own arguments.

    With `from_file` the command accepts ``--config FILE`` and the flags of the published code, too.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        fields = [one for name, (group, field) in options.by_name().items() for one in _of_field(name, field, group.title)]
        flags = {one.name: one for one in fields} | (_published(options) if from_file else {})

        def command(context: typer.Context, config: Path | None = None, **values: Any) -> None:
            all_flags = {name: values.pop(name) for name in flags}
            requested = Requested(read(config, options, TrainConfig, SampleConfig) if config else {})
            requested.source = config
            sources = {name: getattr(context.get_parameter_source(name), "name", None) for name in all_flags}
            from_flags = _requested({name: value for name, value in all_flags.items() if sources[name] == "COMMANDLINE"})
            if "fanouts" in from_flags and "layers" not in from_flags:
                requested.pop("layers", None)  # the layers follow the fanouts of the flag, not those of the file
            requested.update(from_flags)
            function(requested, **values)

        declared = list(inspect.signature(function, eval_str=True).parameters.values())[1:]  # beside `requested`
        file = [_parameter("config", _CONFIG, None)] if from_file else []
        more = [_parameter(one.name, one.annotation, one.default) for one in declared]
        parameters = [_parameter("context", typer.Context), *more, *file, *flags.values()]
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {}
        return command

    return decorate


def flag(name: str) -> str:
    """Return the flag of an option."""
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")


def name_flags(message: str) -> str:
    """Return a message of the package with options as the command line spells them: ``cache_bytes`` as ``--cache-bytes``.

    Keyword arguments are flags with their values: ``overwrite=True``, ``resume='auto'`` and ``skip=1`` are ``--overwrite``,
    ``--resume auto`` and ``--skip 1``. So is the option with which a message begins: ``model: got 'x'``, ``metrics writes .jsonl``.
    After the word "use" also an option of one word and its choice: ``use graph partitioned`` as ``use --graph partitioned``. Keys of a
    configuration file and the parts of ``source:name:destination`` stay as they are.
    """
    if _OF_FILE.match(message):
        return message
    fields = {name: field for options in (TrainConfig, SampleConfig) for name, (_, field) in options.by_name().items()}
    known = "|".join([*fields, *_NOT_OF_A_CONFIGURATION])
    message = re.sub(rf"(?<![\w.'/:-])({known})=(?:(True|False)\b|'([^']*)'|([A-Z]+|\d+)\b)", _as_flag, message)
    message = re.sub(rf"^({known})(?=: got | writes | makes )", lambda match: flag(match[1]), message)
    joined = "|".join(name for name in fields if "_" in name)
    message = re.sub(rf"(?<![\w.'/:-])({joined})(?![\w.'/(=-]|:\S)", lambda match: flag(match[1]), message)
    reason, *rest = re.split(r"(\buse )", message, maxsplit=1)
    use, advice = rest or ("", "")
    for name, choices in ((name, _choices(field.annotation)) for name, field in fields.items() if "_" not in name):
        if choices:
            advice = re.sub(rf"(?<![\w.'/-])(?<!\ba ){name} (?=({'|'.join(choices)})\b)", f"{flag(name)} ", advice)
    return reason + use + advice


def _as_flag(match: re.Match[str]) -> str:
    """Return the flag of a keyword argument and its value."""
    name, switch, *values = match.groups()
    if switch == "False":
        return _OFF.get(name, flag(f"no_{name}"))
    return " ".join([flag(name), *filter(None, values)])


def _choices(annotation: Any) -> list[str]:
    """Return the words among which an option chooses; none for an option of another kind."""
    return [word for one in get_args(annotation) for word in ([one] if isinstance(one, str) else _choices(one))]


def parse_arguments(options: type[Options], arguments: list[str]) -> tuple[Requested, Path | None]:
    """Parse the options of a command line, and its --json; raise `UsageError`."""
    calls: list[tuple[Requested, Path | None]] = []

    def take(requested: Requested, directory: Path, json_file: JsonOption = None) -> None:
        calls.append((requested, json_file))

    app = typer.Typer(add_completion=False)
    app.command()(configured(options)(take))
    try:
        typer.main.get_command(app).main(["DIR", *arguments], "train", standalone_mode=False)
    except ParseError as error:
        raise UsageError(explain(error)) from None
    return calls[0]


def as_arguments(config: Options) -> tuple[str, ...]:
    """Return the flags for all options that differ from their defaults, except the method, and the layers, which follow the fanouts."""
    arguments: list[str] = []
    for name, (_, field) in type(config).by_name().items():
        value = getattr(config, name)
        if value == field.default or name in ("method", "layers"):
            continue
        if isinstance(value, dict):
            value = ",".join(f"{key}={inner}" for key, inner in value.items())
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        arguments += [flag(name) if value else f"--no-{name.replace('_', '-')}"] if isinstance(value, bool) else [flag(name), text]
    return tuple(arguments)


def write_config(
    config: Options, requested: Requested, method: str | None, *files: Path | None, writer: Write = write_file,
) -> None:  # fmt: skip
    """Write the resolved configuration to each file, but never over the file that it was read from."""
    text = write(config, method)
    for file in files:
        try:
            if file := config_file(file, requested):
                writer(file, text)
        except OSError as error:
            print(f"bulksample: the configuration was not written: {error}", file=sys.stderr)


def config_file(file: Path | None, requested: Requested) -> Path | None:
    """Return the file to write a configuration to; None if the configuration was read from it."""
    read_from_it = file is not None and requested.source is not None and file.exists() and file.samefile(requested.source)
    return None if read_from_it else file


def config_beside(json_file: Path | None) -> Path | None:
    """Return the file for the configuration of a run with a JSON result: r.config.yaml beside r.json, and none beside a device."""
    if json_file is None or str(json_file) == "-" or is_device(json_file):
        return None
    return companion(json_file, ".config.yaml")


def _requested(values: dict[str, Any]) -> dict[str, Given]:
    """Return the options that flags set, under our names; raise `UsageError` if two flags set the same option."""
    by_name: dict[str, Given] = {}
    for key, value in values.items():
        if key in IGNORED:
            print(f"bulksample: {flag(key)}, a flag of the published code, has no effect here: {IGNORED[key]}", file=sys.stderr)
            continue
        name = PUBLISHED.get(key, key.removeprefix("no_"))
        if name in by_name:
            raise UsageError(f"{flag(key)} and {by_name[name].origin} set the same option; use one of them")
        meaning = "replicated" if key == "replicate_graph" else False if key.startswith("no_") else value
        by_name[name] = Given(meaning, flag(key))
    return by_name


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _of_field(name: str, field: FieldInfo, panel: str) -> list[inspect.Parameter]:
    """Return the flag of a field. A switch that is off by default, or left to the method, also has a hidden --no- flag."""
    default, text = None if field.is_required() else field.default, field.description or ""
    if default is False or field.annotation == bool | None:
        on = typer.Option(flag(name), help=text, rich_help_panel=panel)
        off = typer.Option(flag(f"no_{name}"), hidden=True)
        return [_parameter(name, Annotated[bool, on], False), _parameter(f"no_{name}", Annotated[bool, off], False)]
    if default is True:
        return [_parameter(name, Annotated[bool, typer.Option(help=text, rich_help_panel=panel)], True)]
    metavar = _metavar(field.annotation)
    if len(metavar) > _WIDE:
        text, metavar = f"{metavar.replace('|', ', ')}. {text}", "NAME"
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else str(default) if default not in (None, {}) else None
    option = typer.Option(flag(name), help=text, metavar=metavar, rich_help_panel=panel)
    kind: Any = list[str] if field.annotation == tuple[str, ...] else str
    return [_parameter(name, Annotated[kind | None, option], shown or None)]


def _published(options: type[Options]) -> dict[str, inspect.Parameter]:
    """Return the hidden flags of the published code."""
    made = {}
    for name in (*PUBLISHED, *IGNORED):
        if name in IGNORED or PUBLISHED[name] in options.model_fields:
            kind, default = (bool, False) if name in SWITCHES else (str | None, None)
            made[name] = _parameter(name, Annotated[kind, typer.Option(flag(name), hidden=True)], default)
    return made


def _metavar(annotation: Any) -> str:
    """Return the choices of an option, or the kind of its values."""
    if get_origin(annotation) is Literal:
        return "|".join(map(str, get_args(annotation)))
    if annotation in _METAVARS:
        return _METAVARS[annotation]
    if get_origin(annotation) is Annotated:
        kind, *metadata = get_args(annotation)
        return "TEXT" if any(isinstance(one, BeforeValidator) for one in metadata) else _metavar(kind)
    kinds = [_metavar(inner) for inner in get_args(annotation) if inner is not type(None)]
    return kinds[0] if len(kinds) == 1 else "TEXT"


def explain(error: Any) -> str:
    """Return the message of a `ParseError`, with the nearest flag or with the command that shows help."""
    context, message = getattr(error, "ctx", None), str(error.format_message()).rstrip(".").replace(": Value error, ", ": ")
    if context is None or not message or message.endswith("?"):
        return message
    if flag := getattr(error, "option_name", None):
        flags = [name for one in context.command.params if not getattr(one, "hidden", False) for name in (*one.opts, *one.secondary_opts)]
        found = ours(flag.lstrip("-"), [one.lstrip("-").replace("-", "_") for one in flags])
        near = (
            difflib.get_close_matches(flag, flags, 1) if found is None else [f"--{found.replace('_', '-')}{difference(flag.lstrip('-'))}"]
        )
        if near:
            return f"No such option: {flag}; did you mean {near[0]}?"
        message = f"No such option: {flag}"
    value = _given(getattr(error, "param", None), sys.argv[1:])
    suffix = "" if value is None or value in message else f"; got {value!r}"
    return f"{message}{suffix}; see {context.command_path} --help"


def _given(parameter: Any, words: list[str]) -> str | None:
    """Return the last value that a command line gives to an option; None if there is none."""
    flags = () if parameter is None else parameter.opts
    joined = [word.partition("=")[2] for word in words if word.partition("=")[0] in flags and "=" in word]
    apart = [value for word, value in pairwise(words) if word in flags]
    return next(reversed([*joined, *apart]), None)

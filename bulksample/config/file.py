"""Configurations in YAML: read with the line of every value, for error messages, and written in groups.

    method: adaqp
    model:
      hidden: 128
    sampling:
      fanouts: [15, 10, 5]
    adaqp:
      bits: 4

An option stands under its group or at the top. Numbers and words are read as text, as on a command line; the option turns the text
into a value.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UsageError
from .foreign import unknown_option
from .options import Options

if TYPE_CHECKING:
    import yaml


class Given(NamedTuple):
    """A value, and its origin: ``--hidden``, or ``run.yaml:7``."""

    value: Any
    origin: str


class _Known:
    """The options that a file may hold, of all commands, and the options of each group by its key."""

    def __init__(self, commands: tuple[type[Options], ...]) -> None:
        self.own = list(commands[0].by_name())
        self.group = {name: group.group for command in commands for name, (group, _) in command.by_name().items()}
        self.groups = {key: [name for name, home in self.group.items() if home == key] for key in self.group.values()}


def read(path: str | os.PathLike[str], wanted: type[Options], *others: type[Options]) -> dict[str, Given]:
    """Read the options of a command from a file.

    The options of `others`, other commands, are skipped under their group, so one file serves `train` and `sample`; at the top they are
    refused, as they may be misspelt. Raises `UsageError` with the file and the line, if it is no YAML, or an option is unknown, stands in
    another group than its own, or appears twice.
    """
    try:
        options = _options(str(path), Path(path).read_text(encoding="utf-8"), _Known((wanted, *others)))
        return {key: given for key, given in options.items() if key in wanted.model_fields}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None


def _options(name: str, text: str, known: _Known) -> dict[str, Given]:
    import yaml

    loader = None
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return {}
        _check_plain(name, root)
        options: dict[str, Given] = {}
        for origin, key, node, group in _pairs(name, root, known):
            if key in options:
                raise UsageError(f"{origin}: {key} stands already at {options[key].origin}")
            _check_group(origin, key, group, known)
            options[key] = Given(_value(loader, node), origin)
        return options
    except UsageError:
        raise
    except RecursionError:
        raise UsageError(f"{name}: is nested too deeply; options lie in one group or at the top") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        raise UsageError(f"{name}: is no YAML: {' '.join(str(error).split())}") from None
    finally:
        if loader is not None:
            loader.dispose()


def _check_plain(name: str, root: yaml.Node) -> None:
    """Raise `UsageError` for a YAML alias (a few lines can expand to billions of values) or for an unknown tag."""
    import yaml

    known = {*yaml.SafeLoader.yaml_constructors, *(f"tag:yaml.org,2002:{key}" for key in ("merge", "value"))}  # keys << and =
    seen, left = set[int](), [root]
    while left:
        node = left.pop()
        line = f"{name}:{node.start_mark.line + 1}"
        if id(node) in seen:
            raise UsageError(f"{line}: an alias repeats the value of this line; write it out where it is used")
        seen.add(id(node))
        if node.tag not in known:
            raise UsageError(f"{line}: got the tag {node.tag!r}; write the value without a tag")
        if node.id != "scalar":
            left += node.value if node.id == "sequence" else [one for pair in node.value for one in pair]


def _pairs(name: str, root: yaml.Node, known: _Known) -> Iterator[tuple[str, str, yaml.Node, str | None]]:
    """Yield the line, key and node of every option, and the group that it stands in; None at the top."""
    for line, key, node in _mapping(name, root):
        if key in known.groups and (node.id == "mapping" or node.tag.endswith(":null")):
            for inner, option, value in _mapping(name, node) if node.id == "mapping" else ():
                yield inner, option.replace("-", "_"), value, key
        else:
            yield line, key.replace("-", "_"), node, None


def _mapping(name: str, node: yaml.Node) -> list[tuple[str, str, yaml.Node]]:
    if node.id != "mapping" or any(key.id != "scalar" for key, _ in node.value):
        raise UsageError(f"{name}:{node.start_mark.line + 1}: each line must be KEY: VALUE; got a {node.id}")
    return [(f"{name}:{key.start_mark.line + 1}", key.value, value) for key, value in node.value]


def _check_group(origin: str, key: str, group: str | None, known: _Known) -> None:
    """Raise `UsageError` if there is no such option, or it belongs to another group."""
    if key not in known.group:
        raise UsageError(f"{origin}: {unknown_option(key, known.groups[group] if group else [*known.group, *filter(None, known.groups)])}")
    home = known.group[key]
    if group is None and home and key not in known.own:
        raise UsageError(f"{origin}: {unknown_option(key, known.own)} (as an option of another command, write it under {home})")
    if group is not None and group != home:
        raise UsageError(f"{origin}: {key} is no option of {group}; write it {f'under {home}' if home else 'at the top'}")


def _value(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    """Return the text of a scalar, a list of texts, or a mapping of YAML values; None stands for the default."""
    if node.id == "scalar":
        return None if node.tag.endswith(":null") else node.value
    if node.id == "sequence":
        return [_value(loader, item) for item in node.value]
    return loader.construct_object(node, deep=True)


def write(config: Options, method: str | None = None, changed: bool = False) -> str:
    """Return the YAML of a configuration that `read` reads; leaves out the groups of other methods and, if `changed`, all defaults."""
    groups: dict[str, list[str]] = {}
    for name, (group, field) in type(config).by_name().items():
        value = getattr(config, name)
        if (group.methods and method not in group.methods) or (changed and value == field.default):
            continue
        groups.setdefault(group.group, []).append(f"{name}: {_text(value)}")
    top = [f"{line}\n" for line in groups.pop("", [])]
    return "".join([*top, *(f"{key}:\n" + "".join(f"  {line}\n" for line in lines) for key, lines in groups.items())])


def _text(value: Any) -> str:
    """Return a value as YAML on one line."""
    import yaml

    plain = list(value) if isinstance(value, tuple) else value
    text: str = yaml.safe_dump(plain, default_flow_style=True, width=2**20, allow_unicode=True)
    return text.removesuffix("...\n").strip()

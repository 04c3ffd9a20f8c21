"""Configurations in YAML: read with the line of every value, so that what does not fit can be found, and written in groups.

    method: adaqp
    model:
      hidden: 128
    sampling:
      fanouts: [15, 10, 5]
    adaqp:
      bits: 4

An option stands under its group, or at the top without one. Numbers and words are read as the text that they are, as on a command
line, and become what their option is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UsageError
from .options import Options, unknown
from .train import SampleConfig, TrainConfig

if TYPE_CHECKING:
    import yaml

_KNOWN = TrainConfig.by_name() | SampleConfig.by_name()
_GROUPS = {group.group: [name for name, (own, _) in _KNOWN.items() if own.group == group.group] for group, _ in _KNOWN.values()}


class Given(NamedTuple):
    """A value that was asked for, and where: ``--hidden``, or ``run.yaml:7``."""

    value: Any
    origin: str


def read(path: str | os.PathLike[str], wanted: type[Options] = TrainConfig) -> dict[str, Given]:
    """The options in a file. Those of other commands are passed over, so one file serves `train` and `sample`.

    Raises
    ------
    UsageError
        With the file and the line, if it is no YAML, a key is unknown, stands in another group than its own, or is given twice.
    """
    try:
        found = _options(str(path), Path(path).read_text(encoding="utf-8"))
        return {key: given for key, given in found.items() if key in wanted.model_fields}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None


def _options(name: str, text: str) -> dict[str, Given]:
    import yaml

    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return {}
        found: dict[str, Given] = {}
        for origin, key, node, group in _pairs(name, root):
            if key in found:
                raise UsageError(f"{origin}: {key} was given before, at {found[key].origin}")
            _check_place(origin, key, group)
            found[key] = Given(_value(loader, node), origin)
        return found
    except yaml.YAMLError as error:
        raise UsageError(f"{name}: is no YAML: {' '.join(str(error).split())}") from None
    finally:
        loader.dispose()


def _pairs(name: str, root: yaml.Node) -> Iterator[tuple[str, str, yaml.Node, str | None]]:
    """Of every option: its line, key and node, and the group that it stands in, None at the top."""
    for line, key, node in _mapping(name, root):
        if key in _GROUPS and (node.id == "mapping" or node.tag.endswith(":null")):
            for inner, option, value in _mapping(name, node) if node.id == "mapping" else ():
                yield inner, option.replace("-", "_"), value, key
        else:
            yield line, key.replace("-", "_"), node, None


def _mapping(name: str, node: yaml.Node) -> list[tuple[str, str, yaml.Node]]:
    if node.id != "mapping" or any(key.id != "scalar" for key, _ in node.value):
        raise UsageError(f"{name}:{node.start_mark.line + 1}: KEY: VALUE would fit; got a {node.id}")
    return [(f"{name}:{key.start_mark.line + 1}", key.value, value) for key, value in node.value]


def _check_place(origin: str, key: str, group: str | None) -> None:
    """Raise `UsageError` if there is no such option, or it is of another group."""
    if key not in _KNOWN:
        groups = [name for name in _GROUPS if name]
        raise UsageError(f"{origin}: {unknown(key, _GROUPS[group]) if group else unknown(key, [*_KNOWN, *groups], groups)}")
    own = _KNOWN[key][0].group
    if group is not None and group != own:
        raise UsageError(f"{origin}: {key} is no option of {group}; it stands under {own or 'no group, at the top'}")


def _value(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    """The text of a scalar, a list of them, or a mapping with values as YAML has them; None is the default."""
    if node.id == "scalar":
        return None if node.tag.endswith(":null") else node.value
    if node.id == "sequence":
        return [_value(loader, item) for item in node.value]
    return loader.construct_object(node, deep=True)


def write(config: Options, method: str | None = None, changed: bool = False) -> str:
    """The YAML of a configuration; `read` gives the same one back.

    Parameters
    ----------
    method : str, optional
        Leave out the groups of other methods.
    changed : bool
        Leave out what is as it would be unless given.
    """
    groups: dict[str, list[str]] = {}
    for name, (group, field) in type(config).by_name().items():
        value = getattr(config, name)
        if (group.methods and method not in group.methods) or (changed and value == field.default):
            continue
        groups.setdefault(group.group, []).append(f"{name}: {_text(value)}")
    top = [f"{line}\n" for line in groups.pop("", [])]
    return "".join([*top, *(f"{key}:\n" + "".join(f"  {line}\n" for line in lines) for key, lines in groups.items())])


def _text(value: Any) -> str:
    """One value on one line."""
    import yaml

    plain = list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True, width=2**20, allow_unicode=True).removesuffix("...\n").strip()

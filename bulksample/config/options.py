"""The declaration of an option: once, as a field of pydantic with its bounds and its help, in the class of its group.

The command line, the groups of a configuration file and the error messages are all made from these fields.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo

from ..errors import UsageError, instead_of, is_switch
from .foreign import unknown_option


class Options(BaseModel):
    """A group of options, or several groups joined by inheritance."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    group: ClassVar[str] = ""  # its key in a configuration file; options of a group without a key stand at the top
    title: ClassVar[str] = ""  # the heading in --help
    methods: ClassVar[tuple[str, ...]] = ()  # those that take these options; empty if every method takes them
    free: ClassVar[tuple[str, ...]] = ()  # options that change how far, how fast or where; a resumed run may change them

    @model_validator(mode="before")
    @classmethod
    def _without_none(cls, values: Any) -> Any:
        """Leave out options that are None, so that they take their defaults."""
        return {key: value for key, value in values.items() if value is not None} if isinstance(values, dict) else values

    @classmethod
    def groups(cls) -> list[type[Options]]:
        """Return the groups that are joined, in the order of the bases."""
        return [base for base in cls.__mro__ if "title" in vars(base) and base is not Options]

    @classmethod
    def by_name(cls) -> dict[str, tuple[type[Options], FieldInfo]]:
        """Return every option with its group, group by group."""
        return {name: (group, field) for group in cls.groups() for name, field in group.model_fields.items()}

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Return options from keyword arguments; None stands for the default.

        Raises `UsageError` if an option is unknown, with the nearest one that exists, or a value is out of range.
        """
        return cls.made(values, {})

    @classmethod
    def made(cls, values: Mapping[str, Any], origins: Mapping[str, str]) -> Self:
        """Return options as `of` does; messages name the origin of a value, which is a flag or a line of a file."""
        for key in values:
            if key not in cls.model_fields:
                raise UsageError(unknown_option(key, cls.by_name()))
        values = {key: os.fspath(value) if isinstance(value, os.PathLike) else value for key, value in values.items()}
        for key, value in values.items():
            if use := _instead(value, cls.model_fields[key].annotation, key in origins):
                origin = origins.get(key, "")
                place = origin if origin.startswith("--") else ": ".join(filter(None, (origin, key)))
                raise UsageError(f"{place}: got {value!r}; use {use}")
        try:
            return cls(**values)
        except ValidationError as error:
            raise UsageError("; ".join(cls._explained(item, origins) for item in error.errors())) from None

    @classmethod
    def _explained(cls, item: Any, origins: Mapping[str, str]) -> str:
        """Return one pydantic error as one sentence: the flag or the name of the option, the value found, and what to use."""
        name, message = str(item["loc"][0]) if item["loc"] else "", item["msg"].removeprefix("Value error, ")
        origin = origins.get(name, "")
        place = origin if origin.startswith("--") else ".".join(str(part) for part in item["loc"])
        if item["type"] == "literal_error":
            choices = re.findall(r"'([^']*)'", item["ctx"]["expected"])
            message = f"{place}: got {item['input']!r}; {instead_of(str(item['input']), choices)}"
        elif item["type"] == "string_pattern_mismatch":
            described = cls.by_name()[name][1].description or ""
            message = f"{place}: got {item['input']!r}; use the {described[:1].lower()}{described[1:].rstrip('.')}"
        elif item["type"] != "value_error":
            message = f"{place}: {message[0].lower()}{message[1:]}; got {item['input']!r}"
        elif place == origin != "":
            message = f"{place}{message.removeprefix(name)}" if message.startswith(name) else f"{place}: {message}"
        return message if place == origin or not origin else f"{origin}: {message}"

    def check_together(self) -> None:
        """Raise `ValueError` if options of this group do not fit each other. A group may override this."""

    def check_groups(self, method: str) -> None:
        """Raise `ValueError` if an option of another method is set, or options of a group do not fit each other."""
        for group in self.groups():
            for name, field in group.model_fields.items() if group.methods and method not in group.methods else ():
                if getattr(self, name) != field.default:
                    raise ValueError(f"{name} is an option of the method {' or '.join(map(repr, group.methods))}; got {method!r}")
        for group in self.groups():
            group.check_together(self)

    def computed(self) -> dict[str, Any]:
        """Return the options that decide the result of a computation, as JSON: equal options give equal results."""
        free = {name for group in self.groups() for name in group.free}
        return {key: value for key, value in self.model_dump(mode="json").items() if key not in free}


def _instead(value: Any, annotation: Any, as_text: bool) -> str:
    """Return the kind of value to use in place of one that pydantic would convert, or of a text that no file can be called; else "".

    Values that flags and files set `as_text` may be numbers and switches in words. A keyword argument has the type of its option.
    """
    if isinstance(value, str) and "\0" in value:  # which Python refuses where a file is opened, on one rank maybe
        return "a text without the null character"
    number, switch = _takes(int, annotation) or _takes(float, annotation), _takes(bool, annotation)
    if number == switch or (switch and value is None):  # no number and no switch, or options of a sampler, which are any
        return ""
    if is_switch(value):
        return "" if switch else "a number"
    if as_text:
        return ""
    if switch:
        return "True or False"
    if get_origin(annotation) is tuple:  # also 15,10,5, which is one text
        mixed = isinstance(value, Collection) and not isinstance(value, str) and any(isinstance(one, str) for one in value)
        return "whole numbers" if mixed else ""
    if _reads_text(annotation):  # sizes such as 4GB
        return ""
    words = [word for part in (annotation, *get_args(annotation)) if get_origin(part) is Literal for word in get_args(part)]
    return " or ".join(["a number", *words]) if isinstance(value, str) and value not in words else ""


def _reads_text(annotation: Any) -> bool:
    """Return True if a type, or one of the types joined by ``|``, has a reader of its own."""
    return any(isinstance(part, BeforeValidator) or _reads_text(part) for part in get_args(annotation))


def _takes(kind: type, annotation: Any) -> bool:
    """Return True if a type, or one of the types joined by ``|``, is `kind`."""
    return annotation is kind or any(_takes(kind, part) for part in get_args(annotation))


def fanout_list(text: Any) -> Any:
    """Read ``15,10,5`` or ``15-10-5`` as numbers; return anything but text unchanged. Raises `UsageError`."""
    if not isinstance(text, str):
        if isinstance(text, list | tuple) and any(isinstance(fanout, bool) for fanout in text):
            raise UsageError(f"fanouts must be whole numbers; got {text!r}")
        return text
    parts = text.split(",") if "," in text or text.lstrip("-").isdigit() else text.split("-")
    try:
        return tuple(int(part) for part in parts)
    except ValueError:
        raise UsageError(f"fanouts must be whole numbers joined by commas; got {text!r}; use 15,10,5") from None


def drawn_fanouts(fanouts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the fanouts; raise `UsageError` if one is 0."""
    if 0 in fanouts:
        raise UsageError(f"fanouts: got {','.join(map(str, fanouts))}; a hop of 0 draws no neighbor: use 1 or more, or -1 for all")
    return fanouts


def sampler_options(text: Any) -> Any:
    """Read ``replace=true,walk_length=3`` as keyword arguments; return a dict of options unchanged. Raises `UsageError`."""
    if text and not isinstance(text, str):
        for name in ("fanouts", "frontier") if isinstance(text, dict) else ():
            if name in text:
                raise UsageError(f"sampler options: got {name}, which is an option of its own; use --{name}")
        return text
    options: dict[str, Any] = {}
    for part in text.split(",") if text else []:
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"sampler options must be NAME=VALUE joined by commas; got {part!r}; use replace=true")
        name, word = key.strip().replace("-", "_"), value.strip().lower()
        if name in options:
            raise UsageError(f"sampler options: got {name} twice, {text!r}; leave one out")
        number = int(word) if word.lstrip("-").isdigit() else value.strip()
        options[name] = word == "true" if word in ("true", "false") else number
    return sampler_options(options) if options else options


def _bulk_size(text: Any) -> Any:
    if text != "auto" and (not str(text).isdigit() or int(text) < 1):
        raise UsageError(f"bulk_size must be 'auto' or a positive number; got {text!r}; use auto")
    return text


def _warmup(text: Any) -> Any:
    """Read a number of steps, or of epochs as ``2epochs``; raise `UsageError` for anything else."""
    match = None if isinstance(text, bool) else re.fullmatch(r"(\d+)\s*(epochs?)?", str(text).strip())
    if match is None:
        raise UsageError(f"warmup: got {text!r}; use a number of steps, or of epochs such as 2epochs")
    return f"{int(match[1])}epochs" if match[2] and int(match[1]) else str(int(match[1]))


def _words(words: Any) -> Any:
    """Split words joined by commas, or each of a list of such; return anything else unchanged."""
    if isinstance(words, str):
        words = [words]
    words = list(words) if isinstance(words, Iterator) else words  # which can be read once
    given = isinstance(words, Iterable) and all(isinstance(word, str) for word in words)
    return tuple(one.strip() for word in words for one in word.split(",")) if given else words


def _splits(words: Any) -> Any:
    """Split words joined by commas, and sort them as train, val, test; raise `UsageError` for any other word."""
    words = _words(words)
    for word in words if isinstance(words, tuple) else ():
        if word not in SPLITS:
            raise UsageError(f"eval_splits: got {word!r}; {instead_of(str(word), SPLITS)}")
    return tuple(split for split in SPLITS if split in words) if isinstance(words, tuple) else words


SPLITS = ("train", "val", "test")
Fanouts = Annotated[tuple[int, ...], BeforeValidator(fanout_list), AfterValidator(drawn_fanouts)]
SamplerOptions = Annotated[dict[str, bool | int | float | str], BeforeValidator(sampler_options)]
BulkSize = Annotated[Literal["auto"] | int, BeforeValidator(_bulk_size)]
Warmup = Annotated[str, BeforeValidator(_warmup)]
Splits = Annotated[tuple[str, ...], BeforeValidator(_splits)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]

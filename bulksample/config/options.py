"""How an option is declared: once, as a field of pydantic with its bounds and its help, in the class of its group.

The command line, the groups of a configuration file and the messages about what does not fit are all made from these fields.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from ..errors import UsageError


class Options(BaseModel):
    """A group of options, or several joined by inheritance.

    Attributes
    ----------
    group : its key in a configuration file; of the groups without one, the options stand at the top
    title : its heading in ``--help``
    methods : those that take these options; any, where it is empty
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    group: ClassVar[str] = ""
    title: ClassVar[str] = ""
    methods: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def groups(cls) -> list[type[Options]]:
        """The groups that are joined, in the order in which they are named."""
        return [base for base in cls.__mro__ if "title" in vars(base) and base is not Options]

    @classmethod
    def by_name(cls) -> dict[str, tuple[type[Options], FieldInfo]]:
        """Every option with its group, group by group."""
        return {name: (group, field) for group in cls.groups() for name, field in group.model_fields.items()}

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Options from keyword arguments; None stands for the default.

        Raises
        ------
        UsageError
            If a key is unknown, with the nearest that exists, or a value is out of its range.
        """
        return cls.made(values, {})

    @classmethod
    def made(cls, values: Mapping[str, Any], origins: Mapping[str, str]) -> Self:
        """As `of`, with the place that each value comes from, for messages: a flag, or a line of a file."""
        for key in values:
            if key not in cls.model_fields:
                raise UsageError(unknown(key, cls.by_name()))
        try:
            return cls(**values)
        except ValidationError as error:
            raise UsageError("; ".join(explained(item, origins) for item in error.errors())) from None

    def refuse_strangers(self, method: str) -> None:
        """Raise `ValueError` where an option is set that belongs to other methods."""
        for group in self.groups():
            for name, field in group.model_fields.items() if group.methods and method not in group.methods else ():
                if getattr(self, name) != field.default:
                    raise ValueError(f"{name} is of the method {' or '.join(map(repr, group.methods))}; got {method!r}")


def unknown(key: str, known: Iterable[str], fit: Iterable[str] | None = None) -> str:
    """What to say of a key that does not exist: the nearest that does, or what would fit, which is all unless given."""
    near = difflib.get_close_matches(key, known := list(known), 1)
    hint = f"did you mean {near[0]!r}?" if near else f"{', '.join(fit or known)} would fit"
    return f"there is no option {key!r}; {hint}"


def explained(item: Any, origins: Mapping[str, str] | None = None) -> str:
    """One pydantic error in one sentence, with the value found and, where it is known, where it stands."""
    place = ".".join(str(part) for part in item["loc"])
    origin = (origins or {}).get(str(item["loc"][0]), "") if place else ""
    message = item["msg"].removeprefix("Value error, ")
    is_flag = origin.startswith("--")
    if item["type"] != "value_error":
        message = f"{origin if is_flag else place}: {message[0].lower()}{message[1:]}; got {item['input']!r}"
    return message if is_flag or not origin else f"{origin}: {message}"


def fanout_list(text: Any) -> Any:
    """``15,10,5`` or ``15-10-5`` as numbers, and what is no text as it is; raises `UsageError`."""
    if not isinstance(text, str):
        return text
    parts = text.split(",") if "," in text or text.lstrip("-").isdigit() else text.split("-")
    try:
        return tuple(int(part) for part in parts)
    except ValueError:
        raise UsageError(f"fanouts must be whole numbers joined by commas; got {text!r}; 15,10,5 would fit") from None


def sampler_options(text: Any) -> Any:
    """``replace=true,walk_length=3`` as keyword arguments of a sampler, and what is no text as it is; raises `UsageError`."""
    if text and not isinstance(text, str):
        return text
    options: dict[str, Any] = {}
    for part in text.split(",") if text else []:
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"sampler options must be NAME=VALUE joined by commas; got {part!r}")
        word = value.strip().lower()
        number = int(word) if word.lstrip("-").isdigit() else value.strip()
        options[key.strip().replace("-", "_")] = word == "true" if word in ("true", "false") else number
    return options


def _bulk_size(text: Any) -> Any:
    if text != "auto" and (not str(text).isdigit() or int(text) < 1):
        raise UsageError(f"bulk_size must be 'auto' or a positive number; got {text!r}")
    return text


def _several(words: Any) -> Any:
    """Words joined by commas, or a list of such, one by one."""
    if isinstance(words, str):
        words = [words]
    return tuple(one.strip() for word in words for one in word.split(",")) if all(isinstance(word, str) for word in words) else words


Fanouts = Annotated[tuple[int, ...], BeforeValidator(fanout_list)]
SamplerOptions = Annotated[dict[str, bool | int | float | str], BeforeValidator(sampler_options)]
BulkSize = Annotated[Literal["auto"] | int, BeforeValidator(_bulk_size)]
Several = Annotated[tuple[str, ...], BeforeValidator(_several)]

"""Malformed files for --config: `bulksample config show` must refuse them with exit code 2."""

# ruff: noqa: E501 (cases are packed)

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Any, get_args

from bulksample.errors import EXIT_BAD_USE
from bulksample.methods.config import TrainConfig

from .child import command
from .verdict import judged

WHOLE = """# a run
method: adaqp
epochs: 7
model:
  model: gcn
  hidden: 128
sampling:
  fanouts: [15, 10, 5]
adaqp:
  bits: 4
"""
BROKEN = {
    "a list at the top": "- method: sync\n", "a word at the top": "sync\n", "an open bracket": "sampling:\n  fanouts: [15, 10\n",
    "an open quote": 'method: "sync\n', "a tab": "model:\n\thidden: 8\n", "no space": "model:\n  hidden:8\n", "two keys": "epochs: 3\nepochs: 4\n",
    "another group": "sampling:\n  hidden: 8\n", "a group twice over": "model:\n  model:\n    hidden: 8\n", "an alias of nothing": "epochs: *x\n",
    "5,000 brackets": "epochs: " + "[" * 5000, "5,000 braces": "epochs: " + "{a: " * 5000, "a date that is none": "epochs: {a: 2001-13-45}\n",
    "Python": "epochs: !!python/object/apply:os.system ['true']\n", "an alias of itself": "epochs: &a [*a]\n",
    "a bomb": "model: &a {hidden: [1,1,1,1,1,1,1,1,1]}\nx: [*a,*a,*a,*a]\n", "a key that is a list": "[1, 2]: 3\n", "a merge": "<<: {epochs: 3}\n",
    "two documents": "epochs: 3\n---\nepochs: 4\n", "a directive": "%YAML 9.9\n---\nepochs: 3\n", "an unknown tag": "model: !thing {hidden: 8}\n",
}  # fmt: skip
NOISE = {
    "control": b"\x01", "NUL": b"\0", "escape": b"\x1b", "half a letter": b"\xc3(", "no UTF-8": b"\xff\xfe", "a surrogate": b"\xed\xa0\x80",
}  # fmt: skip
VALUES = ("many", "[1, [2]]", "{a: 1}", "1e400x", "--3")


def numbers() -> list[str]:
    """Return the options of `train` that are a number."""
    kinds = {name: {field.annotation, *get_args(field.annotation)} for name, field in TrainConfig.model_fields.items()}
    return [name for name, kind in kinds.items() if kind & {int, float, bool} and str not in kind]


def cases(seed: int) -> list[dict[str, Any]]:
    """Return files that no parser can read, and files with a value that no option takes."""
    groups = {name: group.group for name, (group, _) in TrainConfig.by_name().items()}
    found = [{"damage": name, "text": text} for name, text in BROKEN.items()]
    found += [{"damage": name, "draw": f"{seed}/{draw}"} for name, draw in product(NOISE, range(6))]
    found += [{"damage": "a misspelt key", "draw": f"{seed}/{draw}"} for draw in range(20)]
    for name, value in product(numbers(), VALUES):
        text = f"{groups[name]}:\n  {name}: {value}\n" if groups[name] else f"{name}: {value}\n"
        found.append({"damage": f"{name}: {value}", "text": text})
    return found


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Write a malformed file and read it as options."""
    rng = random.Random(str(case))

    def attempt(place: Path) -> dict[str, Any]:
        (place / "run.yaml").write_bytes(malformed(case, rng))
        ended = command("config", "show", "--config", place / "run.yaml")
        return {"code": ended.code, "err": ended.err, "digest": "accepted"}

    return judged(attempt, "", (EXIT_BAD_USE,))


def malformed(case: dict[str, Any], rng: random.Random) -> bytes:
    """Return the content of the file of a case."""
    if "text" in case:
        return case["text"].encode()
    whole = WHOLE.encode()
    if case["damage"] in NOISE:
        at = rng.randrange(len(whole))
        return whole[:at] + NOISE[case["damage"]] + whole[at:]
    words = [word for word in WHOLE.split() if word.endswith(":")]
    key = rng.choice(words).removesuffix(":")
    at = rng.randrange(len(key) + 1)
    return WHOLE.replace(f"{key}:", f"{key[:at]}{rng.choice('qxz')}{key[at:]}:", 1).encode()

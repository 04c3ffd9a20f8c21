"""A coverage-guided search for inputs that readers do not refuse as documented: stores, npz, text, YAML, frames of the averaging server.

Each reader has ten minutes, shared by its targets. An input fails if it raises an error that is not documented, hangs, ends the process or
takes 2 GiB. It is saved in `build/sweep/fuzz/TARGET`, whose `corpus` later searches start from.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

MINUTES = 10  # for each reader
GRACE = 300.0  # seconds for imports and for the last input on a busy machine
CHILD = Path(__file__).with_name("fuzz_child.py")
ROOT = CHILD.parents[2]
KEPT = ROOT / "build" / "sweep" / "fuzz"
READERS = {
    "store": ("manifest", "store"),
    "npz": ("archive", "members"),
    "text": ("edge list", "matrix market"),
    "config": ("config",),
    "averaging server": ("reader", "stranger", "trainer"),
}
_FRAMES = "averaging server"


def missing() -> str:
    """Return why the section cannot run, or nothing."""
    return "" if find_spec("atheris") else "the fuzzer atheris is not installed: pip install 'bulksample[sweep]' (Linux)"


def cases(seed: int, minutes: float = MINUTES) -> list[dict[str, Any]]:
    """Return the targets of every reader, and the seconds of each."""
    return [
        {"group": reader, "target": target, "seconds": round(60 * minutes / len(targets)), "seed": seed,
         "module": "sweep.fuzz_frames" if reader == _FRAMES else "sweep.fuzz_targets"}
        for reader, targets in READERS.items() for target in targets
    ]  # fmt: skip


def run(case: dict[str, Any], kept: Path = KEPT, **more: object) -> dict[str, Any]:
    """Search for an input of one target that fails; `more` are options of the child."""
    into = kept / case["target"].replace(" ", "-")
    words = [sys.executable, str(CHILD), case["target"], "--module", case["module"], "--into", str(into)]
    searched = ["--seconds", str(case["seconds"]), "--seed", str(case["seed"])]
    searched += [str(word) for name, value in more.items() for word in (f"--{name}", value)]
    try:
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
        ended = subprocess.run([*words, *searched], timeout=case["seconds"] + GRACE, **piped)
    except subprocess.TimeoutExpired:
        return {"passed": False, "seen": "the search did not end"}
    return judged(ended.returncode, ended.stdout, shlex.join(words[1:]))


def judged(code: int, said: str, command: str) -> dict[str, Any]:
    """Return the outcome of a search by its exit code and what atheris printed."""
    if code == 0 and (ran := re.search(r"stat::number_of_executed_units: (\d+)", said)):
        branches, memory = re.findall(r"cov: (\d+)", said), re.search(r"stat::peak_rss_mb: +(\d+)", said)
        return {
            "passed": True, "seen": "targets without a fault", "counted": {"inputs": int(ran[1])},
            "branches": int(branches[-1]) if branches else 0, "peak_mb": int(memory[1]) if memory else 0,
        }  # fmt: skip
    saved = re.search(r"Test unit written to (.+)", said)
    again = f"\nrepeat: python {command} --repeat {saved[1]}" if saved else ""
    return {"passed": False, "seen": f"exit code {code}: {_fault(said)}{again}"}


def _fault(said: str) -> str:
    """Return the part of the output that tells of the fault."""
    marks = ("=== Uncaught Python exception", "ERROR: libFuzzer", "Traceback (most recent call last)")
    return next((said[said.rindex(mark) :] for mark in marks if mark in said), said[-3000:])[:3000].strip()

"""`bulksample compare` over slow networks: seconds of an epoch as measured, next to those of the alpha-beta model.

    python bench/slow_compare.py DIR --methods sync,full -o OUT [--rates 10mbit,100mbit,1gbit] [--hosts 4] [--repeats 1] [--json FILE]
                                 [-- OPTIONS of train]

Needs root, iproute2 (ip, tc), util-linux and MPICH's mpirun; says so, with exit code 2, where one is missing or the kernel refuses.
Ranks stand on simulated hosts, one on each (see `netlab`; nothing of the machine's own network is touched). The methods are compared
with links that are not shaped and at every rate, and OUT/RATE holds what `compare` writes. Called again, it goes on with what is not
finished. Each rank has one thread; all of them share the processors of this machine, so an epoch at a rate takes about

    what it takes without shaping + bytes of the busiest rank / beta,    beta = rate * 1448 / 1514, the share of a frame that is no header

"model" is `compare`'s: seconds that the slowest rank computes + messages * 50 us + bytes / beta, as if ranks had processors of their own.
"times as fast" is against the first method, at the same rate.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import netlab
from harness import machine
from ranks import mpirun
from slow_network import PAYLOAD, go_inside, rates

_EVERY_RUN = ["--threads", "1"]


def network(rate: str) -> str:
    """The rate as a network of `bulksample plan`; without shaping, the one that it calls loopback."""
    return "loopback" if rate == "none" else f"ethernet-10g:between={PAYLOAD * netlab.bytes_per_second(rate):.0f}"


def compare(lab: netlab.Lab, rate: str, options: argparse.Namespace) -> dict[str, Any]:
    """What `bulksample compare` says at a rate; a method that failed there is in it, with the reason."""
    lab.shape(rate)
    out = options.out / rate
    launcher = shlex.join(lab.command(mpirun(), "{ranks}", []))
    command = [
        sys.executable, "-m", "bulksample", "compare", options.directory, "--methods", options.methods, "-o", out, "--seed", options.seed,
        "--ranks", options.hosts, "--repeats", options.repeats, "--network", network(rate), "--launcher", launcher,
        "--limit", options.limit, "--json", "-", "--", *_EVERY_RUN, *options.options,
    ]  # fmt: skip
    ended = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=False)
    if not ended.stdout:
        raise SystemExit(ended.returncode or 1)
    return json.loads(ended.stdout)


def lines(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """A line for each rate and method that did not fail."""
    made = []
    for rate, compared in found.items():
        fine = {row["method"]: row for row in compared["methods"] if not row["failed"]}
        unshaped = {row["method"]: row for row in found["none"]["methods"] if not row["failed"]}
        first = fine.get(compared["methods"][0]["method"])
        for method, row in fine.items():
            seconds = row["seconds_per_epoch"]["mean"]
            made.append({
                "rate": rate, "method": method, "score": row["score"] and row["score"]["mean"], "seconds": seconds,
                "all_seconds": row["seconds_per_epoch"]["values"],
                "unshaped_seconds": unshaped[method]["seconds_per_epoch"]["mean"] if method in unshaped else None,
                "wire_seconds": row["busiest_rank"]["bytes"] / row["epochs"] / (PAYLOAD * netlab.bytes_per_second(rate)),
                "model_seconds": row["networks"][network(rate)]["seconds_per_epoch"]["mean"],
                "times_as_fast": first and first["seconds_per_epoch"]["mean"] / seconds,
            })  # fmt: skip
    return made


def show(made: list[dict[str, Any]]) -> None:
    print("| rate | method | score | s/epoch | (min to max) | unshaped | w / beta | model | times as fast |")
    print("|--:|:--|--:|--:|--:|--:|--:|--:|--:|")
    for line in made:
        times = " | ".join(_figure(line[what]) for what in ("unshaped_seconds", "wire_seconds", "model_seconds", "times_as_fast"))
        values = line["all_seconds"]
        print(
            f"| {line['rate']} | {line['method']} | {_figure(line['score'])} | {statistics.fmean(values):.3g} | "
            f"{min(values):.3g} to {max(values):.3g} | {times} |"
        )


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="a graph in the store format")
    parser.add_argument("--methods", required=True, help="as in compare; others are held against the first")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--rates", type=rates, default=["10mbit", "100mbit", "1gbit"])
    parser.add_argument("--hosts", type=int, default=4, help="a rank on each")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds that one run may take")
    parser.add_argument("--json", type=Path)
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    return argparse.Namespace(**vars(parser.parse_args(words[:at])), options=words[at + 1 :])


def main() -> None:
    options = read_options()
    go_inside()
    lab = netlab.Lab(options.hosts)
    found = {rate: compare(lab, rate, options) for rate in ["none", *options.rates]}
    made = lines(found)
    about = machine() | {"hosts": options.hosts, "options": options.options, "seeds": found["none"]["seeds"]}
    failed = {f"{rate}: {row['method']}: {row['failed']}" for rate, said in found.items() for row in said["methods"] if row["failed"]}
    print(json.dumps(about))
    show(made)
    for reason in sorted(failed):
        print(reason)
    if options.json:
        options.json.write_text(json.dumps({**about, "lines": made, "failed": sorted(failed)}, indent=1) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

"""Run the reliability sweeps: damaged files, kills, faults. Each section is a numbered list of cases, the same for the same seed.

    python tests/sweep/run_sections.py [SECTION ...] [--list] [--limit N] [--after N] [--minutes M] [--survivors]
                                       [--seed 2024] [--continue] [--failed]

Each case adds a line to `build/sweep/SECTION.jsonl`, so a sweep that was interrupted goes on after its last case. A new seed starts anew,
and so does a commit that changed the package. With --continue a sweep keeps the outcomes of another commit, and its summary names both.
With --failed it runs cases that failed again, as after a fix of the tests. With --after N it runs the cases that follow the first N, whose
outcomes are in the summary that is kept, as another machine or an earlier day wrote it, and adds to that summary.
With --survivors it runs, besides the first N cases, the mutants named in `survivors.json`, says what became of each, and keeps no summary.
The summary goes to `bench/results/reliability/`. It counts cases planned and cases run. The exit code is 1 if a case fails.

A section is a module of this folder with ``cases(seed)``, which returns a list of JSON objects, and ``run(case)``, which returns
``{"passed": bool, "seen": str}``. A case and an outcome may hold more: ``group`` names a row of the table, ``counted`` numbers to add up in
it. A section may have ``workers(case)``, which returns 2 for a case that may run beside another one, ``survived(case)``, true for one that
--survivors runs, ``missing()``, which says why it cannot run, and ``MINUTES``: it lasts for a time, and its ``cases`` take minutes too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":  # the package of this checkout, whose commit is recorded, even if another one is installed
    sys.path[:1] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "bench")]

import choice  # noqa: E402

from sweep import SECTIONS  # noqa: E402
from sweep.journal import Journal, version  # noqa: E402
from sweep.record import joined, record, recorded, summarize  # noqa: E402


def sections(names: list[str]) -> dict[str, ModuleType]:
    """Import sections by name."""
    return {name: import_module(SECTIONS[name]) for name in names}


def sweep(section: ModuleType, journal: Journal, limit: int | None = None, survivors: Collection[int] = ()) -> None:
    """Run those of the first `limit` cases and of `survivors` that the journal lacks: first those that may run in pairs."""

    def run(number: int) -> None:
        began = time.perf_counter()
        outcome = section.run(journal.cases[number])
        journal.add(number, outcome, time.perf_counter() - began)
        if not outcome["passed"]:
            print(f"case {number} failed: {outcome['seen']}\n    {journal.cases[number]}", flush=True)

    wanted = sorted({*range(journal.after, len(journal.cases[:limit])), *survivors})
    pending = [number for number in wanted if number not in journal.outcomes]
    workers = getattr(section, "workers", lambda case: 1)
    together = [number for number in pending if workers(journal.cases[number]) > 1]
    pool = ThreadPoolExecutor(2)
    try:
        for done in [pool.submit(run, number) for number in together]:
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)
    for number in pending:
        if number not in journal.outcomes:
            run(number)


def told(journal: Journal, numbers: Collection[int]) -> str:
    """Count what became of some cases."""
    ran = [journal.outcomes[number] for number in numbers if number in journal.outcomes]
    seen = Counter(("" if outcome["passed"] else "failed: ") + outcome["seen"].partition("\n")[0][:80] for outcome in ran)
    return "; ".join(f"{count} {what}" for what, count in seen.most_common())


def cases_of(section: ModuleType, seed: int, minutes: float | None) -> list[dict[str, Any]]:
    """Return the cases of a section; `minutes` are for those that last for a time."""
    words = () if minutes is None or not hasattr(section, "MINUTES") else (minutes,)
    found: list[dict[str, Any]] = section.cases(seed, *words)
    return found


def command_of(name: str, limit: int | None, minutes: float | None) -> str:
    """Return the command that runs a section again."""
    given = {"LIMIT": limit, "MINUTES": minutes}
    return " ".join([f"make sweep SECTION={name}", *(f"{key}={value:g}" for key, value in given.items() if value is not None)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)}; default: all")
    parser.add_argument("--list", action="store_true", help="list the sections with their numbers of cases")
    parser.add_argument("--limit", type=int, metavar="N", help="run only the first N cases of a section")
    parser.add_argument(
        "--after", type=int, default=0, metavar="N", help="run what follows the N cases of the summary that is kept, and add to it"
    )
    parser.add_argument("--minutes", type=float, metavar="M", help="minutes of each reader in `fuzz` (10), of `soak` (120)")
    parser.add_argument("--survivors", action="store_true", help="run also the mutants named in survivors.json, and keep no summary")
    parser.add_argument("--seed", type=int, default=2024, help="seed of the cases (default: 2024)")
    parser.add_argument("--continue", dest="goes_on", action="store_true", help="go on with a sweep of another commit")
    parser.add_argument("--failed", action="store_true", help="run cases that failed again")
    options = parser.parse_args()
    if unknown := set(options.sections) - set(SECTIONS):
        parser.error(f"there is no section {', '.join(sorted(unknown))}; use {', '.join(SECTIONS)}")
    os.environ["ALL"] = "1"  # the tests that sections start are the same on any day, and after any change
    os.environ["BULKSAMPLE_BASE"] = (choice.git("rev-list", "--max-parents=0", "HEAD") or "").partition("\n")[0]
    failed = False
    for name, section in sections(options.sections or list(SECTIONS)).items():
        cases = cases_of(section, options.seed, options.minutes)
        if options.list:
            print(f"{name:10} {len(cases):6}  {(section.__doc__ or '').partition(chr(10))[0]}")
            continue
        if why := section.missing() if hasattr(section, "missing") else "":
            print(f"{name}: left out: {why}", flush=True)
            failed = True
            continue
        before = recorded(name, options.after, options.seed, len(cases)) if options.after else None
        journal = Journal(ROOT / "build" / "sweep" / f"{name}.jsonl", cases, version(ROOT), options.goes_on, options.failed, options.after)
        print(f"{name}: {len(cases)} cases, {options.after + len(journal.outcomes)} of them done", flush=True)
        survived = getattr(section, "survived", lambda case: False)
        survivors = [number for number, case in enumerate(cases) if options.survivors and survived(case)]
        sweep(section, journal, options.limit, survivors)
        first = range(len(cases[: options.limit]))
        print(f"{name}, first {len(first)} cases: {told(journal, first)}", flush=True)
        if options.survivors:
            print(f"{name}, {len(survivors)} survivors: {told(journal, survivors)}", flush=True)
            failed |= not all(outcome["passed"] for outcome in journal.outcomes.values())
            continue
        result = joined(before, summarize(journal, options.seed)) if before else summarize(journal, options.seed)
        record(name, result, command_of(name, options.limit, options.minutes))
        print(f"{name}: {result['passed']} of {result['run']} passed; {result['planned']} planned", flush=True)
        failed |= result["passed"] < result["run"]
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

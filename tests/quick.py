"""Which cases `make test` runs of a test with too many for a newcomer: as many as take half a second of a processor together.

`quick.json` says how many, by the name of the test; the other cases are long. A single case may take a second.
`make test-times`, then ``python tests/quick.py build/test-times.json`` writes it anew.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

from choice import product_of

KEPT = Path(__file__).with_suffix(".json")
SECONDS, SINGLE = 0.5, 1.0


def others(names: list[str], kept: dict[str, int]) -> set[str]:
    """Return the cases that are long: all but some of each test in `kept`, which are spread over the sorted names."""
    cases = defaultdict(list)
    for name in sorted(names):
        cases[product_of(name)].append(name)
    found = set()
    for test, count in kept.items():
        own = cases[test]
        quick = {i * len(own) // count for i in range(count)}
        found |= {name for i, name in enumerate(own) if i not in quick}
    return found


def counts(seconds: dict[str, float]) -> dict[str, int]:
    """Count the quick cases of each test by the seconds of each case; leave out tests of which all are quick."""
    cases = defaultdict(list)
    for name, spent in seconds.items():
        cases[product_of(name)].append(spent)
    found = {}
    for test, spent in sorted(cases.items()):
        mean = sum(spent) / len(spent)
        count = int(SECONDS / mean) if mean else len(spent)
        if max(count, mean <= SINGLE) < len(spent):
            found[test] = max(count, int(mean <= SINGLE))
    return found


if __name__ == "__main__":
    measured = json.loads(Path(sys.argv[1]).read_text())["tests"]
    KEPT.write_text(json.dumps(counts({name: row["cpu"] for name, row in measured.items() if not row["long"]}), indent=1) + "\n")

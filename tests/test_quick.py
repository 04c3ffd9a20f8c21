"""The cases that `make test` runs of a test which takes long in all."""

import json
import re

import quick
from choice import ROOT


def test_a_test_keeps_as_many_cases_as_fit_in_half_a_second():
    seconds = {f"a::test_many[{i}]": 0.25 for i in range(9)} | {"a::test_single": 0.9, "a::test_slow": 1.1, "a::test_fast": 0.0}
    seconds |= {f"a::test_few[{i}]": 0.1 for i in range(5)} | {f"a::test_two[{i}]": 0.7 for i in range(2)}
    assert quick.counts(seconds) == {"a::test_many": 2, "a::test_slow": 0, "a::test_two": 1}


def test_kept_cases_are_spread_and_the_others_are_long():
    names = [f"a::test_many[{i}]" for i in range(9)]
    assert quick.others(names[::-1], {"a::test_many": 3, "a::test_gone": 2}) == {*names} - {names[0], names[3], names[6]}
    assert quick.others(["a::test_slow", "a::test_fast"], {"a::test_slow": 0}) == {"a::test_slow"}
    assert quick.others(names, {"a::test_many": 20}) == set()


def test_the_kept_tests_exist():
    for name in json.loads(quick.KEPT.read_text()):
        file, _, test = name.partition("::")
        assert re.search(rf"\b{test}\b", (ROOT / file).read_text()), name

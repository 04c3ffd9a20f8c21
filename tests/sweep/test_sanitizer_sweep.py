"""Sanitizers find what they are to find, and the sweep takes a report, a failure and the lack of any test as failures."""

import subprocess

import pytest
from waiting import LONGEST, PATIENCE

from sweep import sanitized_build as build
from sweep import sanitizers

DEFECTS = {
    "address": ("char* p = new char[8]; return p[argc + 7];", "heap-buffer-overflow"),
    "undefined": ("return 1 << (argc + 40);", "shift exponent 41 is too large"),
    "thread": ("int n = 0; std::thread a([&] { ++n; }), b([&] { ++n; }); a.join(); b.join(); return n - 2;", "data race"),
}
needs = {name: pytest.mark.skipif(bool(build.missing(name)), reason=build.missing(name)) for name in build.SANITIZERS}


@pytest.mark.parametrize("defect", [pytest.param(name, marks=needs["thread" if name == "thread" else "address"]) for name in DEFECTS])
def test_a_defect_is_reported_with_the_flags_of_the_build(defect, tmp_path):
    body, found = DEFECTS[defect]
    source, program = tmp_path / "defect.cpp", tmp_path / "defect"
    source.write_text(f"#include <thread>\nint main(int argc, char**) {{ {body} }}\n")
    flags = build.SANITIZERS["thread" if defect == "thread" else "address"]
    subprocess.run([build.compiler(), "-std=c++17", "-O0", *flags, source, "-o", program, "-pthread"], check=True, timeout=PATIENCE)
    still = ["setarch", "-R"] if defect == "thread" else []
    done = subprocess.run([*still, program], capture_output=True, text=True, timeout=PATIENCE)
    assert found in sanitizers.judged(done)["seen"]


@pytest.mark.parametrize(
    ("code", "out", "err", "seen"),
    [
        (0, "12 passed, 3 deselected", "", "no report"),
        (0, "12 passed", "x.cpp:3:4: runtime error: shift", "runtime error: shift"),
        (0, "12 passed", "WARNING: ThreadSanitizer: data race", "data race"),
        (1, "1 failed, 12 passed", "", "exit code 1"),
        (0, "3 skipped, 9 deselected", "", "exit code 0"),
        (0, "another result", "", "another result"),
    ],
)
def test_only_work_without_a_report_passes(code, out, err, seen):
    outcome = sanitizers.judged(subprocess.CompletedProcess([], code, out, err))
    assert seen in outcome["seen"]
    assert outcome["passed"] == (seen == "no report")


def test_a_missing_sanitizer_is_named(monkeypatch):
    monkeypatch.setattr(build, "compiler", lambda: None)
    outcome = sanitizers.run(sanitizers.cases(1)[0])
    assert not outcome["passed"]
    assert "there is no C++ compiler" in outcome["seen"]


@pytest.mark.long
@pytest.mark.timeout(4 * LONGEST)
@pytest.mark.parametrize("group", [sanitizers.NATIVE, sanitizers.THREADED, sanitizers.EMULATED])
def test_the_first_work_of_each_group_has_no_report(group):
    case = next(case for case in sanitizers.cases(1) if case["group"] == group)
    outcome = sanitizers.run(case)
    assert outcome["passed"], outcome["seen"]

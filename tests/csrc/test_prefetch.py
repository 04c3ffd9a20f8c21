"""Prefetches of the native kernels reach the processor, also from a function that does nothing else and is not inlined."""

import platform
import subprocess

import pytest
from emulation.host import compiler
from waiting import PATIENCE

from bulksample.backends.sources import kernel_directory

PROGRAM = """
#include "native_prefetch.h"
struct Rows {
  const long* rows;
  __attribute__((noinline)) void ask(long row) const { foretell(rows + row); }
};
void all(const Rows& rows, long count) {
  for (long row = 0; row < count; ++row) rows.ask(row);
}
"""


@pytest.mark.skipif(compiler() is None or platform.machine() != "x86_64", reason="there is no C++ compiler for x86-64")
def test_calls_of_a_function_that_only_prefetches_are_kept(tmp_path):
    (tmp_path / "rows.cpp").write_text(PROGRAM)
    subprocess.run(
        [compiler(), "-std=c++17", "-O3", "-S", f"-I{kernel_directory()}", "rows.cpp"], cwd=tmp_path, check=True, timeout=PATIENCE
    )
    assert "prefetcht1" in (tmp_path / "rows.s").read_text()

"""Blocks of memory that are taken, resized and given in any order keep what was written to them, and no two overlap."""

import subprocess

import pytest
from emulation.host import compiler
from waiting import PATIENCE

from bulksample.backends.sources import kernel_directory

PROGRAM = """
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>
#include "native_blocks.h"

struct Live { unsigned char* at; std::size_t bytes; unsigned char mark; };
constexpr std::size_t STEP = 512;  // bytes between those that are marked

void write(const Live& block) {
  for (std::size_t i = 0; i < block.bytes; i += STEP) block.at[i] = block.mark;
  block.at[block.bytes - 1] = block.mark;
}
bool holds(const Live& block, std::size_t bytes, unsigned char mark) {
  for (std::size_t i = 0; i < bytes; i += STEP)
    if (block.at[i] != mark) return false;
  return true;
}
#define REQUIRE(condition) if (!(condition)) return std::printf("operation %d: not %s\\n", turn, #condition), 1

int main() {
  std::mt19937_64 random(SEED);
  Blocks& blocks = Blocks::of_process();
  std::vector<Live> live;
  for (int turn = 0; turn < 20000; ++turn) {
    const std::size_t bytes = 1 + random() % ((random() % 3 ? 40 : 400) * Blocks::PAGE);
    const unsigned char mark = 1 + random() % 255;
    const int what = random() % 8;
    if (live.size() < 3 || (what < 3 && live.size() < 40)) {
      Live made{(unsigned char*)(what == 0 ? blocks.take_zeros(bytes) : blocks.take(bytes)), bytes, mark};
      if (what == 0) REQUIRE(holds(made, bytes, 0));
      write(made);
      live.push_back(made);
      continue;
    }
    std::swap(live[random() % live.size()], live.back());
    Live& block = live.back();
    REQUIRE(holds(block, block.bytes, block.mark) && block.at[block.bytes - 1] == block.mark);
    if (what < 6) {
      block.at = (unsigned char*)blocks.resized(block.at, block.bytes, bytes);
      REQUIRE(holds(block, std::min(block.bytes, bytes), block.mark));
      block.bytes = bytes, block.mark = mark;
      write(block);
    } else {
      blocks.give(block.at, block.bytes);
      live.pop_back();
    }
  }
  int turn = -1;
  for (const Live& block : live) REQUIRE(holds(block, block.bytes, block.mark) && block.at[block.bytes - 1] == block.mark);
}
"""


@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("seed", range(2))
def test_blocks_keep_what_was_written_in_any_order(tmp_path, seed):
    (tmp_path / "blocks.cpp").write_text(PROGRAM)
    command = [compiler(), "-std=c++17", "-O1", "-pthread", f"-DSEED={seed}", f"-I{kernel_directory()}", "blocks.cpp", "-o", "blocks"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=PATIENCE)
    done = subprocess.run([tmp_path / "blocks"], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, "")

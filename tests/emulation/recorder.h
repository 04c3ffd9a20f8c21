// What the emulation tells the recorder of accesses, and what it learns; see recorder.cpp.
#pragma once
#include <cstdint>

extern "C" {

// The thread that runs, and the number of barriers that its block and its warp have passed.
struct BsHere {
  unsigned block, thread;
  const unsigned *barrier, *sync;
  bool atomic;  // within an atomic operation
};
extern BsHere bs_here;

// Two accesses to byte `byte` of argument `array` that nothing orders; array -1 is shared memory.
struct BsConflict {
  long long array, byte;
  std::uint32_t block[2], thread[2], kind[2];
  std::uintptr_t code[2];  // where they are, from the beginning of the library
};

// Block `block` sets a word for others, after what it did; or has found it set. Then what was done before is done before what comes next.
void bs_host_released(unsigned block, const void* word);
void bs_host_acquired(unsigned block, const void* word);

void bs_host_accessed();  // called after each recorded access that is not atomic
}

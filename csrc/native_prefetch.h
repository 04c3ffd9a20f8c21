// Prefetching for the host.
#pragma once

// Prefetches a cache line into the second level: its queue holds more reads than the first level's, and a
// read from there costs little (measured: 1.5 times the random reads a second on a Zen 4). The empty statement is a side effect: without
// one, GCC takes a function that only prefetches for one that does nothing, and drops its calls where it does not inline them.
inline void foretell(const void* address) {
  __builtin_prefetch(address, 0, 2);
  __asm__ volatile("");
}

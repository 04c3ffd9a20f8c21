// Finds races: records the reads and writes of a launch, and reports pairs that nothing orders.
//
// The kernels are compiled with -fsanitize=thread, which puts a call before each access to memory. These are the functions that are
// called; the sanitizer's own library is not linked. Recorded is what lies in the arrays of the launch and in shared memory.
//
// Two accesses to the same byte are a race if a thread writes, another reads or writes, one of them is not atomic, and neither
// comes first for certain. Accesses of two blocks are ordered if the first block released a word after its own, and the second acquired it
// before its own (`bs_released` and `bs_acquired` of device.h), perhaps by way of other blocks: each block counts its releases, and knows
// how far those of others came before what it acquired. Threads of a block are ordered by a barrier of the block between the two accesses,
// threads of a warp by __syncwarp too. Shuffles and votes exchange values but do not order memory.
#include "recorder.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace {

enum Kind : std::uint8_t { READ = 0, WRITE = 1, ATOMIC = 2 };

// An access to some bytes (the bits of `mask`) of a word of four.
struct Access {
  std::uint64_t word;  // of global memory, or 2^63 + the block and the place in its shared memory
  std::uintptr_t address, code;
  std::uint32_t block, barrier, sync;
  std::uint32_t released, known;  // words that the block had released, and what it knew of others: a place in `knowledge`
  std::uint16_t thread;
  std::uint8_t mask;
  Kind kind;
};

struct Range {
  std::uintptr_t first, last;
};

std::vector<Access> accesses;
std::vector<Range> arrays;
Range shared{0, 0};
bool recording = false;

using Releases = std::vector<std::uint32_t>;  // of each block
std::vector<Releases> knowledge;              // that any block ever had; the first is none
std::vector<std::uint32_t> released, known;   // of each block
std::map<const void*, Releases> words;        // what was known when a word was released

void join(Releases& into, const Releases& other) {
  if (into.size() < other.size()) into.resize(other.size());
  for (std::size_t b = 0; b < other.size(); ++b) into[b] = std::max(into[b], other[b]);
}

void make_room(unsigned block) {
  if (released.size() <= block) released.resize(block + 1), known.resize(block + 1);
}

bool inside(const Range& range, std::uintptr_t at) { return range.first <= at && at < range.last; }

// True if the block of b knew of a release after a.
bool comes_before(const Access& a, const Access& b) {
  const Releases& of = knowledge[b.known];
  return a.block < of.size() && of[a.block] > a.released;
}

bool conflict(const Access& a, const Access& b) {
  if (!(a.mask & b.mask) || (a.kind == READ && b.kind == READ) || (a.kind == ATOMIC && b.kind == ATOMIC)) return false;
  if (a.block != b.block) return !comes_before(a, b) && !comes_before(b, a);
  if (a.thread == b.thread || a.barrier != b.barrier) return false;
  return a.thread / 32 != b.thread / 32 || a.sync == b.sync;
}

bool same(const Access& a, const Access& b) {
  return a.block == b.block && a.barrier == b.barrier && a.thread == b.thread && a.sync == b.sync && a.kind == b.kind && a.mask == b.mask;
}

bool alike_elsewhere(const Access& a, const Access& b) { 
  return a.block == b.block && a.kind == b.kind && a.mask == b.mask && a.released == b.released && a.known == b.known;
}

BsConflict described(const Access& a, const Access& b) {
  BsConflict found{};
  const Access* both[] = {&a, &b};
  for (int i = 0; i < 2; ++i) {
    found.block[i] = both[i]->block;
    found.thread[i] = both[i]->thread;
    found.kind[i] = both[i]->kind;
    found.code[i] = both[i]->code;
  }
  const std::uintptr_t at = a.address + (std::uintptr_t)__builtin_ctz(a.mask & b.mask);
  found.array = -1;  // shared memory
  found.byte = (long long)(at - shared.first);
  for (std::size_t i = 0; i < arrays.size() && !inside(shared, at); ++i)
    if (inside(arrays[i], at)) {
      found.array = (long long)i;
      found.byte = (long long)(at - arrays[i].first);
    }
  return found;
}

// The first conflict among some accesses to one word.
bool first_conflict(const std::vector<Access>& some, BsConflict& found) {
  for (std::size_t i = 0; i < some.size(); ++i)
    for (std::size_t j = i + 1; j < some.size(); ++j)
      if (conflict(some[i], some[j])) {
        found = described(some[i], some[j]);
        return true;
      }
  return false;
}

bool may_conflict(const Access* first, const Access* last) {
  bool kinds[3] = {};
  for (const Access* a = first; a < last; ++a) kinds[a->kind] = true;
  return kinds[WRITE] || (kinds[ATOMIC] && kinds[READ]);
}

// Looks for a conflict on one word: between blocks, and between two barriers of a block.
bool search(Access* first, Access* last, BsConflict& found) {
  if (!may_conflict(first, last)) return false;
  std::sort(first, last, [](const Access& a, const Access& b) { return a.block != b.block ? a.block < b.block : a.barrier < b.barrier; });
  std::vector<Access> between, within;
  for (const Access* a = first; a < last; ++a) {
    if (std::none_of(between.begin(), between.end(), [&](const Access& b) { return alike_elsewhere(*a, b); })) between.push_back(*a);
    if (!within.empty() && (within[0].block != a->block || within[0].barrier != a->barrier)) {
      if (first_conflict(within, found)) return true;
      within.clear();
    }
    if (std::none_of(within.begin(), within.end(), [&](const Access& b) { return same(*a, b); })) within.push_back(*a);
  }
  return first_conflict(within, found) || first_conflict(between, found);
}

void record(const void* at, std::size_t bytes, Kind kind, const void* code) {
  if (!recording || !bytes) return;
  const std::uintptr_t first = (std::uintptr_t)at, last = first + bytes;
  const bool own = inside(shared, first);
  if (!own && std::none_of(arrays.begin(), arrays.end(), [&](const Range& range) { return inside(range, first); })) return;
  const BsHere& here = bs_here;
  make_room(here.block);
  if (here.atomic) kind = ATOMIC;
  for (std::uintptr_t word = first & ~(std::uintptr_t)3; word < last; word += 4) {
    std::uint8_t mask = 0;
    for (unsigned i = 0; i < 4; ++i)
      if (word + i >= first && word + i < last) mask |= (std::uint8_t)(1u << i);
    const std::uint64_t name = own ? 1ull << 63 | (std::uint64_t)here.block << 32 | (word - (shared.first & ~(std::uintptr_t)3)) : word;
    accesses.push_back({name, word, (std::uintptr_t)code, here.block, *here.barrier, *here.sync, released[here.block], known[here.block],
                        (std::uint16_t)here.thread, mask, kind});
  }
  if (!here.atomic) bs_host_accessed();
}

}  // namespace

extern "C" {

BsHere bs_here;

// Begins to record the accesses to shared memory and to `count` arrays.
void bs_host_record(char* shared_first, char* shared_last, const std::uintptr_t* firsts, const std::uintptr_t* sizes, long long count) {
  shared = {(std::uintptr_t)shared_first, (std::uintptr_t)shared_last};
  arrays.clear();
  for (long long i = 0; i < count; ++i) arrays.push_back({firsts[i], firsts[i] + sizes[i]});
  accesses.clear();
  knowledge.assign(1, Releases());
  released.clear();
  known.clear();
  words.clear();
  recording = true;
}

void bs_host_released(unsigned block, const void* word) {
  make_room(block);
  Releases all = knowledge[known[block]];
  if (all.size() <= block) all.resize(block + 1);
  all[block] = ++released[block];
  join(words[word], all);
}

void bs_host_acquired(unsigned block, const void* word) {
  make_room(block);
  Releases all = knowledge[known[block]];
  join(all, words[word]);
  known[block] = (std::uint32_t)knowledge.size();
  knowledge.push_back(all);
}

// Ends it; writes up to `most` conflicts, of different places in the code, and returns their number.
long long bs_host_conflicts(BsConflict* out, long long most) {
  recording = false;
  std::sort(accesses.begin(), accesses.end(), [](const Access& a, const Access& b) { return a.word < b.word; });
  Dl_info module;
  const std::uintptr_t base = dladdr((void*)&bs_host_conflicts, &module) ? (std::uintptr_t)module.dli_fbase : 0;
  long long count = 0;
  Access *all = accesses.data(), *end = all + accesses.size();
  for (Access *first = all, *last; first < end && count < most; first = last) {
    for (last = first; last < end && last->word == first->word;) ++last;
    BsConflict found;
    if (!search(first, last, found)) continue;
    for (std::uintptr_t& code : found.code) code -= base;
    const auto known = [&](const BsConflict& other) { return std::is_permutation(found.code, found.code + 2, other.code); };
    if (std::none_of(out, out + count, known)) out[count++] = found;
  }
  return count;
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#define BS_ACCESS(bytes)                                                                                              \
  void __tsan_read##bytes(void* at) { record(at, bytes, READ, __builtin_return_address(0)); }                         \
  void __tsan_write##bytes(void* at) { record(at, bytes, WRITE, __builtin_return_address(0)); }                       \
  void __tsan_unaligned_read##bytes(void* at) { record(at, bytes, READ, __builtin_return_address(0)); }               \
  void __tsan_unaligned_write##bytes(void* at) { record(at, bytes, WRITE, __builtin_return_address(0)); }
BS_ACCESS(1)
BS_ACCESS(2)
BS_ACCESS(4)
BS_ACCESS(8)
BS_ACCESS(16)
void __tsan_read_range(void* at, unsigned long bytes) { record(at, bytes, READ, __builtin_return_address(0)); }
void __tsan_write_range(void* at, unsigned long bytes) { record(at, bytes, WRITE, __builtin_return_address(0)); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}

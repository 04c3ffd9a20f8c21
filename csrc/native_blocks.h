// Blocks of memory that sampling reuses. The system clears every page of fresh memory at the first touch, which costs several times as much
// as copying it, and the page faults of several threads wait for each other.
//
//     live + kept <= 5/4 of the most that was ever live
//
// Large blocks are whole pages of mappings, small ones come from malloc. Kept blocks that touch each other are one. A block is cut from the
// smallest that is kept and large enough; one that shrinks leaves its end behind. Neither costs a call of the system.
#pragma once
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

class Blocks {
 public:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr std::size_t PAGE = 4096, LARGE = ~(std::size_t)0;  // AddressSanitizer watches the ends of what malloc gives
#else
  static constexpr std::size_t PAGE = 4096, LARGE = 16 * PAGE;
#endif

  // The blocks of this process; never destroyed, since NumPy may free arrays at the very end. Needs no memory, so it never fails.
  static Blocks& of_process() {
    alignas(Blocks) static char place[sizeof(Blocks)];
    static Blocks* blocks = [] {
      pthread_atfork([] { of_process().lock_.lock(); }, [] { of_process().lock_.unlock(); }, [] { of_process().lock_.unlock(); });
      return new (place) Blocks;
    }();
    return *blocks;
  }

  void* take(std::size_t bytes) { return large(bytes) ? take_large(whole_pages(bytes)) : checked(std::malloc(bytes)); }

  // A block of zeros, to be read at random: fresh pages are huge ones where the system gives them.
  void* take_zeros(std::size_t bytes) { return large(bytes) ? take_large_zeros(whole_pages(bytes)) : checked(std::calloc(bytes, 1)); }

  void give(void* block, std::size_t bytes) {
    if (!block) return;
    if (large(bytes))
      give_large((char*)block, whole_pages(bytes));
    else
      std::free(block);
  }

  // The block with room for `to` bytes, of which the first min(from, to) are as they were.
  void* resized(void* block, std::size_t from, std::size_t to) {
    if (!block) return take(to);
    if (large(from) && large(to)) return resize_large((char*)block, whole_pages(from), whole_pages(to));
    if (!large(from) && !large(to)) return checked(std::realloc(block, to));
    void* other = take(to);
    std::memcpy(other, block, std::min(from, to));
    give(block, from);
    return other;
  }

 private:
  static std::size_t whole_pages(std::size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }
  static void* checked(void* block) {
    if (!block) throw std::bad_alloc();
    return block;
  }

#if defined(__linux__)
  using Guard = std::lock_guard<std::mutex>;
  static bool large(std::size_t bytes) { return bytes >= LARGE; }

  void* take_large(std::size_t bytes) {
    char* block;
    std::size_t size;
    {
      Guard guard(lock_);
      block = cut(bytes), size = bytes;
      if (!block) std::tie(block, size) = largest();  // to grow costs the added pages alone
      lives(bytes);
    }
    if (block && size == bytes) return block;
    if (!block) return fresh(bytes);
    void* grown = mremap(block, size, bytes, MREMAP_MAYMOVE);
    if (grown != MAP_FAILED) return grown;
    munmap(block, size);
    return fresh(bytes);
  }

  void* take_large_zeros(std::size_t bytes) {
    char* block;
    {
      Guard guard(lock_);
      block = cut(bytes);
      lives(bytes);
    }
    if (block) return std::memset(block, 0, bytes);
    void* zeros = fresh(bytes);
    (void)madvise(zeros, bytes, MADV_HUGEPAGE);  // advice only
    return zeros;
  }

  void give_large(char* block, std::size_t bytes) {
    Guard guard(lock_);
    live_bytes_ -= bytes;
    keep(block, bytes);
    trim();
  }

  void* resize_large(char* block, std::size_t from, std::size_t to) {
    if (to == from) return block;
    if (to < from) {
      give_large(block + to, from - to);
      return block;
    }
    char* other = nullptr;
    {
      Guard guard(lock_);
      const bool behind = cut_at(block + from, to - from);
      if (!behind) other = cut(to);
      if (!behind && !other) live_bytes_ -= from;
      lives(behind ? to - from : to);
      if (behind) return block;
    }
    if (other) {
      std::memcpy(other, block, from);
      give_large(block, from);
      return other;
    }
    void* moved = mremap(block, from, to, MREMAP_MAYMOVE);
    if (moved != MAP_FAILED) return moved;
    {
      Guard guard(lock_);
      live_bytes_ += from;  // stays the caller's if there is no other
    }
    void* copy = fresh(to);
    std::memcpy(copy, block, from);
    give_large(block, from);
    return copy;
  }

  static void* mapped(std::size_t bytes) { return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

  // Maps a block, if need be after releasing all that are kept; `bytes` were counted as live.
  void* fresh(std::size_t bytes) {
    void* block = mapped(bytes);
    if (block != MAP_FAILED) return block;
    Guard guard(lock_);
    while (!by_place_.empty()) drop(by_place_.begin()->first, by_place_.begin()->second);
    block = mapped(bytes);
    if (block != MAP_FAILED) return block;
    live_bytes_ -= bytes;
    throw std::bad_alloc();
  }

  // ---- what is kept; the lock is held

  // A block cut from the smallest kept one that is large enough, or null.
  char* cut(std::size_t bytes) {
    const auto found = by_size_.lower_bound({bytes, nullptr});
    if (found == by_size_.end()) return nullptr;
    char* block = found->second;
    cut_front(by_place_.find(block), bytes);
    return block;
  }

  // True if a kept block of at least that size began at a place; its front is taken.
  bool cut_at(char* place, std::size_t bytes) {
    const auto found = by_place_.find(place);
    if (found == by_place_.end() || found->second < bytes) return false;
    cut_front(found, bytes);
    return true;
  }

  std::pair<char*, std::size_t> largest() {
    if (by_size_.empty()) return {nullptr, 0};
    const auto [size, block] = *by_size_.rbegin();
    forget(by_place_.find(block));
    return {block, size};
  }

  void cut_front(std::map<char*, std::size_t>::iterator found, std::size_t bytes) {
    auto [block, size] = *found;
    forget(found);
    if (size > bytes) keep(block + bytes, size - bytes);
  }

  void forget(std::map<char*, std::size_t>::iterator found) {
    kept_bytes_ -= found->second;
    by_size_.erase({found->second, found->first});
    by_place_.erase(found);
  }

  // Keeps a block, as one with those that touch it.
  void keep(char* block, std::size_t bytes) {
    auto after = by_place_.upper_bound(block);
    if (after != by_place_.end() && after->first == block + bytes) {
      bytes += after->second;
      const auto next = std::next(after);
      forget(after);
      after = next;
    }
    if (after != by_place_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == block) {
        block = before->first, bytes += before->second;
        forget(before);
      }
    }
    try {
      by_place_.emplace(block, bytes);
      by_size_.emplace(bytes, block);
      kept_bytes_ += bytes;
    } catch (const std::bad_alloc&) {  // no memory to note it
      by_place_.erase(block);
      munmap(block, bytes);
    }
  }

  void lives(std::size_t bytes) {
    live_bytes_ += bytes;
    most_bytes_ = std::max(most_bytes_, live_bytes_);
    trim();
  }

  // Returns what is kept beyond the bound to the system, from the end of the largest block on.
  void trim() {
    while (!by_size_.empty() && live_bytes_ + kept_bytes_ > most_bytes_ + most_bytes_ / 4) {
      const std::size_t more = whole_pages(live_bytes_ + kept_bytes_ - most_bytes_ - most_bytes_ / 4);
      const auto [size, block] = *by_size_.rbegin();
      drop(block, size, std::min(more, size));
    }
  }

  void drop(char* block, std::size_t size, std::size_t end) {
    forget(by_place_.find(block));
    munmap(block + size - end, end);
    if (size > end) keep(block, size - end);
  }
  void drop(char* block, std::size_t size) { drop(block, size, size); }

  std::map<char*, std::size_t> by_place_;
  std::set<std::pair<std::size_t, char*>> by_size_;
  std::size_t live_bytes_ = 0, kept_bytes_ = 0, most_bytes_ = 0;
#else
  static bool large(std::size_t) { return false; }
  void* take_large(std::size_t) { return nullptr; }
  void* take_large_zeros(std::size_t) { return nullptr; }
  void give_large(char*, std::size_t) {}
  void* resize_large(char*, std::size_t, std::size_t) { return nullptr; }
#endif
  std::mutex lock_;
};

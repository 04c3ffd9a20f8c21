// Blocks of memory that sampling reuses. The system clears every page of fresh memory at the first touch, and the page faults of
// several threads wait for each other.
//
//     live + kept <= 5/4 of the most that was ever live
//
// Large blocks are mappings of their own, which change their size without a copy; small ones come from malloc.
#pragma once
#include <pthread.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <new>

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

  void give(void* block, std::size_t bytes) {
    if (!block) return;
    if (large(bytes))
      give_large(block, whole_pages(bytes));
    else
      std::free(block);
  }

  // The block with room for `to` bytes, of which the first min(from, to) are kept.
  void* resized(void* block, std::size_t from, std::size_t to) {
    if (!block) return take(to);
    if (large(from) && large(to)) return whole_pages(from) == whole_pages(to) ? block : resize_large(block, whole_pages(from), whole_pages(to));
    if (!large(from) && !large(to)) return checked(std::realloc(block, to));
    void* other = take(to);
    std::memcpy(other, block, from < to ? from : to);
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
  static bool large(std::size_t bytes) { return bytes >= LARGE; }

  // Takes the largest kept block that is not too large, else the smallest that is: growing a block costs only the added pages.
  void* take_large(std::size_t bytes) {
    void* block = nullptr;
    std::size_t size = 0;
    {
      std::lock_guard<std::mutex> guard(lock_);
      if (!kept_.empty()) {
        auto found = kept_.upper_bound(bytes);
        if (found != kept_.begin()) found = std::prev(found);
        size = found->first, block = found->second;
        kept_.erase(found);
        kept_bytes_ -= size;
      }
      lives(bytes);
    }
    if (block && size == bytes) return block;
    void* fit = block ? mremap(block, size, bytes, MREMAP_MAYMOVE) : mapped(bytes);
    if (fit != MAP_FAILED) return fit;
    if (block) munmap(block, size);
    return last_resort([&] { return mapped(bytes); }, bytes);
  }

  void give_large(void* block, std::size_t bytes) {
    std::lock_guard<std::mutex> guard(lock_);
    live_bytes_ -= bytes;
    try {
      kept_.emplace(bytes, block);
      kept_bytes_ += bytes;
      trim();
    } catch (const std::bad_alloc&) {  // no memory to note it
      munmap(block, bytes);
    }
  }

  void* resize_large(void* block, std::size_t from, std::size_t to) {
    void* moved = mremap(block, from, to, MREMAP_MAYMOVE);
    {
      std::lock_guard<std::mutex> guard(lock_);
      live_bytes_ -= from;
      lives(to);
    }
    if (moved != MAP_FAILED) return moved;
    try {
      return last_resort([&] { return mremap(block, from, to, MREMAP_MAYMOVE); }, to);
    } catch (...) {  // the block is still the caller's
      std::lock_guard<std::mutex> guard(lock_);
      live_bytes_ += from;
      throw;
    }
  }

  static void* mapped(std::size_t bytes) { return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

  // Tries again after releasing all kept blocks; `bytes` were counted as live.
  template <class Get>
  void* last_resort(Get get, std::size_t bytes) {
    std::lock_guard<std::mutex> guard(lock_);
    while (!kept_.empty()) drop_largest();
    void* block = get();
    if (block != MAP_FAILED) return block;
    live_bytes_ -= bytes;
    throw std::bad_alloc();
  }

  void lives(std::size_t bytes) {
    live_bytes_ += bytes;
    most_bytes_ = std::max(most_bytes_, live_bytes_);
    trim();
  }

  void trim() {
    while (!kept_.empty() && live_bytes_ + kept_bytes_ > most_bytes_ + most_bytes_ / 4) drop_largest();
  }

  void drop_largest() {
    const auto last = std::prev(kept_.end());
    munmap(last->second, last->first);
    kept_bytes_ -= last->first;
    kept_.erase(last);
  }

  std::multimap<std::size_t, void*> kept_;  // by size
  std::size_t live_bytes_ = 0, kept_bytes_ = 0, most_bytes_ = 0;
#else
  static bool large(std::size_t) { return false; }
  void* take_large(std::size_t) { return nullptr; }
  void give_large(void*, std::size_t) {}
  void* resize_large(void*, std::size_t, std::size_t) { return nullptr; }
#endif
  std::mutex lock_;
};

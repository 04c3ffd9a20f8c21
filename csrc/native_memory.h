// Memory of the native kernels: arrays that threads fill without the GIL and hand to NumPy uncopied, and tables on huge pages.
#pragma once
#include "native.h"
#include "native_blocks.h"
#include "native_prefetch.h"

#include <memory>
#include <utility>

// An array that grows at its end.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~Buffer() {
    if (data_) Blocks::of_process().give(data_, bytes(capacity_));
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  bs_i64 size() const { return size_; }
  T& operator[](bs_i64 i) { return data_[i]; }
  const T& operator[](bs_i64 i) const { return data_[i]; }

  // Where the next `more` entries go; `add` makes them part of the array.
  BS_INLINE T* room(bs_i64 more) {
    if (size_ + more > capacity_) resize(std::max(size_ + more, capacity_ + capacity_ / 2));
    return data_ + size_;
  }
  void add(bs_i64 count) { size_ += count; }
  void push(T value) { *room(1) = value, ++size_; }

  // Gives back what is not used, so that the next arrays find it.
  void fit() {
    if (size_ < capacity_ || !data_) resize(std::max<bs_i64>(size_, 1));
  }

  // The array for NumPy, which frees it; needs the GIL.
  py::array_t<T> release() {
    fit();
    auto owned = std::make_unique<Buffer>(std::move(*this));
    py::capsule owner(owned.get(), [](void* buffer) { delete (Buffer*)buffer; });
    const Buffer& held = *owned.release();
    return py::array_t<T>(held.size_, held.data_, owner);
  }

 private:
  static std::size_t bytes(bs_i64 entries) { return (std::size_t)entries * sizeof(T); }
  void resize(bs_i64 capacity) {
    data_ = (T*)Blocks::of_process().resized(data_, bytes(capacity_), bytes(capacity));
    capacity_ = capacity;
  }
  T* data_ = nullptr;
  bs_i64 size_ = 0, capacity_ = 0;
};

// `count` zeros: a table that is read at random. A small one is a block that is used again; of a large one the system clears what is touched.
template <class T>
class Zeros {
 public:
  explicit Zeros(bs_i64 count) : bytes_((std::size_t)std::max<bs_i64>(count, 1) * sizeof(T)) {
    data_ = (T*)(reused() ? Blocks::of_process().take_zeros(bytes_) : mapped(bytes_));
  }
  Zeros(Zeros&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Zeros& operator=(Zeros&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Zeros() {
    if (!data_) return;
    if (reused())
      Blocks::of_process().give(data_, bytes_);
    else
      unmapped(data_, bytes_);
  }
  T& operator[](bs_i64 i) { return data_[i]; }
  const T& operator[](bs_i64 i) const { return data_[i]; }
  void clear() { std::fill_n(data_, bytes_ / sizeof(T), T{}); }

 private:
  bool reused() const { return bytes_ <= (std::size_t{1} << 25); }
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
  static void* mapped(std::size_t bytes) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    (void)madvise(data, bytes, MADV_HUGEPAGE);  // advice only; a table on huge pages misses the TLB less
    return data;
  }
  static void unmapped(void* data, std::size_t bytes) { munmap(data, bytes); }
#else
  static void* mapped(std::size_t bytes) {
    if (void* data = std::calloc(bytes, 1)) return data;
    throw std::bad_alloc();
  }
  static void unmapped(void* data, std::size_t) { std::free(data); }
#endif
  T* data_;
  std::size_t bytes_;
};

// glibc's malloc, told to keep freed memory while a process trains. By default it maps every large array anew and unmaps it when freed, and
// the system clears each page of a fresh mapping at the first touch: a fifth of the processor time of a training step on a CPU.
//
//     M_MMAP_MAX 0             large arrays come from the heap, where the next step finds those that this step frees
//     M_TRIM_THRESHOLD -1      the heap never shrinks
//     M_TOP_PAD 64 MB          it grows by as much at least; heaps of other threads stay mapped
#include "native.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace {

#if defined(__GLIBC__)
std::mutex keeping;
int keepers = 0;  // trainings under way in this process

// Bytes that glibc has given out, in mappings and in heaps; modulo 2^32 where it counts no further.
unsigned used_bytes() {
#if __GLIBC_PREREQ(2, 33)
  const auto info = mallinfo2();
#else
  const auto info = mallinfo();
#endif
  return (unsigned)info.hblkhd + (unsigned)info.uordblks;
}

// True if glibc counts an array that malloc gives: another library's malloc is not told by mallopt. Other threads allocate meanwhile, hence
// the repetitions. Nobody touches the array.
bool is_glibcs() {
  constexpr unsigned BYTES = 1u << 26, NEARLY = 1u << 20;
  for (int i = 0; i < 8; ++i) {
    const unsigned before = used_bytes();
    void* volatile array = std::malloc(BYTES);
    const unsigned more = used_bytes() - before;
    std::free(array);
    if (array && more >= BYTES && more < BYTES + NEARLY) return true;
  }
  return false;
}

std::string why_memory_is_not_kept() {
  std::lock_guard<std::mutex> guard(keeping);
  return keepers || is_glibcs() ? "" : "malloc is not that of glibc";
}

void keep_memory() {
  std::lock_guard<std::mutex> guard(keeping);
  if (keepers++) return;
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, 1 << 26);
}

// The last of the trainings under way gives back what is kept. mallopt tells no old values: these are glibc's own, with thresholds as it
// adapts them to large arrays.
void return_memory() {
  std::lock_guard<std::mutex> guard(keeping);
  if (!keepers || --keepers) return;
  mallopt(M_MMAP_MAX, 1 << 16);
  mallopt(M_MMAP_THRESHOLD, 1 << 25);
  mallopt(M_TRIM_THRESHOLD, 1 << 26);
  mallopt(M_TOP_PAD, 1 << 17);
  malloc_trim(0);
}

void return_free_pages() { malloc_trim(0); }
#else
std::string why_memory_is_not_kept() { return "the C library is not glibc"; }
void keep_memory() {}
void return_memory() {}
void return_free_pages() {}
#endif

}  // namespace

void bind_allocator(py::module_& m) {
  m.def("why_memory_is_not_kept", &why_memory_is_not_kept, py::call_guard<py::gil_scoped_release>());
  m.def("keep_memory", &keep_memory, py::call_guard<py::gil_scoped_release>());
  m.def("return_memory", &return_memory, py::call_guard<py::gil_scoped_release>());
  m.def("return_free_pages", &return_free_pages, py::call_guard<py::gil_scoped_release>());
}

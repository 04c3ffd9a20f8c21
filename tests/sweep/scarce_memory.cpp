// Lets memory run out for chosen libraries of a process into which it is preloaded (LD_PRELOAD). It counts what they ask for (malloc,
// calloc, realloc, operator new, mmap, mremap, and threads) by the address from which they call, and refuses the requests numbered
// first .. last. It also counts what they hold. glibc only.
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <new>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace {

struct Range {
  char *begin, *end;
  bool holds;  // what it holds is counted
} watched[32];
int ranges = 0;
std::atomic<long> first{0}, last{0}, asked{0}, refused{0}, blocks{0}, mapped{0}, most_mapped{0};

const Range* range_of(const void* caller) {
  for (int i = 0; i < ranges; ++i)
    if (caller >= watched[i].begin && caller < watched[i].end) return &watched[i];
  return nullptr;
}
bool is_watched(const void* caller) { return range_of(caller); }

// Counts a request; true if it is one of those to refuse.
bool refuse() {
  if (!first) return false;
  const long number = ++asked;
  if (number < first || number > last) return false;
  ++refused;
  return true;
}

void* held(void* block, const void* caller) {
  const Range* range = range_of(caller);
  if (block && range && range->holds) ++blocks;
  return block;
}
void maps(long bytes, const void* caller) {
  const Range* range = range_of(caller);
  if (!range || !range->holds) return;
  const long now = mapped += bytes;
  for (long most = most_mapped; now > most && !most_mapped.compare_exchange_weak(most, now);) {
  }
}

void* allocate(size_t align, size_t bytes, const void* caller) {
  if (!is_watched(caller)) return align ? __libc_memalign(align, bytes) : __libc_malloc(bytes);
  if (refuse()) return errno = ENOMEM, nullptr;
  return held(align ? __libc_memalign(align, bytes) : __libc_malloc(bytes), caller);
}

void* allocate_or_throw(size_t align, size_t bytes, const void* caller) {
  void* block = allocate(align, bytes ? bytes : 1, caller);
  if (!block) throw std::bad_alloc();
  return block;
}

void release(void* block, const void* caller) {
  const Range* range = range_of(caller);
  if (block && range && range->holds) --blocks;
  __libc_free(block);
}

struct Wanted {
  const char* name;
  bool holds;
};

int watch_one(dl_phdr_info* info, size_t, void* given) {
  const auto& wanted = *(const Wanted*)given;
  if (!strstr(info->dlpi_name, wanted.name)) return 0;
  for (int i = 0; i < info->dlpi_phnum && ranges < 32; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    char* begin = (char*)info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && segment.p_flags & PF_X) watched[ranges++] = {begin, begin + segment.p_memsz, wanted.holds};
  }
  return 0;
}

}  // namespace

#define CALLER __builtin_return_address(0)
#define OPEN extern "C" __attribute__((visibility("default"), noinline))

// ---- for the sweep

// Watches loaded libraries whose path contains `name`, too, and counts what they hold if asked; returns how many pieces of code it adds.
OPEN int scarce_watch(const char* name, int holds) {
  const int before = ranges;
  Wanted wanted{name, holds != 0};
  dl_iterate_phdr(watch_one, &wanted);
  return ranges - before;
}
OPEN void scarce_arm(long from, long to) { asked = 0, refused = 0, last = to, first = from; }
OPEN long scarce_disarm() {
  first = 0;
  return asked;
}
OPEN long scarce_refused() { return refused; }
OPEN long scarce_blocks() { return blocks; }
OPEN long scarce_mapped() { return mapped; }
OPEN long scarce_most_mapped() { return most_mapped; }

// ---- for everyone

OPEN void* malloc(size_t bytes) { return allocate(0, bytes, CALLER); }
OPEN void free(void* block) { release(block, CALLER); }
OPEN void* calloc(size_t count, size_t bytes) {
  if (!is_watched(CALLER)) return __libc_calloc(count, bytes);
  if (refuse()) return errno = ENOMEM, nullptr;
  return held(__libc_calloc(count, bytes), CALLER);
}
OPEN void* realloc(void* block, size_t bytes) {
  if (!is_watched(CALLER)) return __libc_realloc(block, bytes);
  if (refuse()) return errno = ENOMEM, nullptr;
  return block ? __libc_realloc(block, bytes) : held(__libc_malloc(bytes), CALLER);
}
OPEN int posix_memalign(void** out, size_t align, size_t bytes) {
  *out = allocate(align, bytes, CALLER);
  return *out ? 0 : ENOMEM;
}
OPEN void* aligned_alloc(size_t align, size_t bytes) { return allocate(align, bytes, CALLER); }

OPEN void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (is_watched(CALLER) && refuse()) return errno = ENOMEM, MAP_FAILED;
  void* block = (void*)syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
  if (block != MAP_FAILED) maps((long)bytes, CALLER);
  return block;
}
OPEN int munmap(void* block, size_t bytes) {
  maps(-(long)bytes, CALLER);
  return (int)syscall(SYS_munmap, block, bytes);
}
OPEN void* mremap(void* block, size_t from, size_t to, int flags, ...) {
  va_list more;
  va_start(more, flags);
  void* at = flags & MREMAP_FIXED ? va_arg(more, void*) : nullptr;
  va_end(more);
  if (is_watched(CALLER) && refuse()) return errno = ENOMEM, MAP_FAILED;
  void* moved = (void*)syscall(SYS_mremap, block, from, to, flags, at);
  if (moved != MAP_FAILED) maps((long)to - (long)from, CALLER);
  return moved;
}

OPEN int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*run)(void*), void* with) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const Create create = (Create)dlsym(RTLD_NEXT, "pthread_create");
  return is_watched(CALLER) && refuse() ? EAGAIN : create(thread, how, run, with);
}

#define NEW __attribute__((visibility("default"), noinline))
NEW void* operator new(size_t bytes) { return allocate_or_throw(0, bytes, CALLER); }
NEW void* operator new[](size_t bytes) { return allocate_or_throw(0, bytes, CALLER); }
NEW void* operator new(size_t bytes, std::align_val_t align) { return allocate_or_throw((size_t)align, bytes, CALLER); }
NEW void* operator new[](size_t bytes, std::align_val_t align) { return allocate_or_throw((size_t)align, bytes, CALLER); }
NEW void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return allocate(0, bytes, CALLER); }
NEW void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return allocate(0, bytes, CALLER); }
NEW void operator delete(void* block) noexcept { release(block, CALLER); }
NEW void operator delete[](void* block) noexcept { release(block, CALLER); }
NEW void operator delete(void* block, size_t) noexcept { release(block, CALLER); }
NEW void operator delete[](void* block, size_t) noexcept { release(block, CALLER); }
NEW void operator delete(void* block, std::align_val_t) noexcept { release(block, CALLER); }
NEW void operator delete[](void* block, std::align_val_t) noexcept { release(block, CALLER); }
NEW void operator delete(void* block, size_t, std::align_val_t) noexcept { release(block, CALLER); }
NEW void operator delete[](void* block, size_t, std::align_val_t) noexcept { release(block, CALLER); }
NEW void operator delete(void* block, const std::nothrow_t&) noexcept { release(block, CALLER); }
NEW void operator delete[](void* block, const std::nothrow_t&) noexcept { release(block, CALLER); }

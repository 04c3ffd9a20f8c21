// Enqueues the launches of a whole bulk by the CUDA driver, which is loaded at run time: no toolkit and no header of it is needed.
#include "native.h"

#if defined(__unix__)
#include <dlfcn.h>
#endif
#include <stdexcept>
#include <string>

namespace {

// The two functions of the driver, by their names in its library; both return 0 for success.
using LaunchKernel = int (*)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                             unsigned block_z, unsigned shared_bytes, void* stream, void** parameters, void** extra);
using SetWords = int (*)(bs_u64 address, unsigned value, std::size_t count, void* stream);

class Driver {
 public:
  explicit Driver(const std::string& library) {
#if defined(__unix__)
    handle_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) throw std::runtime_error(std::string("the CUDA driver cannot be loaded: ") + dlerror());
    launch_ = (LaunchKernel)find("cuLaunchKernel");
    set_words_ = (SetWords)find("cuMemsetD32Async");
#else
    throw std::runtime_error("the CUDA driver is loaded on Linux only, and " + library + " was asked for");
#endif
  }

  // Launch i has the arguments words[starts[i]] .. words[starts[i + 1] - 1], each in a word of its own; a function 0 fills: an address,
  // a pattern of 32 bits and how often. The context of the functions is current.
  void enqueue(In<bs_u64> functions, In<bs_u32> blocks, In<bs_u32> threads, In<bs_i64> starts, In<bs_u64> words, bs_u64 stream) const {
    const bs_i64 count = functions.size();
    if (blocks.size() != count || threads.size() != count || starts.size() != count + 1)
      throw std::invalid_argument("functions, blocks, threads and starts differ in length");
    const bs_u64 *function = functions.data(), *word = words.data();
    const bs_u32 *grid = blocks.data(), *block = threads.data();
    const bs_i64* start = starts.data();
    for (bs_i64 i = 0; i < count; ++i)
      if (start[i] < 0 || start[i + 1] > words.size() || start[i + 1] - start[i] > MOST || (!function[i] && start[i + 1] - start[i] != 3))
        throw std::invalid_argument("launch " + std::to_string(i) + " has arguments that are not there");
    py::gil_scoped_release release;
    for (bs_i64 i = 0; i < count; ++i) {
      const bs_u64* own = word + start[i];
      void* parameters[MOST];
      for (bs_i64 a = 0; a < start[i + 1] - start[i]; ++a) parameters[a] = (void*)(own + a);
      const int code = function[i]
                           ? launch_((void*)function[i], grid[i], 1, 1, block[i], 1, 1, 0, (void*)stream, parameters, nullptr)
                           : set_words_(own[0], (unsigned)own[1], (std::size_t)own[2], (void*)stream);
      if (code) throw std::runtime_error("the CUDA driver refuses launch " + std::to_string(i) + " of a bulk: error " + std::to_string(code));
    }
  }

 private:
  static constexpr bs_i64 MOST = 32;  // arguments of a kernel

  void* find(const char* name) const {
#if defined(__unix__)
    if (void* found = dlsym(handle_, name)) return found;
#endif
    throw std::runtime_error(std::string("the CUDA driver has no ") + name);
  }

  void* handle_ = nullptr;  // never closed: the driver stays loaded as long as the process
  LaunchKernel launch_ = nullptr;
  SetWords set_words_ = nullptr;
};

}  // namespace

void bind_launches(py::module_& m) {
  py::class_<Driver>(m, "Driver")
      .def(py::init<const std::string&>())
      .def("enqueue", &Driver::enqueue, py::arg("functions").noconvert(), py::arg("blocks").noconvert(), py::arg("threads").noconvert(),
           py::arg("starts").noconvert(), py::arg("words").noconvert(), py::arg("stream"));
}

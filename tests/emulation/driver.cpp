// A stand-in for the library of the CUDA driver: its functions are kernels compiled for the host (cuda_on_host.h).
#include <cstddef>
#include <cstdint>

static long long launches = 0, refuse_at = -1;
static bool idle = false;

extern "C" void bs_driver_refuse(long long launch) { refuse_at = launch; }
extern "C" void bs_driver_idle(int whether) { idle = whether; }  // then nothing is done
extern "C" long long bs_driver_launches() { return launches; }

extern "C" int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                              unsigned block_z, unsigned shared_bytes, void*, void** parameters, void** extra) {
  if (launches++ == refuse_at) return 719;  // as after an illegal address
  if (idle) return 0;
  if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 || shared_bytes || extra) return 1;
  return ((long long (*)(unsigned, unsigned, void* const*))function)(grid_x, block_x, parameters) ? 702 : 0;
}

extern "C" int cuMemsetD32Async(std::uint64_t address, unsigned value, std::size_t count, void*) {
  for (std::size_t i = 0; i < count && !idle; ++i) ((unsigned*)address)[i] = value;
  return 0;
}

// Keeps a stream busy until the host sets a flag in pinned memory, or for a number of clock cycles.
extern "C" __global__ void spin(const volatile int* flag, long long cycles) {
  const long long began = clock64();
  while (!(flag && *flag) && clock64() - began < cycles) {
  }
}

"""How the CUDA back end works on a device: memory, launches, and each primitive as a row of kernels over device arrays.

Every part takes its array module and its launcher from a `CudaDevice`: CuPy and NVRTC, or in tests numpy and the same kernels
compiled for the host.
"""

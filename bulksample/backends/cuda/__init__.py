"""The CUDA back end: memory and launches of a device, and each primitive as a sequence of kernels over device arrays.

Every part takes its array module and its launcher from a `CudaDevice`: CuPy and NVRTC, or in tests numpy and the same kernels
compiled for the host.
"""

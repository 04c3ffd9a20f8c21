// One of the units that setup.py compiles: each native*.cpp is in one. A unit costs the compiler 10 s for pybind11 alone.
#include "native.cpp"
#include "native_allocator.cpp"
#include "native_draws.cpp"
#include "native_trees.cpp"

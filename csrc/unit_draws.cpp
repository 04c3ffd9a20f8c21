// One of the units that setup.py compiles. A unit holds several files, as each costs the compiler 10 s for pybind11 alone.
#include "native.cpp"
#include "native_draws.cpp"
#include "native_trees.cpp"

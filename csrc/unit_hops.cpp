// See unit_draws.cpp.
#include "native_aggregation.cpp"
#include "native_epilogue.cpp"
#include "native_launch.cpp"
#include "native_quantise.cpp"

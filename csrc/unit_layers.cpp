// See unit_draws.cpp.
#include "native_layers.cpp"
#include "native_matrices.cpp"
#include "native_partition.cpp"
#include "native_words.cpp"

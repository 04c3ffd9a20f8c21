// See unit_draws.cpp.
#include "native_relations.cpp"

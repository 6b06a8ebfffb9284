// Owns the precompiled shim: CMake makes one for a target only where a source uses it, and main.cpp,
// which unfolds Catch2 in full, cannot.
#include "support/test.hpp"

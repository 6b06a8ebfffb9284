// Catch2 2.13 makes main() here; of Catch2 3 it comes from a library of its own.
#define CATCH_CONFIG_MAIN
#include "support/catch.hpp"

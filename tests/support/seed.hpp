#ifndef BIDE_TESTS_SUPPORT_SEED_HPP
#define BIDE_TESTS_SUPPORT_SEED_HPP

#include <support/standard.hpp>

namespace test {

// The seed of this run: BIDE_TEST_SEED, or chance. A test case that fails prints it (main.cpp), and so does
// one that does not end (gate.hpp).
inline std::uint32_t run_seed() {
    static const std::uint32_t seed = [] {
        const char* const given = std::getenv("BIDE_TEST_SEED");
        return given != nullptr ? static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10))
                                : static_cast<std::uint32_t>(std::random_device()());
    }();
    return seed;
}

} // namespace test

#endif

// Catch2 2.13 makes main() here; of Catch2 3 it comes from a library of its own.
#define CATCH_CONFIG_MAIN
#include "support/catch.hpp"
#include "support/seed.hpp"

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
using listener_base = Catch::EventListenerBase;
#else
using listener_base = Catch::TestEventListenerBase;
#endif

#include <cstdio>
#include <string>

// A reference in Catch2 2.13, a pointer in 3.
const std::string& name_of(const Catch::TestCaseInfo& info) { return info.name; }
const std::string& name_of(const Catch::TestCaseInfo* info) { return info->name; }

// How to repeat a test case that failed.
class seed_printer : public listener_base {
public:
    using listener_base::listener_base;

    void testCaseEnded(const Catch::TestCaseStats& ended) override {
        if (ended.totals.assertions.failed != 0) {
            std::fprintf(stderr, "BIDE_TEST_SEED=%u repeats what chance chose in \"%s\"\n",
                         static_cast<unsigned>(test::run_seed()), name_of(ended.testInfo).c_str());
        }
    }
};
CATCH_REGISTER_LISTENER(seed_printer)

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

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

// The linker finds this file by it (CMakeLists.txt).
extern "C" const int bide_test_case_deadline;
const int bide_test_case_deadline = 240; // seconds

namespace {

// A reference in Catch2 2.13, a pointer in 3.
const std::string& name_of(const Catch::TestCaseInfo& info) { return info.name; }
const std::string& name_of(const Catch::TestCaseInfo* info) { return info->name; }

// Says how a test case that failed is repeated.
class seed_printer final : public listener_base {
public:
    using listener_base::listener_base;

    void testCaseEnded(const Catch::TestCaseStats& ended) override {
        if (ended.totals.assertions.failed != 0) {
            std::fprintf(stderr, "BIDE_TEST_SEED=%u repeats what chance chose in \"%s\"\n",
                         static_cast<unsigned>(test::run_seed()), name_of(ended.testInfo).c_str());
        }
        listener_base::testCaseEnded(ended);
    }
};

CATCH_REGISTER_LISTENER(seed_printer)

#if defined(__unix__) || defined(__APPLE__)

char message[512];
pid_t program = 0;

extern "C" void deadline_has_passed(int) {
    if (::getpid() != program) { // a child of fork(), with an alarm of its own
        std::signal(SIGALRM, SIG_DFL);
        ::raise(SIGALRM);
        return;
    }
    static_cast<void>(!::write(STDERR_FILENO, message, std::strlen(message)));
    ::_exit(1);
}

// Ends the program, with the name of the test case, if one run of a test case takes longer than four
// minutes (and BIDE_STRESS_MS): so a lost wake-up is a failure, and no hang.
class case_deadline final : public listener_base {
public:
    using listener_base::listener_base;

    void testCaseStarting(const Catch::TestCaseInfo& of) override {
        listener_base::testCaseStarting(of);
        is_long_ = of.tagsAsString().find("[.") != std::string::npos;
    }
    void sectionStarting(const Catch::SectionInfo& of) override { // the outermost one is the case
        listener_base::sectionStarting(of);
        if (depth_++ != 0 || is_long_) {
            return;
        }
        program = ::getpid();
        std::snprintf(message, sizeof message,
                      "%s:%d: FAILED: the test case has not come to its end in time: %s\n"
                      "BIDE_TEST_SEED=%u repeats what chance chose\n",
                      of.lineInfo.file, static_cast<int>(of.lineInfo.line), of.name.c_str(),
                      static_cast<unsigned>(test::run_seed()));
        std::signal(SIGALRM, &deadline_has_passed);
        const char* const stress = std::getenv("BIDE_STRESS_MS");
        const long more = stress != nullptr ? std::strtol(stress, nullptr, 10) / 1'000 : 0;
        ::alarm(static_cast<unsigned>(bide_test_case_deadline + more));
    }
    void sectionEnded(const Catch::SectionStats& of) override {
        listener_base::sectionEnded(of);
        if (--depth_ == 0) {
            ::alarm(0);
        }
    }

private:
    int depth_ = 0;
    bool is_long_ = false;
};

CATCH_REGISTER_LISTENER(case_deadline)

#endif

} // namespace

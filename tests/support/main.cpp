// Catch2 2.13 makes main() here; of Catch2 3 it comes from a library of its own.
#define CATCH_CONFIG_MAIN
#include "support/seed.hpp"
#include "support/test.hpp"

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
using listener_base = Catch::EventListenerBase;
#else
using listener_base = Catch::TestEventListenerBase;
#endif

#if defined(__unix__) || defined(__APPLE__)
#include <csignal>
#include <cstring>
#include <unistd.h>
#endif

// The linker finds this file by it (CMakeLists.txt).
extern "C" const int bide_test_case_deadline;
const int bide_test_case_deadline = 240; // seconds

namespace {

// Ends the program, with the name of the test case, if one run of a test case takes longer than that and
// BIDE_STRESS_MS: so a lost wake-up is a failure, and no hang. Nothing on other systems.
class alarm_clock {
public:
#if defined(__unix__) || defined(__APPLE__)
    static void set(const Catch::SectionInfo& of) {
        program = ::getpid();
        std::snprintf(message, sizeof message,
                      "%s:%d: FAILED: the test case has not come to its end in time: %s\n"
                      "BIDE_TEST_SEED=%u repeats the random choices of this run\n",
                      of.lineInfo.file, static_cast<int>(of.lineInfo.line), of.name.c_str(),
                      static_cast<unsigned>(test::run_seed()));
        std::signal(SIGALRM, &ring);
        const char* const stress = std::getenv("BIDE_STRESS_MS");
        const long more = stress != nullptr ? std::strtol(stress, nullptr, 10) / 1'000 : 0;
        ::alarm(static_cast<unsigned>(bide_test_case_deadline + more));
    }
    static void clear() { ::alarm(0); }

private:
    static void ring(int) {
        if (::getpid() != program) { // a child of fork(), with an alarm of its own
            std::signal(SIGALRM, SIG_DFL);
            ::raise(SIGALRM);
            return;
        }
        static_cast<void>(!::write(STDERR_FILENO, message, std::strlen(message)));
        ::_exit(1);
    }

    inline static char message[512];
    inline static pid_t program = 0;
#else
    static void set(const Catch::SectionInfo&) {}
    static void clear() {}
#endif
};

class listener final : public listener_base {
public:
    using listener_base::listener_base;

    void testCaseStarting(const Catch::TestCaseInfo& of) override {
        listener_base::testCaseStarting(of);
        is_long_ = of.tagsAsString().find("[.") != std::string::npos;
    }
    void sectionStarting(const Catch::SectionInfo& of) override { // the outermost one is the case
        listener_base::sectionStarting(of);
        if (depth_++ == 0 && !is_long_) {
            alarm_clock::set(of);
        }
    }
    void sectionEnded(const Catch::SectionStats& of) override {
        listener_base::sectionEnded(of);
        if (--depth_ == 0) {
            alarm_clock::clear();
        }
    }
    // Each random choice of a test follows from the seed of the run.
    void testCaseEnded(const Catch::TestCaseStats& of) override {
        listener_base::testCaseEnded(of);
        if (of.totals.assertions.failed != 0) {
            std::fprintf(stderr, "BIDE_TEST_SEED=%u repeats the random choices of this run\n",
                         static_cast<unsigned>(test::run_seed()));
        }
    }

private:
    int depth_ = 0;
    bool is_long_ = false;
};

CATCH_REGISTER_LISTENER(listener)

} // namespace

// Durable locks of processes on one machine that see different boot ids, clocks and processes, or
// cannot see their own: containers of several kinds. Whatever they see, one of them holds at a time;
// and where a store can tell that a holder has ended, the next one does not wait for its lease.
//
// What a process knows of its boot its children inherit: this one uses no durable lock itself.

#include <bide/core/errc.hpp>
#include <bide/durable/durable_mutex.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_json.hpp>
#include <bide/durable/slots/file.hpp>
#include <bide/durable/slots/sqlite.hpp>
#include <support/catch.hpp>
#include <support/children.hpp>
#include <support/containers.hpp>
#include <support/gate.hpp>
#include <support/temp_directory.hpp>
#include <support/unhurried.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace std::chrono_literals;
using bide::slot_ref;

struct store {
    const char* name;
    std::function<slot_ref(const std::string& directory)> open;
};
const std::vector<store>& stores() {
    static const std::vector<store> all{
        {"file",
         [](const std::string& in) { return slot_ref(bide::file_slot(in + "/lock")); }},
        {"sqlite",
         [](const std::string& in) { return slot_ref(bide::sqlite_slot(in + "/db", "lock")); }},
    };
    return all;
}

bide::durable_options with_lease(std::chrono::milliseconds lease) {
    bide::durable_options o = test::unhurried();
    o.lease = lease;
    o.poll_most = 50ms;
    return o;
}

// Where a process is, and what it calls the directory of the store there.
struct place {
    const char* name = "the machine";
    std::function<pid_t()> fork = [] { return ::fork(); };
    std::string directory{};
};

// What f() answers in a process there; an answer is not 70 or more.
int answer(const place& there, const std::function<int()>& f) {
    const pid_t child = there.fork();
    if (child == 0) {
        ::signal(SIGALRM, SIG_DFL);
        ::alarm(2 * test::children::longest_life);
        int answered = 90;
        try {
            answered = f();
        } catch (const std::exception& e) {
            std::fprintf(stderr, "%s\n", e.what());
        }
        ::_exit(answered);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

enum : int { granted = 0, not_granted = 1, failed = 2, too_early = 3 };

int told(const bide::result<bide::durable_guard, std::error_code>& got) {
    if (!got && got.error() != bide::errc::timeout) {
        std::fprintf(stderr, "%s\n", got.error().message().c_str());
        return failed;
    }
    return got ? granted : not_granted;
}

// One that holds the lock until it is killed.
class holder {
public:
    holder(const place& there, const store& in) {
        int told[2];
        if (::pipe(told) != 0) {
            std::abort();
        }
        id_ = there.fork();
        if (id_ == 0) {
            ::close(told[0]);
            ::signal(SIGALRM, SIG_DFL);
            ::alarm(2 * test::children::longest_life);
            bide::durable_mutex lock(in.open(there.directory), with_lease(1h));
            const auto held = lock.acquire();
            static_cast<void>(!::write(told[1], "x", held ? 1 : 0));
            ::close(told[1]);
            for (;;) {
                ::pause();
            }
        }
        ::close(told[1]);
        char some = 0;
        is_holding_ = ::read(told[0], &some, 1) == 1;
        ::close(told[0]);
    }
    holder(const holder&) = delete;
    holder& operator=(const holder&) = delete;
    ~holder() { end(); }

    bool is_holding() const noexcept { return is_holding_; }
    void end() {
        if (id_ > 0) {
            ::kill(id_, SIGKILL);
            ::waitpid(id_, nullptr, 0);
            id_ = -1;
        }
    }

private:
    pid_t id_ = -1;
    bool is_holding_ = false;
};

int tries(const place& there, const store& in) {
    return answer(there, [&] {
        bide::durable_mutex lock(in.open(there.directory), with_lease(1h));
        return told(lock.try_acquire());
    });
}
int waits(const place& there, const store& in) {
    return answer(there, [&] {
        bide::durable_mutex lock(in.open(there.directory), with_lease(1h));
        bide::acquire_request request;
        request.timeout = test::patience;
        return told(lock.acquire(std::move(request)));
    });
}

// Each holds while the others try, and ends; its lease does not.
[[maybe_unused]] void check_among(const std::vector<place>& places) {
    for (const store& in : stores()) {
        for (const place& of_holder : places) {
            holder it(of_holder, in);
            CAPTURE(in.name, of_holder.name);
            REQUIRE(it.is_holding());
            for (const place& of_contender : places) {
                CAPTURE(of_contender.name);
                CHECK(tries(of_contender, in) == not_granted);
            }
            it.end();
            for (const place& of_contender : places) {
                CAPTURE(of_contender.name);
                CHECK(waits(of_contender, in) == granted);
            }
        }
    }
}

#if BIDE_TESTS_HAVE_CONTAINERS

bool is_there(const test::container& one) {
    if (!one.is_running()) {
        std::fprintf(stderr, "skipped: no container can be made here: %s\n",
                     one.trouble().c_str());
        WARN("skipped: no container can be made here: " << one.trouble());
    }
    return one.is_running();
}

place inside(const test::container& one, const char* name, std::string directory) {
    return {name, [&one] { return one.fork(); }, std::move(directory)};
}

test::container_shape with_boot_id(std::string id, std::int64_t boottime_s) {
    test::container_shape shape;
    shape.boot_id = std::move(id);
    shape.boottime_s = boottime_s;
    return shape;
}

#endif

} // namespace

#if BIDE_TESTS_HAVE_CONTAINERS

TEST_CASE("containers: with pids, boot ids and clocks of their own, one of them holds") {
    const test::temp_directory in("containers");
    const test::container one(in, with_boot_id("11111111-0000-4000-8000-000000000001", 100'000));
    const test::container two(in, with_boot_id("22222222-0000-4000-8000-000000000002", 300'000));
    if (is_there(one) && is_there(two)) {
        check_among({place{"the machine", [] { return ::fork(); }, in.path()},
                     inside(one, "one", in.path()), inside(two, "two", in.path())});
    }
}

TEST_CASE("containers: with another boot id alone, one of them holds") {
    const test::temp_directory in("containers");
    test::container_shape shape;
    shape.has_own_pids = false;
    shape.has_own_time = false;
    const test::container one(in, shape);
    if (is_there(one)) {
        check_among({place{"the machine", [] { return ::fork(); }, in.path()},
                     inside(one, "another boot id", in.path())});
    }
}

TEST_CASE("containers: with another clock alone, one of them holds") {
    const test::temp_directory in("containers");
    test::container_shape shape;
    shape.has_own_pids = false;
    shape.has_own_boot_id = false;
    shape.boottime_s = 100'000;
    const test::container ahead(in, shape);
    shape.boottime_s = 300'000;
    const test::container further(in, shape);
    if (is_there(ahead) && is_there(further)) {
        check_among({place{"the machine", [] { return ::fork(); }, in.path()},
                     inside(ahead, "a day ahead", in.path()),
                     inside(further, "three days ahead", in.path())});
    }
}

TEST_CASE("containers: without a boot id, one of them holds") {
    const test::temp_directory in("containers");
    const test::container one(in, with_boot_id("", 0));
    const test::container two(in, with_boot_id("", 300'000));
    if (is_there(one) && is_there(two)) {
        check_among({place{"the machine", [] { return ::fork(); }, in.path()},
                     inside(one, "one without", in.path()),
                     inside(two, "another without", in.path())});
    }
}

TEST_CASE("containers: in a directory without /proc, one of them holds") {
    const test::temp_directory in("containers");
    test::container_shape shape;
    shape.has_own_pids = false;
    shape.has_own_boot_id = false;
    shape.has_own_time = false;
    shape.root = in.path();
    const test::container one(in, shape);
    if (is_there(one)) {
        check_among({place{"the machine", [] { return ::fork(); }, in.path()},
                     inside(one, "without /proc", "")});
    }
}

#else

TEST_CASE("containers: there are none on this system") {
    WARN("skipped: this system has no containers");
}

#endif

// A record that a machine left that was started again since, or whose clock was set: its times mean
// nothing now. Nobody takes the lock at once, and nobody waits for longer than the lease's length.
TEST_CASE("containers: what was left before the machine started again ends with its length") {
    constexpr std::chrono::milliseconds lease = 300ms;
    constexpr std::int64_t ten_days_ms = 864'000'000;
    const place here;
    for (const store& in : stores()) {
        for (const char* const boot : {"another", "", "this"}) {
            CAPTURE(in.name, boot);
            const test::temp_directory directory("containers");
            const auto options = [&] {
                bide::durable_options o = with_lease(lease);
                o.process_bound = false;
                return o;
            };
            REQUIRE(answer(here, [&] {
                        bide::durable_mutex lock(in.open(directory.path()), options());
                        bide::durable_ticket left = lock.ticket();
                        return lock.try_acquire(left)->acquired ? granted : not_granted;
                    }) == granted);
            slot_ref slot = in.open(directory.path());
            const auto there = slot.load();
            auto record = bide::durable::decode(there->value);
            REQUIRE(record->holders.size() == 1);
            if (std::string_view(boot) != "this") {
                record->holders[0].from.boot = boot;
            }
            record->holders[0].expires_at += ten_days_ms;
            REQUIRE(slot.compare_exchange(there->version, bide::durable::encode(*record)).status ==
                    bide::cas_status::stored);
            CHECK(answer(here, [&] {
                      bide::durable_mutex lock(in.open(directory.path()), options());
                      const std::int64_t before = bide::durable::boottime_ms();
                      bide::acquire_request request;
                      request.timeout = test::patience;
                      const int said = told(lock.acquire(std::move(request)));
                      const std::int64_t took = bide::durable::boottime_ms() - before;
                      return said == granted && took < lease.count() ? too_early : said;
                  }) == granted);
        }
    }
}

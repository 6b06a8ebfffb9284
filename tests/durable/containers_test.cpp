// Durable locks of processes on one machine that see different boot ids, clocks and processes, or
// cannot see their own: containers of several kinds. Whatever they see, one of them holds at a
// time. If a store can tell that a holder has ended, the next contender does not wait for its
// lease.
//
// Children inherit what a process knows of its boot, so this process uses no durable lock itself.

#include <bide/core/errc.hpp>
#include <bide/durable/locks.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_json.hpp>
#include <bide/durable/slots/file.hpp>
#include <bide/durable/slots/sqlite.hpp>
#include <support/children.hpp>
#include <support/containers.hpp>
#include <support/test.hpp>
#include <support/unhurried.hpp>

#if defined(__linux__)
#include <sys/mount.h>
#endif
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using bide::slot_ref;

struct store {
    const char* name;
    std::function<slot_ref(const std::string& directory)> open;
};
const std::vector<store>& stores() {
    static const std::vector<store> all{
        {"file", [](const std::string& in) { return slot_ref(bide::file_slot(in + "/lock")); }},
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

// Where a process runs, and its path of the directory with the store.
struct place {
    const char* name = "the machine";
    std::function<pid_t()> fork = [] { return ::fork(); };
    std::string directory{};
};

// Runs f() in a process there, and returns its result, which is below 70.
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

// A process that holds the lock until it is killed.
class holder : public test::companion {
public:
    holder(const place& there, const store& in)
        : companion(
              [&](auto stay) {
                  bide::durable_mutex lock(in.open(there.directory), with_lease(1h));
                  const auto held = lock.acquire();
                  stay(held ? "holds" : "");
              },
              there.fork) {}
    bool is_holding() const { return said() == "holds"; }
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

// Each process holds while the others try, and ends before its lease does.
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
            it.kill();
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
        std::fprintf(stderr, "skipped: no container can be made here: %s\n", one.trouble().c_str());
        WARN("skipped: no container can be made here: " << one.trouble());
    }
    return one.is_running();
}

place inside(const test::container& one, const char* name, std::string directory) {
    return {name, [&one] { return one.fork(); }, std::move(directory)};
}
// Where the directory is mounted at another path.
place elsewhere(const test::container& one, const char* name, const std::string& directory) {
    const std::string there = directory + "/there";
    ::mkdir(there.c_str(), 0755);
    const auto fork = [&one, directory, there] {
        const pid_t child = one.fork();
        if (child == 0 &&
            ::mount(directory.c_str(), there.c_str(), nullptr, MS_BIND, nullptr) != 0) {
            ::_exit(71);
        }
        return child;
    };
    return {name, fork, there};
}

test::container_shape with_boot_id(std::string id, std::int64_t boottime_s) {
    test::container_shape shape{.boot_id = std::move(id), .boottime_s = boottime_s};
    return shape;
}

#endif

using bide::durable::boottime_ms;

// Changes the record in the store by f().
void edit(const store& in, const std::string& directory,
          const std::function<void(bide::durable::record&)>& f) {
    slot_ref slot = in.open(directory);
    const auto there = slot->load();
    REQUIRE(there);
    auto record = bide::durable::decode(there->value);
    REQUIRE(record);
    f(*record);
    REQUIRE(slot->compare_exchange(there->version, bide::durable::encode(*record)).status ==
            bide::cas_status::stored);
}

bide::slot_version version_of(const store& in, const std::string& directory) {
    slot_ref slot = in.open(directory);
    const auto there = slot->load();
    return there ? there->version : 0;
}

// One step of an acquisition by a ticket of this name, which is bound to no process.
int steps(const place& there, const store& in, const char* nonce, std::chrono::milliseconds lease) {
    return answer(there, [&] {
        bide::durable_mutex lock(in.open(there.directory), with_lease(lease));
        bide::durable_ticket ticket{"left", nonce, 1, false, 0};
        const auto got = lock.try_acquire(ticket);
        return !got ? failed : got->acquired ? granted : not_granted;
    });
}
int renews(const place& there, const store& in, const char* nonce, std::int64_t fence) {
    return answer(there, [&] {
        bide::durable_mutex lock(in.open(there.directory), with_lease(1h));
        const auto got = lock.renew(bide::durable_ticket{"left", nonce, 1, false, fence});
        return !got ? failed : *got ? granted : not_granted;
    });
}

} // namespace

#if BIDE_TESTS_HAVE_CONTAINERS

TEST_CASE("containers: whatever of their pids, boot ids, clocks and files they share, only one "
          "holds at a "
          "time",
          "[promise.durable-containers]") {
    struct kind {
        const char* name;
        std::vector<test::container_shape> shapes;
    };
    const test::temp_directory in("containers");
    test::container_shape ahead{
        .boottime_s = 100'000, .has_own_boot_id = false, .has_own_pids = false};
    test::container_shape further = ahead;
    further.boottime_s = 300'000;
    const kind kinds[] = {
        {"separate pids, boot ids and clocks",
         {{.boot_id = "11111111-0000-4000-8000-000000000001", .boottime_s = 100'000},
          {.boot_id = "22222222-0000-4000-8000-000000000002", .boottime_s = 300'000}}},
        {"another boot id", {{.has_own_pids = false, .has_own_time = false}}},
        {"other clocks", {ahead, further}},
        {"no boot id", {{.boot_id = ""}, {.boot_id = "", .boottime_s = 300'000}}},
        {"no /proc",
         {{.has_own_boot_id = false,
           .has_own_pids = false,
           .has_own_time = false,
           .root = in.path()}}},
    };
    for (const kind& each : kinds) {
        CAPTURE(each.name);
        std::vector<std::unique_ptr<test::container>> made;
        for (const test::container_shape& shape : each.shapes) {
            made.push_back(std::make_unique<test::container>(in, shape));
            if (!is_there(*made.back())) {
                return;
            }
        }
        std::vector<place> places{
            {"the machine", [] { return ::fork(); }, in.path()},
            inside(*made[0], "inside", made[0]->shape().root.empty() ? in.path() : "")};
        if (made.size() > 1) {
            places.push_back(elsewhere(*made[1], "inside another, at another path", in.path()));
        }
        check_among(places);
    }
}

#else

TEST_CASE("containers: there are none on this system") {
    WARN("skipped: this system has no containers");
}

#endif

// A record from before a reboot, or from before a clock was set: its times mean nothing. No
// contender acquires the lock at once, and none waits for longer than the length of the lease.
TEST_CASE("containers: a grant from before a reboot expires after the length of its lease",
          "[promise.durable-lease-clock]") {
    constexpr std::chrono::milliseconds lease = 300ms;
    constexpr std::int64_t ten_days_ms = 864'000'000;
    for (const store& in : stores()) {
        for (const char* const boot : {"another", "", "this"}) {
            CAPTURE(in.name, boot);
            const test::temp_directory directory("containers");
            const place here{"the machine", [] { return ::fork(); }, directory.path()};
            REQUIRE(steps(here, in, "a", lease) == granted);
            edit(in, directory.path(), [&](bide::durable::record& r) {
                REQUIRE(r.holders.size() == 1);
                if (std::string_view(boot) != "this") {
                    r.holders[0].from.boot = boot;
                }
                r.holders[0].expires_at += ten_days_ms;
            });
            CHECK(answer(here, [&] {
                      bide::durable_mutex lock(in.open(here.directory), with_lease(lease));
                      const std::int64_t before = boottime_ms();
                      bide::acquire_request request;
                      request.timeout = test::patience;
                      const int said = told(lock.acquire(std::move(request)));
                      const std::int64_t took = boottime_ms() - before;
                      return said == granted && took < lease.count() ? too_early : said;
                  }) == granted);
        }
    }
}

// The same, with contenders that end before the lease expires, such as cron jobs.
TEST_CASE(
    "containers: after a reboot, contenders that each live shorter than a lease acquire the lock") {
    constexpr std::chrono::milliseconds lease = 1s;
    for (const store& in : stores()) {
        for (const char* const boot : {"another", ""}) {
            for (const std::chrono::milliseconds life : {800ms, 0ms}) {
                CAPTURE(in.name, boot, life.count());
                const test::temp_directory directory("containers");
                const place here{"the machine", [] { return ::fork(); }, directory.path()};
                REQUIRE(steps(here, in, "a", lease) == granted);
                REQUIRE(steps(here, in, "b", lease) == not_granted); // it has a place in the queue
                edit(in, directory.path(), [&](bide::durable::record& r) {
                    r.holders.at(0).from.boot = r.waiters.at(0).from.boot = boot;
                });
                const std::int64_t before = boottime_ms();
                const auto took = [&] { return boottime_ms() - before; };
                int said = not_granted;
                while (said == not_granted &&
                       took() < std::chrono::milliseconds(test::patience).count()) {
                    said = answer(here, [&] {
                        bide::durable_mutex lock(in.open(here.directory), with_lease(lease));
                        bide::acquire_request request;
                        request.timeout = life;
                        return told(lock.acquire(std::move(request)));
                    });
                }
                CHECK(said == granted);
                CHECK(took() >= lease.count());
            }
        }
    }
}

TEST_CASE("containers: of the tries that fail, only the first one of a boot changes the record") {
    for (const store& in : stores()) {
        CAPTURE(in.name);
        const test::temp_directory directory("containers");
        const place here{"the machine", [] { return ::fork(); }, directory.path()};
        REQUIRE(steps(here, in, "a", 1h) == granted);
        bide::slot_version before = version_of(in, directory.path());
        CHECK(tries(here, in) == not_granted);
        CHECK(version_of(in, directory.path()) == before); // it reads the holder's times

        edit(in, directory.path(),
             [](bide::durable::record& r) { r.holders.at(0).from.boot = "another"; });
        before = version_of(in, directory.path());
        CHECK(tries(here, in) == not_granted);
        const bide::slot_version after = version_of(in, directory.path());
        CHECK(after != before);
        for (int i = 0; i < 3; ++i) {
            CHECK(tries(here, in) == not_granted);
        }
        CHECK(version_of(in, directory.path()) == after);
    }
}

#if BIDE_TESTS_HAVE_CONTAINERS

// The contenders have seen the holder for longer than its lease each time that it renews.
TEST_CASE(
    "containers: observations that brief contenders store do not end a lease that is renewed") {
    constexpr std::int64_t two_hours_ms = 7'200'000;
    const test::temp_directory in_all("containers");
    const test::container one(in_all,
                              with_boot_id("11111111-0000-4000-8000-000000000001", 100'000));
    const test::container two(in_all,
                              with_boot_id("22222222-0000-4000-8000-000000000002", 300'000));
    if (!is_there(one) || !is_there(two)) {
        return;
    }
    for (const store& in : stores()) {
        CAPTURE(in.name);
        const test::temp_directory directory("containers");
        const place of_holder = inside(one, "one", directory.path());
        const place of_contender = inside(two, "two", directory.path());
        const auto age = [&] {
            edit(in, directory.path(), [](bide::durable::record& r) {
                REQUIRE(r.holders.at(0).observed.size() == 1);
                r.holders[0].observed[0].since -= two_hours_ms;
            });
        };
        REQUIRE(steps(of_holder, in, "a", 1h) == granted);
        std::int64_t fence = 0;
        edit(in, directory.path(),
             [&](bide::durable::record& r) { fence = r.holders.at(0).fence; });
        for (int i = 0; i < 5; ++i) {
            CHECK(tries(of_contender, in) == not_granted);
            age();
            CHECK(renews(of_holder, in, "a", fence) == granted);
        }
        CHECK(tries(of_contender, in) == not_granted);
        age(); // here it stops to renew
        CHECK(tries(of_contender, in) == granted);
        CHECK(renews(of_holder, in, "a", fence) == not_granted);
    }
}

#endif

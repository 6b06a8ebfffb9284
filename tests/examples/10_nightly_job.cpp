// # 10. A nightly job
//
// A job must run on one machine at a time, and must go on the next night even if it crashed. A lock of flock(2) ends
// with its process, but is one machine's. A row "running = true" in a database outlives a crash, and
// then stands in the way of the next night. A durable lock is a record in a store with a lease: the holder renews it in the background, and if the
// holder dies, the lease ends.

#include <bide/durable/fence_gate.hpp>
#include <bide/durable/locks.hpp>
#include <bide/durable/slots/file.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace std::chrono_literals;

// The lock is a name of a file. Keep it where it survives, such as in `/var/lib`. The lease says how long others wait
// after a crash that they cannot see, such as that of a machine: 30 seconds, and a tenth more for clocks that differ. It
// is no limit for the job, because the lease is renewed.

bide::durable_mutex lock_of(const std::string& path) {
    bide::durable_options options;
    options.lease = 30s;
    return bide::durable_mutex(bide::file_slot(path), options);
}

// The job works in pieces, and asks before each piece whether it still has the lock: `lost()` is stopped when the lease
// could not be renewed in time. That is not enough. A process that was suspended for a minute may wake after the check,
// and write, while another holder works. So each write carries the fencing token of its lock, and the resource refuses a
// token that is smaller than one it has seen. Here the resource is a number behind a `fence_gate`; with a database it is
// a condition in the statement: `UPDATE ... WHERE fence <= $token`.

struct books {
    bide::fence_gate gate;
    int pieces = 0;

    bool write(std::int64_t fence) {
        if (!gate.admit(fence)) {
            return false; // a later holder was here
        }
        ++pieces;
        return true;
    }
};

bool reconcile(const bide::durable_guard& held, books& into) {
    for (int piece = 0; piece < 3; ++piece) {
        if (held.lost().stop_requested() || !into.write(held.fence())) {
            std::printf("the lock is lost after %d pieces\n", piece);
            return false;
        }
    }
    return true;
}

// The crash. A child process acquires the lock, tells its token through a pipe, and is killed in the middle of its work.
// It runs no destructor and releases nothing. A child of `fork()` may use the library; it is forked before the parent
// has any thread.

pid_t start_holder(const std::string& path, int& from_child) {
    int ends[2];
    if (::pipe(ends) != 0) {
        return -1;
    }
    const pid_t child = ::fork();
    if (child == 0) {
        bide::durable_mutex nightly = lock_of(path);
        auto held = nightly.acquire();
        const std::int64_t fence = held ? held->fence() : 0;
        if (::write(ends[1], &fence, sizeof fence) != sizeof fence) {
            std::_Exit(1);
        }
        ::alarm(60); // if the parent dies first
        for (;;) {
            ::pause(); // works, until it is killed
        }
    }
    ::close(ends[1]);
    from_child = ends[0];
    return child;
}

// While the holder lives, `try_acquire()` is an error: the job of this night does not run twice. After the kill, the
// next contender has the lock at once, because on the same machine it sees that the process has ended; it does not wait
// for the lease. On other machines it would wait until the lease is over. `acquire()` with a time-out covers both.

bool take_over(const std::string& path, pid_t holder, std::int64_t fence_of_holder, books& into) {
    bide::durable_mutex nightly = lock_of(path);
    const bool is_refused = !nightly.try_acquire();
    ::kill(holder, SIGKILL);
    ::waitpid(holder, nullptr, 0);

    bide::acquire_request patient;
    patient.timeout = 1min;
    auto held = nightly.acquire(patient);
    if (!held) {
        std::printf("not tonight: %s\n", held.error().message().c_str());
        return false;
    }
    const bool is_later = held->fence() > fence_of_holder;
    const bool done = reconcile(*held, into);
    const bool stale_is_refused = !into.write(fence_of_holder); // a late write of the killed one
    const bool released = held->release().has_value();
    std::printf("took over from a killed holder, and wrote %d pieces\n", into.pieces);
    return is_refused && is_later && done && stale_is_refused && released && into.pieces == 3;
}

int main() {
    std::string folder = (std::filesystem::temp_directory_path() / "bide_nightly_XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) {
        std::perror("no directory for the lock");
        return 1;
    }
    const std::string path = folder + "/nightly.lock";
    int from_child = -1;
    const pid_t holder = start_holder(path, from_child);
    std::int64_t fence = 0;
    books ledger;
    bool ok = holder > 0 && ::read(from_child, &fence, sizeof fence) == sizeof fence;
    ok = ok && fence != 0 && take_over(path, holder, fence, ledger);
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    return ok ? 0 : 1;
}

// Several machines need a store that all of them reach. Replace the slot by `postgres_slot`, `etcd_slot` or
// `redis_slot`; nothing else changes. If the job is shorter than the clocks of the machines differ, a second machine may
// find the lock free again: `acquire_request::at_least` keeps others out for a time after the grant. A service that
// must run on one of several machines all the time, rather than once a night, is a
// [leader election](../../include/bide/durable/README.md#leaders-several-locks-and-rates). For a job that is a command,
// `bide-lock` does all this without a program.
//
// Limits. A file slot is for the processes of one machine, and by default refuses a network file system. If the record is deleted while
// a holder lives, a second holder is admitted. The token protects only a resource that checks it.

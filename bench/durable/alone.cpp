// What one process pays alone: for a slot, for a lock, for a command under a lock, and for the rules and the record without a store.

#include "durable/job.hpp"

#include <bide/durable/expiry.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_json.hpp>
#include <bide/durable/slot.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bench {
namespace {

// ---- A slot
//
// What a slot costs: one process loads and stores a value of 300 bytes, again and again. Beside it
// what any store on this disk has to pay, one page written over and one fdatasync(2).

// One page of a file whose blocks are all there and have been written.
class bare_page {
public:
    explicit bare_page(const std::string& path)
        : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
        check(file_);
        for (int i = 0; i < 8; ++i) {
            write(i * off_t{sizeof page_});
        }
        check(::fsync(file_));
    }
    bare_page(const bare_page&) = delete;
    bare_page& operator=(const bare_page&) = delete;
    ~bare_page() { ::close(file_); }

    void load() { check_all(::pread(file_, page_, sizeof page_, 0)); }
    void store() {
        ++page_[0];
        write(0);
        check(::fdatasync(file_));
    }

private:
    void write(off_t at) { check_all(::pwrite(file_, page_, sizeof page_, at)); }
    static void check_all(ssize_t count) {
        check(count);
        if (count != sizeof page_) {
            throw std::runtime_error("a bare file: only a part of a page");
        }
    }
    static void check(ssize_t answer) {
        if (answer < 0) {
            throw std::system_error(errno, std::generic_category(), "a bare file");
        }
    }

    int file_;
    char page_[4096] = {};
};

class slot_user {
public:
    explicit slot_user(bide::slot_ref slot) : slot_(std::move(slot)) {
        load();
        store();
    }

    void load() {
        auto loaded = slot_->load();
        if (!loaded) {
            throw std::system_error(loaded.error(), "load");
        }
        version_ = loaded->version;
    }
    void store() {
        ++value_[0];
        const bide::cas_result tried = slot_->compare_exchange(version_, value_);
        if (tried.status != bide::cas_status::stored) {
            throw std::system_error(tried.error, "compare_exchange");
        }
        version_ = tried.version;
    }

private:
    bide::slot_ref slot_;
    bide::slot_version version_ = 0;
    std::string value_ = std::string(300, 'x');
};

template <class User>
void load_and_store(User& user, std::chrono::nanoseconds duration, numbers& into) {
    std::vector<std::int64_t> loads;
    std::vector<std::int64_t> stores;
    loads.reserve(1 << 16);
    stores.reserve(1 << 16);
    const std::int64_t end = now_ns() + duration.count();
    std::int64_t before = now_ns();
    while (before < end) {
        user.load();
        const std::int64_t between = now_ns();
        user.store();
        const std::int64_t after = now_ns();
        loads.push_back(between - before);
        stores.push_back(after - between);
        before = now_ns();
    }
    into.of[0] = percentile(stores, 0.5);
    into.of[1] = percentile(stores, 0.99) / 1e3;
    into.of[2] = percentile(loads, 0.5) / 1e3;
    into.of[3] = percentile(loads, 0.99) / 1e3;
}

measured measure_user(const auto& make, std::chrono::nanoseconds duration) {
    const shared_with_children<numbers> found;
    crew one(members::processes, 1, [&](std::size_t, const crew::gate&) {
        auto user = make();
        load_and_store(*user, duration, *found);
    });
    one.finish();
    return {found->of[0],
            {{"p99", found->of[1]}, {"load p50", found->of[2]}, {"load p99", found->of[3]}}};
}

// ---- A lock
//
// A lock without contenders: two changes of the record, and so, on a disk, two syncs.

measured acquire_and_release(const lock_kind& kind, std::chrono::nanoseconds duration) {
    const std::string place = begin_place(kind);
    const shared_with_children<numbers> found;
    const shared_with_children<slot_meter> meter;
    crew one(members::processes, 1, [&](std::size_t, const crew::gate&) {
        const std::unique_ptr<contender> lock = kind.join(place, *meter, {});
        std::vector<std::int64_t> acquires;
        std::vector<std::int64_t> both;
        lock->acquire();
        lock->release();
        const std::uint64_t stores = meter->stores;
        const std::int64_t end = now_ns() + duration.count();
        for (std::int64_t began = now_ns(); began < end; began = now_ns()) {
            lock->acquire();
            acquires.push_back(now_ns() - began);
            lock->release();
            both.push_back(now_ns() - began);
        }
        found->of[0] = percentile(both, 0.5);
        found->of[1] = percentile(both, 0.99) / 1e3;
        found->of[2] = percentile(acquires, 0.5) / 1e3;
        if (kind.is_ours) {
            found->of[3] =
                static_cast<double>(meter->stores - stores) / static_cast<double>(both.size());
        }
    });
    one.finish();
    return {found->of[0],
            {{"p99", found->of[1]}, {"acquire p50", found->of[2]}, {"writes", found->of[3]}}};
}

// ---- A command
//
// What a shell waits for: the lock, a program that does nothing, and the release.

void run_command(const std::string& under, const std::string& path) {
    const std::string arguments[] = {under, path, "true"};
    char* words[4] = {};
    std::transform(std::begin(arguments), std::end(arguments), words,
                   [](const std::string& word) { return const_cast<char*>(word.c_str()); });
    pid_t id = 0;
    int status = ::posix_spawnp(&id, words[0], nullptr, nullptr, words, environ);
    if (status != 0 || ::waitpid(id, &status, 0) != id || status != 0) {
        throw std::runtime_error(under + " failed");
    }
}

measured command_under(const std::string& program, std::chrono::nanoseconds duration) {
    const std::string path = work_directory::path() + "/" + work_directory::fresh_name();
    run_command(program, path); // makes the files
    std::vector<std::int64_t> times;
    const std::int64_t end = now_ns() + duration.count();
    for (std::int64_t began = now_ns(); began < end || times.size() < 9; began = now_ns()) {
        run_command(program, path);
        times.push_back(now_ns() - began);
    }
    return {percentile(times, 0.5), {{"p99", percentile(times, 0.99) / 1e3}}};
}

// ---- The rules
//
// What the rules themselves cost: a record is read, a contender put into its queue, and the record
// written, all in memory.

// As random as real ones are.
std::string nonce(std::size_t i) {
    std::mt19937_64 bits(i);
    std::string text;
    while (text.size() < 32) {
        text.push_back("0123456789abcdef"[bits() & 15]);
    }
    return text;
}

class one_step {
public:
    explicit one_step(std::size_t waiters) {
        terms_.permits = 1;
        terms_.clock = bide::lock_clock::boottime;
        terms_.max_waiters = waiters + 2;
        bide::durable::record r = bide::durable::fresh_record(terms_);
        now_ms_ = bide::durable::boottime_ms();
        for (std::size_t i = 0; i <= waiters; ++i) {
            const bide::durable::contender one{"billing-7:" + std::to_string(i), nonce(i), 1,
                                               here_};
            bide::durable::acquire(r, one, terms_, now_ms_, judge());
        }
        text_ = bide::durable::encode(r);
    }

    std::size_t size() const { return text_.size(); }
    bide::durable::record read() const {
        auto decoded = bide::durable::decode(text_);
        if (!decoded) {
            throw std::runtime_error("a record cannot be read");
        }
        return std::move(*decoded);
    }
    std::string all() const {
        bide::durable::record r = read();
        bide::durable::acquire(r, self_, terms_, now_ms_, judge());
        return bide::durable::encode(r);
    }

private:
    bide::durable::expiry_judge judge() const {
        return {bide::lock_clock::boottime, now_ms_, here_};
    }

    bide::durable::terms terms_;
    const bide::durable::origin here_ = bide::durable::this_origin(true);
    const bide::durable::contender self_{"billing-7:self", nonce(9'999'999), 1, here_};
    std::int64_t now_ms_ = 0;
    std::string text_;
};

template <class Call> double median_time(std::chrono::nanoseconds duration, Call call) {
    std::vector<std::int64_t> times;
    const std::int64_t end = now_ns() + duration.count();
    for (std::int64_t began = now_ns(); began < end || times.size() < 3; began = now_ns()) {
        call();
        times.push_back(now_ns() - began);
    }
    return percentile(std::move(times), 0.5);
}

measured step(std::size_t waiters, std::chrono::nanoseconds duration) {
    const one_step it(waiters);
    const double all = median_time(duration, [&] {
        if (it.all().empty()) {
            throw std::runtime_error("nothing was written");
        }
    });
    const double read = median_time(duration, [&] {
        if (it.read().holders.size() != 1) {
            throw std::runtime_error("the lock has no holder");
        }
    });
    return {all, {{"decode", read / 1e3}, {"bytes", static_cast<double>(it.size())}}};
}

} // namespace

void add_slots() {
    const std::chrono::nanoseconds duration = a_round(2.5);
    table t("slot", "one process stores 300 bytes; beside one page written over and fdatasync");
    add_row(t, "bare page", [duration] {
        const std::string path = work_directory::path() + "/" + work_directory::fresh_name();
        return measure_user([&] { return std::make_unique<bare_page>(path); }, duration);
    });
    for (store* const each : stores()) {
        add_row(t, each->name(), [each, duration] {
            const std::string place = begin_place(*each);
            return measure_user([&] { return std::make_unique<slot_user>(each->open(place)); },
                                duration);
        });
    }
}

void add_uncontended() {
    const std::chrono::nanoseconds duration = a_round(2.5);
    table t(
        "uncontended",
        "acquire and release by one process; flock(2) alone and pg_advisory_lock keep no record");
    for (const auto* const kinds : {&other_locks(), &our_locks()}) {
        for (const lock_kind& kind : *kinds) {
            add_row(t, kind.name,
                    [&kind, duration] { return acquire_and_release(kind, duration); });
        }
    }
}

void add_command() {
    const std::chrono::nanoseconds duration = a_round(5);
    table t("command", "flock FILE true, and bide-lock FILE true, with the start of the programs");
    add_row(t, "flock(1)", [duration] { return command_under("flock", duration); });
#if defined(BIDE_BENCH_LOCK)
    add_row(t, "bide-lock", [duration] { return command_under(BIDE_BENCH_LOCK, duration); });
#endif
}

void add_reducer() {
    const std::chrono::nanoseconds duration = a_round();
    table t("record", "decode, acquire, encode, by the number of waiters");
    constexpr std::size_t queues[] = {0, 16, 100, 1000, 10'000};
    for (const std::size_t waiters : queues) {
        if (is_short() && waiters > 1000) {
            continue;
        }
        add_row(t, std::to_string(waiters),
                [waiters, duration] { return step(waiters, duration); });
    }
}

} // namespace bench

// What a slot costs: one process loads and stores a value of 300 bytes, again and again. Beside it
// what any store on this disk has to pay, one page written over and one fdatasync(2).

#include "durable/job.hpp"
#include "durable/workloads.hpp"

#include <bide/durable/slot.hpp>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace bench {
namespace {

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
        auto loaded = slot_.load();
        if (!loaded) {
            throw std::system_error(loaded.error(), "load");
        }
        version_ = loaded->version;
    }
    void store() {
        ++value_[0];
        const bide::cas_result tried = slot_.compare_exchange(version_, value_);
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
    into.of[0] = percentile_us(stores, 0.5);
    into.of[1] = percentile_us(stores, 0.99);
    into.of[2] = percentile_us(loads, 0.5);
    into.of[3] = percentile_us(loads, 0.99);
}

sample measure_user(const auto& make, std::chrono::nanoseconds duration) {
    const shared_with_children<numbers> found;
    crew one(members::processes, 1, [&](std::size_t, const crew::gate&) {
        auto user = make();
        load_and_store(*user, duration, *found);
    });
    one.finish();
    return {std::begin(found->of), std::end(found->of)};
}

} // namespace

void add_slots(harness& h) {
    const std::chrono::nanoseconds duration = h.make_setting(250, 40).duration;
    table t{"slot",
            "one process, 300 bytes; beside one page written over and fdatasync",
            {{"CAS p50", "us", 1, true}, {"p99", "us", 0}, {"load p50", "us", 1}, {"p99", "us", 0}},
            {}};
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
    h.add(std::move(t));
}

} // namespace bench

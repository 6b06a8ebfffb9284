// What the rules themselves cost: a record is read, a contender put into its queue, and the record
// written, all in memory.

#include "durable/job.hpp"
#include "durable/workloads.hpp"

#include <bide/durable/expiry.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_json.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

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

template <class Call> double microseconds(std::chrono::nanoseconds duration, Call call) {
    std::vector<std::int64_t> times;
    const std::int64_t end = now_ns() + duration.count();
    for (std::int64_t began = now_ns(); began < end || times.size() < 3; began = now_ns()) {
        call();
        times.push_back(now_ns() - began);
    }
    return percentile_us(std::move(times), 0.5);
}

sample step(std::size_t waiters, std::chrono::nanoseconds duration) {
    const one_step it(waiters);
    const double all = microseconds(duration, [&] {
        if (it.all().empty()) {
            throw std::runtime_error("nothing was written");
        }
    });
    const double read = microseconds(duration, [&] {
        if (it.read().holders.size() != 1) {
            throw std::runtime_error("the lock has no holder");
        }
    });
    return {all, read, static_cast<double>(it.size())};
}

} // namespace

void add_reducer(harness& h) {
    const std::chrono::nanoseconds duration = h.make_setting(100, 10).duration;
    table t{"record",
            "decode, acquire, encode, by the number of waiters",
            {{"all", "us", 1}, {"decode alone", "us", 1}, {"record", "bytes", 0}},
            {}};
    constexpr std::size_t queues[] = {0, 16, 100, 1000, 10'000};
    for (const std::size_t waiters : queues) {
        if (h.opts().quick && waiters > 1000) {
            continue;
        }
        add_row(t, std::to_string(waiters),
                [waiters, duration] { return step(waiters, duration); });
    }
    h.add(std::move(t));
}

} // namespace bench

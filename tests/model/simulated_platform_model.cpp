// The library's own templates on a simulated machine of more processors than there are.

#include <bide/model/simulated_platform.hpp>

#include <bide/channel/channel.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/latch.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <support/test.hpp>

namespace {

using bide::model::machine;
using platform = bide::model::simulated_platform;

// Each thread adds to a plain count under the lock.
template <class Mutex> int counted(unsigned processors, unsigned threads) {
    Mutex lock;
    int count = 0;
    machine m(bide::model::two_socket_server(processors / 2));
    for (unsigned i = 0; i < threads; ++i) {
        m.start([&] {
            for (int k = 0; k < 50; ++k) {
                lock.lock();
                const int before = count;
                machine::here()->compute(20);
                machine::here()->now_ns(); // other threads run here
                count = before + 1;
                lock.unlock();
            }
        });
    }
    m.run();
    return count;
}

// Each item that is sent is received once.
template <class Channel> void exchange(Channel& c) {
    constexpr unsigned senders = 16, each = 50;
    std::vector<int> seen(senders * each);
    unsigned left = senders;
    machine m(bide::model::one_socket_server(32));
    for (unsigned i = 0; i < senders; ++i) {
        m.start([&, i] {
            for (unsigned k = 0; k < each; ++k) {
                REQUIRE(c.send(i * each + k));
            }
            if (--left == 0) {
                c.close();
            }
        });
        m.start([&] {
            while (const auto item = c.recv()) {
                ++seen[*item];
            }
        });
    }
    m.run();
    CHECK(std::ranges::count(seen, 1) == std::ssize(seen));
}

} // namespace

TEST_CASE("simulated_platform: locks exclude, also with more threads than processors") {
    CHECK(counted<bide::basic_mutex<platform>>(64, 64) == 64 * 50);
    CHECK(counted<bide::basic_adaptive_mutex<platform>>(64, 64) == 64 * 50);
    CHECK(counted<bide::basic_mutex<platform>>(2, 9) == 9 * 50);
    CHECK(counted<bide::basic_shared_mutex<platform>>(8, 24) == 24 * 50);
}

TEST_CASE("simulated_platform: channels lose and double no item") {
    bide::basic_channel<unsigned, platform> none(0), few(4);
    bide::basic_unbounded_channel<unsigned, platform> any;
    exchange(none);
    exchange(few);
    exchange(any);
}

TEST_CASE("simulated_platform: a wait ends at its simulated deadline") {
    bide::basic_semaphore<platform> s(0);
    bool got = true;
    machine m(bide::model::two_core_virtual());
    m.start([&] { got = s.try_acquire_for(std::chrono::milliseconds(5)); });
    m.run();
    CHECK_FALSE(got);
    CHECK(m.elapsed_ns() >= 5e6);
    CHECK(m.elapsed_ns() < 5.1e6);
}

// Code that knows nothing of the checker: the standard library's, Boost's, and a queue of a user's.

#include <bide/model/linearizable.hpp>

#include <condition_variable>
#include <deque>
#include <latch>
#include <memory>
#include <mutex>
#include <thread>

#if __has_include(<boost/lockfree/spsc_queue.hpp>)
#include <boost/lockfree/spsc_queue.hpp>
#endif

namespace {

class my_queue {
public:
    void push(int value) {
        {
            const std::lock_guard lock(mutex_);
            values_.push_back(value);
        }
        filled_.notify_one();
    }
    int pop() {
        std::unique_lock lock(mutex_);
        filled_.wait(lock, [this] { return !values_.empty(); });
        const int value = values_.front();
        values_.pop_front();
        return value;
    }

private:
    std::mutex mutex_;
    std::condition_variable filled_;
    std::deque<int> values_;
};

} // namespace

int main() {
    namespace model = bide::model;
    model::check("a queue of a user's", [] {
        const auto queue = std::make_unique<my_queue>();
        model::linearizable checked(*queue, model::spec::queue<int>());
        std::thread producer(
            [&] { checked.call("push", [](auto& q, int value) { q.push(value); }, 1); });
        checked.call("pop", [](auto& q) { return q.pop(); });
        producer.join();
    });
#if defined(_GLIBCXX_RELEASE) && _GLIBCXX_RELEASE == 12
    constexpr auto expected = model::failure::lost_wakeup; // a mistake of that version
#else
    constexpr auto expected = model::failure::none;
#endif
    const auto latch = [] {
        const auto done = std::make_unique<std::latch>(2);
        std::thread other([&] { done->count_down(); });
        done->arrive_and_wait();
        other.join();
    };
    model::find("std::latch", expected, latch);
#if __has_include(<boost/lockfree/spsc_queue.hpp>)
    model::check("boost::lockfree::spsc_queue", [] {
        const auto queue =
            std::make_unique<boost::lockfree::spsc_queue<int, boost::lockfree::capacity<1>>>();
        std::thread producer([&] { queue->push(7); });
        int value = 7;
        queue->pop(value);
        BIDE_MODEL_REQUIRE(value == 7);
        producer.join();
    });
#endif
}

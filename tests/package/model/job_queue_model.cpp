// A class of a user's on bide's mutex and channel: the platform is a parameter that it passes on.

#include <bide/channel/channel.hpp>
#include <bide/core/platform.hpp>
#include <bide/model/check.hpp>
#include <bide/sync/mutex.hpp>

#include <optional>

namespace {

// Counts what its workers have done; a worker ends when the queue is closed.
template <class Platform = bide::native_platform> class job_queue {
public:
    job_queue() : jobs_(2) {}

    void add(int job) { static_cast<void>(jobs_.send(job)); }
    void close() { jobs_.close(); }
    void work() {
        while (const auto job = jobs_.recv()) {
            mutex_.lock();
            done_ = done_ + *job;
            mutex_.unlock();
        }
    }
    int done() {
        mutex_.lock();
        const int done = done_;
        mutex_.unlock();
        return done;
    }

private:
    bide::basic_channel<int, Platform> jobs_;
    bide::basic_mutex<Platform> mutex_;
    typename Platform::template var<int> done_{0};
};

} // namespace

int main() {
    namespace model = bide::model;
    model::check("a worker takes what was added before the end", [] {
        job_queue<model::platform_without_lock_sleep> queue;
        model::thread worker([&] { queue.work(); });
        queue.add(1);
        queue.close();
        worker.join();
        BIDE_MODEL_REQUIRE(queue.done() == 1);
    });
}

// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_SUBSCRIPTION_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_SUBSCRIPTION_HPP

// One connection and one thread that listen to the channels of all watches of a server. A message
// on a channel makes the pipes of its watches readable. The first watch starts the thread, and the
// last watch ends it.
//
// The holder of the lock reads the connection. The thread reads what has arrived. The caller of
// listen() reads until the server confirms its subscription. The destructor of a watch takes no
// lock, because the lock may be held as long as a server hangs. It wakes the thread, which finds
// that the subscription has expired.
//
// If the connection is lost, its watches end: each becomes readable, and drain() returns an error.
// The next watch connects again.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/server/shared_connections.hpp>
#include <bide/sync/mutex.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// A pipe whose reading end is readable from signal() to drain().
class signal_pipe {
public:
    signal_pipe() noexcept {
        if (::pipe(ends_) != 0) {
            ends_[0] = ends_[1] = -1;
            return;
        }
        for (const int fd : ends_) {
            ::fcntl(fd, F_SETFD, FD_CLOEXEC);
            ::fcntl(fd, F_SETFL, O_NONBLOCK);
        }
    }

    signal_pipe(const signal_pipe&) = delete;
    signal_pipe& operator=(const signal_pipe&) = delete;
    ~signal_pipe() { close(); }

    // Whether the system had descriptors for the pipe.
    bool is_made() const noexcept { return ends_[0] >= 0; }
    int fd() const noexcept { return ends_[0]; }
    void signal() const noexcept { // a full pipe is readable already
        [[maybe_unused]] const ssize_t n = ::write(ends_[1], "", 1);
    }

    void drain() const noexcept {
        char some[256];
        ssize_t n = 0;
        do {
            n = ::read(ends_[0], some, sizeof some);
        } while (n > 0 || (n < 0 && errno == EINTR));
    }
    void close() noexcept {
        for (int& fd : ends_) {
            if (fd >= 0) {
                ::close(std::exchange(fd, -1));
            }
        }
    }

private:
    int ends_[2];
};

// One watch of one channel, shared by the watch and the listener. It expires with the watch.
struct server_subscription {
    explicit server_subscription(std::string of) : channel(std::move(of)) {}
    const std::string channel;
    const signal_pipe changed{};
    native_platform::atomic<bool> is_lost{false}; // no further message arrives
};

// A Connection is used by one thread at a time and has
//
//   using key = ...; explicit Connection(const key&);
//   bool is_open(); int fd(); void drop(); void disown();         as in connection_pool.hpp
//   const std::string& message();                                 the text of the last error
//   static std::error_code lost_error();                          the connection was lost
//   std::error_code subscribe(channel, deadline, heard);          connects if it is not open
//   void unsubscribe(channel);                                    never blocks
//   std::error_code hear(heard);                                  reads what has arrived
//
// and calls heard(channel) for each message. If the connection is lost, it is not open.
template <class Connection> class channel_listener {
public:
    using key = typename Connection::key;

    explicit channel_listener(const key& of) : connection_(of) {}
    channel_listener(const channel_listener&) = delete;
    channel_listener& operator=(const channel_listener&) = delete;
    ~channel_listener() {
        {
            const std::lock_guard held(lock_);
            is_over_ = true;
        }
        wake_.signal();
        if (is_running_) {
            thread_.join();
        }
    }

    // In a child of fork(): only closes the descriptors.
    void leave() noexcept {
        if (lock_.try_lock()) { // otherwise a thread of the parent was using it at fork()
            connection_.disown();
        }
        wake_.close();
    }

    // Subscribes. If it fails, `error_text` has the reason.
    // Blocks: until the server confirms the subscription, or until the deadline.
    // Throws: std::bad_alloc.
    std::error_code listen(const std::shared_ptr<server_subscription>& added, deadline end,
                           std::string& error_text) {
        if (!added->changed.is_made() || !wake_.is_made()) {
            return std::make_error_code(std::errc::too_many_files_open);
        }
        if (!lock_.try_lock_until(
                std::chrono::steady_clock::time_point(std::chrono::nanoseconds(end.steady_ns())))) {
            error_text = "other watches have the connection";
            return std::make_error_code(std::errc::timed_out);
        }
        const std::lock_guard held(lock_, std::adopt_lock);
        hear(); // finds out whether the connection has ended
        std::error_code error;
        if (!connection_.is_open() ||
            std::find(channels_.begin(), channels_.end(), added->channel) == channels_.end()) {
            error = connection_.subscribe(added->channel, end, heard());
            if (!error) {
                channels_.push_back(added->channel);
            }
        }
        if (!error) {
            all_.push_back(added);
        }
        hear(); // what arrived with the confirmation: poll() does not report it
        if (!error && !is_running_) {
            error = thread_.start(&run, this);
            is_running_ = !error;
        }
        if (error) {
            error_text = connection_.message();
        }
        wake_.signal(); // the thread polls the new connection
        return error;
    }

    // Wakes the thread, because a subscription has expired. Takes no lock.
    void wake() const noexcept { wake_.signal(); }

private:
    // These, except run(), require the lock.
    auto heard() noexcept {
        return [this](std::string_view channel) {
            for (const std::weak_ptr<server_subscription>& each : all_) {
                const std::shared_ptr<server_subscription> living = each.lock();
                if (living != nullptr && living->channel == channel) {
                    living->changed.signal();
                }
            }
        };
    }

    void hear() {
        if (connection_.is_open()) {
            static_cast<void>(connection_.hear(heard()));
        }
        if (!connection_.is_open()) {
            lose_all();
        }
    }
    // Unsubscribes from channels without a watch.
    void unsubscribe_gone() {
        std::erase_if(all_, [](const auto& each) { return each.expired(); });
        std::erase_if(channels_, [this](const std::string& channel) {
            const bool is_wanted = std::any_of(all_.begin(), all_.end(), [&](const auto& each) {
                const std::shared_ptr<server_subscription> living = each.lock();
                return living != nullptr && living->channel == channel;
            });
            if (!is_wanted && connection_.is_open()) {
                connection_.unsubscribe(channel);
            }
            return !is_wanted;
        });
    }

    // Drops the connection and ends all subscriptions.
    void lose_all() noexcept {
        connection_.drop();
        for (const std::weak_ptr<server_subscription>& each : all_) {
            if (const std::shared_ptr<server_subscription> it = each.lock()) {
                // Order: release [subscription.lost]; the watch is signalled after it.
                it->is_lost.store(true, std::memory_order_release);
                it->changed.signal();
            }
        }
        all_.clear();
        channels_.clear();
    }

    static void run(void* self) noexcept {
        channel_listener& mine = *static_cast<channel_listener*>(self);
        os_thread::name_this("bide-listen", "", 0);
        for (;;) {
            pollfd polled[2] = {{mine.wake_.fd(), POLLIN, 0}, {-1, POLLIN, 0}};
            {
                const std::lock_guard held(mine.lock_);
                if (mine.is_over_) {
                    return;
                }
                mine.wake_.drain();
                const bool has_memory = try_to([&mine] {
                    mine.unsubscribe_gone();
                    mine.hear();
                });
                if (!has_memory) { // the watches end, and their users make new ones
                    mine.lose_all();
                }
                polled[1].fd = mine.connection_.is_open() ? mine.connection_.fd() : -1;
            }
            ::poll(polled, 2, -1);
        }
    }

    signal_pipe wake_;
    mutex lock_;
    bool is_over_ = false; // under lock_, like the members below
    Connection connection_;
    std::vector<std::weak_ptr<server_subscription>> all_;
    std::vector<std::string> channels_; // that the server was asked for
    bool is_running_ = false;
    os_thread thread_; // started under lock_; joined by the destructor
};

// A watch of one channel, on the connection that all watches of a server share.
template <class Connection> class channel_watch final : public slot_watch {
public:
    using listener = shared_in_process<channel_listener<Connection>>;

    // Makes a watch. If it fails, `error_text` has the reason.
    static result<std::unique_ptr<slot_watch>, std::error_code>
    make(typename Connection::key at, std::string channel, deadline end, std::string& error_text) {
        auto made = std::make_unique<channel_watch>(std::move(at), std::move(channel));
        if (const std::error_code error =
                made->from_.get().listen(made->subscription_, end, error_text)) {
            return unexpected{error};
        }
        return std::unique_ptr<slot_watch>(std::move(made));
    }

    channel_watch(typename Connection::key at, std::string channel)
        : from_(std::move(at)),
          subscription_(std::make_shared<server_subscription>(std::move(channel))) {}
    ~channel_watch() override {
        subscription_.reset();
        if (owner_ == ::getpid()) {
            from_.get().wake();
        }
    }

    int fd() const noexcept override { return subscription_->changed.fd(); }

    std::error_code drain() noexcept override {
        if (owner_ != ::getpid()) {
            return std::make_error_code(std::errc::operation_not_permitted);
        }
        subscription_->changed.drain();
        // Order: acquire [subscription.lost]; the listener signals the pipe after the change.
        return subscription_->is_lost.load(std::memory_order_acquire) ? Connection::lost_error()
                                                                      : std::error_code();
    }

private:
    listener from_; // keeps the listener alive, so that get() returns it
    std::shared_ptr<server_subscription> subscription_;
    const pid_t owner_ = ::getpid();
};

}}} // namespace bide::BIDE_ABI::detail

#endif

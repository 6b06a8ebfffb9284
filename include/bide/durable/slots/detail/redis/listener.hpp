// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_LISTENER_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_LISTENER_HPP

// One connection and one thread that listen to the channels of all watches of a target. A message
// on a channel makes the pipes of its watches readable. The first watch starts the thread, and the
// last watch ends it.
//
// The holder of the lock reads the connection. The thread reads what has arrived. The caller of
// listen() reads until the server confirms its subscription. The destructor of a watch takes no
// lock, because the lock may be held as long as a server hangs. It wakes the thread, which finds
// that the subscription has expired.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/slots/detail/redis/connection.hpp>
#include <bide/durable/slots/detail/redis/reply.hpp>
#include <bide/durable/slots/detail/redis/target.hpp>
#include <bide/durable/slots/detail/server/signal_pipe.hpp>
#include <bide/durable/slots/detail/server/store_error_text.hpp>
#include <bide/sync/mutex.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <poll.h>

namespace bide::inline BIDE_ABI {
namespace detail {

class redis_listener {
public:
    using key = redis_target;

    // Shared by a watch and the listener. It expires with the watch.
    struct subscription {
        signal_pipe changed;
        native_platform::atomic<bool> is_lost{false}; // no further message arrives
    };

    explicit redis_listener(const key& of) : target_(of) {}
    redis_listener(const redis_listener&) = delete;
    redis_listener& operator=(const redis_listener&) = delete;
    ~redis_listener() {
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
        connection_.close_descriptor();
        wake_.close();
    }

    // Subscribes to a channel. If it fails, `error_text` has the reason.
    // Blocks: until the server confirms the subscription, or until the deadline.
    // Throws: std::bad_alloc.
    result<std::shared_ptr<subscription>, std::error_code>
    listen(const std::string& channel, deadline end, std::string& error_text);

    // Wakes the thread, because a subscription has expired. Takes no lock.
    void wake() const noexcept { wake_.signal(); }

private:
    // These, except run(), require the lock.
    std::error_code subscribe(const std::string& channel, deadline end, std::string& error_text);
    std::error_code confirm(const std::string& channel, deadline end, std::string& error_text);
    std::error_code read_one(deadline end, std::string_view& kind, std::string& channel);
    void read_all();
    void unsubscribe_gone();
    void lose_all() noexcept;

    static void run(void* self) noexcept;
    int serve() noexcept;

    const redis_target target_;
    signal_pipe wake_;
    mutex lock_;
    bool is_over_ = false;                                                     // under lock_
    redis_connection connection_;                                              // under lock_
    std::map<std::string, std::vector<std::weak_ptr<subscription>>> channels_; // under lock_
    redis_reply last_;                                                         // under lock_
    bool is_running_ = false;                                                  // under lock_
    os_thread thread_; // started under lock_; joined by the destructor
};

// ---- implementation

inline result<std::shared_ptr<redis_listener::subscription>, std::error_code>
redis_listener::listen(const std::string& channel, deadline end, std::string& error_text) {
    auto added = std::make_shared<subscription>();
    if (!added->changed.is_made() || !wake_.is_made()) {
        return unexpected{std::make_error_code(std::errc::too_many_files_open)};
    }
    const auto until =
        std::chrono::steady_clock::time_point(std::chrono::nanoseconds(end.steady_ns()));
    if (!lock_.try_lock_until(until)) {
        error_text = "the connection is in use";
        return unexpected{std::make_error_code(std::errc::timed_out)};
    }
    const std::lock_guard held(lock_, std::adopt_lock);
    read_all(); // finds out whether the connection has ended
    if (const std::error_code error = subscribe(channel, end, error_text)) {
        return unexpected{error};
    }
    channels_[channel].push_back(added);
    read_all(); // what arrived with the confirmation: poll() does not report it
    if (!is_running_) {
        if (const std::error_code error = thread_.start(&run, this)) {
            return unexpected{error};
        }
        is_running_ = true;
    }
    wake_.signal(); // the thread polls the new connection
    return added;
}

inline std::error_code redis_listener::subscribe(const std::string& channel, deadline end,
                                                 std::string& error_text) {
    if (connection_.is_open() && channels_.contains(channel)) {
        return {};
    }
    auto request = redis_connection::request({"SUBSCRIBE", channel});
    if (!request) {
        return request.error();
    }
    if (!connection_.is_open()) {
        std::vector<redis_reply> replies;
        if (const std::error_code error = connection_.open(target_, {*request}, replies, end)) {
            error_text = connection_.error_text();
            return error;
        }
        if (replies[0]->type == REDIS_REPLY_ERROR) {
            error_text = without_secret(one_line(redis_text(*replies[0])), target_.password);
            const std::error_code error = redis_error(*replies[0]);
            connection_.drop();
            return error;
        }
        return {};
    }
    std::error_code error = connection_.send(*request, end);
    if (!error) {
        error = confirm(channel, end, error_text);
    }
    return error;
}

// Reads until the server confirms the subscription. If reading fails, ends all subscriptions.
inline std::error_code redis_listener::confirm(const std::string& channel, deadline end,
                                               std::string& error_text) {
    for (;;) {
        std::string_view kind;
        std::string of;
        const std::error_code error = read_one(end, kind, of);
        if (!error && kind == "subscribe" && of == channel) {
            return {};
        }
        if (!error && kind == "error") {
            error_text = without_secret(one_line(redis_text(*last_)), target_.password);
            return redis_error(*last_); // the subscriptions of other channels continue
        }
        if (error) {
            error_text = connection_.error_text();
            lose_all();
            return error;
        }
    }
}

// Reads one reply. If it is a message, signals the watches of its channel. timed_out: no reply.
inline std::error_code redis_listener::read_one(deadline end, std::string_view& kind,
                                                std::string& channel) {
    auto reply = connection_.receive(end);
    if (!reply) {
        return reply.error();
    }
    last_ = *std::move(reply);
    if (last_->type == REDIS_REPLY_ERROR) {
        kind = "error";
        return {};
    }
    if (last_->type != REDIS_REPLY_ARRAY || last_->elements < 2) {
        return std::make_error_code(std::errc::protocol_error);
    }
    kind = redis_text(*last_->element[0]);
    channel = redis_text(*last_->element[1]);
    const auto found = channels_.find(channel);
    if (kind == "message" && found != channels_.end()) {
        for (const std::weak_ptr<subscription>& each : found->second) {
            if (const std::shared_ptr<subscription> it = each.lock()) {
                it->changed.signal();
            }
        }
    }
    return {};
}

inline void redis_listener::read_all() {
    while (connection_.is_open()) {
        std::string_view kind;
        std::string channel;
        const std::error_code error = read_one(deadline::poll(), kind, channel);
        if (error == std::errc::timed_out) {
            return;
        }
        if (error) {
            lose_all();
        }
    }
}

// Unsubscribes from channels without a watch.
inline void redis_listener::unsubscribe_gone() {
    for (auto each = channels_.begin(); each != channels_.end();) {
        std::erase_if(each->second, [](const auto& each_one) { return each_one.expired(); });
        if (!each->second.empty()) {
            ++each;
            continue;
        }
        const auto request = redis_connection::request({"UNSUBSCRIBE", each->first});
        each = channels_.erase(each);
        if (connection_.is_open() && (!request || connection_.send(*request, deadline::poll()))) {
            lose_all();
            return;
        }
    }
}

// Drops the connection and ends all subscriptions.
inline void redis_listener::lose_all() noexcept {
    connection_.drop();
    for (const auto& [channel, subscriptions] : channels_) {
        for (const std::weak_ptr<subscription>& each : subscriptions) {
            if (const std::shared_ptr<subscription> it = each.lock()) {
                // Order: release [redis_listener.lost]; the watch is signalled after it.
                it->is_lost.store(true, std::memory_order_release);
                it->changed.signal();
            }
        }
    }
    channels_.clear();
}

// Handles what has arrived. Returns the descriptor to poll, or -1.
inline int redis_listener::serve() noexcept {
    const bool has_memory = try_to([this] {
        unsubscribe_gone();
        read_all();
    });
    if (!has_memory) { // the watches end, and their users make new ones
        lose_all();
    }
    return connection_.is_open() ? connection_.fd() : -1;
}

inline void redis_listener::run(void* self) noexcept {
    redis_listener& mine = *static_cast<redis_listener*>(self);
    os_thread::name_this("bide-listen", "", 0);
    for (;;) {
        pollfd polled[2] = {{mine.wake_.fd(), POLLIN, 0}, {-1, POLLIN, 0}};
        {
            const std::lock_guard held(mine.lock_);
            if (mine.is_over_) {
                return;
            }
            mine.wake_.drain();
            polled[1].fd = mine.serve();
        }
        ::poll(polled, 2, -1);
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif

#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_LISTENER_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_LISTENER_HPP

// One connection, and one thread, that listen to the channels of all watches of a target. What comes
// for a channel makes the pipes of its watches readable. The thread comes with the first watch and
// goes with the last.
//
// Whoever has the lock reads: the thread what has come, and a watch that is being made until its
// subscription is confirmed. A watch that goes takes no lock, as that may be held for as long as a
// server hangs: it wakes the thread, which finds the pipe gone.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/slots/detail/redis_connection.hpp>
#include <bide/durable/slots/detail/redis_reply.hpp>
#include <bide/durable/slots/detail/redis_target.hpp>
#include <bide/durable/slots/detail/store_error_text.hpp>
#include <bide/sync/mutex.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

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

    bool is_made() const noexcept { return ends_[0] >= 0; }
    int fd() const noexcept { return ends_[0]; }
    void signal() const noexcept { // full: it is readable already
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

class redis_listener {
public:
    using key = redis_target;

    // What a watch and the listener share.
    struct mailbox {
        signal_pipe told;
        native_platform::atomic<bool> is_cut{false}; // nothing comes any more
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

    // In a child of fork(): the descriptors only.
    void leave() noexcept {
        connection_.close_descriptor();
        wake_.close();
    }

    // Blocks: until the server confirms that it will tell, or the deadline. What goes wrong is said
    // in `words`.
    // Throws: std::bad_alloc.
    result<std::shared_ptr<mailbox>, std::error_code> listen(const std::string& channel,
                                                             deadline end, std::string& error_text);

    // A mailbox is gone. Takes no lock.
    void look() const noexcept { wake_.signal(); }

private:
    // With the lock, all of them.
    std::error_code subscribe(const std::string& channel, deadline end, std::string& error_text);
    std::error_code confirm(const std::string& channel, deadline end, std::string& error_text);
    std::error_code read_one(deadline end, std::string_view& kind, std::string& channel);
    void read_all();
    void forget_gone();
    void cut() noexcept;

    static void run(void* self) noexcept;
    int look_at() noexcept;

    const redis_target target_;
    signal_pipe wake_;
    mutex lock_;
    bool is_over_ = false;                                                // under lock_
    redis_connection connection_;                                         // under lock_
    std::map<std::string, std::vector<std::weak_ptr<mailbox>>> channels_; // under lock_
    redis_reply last_;                                                    // under lock_
    bool is_running_ = false;                                             // under lock_
    os_thread thread_; // started under lock_; joined by the destructor
};

// ---- implementation

inline result<std::shared_ptr<redis_listener::mailbox>, std::error_code>
redis_listener::listen(const std::string& channel, deadline end, std::string& error_text) {
    auto box = std::make_shared<mailbox>();
    if (!box->told.is_made() || !wake_.is_made()) {
        return unexpected{std::make_error_code(std::errc::too_many_files_open)};
    }
    const auto until =
        std::chrono::steady_clock::time_point(std::chrono::nanoseconds(end.steady_ns()));
    if (!lock_.try_lock_until(until)) {
        error_text = "the connection is in use";
        return unexpected{std::make_error_code(std::errc::timed_out)};
    }
    const std::lock_guard held(lock_, std::adopt_lock);
    read_all(); // a connection that has ended is found out here
    if (const std::error_code error = subscribe(channel, end, error_text)) {
        return unexpected{error};
    }
    channels_[channel].push_back(box);
    read_all(); // what came with the confirmation, and makes no descriptor readable
    if (!is_running_) {
        if (const std::error_code error = thread_.start(&run, this)) {
            return unexpected{error};
        }
        is_running_ = true;
    }
    wake_.signal(); // for the thread to look at the connection that there is now
    return box;
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

// Reads on until it is confirmed. A connection on which that fails is given up by all.
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
            return redis_error(*last_); // the other channels are as they were
        }
        if (error) {
            error_text = connection_.error_text();
            cut();
            return error;
        }
    }
}

// Reads one reply, and tells the watches where it is a message. timed_out: there is none.
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
        for (const std::weak_ptr<mailbox>& each : found->second) {
            if (const std::shared_ptr<mailbox> box = each.lock()) {
                box->told.signal();
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
            cut();
        }
    }
}

// Unsubscribes from channels that no watch is left of.
inline void redis_listener::forget_gone() {
    for (auto each = channels_.begin(); each != channels_.end();) {
        std::erase_if(each->second, [](const auto& box) { return box.expired(); });
        if (!each->second.empty()) {
            ++each;
            continue;
        }
        const auto request = redis_connection::request({"UNSUBSCRIBE", each->first});
        each = channels_.erase(each);
        if (connection_.is_open() && (!request || connection_.send(*request, deadline::poll()))) {
            cut();
            return;
        }
    }
}

// All watches hear of it, and none is told anything any more.
inline void redis_listener::cut() noexcept {
    connection_.drop();
    for (const auto& [channel, boxes] : channels_) {
        for (const std::weak_ptr<mailbox>& each : boxes) {
            if (const std::shared_ptr<mailbox> box = each.lock()) {
                // Order: release [RL1]; it is cut when the watch finds that it was told.
                box->is_cut.store(true, std::memory_order_release);
                box->told.signal();
            }
        }
    }
    channels_.clear();
}

// What has come. The descriptor to look at next, or -1.
inline int redis_listener::look_at() noexcept {
#if BIDE_EXCEPTIONS
    try {
        forget_gone();
        read_all();
    } catch (...) { // no memory: the watches look again, and make new ones
        cut();
    }
#else
    forget_gone();
    read_all();
#endif
    return connection_.is_open() ? connection_.fd() : -1;
}

inline void redis_listener::run(void* self) noexcept {
    redis_listener& mine = *static_cast<redis_listener*>(self);
    os_thread::name_this("bide-listen", "", 0);
    for (;;) {
        pollfd looked[2] = {{mine.wake_.fd(), POLLIN, 0}, {-1, POLLIN, 0}};
        {
            const std::lock_guard held(mine.lock_);
            if (mine.is_over_) {
                return;
            }
            mine.wake_.drain();
            looked[1].fd = mine.look_at();
        }
        ::poll(looked, 2, -1);
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif

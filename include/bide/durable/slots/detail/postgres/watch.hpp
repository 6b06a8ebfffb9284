// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_WATCH_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_WATCH_HPP

// Watches of channels. All watches of a process with the same connection string share one
// connection that listens to their channels.
//
// The lease monitor's thread reads the connection when it is readable, and signals each watch whose
// channel is named. This reading never blocks. While watch() asks the server to listen to a further
// channel, its caller has the turn and reads the notifications. If the lease monitor finds the turn
// taken, it sets is_missed, and the caller reads once more before it ends the turn.
//
// If the connection is lost, its watches end: each becomes readable, and drain() returns an error.
// The next watch() connects again.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/lease_monitor.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/postgres/connection.hpp>
#include <bide/durable/slots/detail/server/shared_connections.hpp>
#include <bide/durable/slots/detail/server/signal_pipe.hpp>
#include <bide/sync/mutex.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <libpq-fe.h>
#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

class postgres_listener {
public:
    using key = postgres_connection::key;

    explicit postgres_listener(const key& of) : core_(std::make_shared<core>(of)) {}
    postgres_listener(const postgres_listener&) = delete;
    postgres_listener& operator=(const postgres_listener&) = delete;
    ~postgres_listener() { core_->end(); }

    void leave() noexcept { core_->leave(); }

    // One watch of one channel.
    struct subscription {
        explicit subscription(std::string to) : channel(std::move(to)) {}
        const std::string channel;
        const signal_pipe changed{};
        bool is_lost = false; // under the listener's lock: the connection was lost
    };

    // Blocks: until the server listens, or the deadline.
    std::error_code add(const std::shared_ptr<subscription>& one, postgres_deadline until,
                        std::string& error_text) {
        return core_->add(one, until, error_text);
    }
    void remove(const std::shared_ptr<subscription>& one) noexcept { core_->remove(one); }
    bool is_lost(const subscription& one) const {
        const std::lock_guard held(core_->lock);
        return one.is_lost;
    }

private:
    struct core final : monitor_client, std::enable_shared_from_this<core> {
        explicit core(const key& of) : link(of) {}

        void happened() noexcept override {
            {
                const std::lock_guard held(turn_end);
                is_missed = !turn.try_lock();
                if (is_missed) {
                    return;
                }
            }
            read_notifications();
            end_turn();
        }

        std::error_code add(const std::shared_ptr<subscription>& one, postgres_deadline until,
                            std::string& error_text);
        std::error_code listen(const std::shared_ptr<subscription>& one, postgres_deadline until);
        void remove(const std::shared_ptr<subscription>& one) noexcept;
        void leave() noexcept {
            if (turn.try_lock()) { // otherwise a thread of the parent was changing it at fork()
                link.disown();
                close_watched();
            }
        }
        void end() noexcept {
            const std::lock_guard held(turn);
            lose_all();
            link.drop();
        }

        // The next three functions require the turn.
        //
        // Signals the watches whose channels are named in the notifications that have arrived.
        void read_notifications() noexcept;
        // Ends all subscriptions, because the connection is lost.
        void lose_all() noexcept;
        void close_watched() noexcept {
            if (watched_fd >= 0) {
                ::close(std::exchange(watched_fd, -1));
            }
        }
        // Ends the turn. If the lease monitor found it taken, reads the notifications first.
        void end_turn() noexcept;

        mutex turn;
        postgres_connection link;          // in turn
        std::vector<std::string> listened; // in turn: the channels that the server was asked for
        int watched_fd = -1; // in turn: the lease monitor's own descriptor of the connection
        postgres_connection::identity watched_link{}; // in turn: whose watched_fd is
        mutex turn_end;                               // held while a turn ends
        bool is_missed = false; // under turn_end: the lease monitor found the turn taken
        mutable mutex lock;
        std::vector<std::shared_ptr<subscription>> subscriptions; // under lock
    };

    std::shared_ptr<core> core_;
};

inline std::error_code postgres_listener::core::add(const std::shared_ptr<subscription>& one,
                                                    postgres_deadline until,
                                                    std::string& error_text) {
    if (!one->changed.is_made()) {
        return {EMFILE, std::generic_category()};
    }
    if (!turn.try_lock_until(until)) {
        error_text = "no free connection in time: other calls of this process had it";
        return std::make_error_code(std::errc::timed_out);
    }
    struct turn_ender {
        core* of;
        ~turn_ender() {
            of->read_notifications();
            of->end_turn();
        }
    } const ender{this};
    const std::error_code error = listen(one, until);
    error_text = link.message();
    return error;
}

inline std::error_code postgres_listener::core::listen(const std::shared_ptr<subscription>& one,
                                                       postgres_deadline until) {
    read_notifications();
    if (const std::error_code error = link.make_ready(until)) {
        lose_all();
        return error;
    }
    if (std::exchange(watched_link, link.id()) != link.id()) {
        lose_all(); // the subscriptions are of an earlier connection
    }
    if (watched_fd < 0) { // a descriptor of its own: libpq may close its socket at any time
        watched_fd = ::fcntl(::PQsocket(link.native()), F_DUPFD_CLOEXEC, 0);
        if (watched_fd < 0 || !lease_monitor::here().add(watched_fd, shared_from_this())) {
            close_watched();
            link.drop();
            return std::make_error_code(std::errc::too_many_files_open);
        }
    }
    std::string script;
    const auto is_wanted = [this](const std::string& channel) {
        const std::lock_guard held(lock);
        return std::any_of(subscriptions.begin(), subscriptions.end(),
                           [&](const auto& each) { return each->channel == channel; });
    };
    std::erase_if(listened, [&](const std::string& channel) {
        if (is_wanted(channel)) {
            return false;
        }
        script += "UNLISTEN " + channel + "; ";
        return true;
    });
    {
        const std::lock_guard held(lock);
        subscriptions.push_back(one); // before the server can send a notification
    }
    listened.push_back(one->channel);
    const postgres_reply reply = link.run_script(script + "LISTEN " + one->channel, until);
    if (reply.error) { // it is unknown what the server listens to
        lose_all();
        link.drop();
        remove(one);
    }
    return reply.error;
}

inline void postgres_listener::core::remove(const std::shared_ptr<subscription>& one) noexcept {
    const std::lock_guard held(lock);
    std::erase(subscriptions, one); // the next listen() sends UNLISTEN
}

inline void postgres_listener::core::end_turn() noexcept {
    for (;;) {
        if (watched_fd >= 0) {
            lease_monitor::here().rearm(watched_fd);
        }
        {
            const std::lock_guard held(turn_end);
            if (!std::exchange(is_missed, false)) {
                turn.unlock();
                return;
            }
        }
        read_notifications();
    }
}

inline void postgres_listener::core::read_notifications() noexcept {
    PGconn* const pq = link.native();
    if (pq == nullptr || ::PQconsumeInput(pq) == 0) {
        lose_all();
        return;
    }
    while (PGnotify* const each = ::PQnotifies(pq)) {
        const std::lock_guard held(lock);
        for (const auto& subscription : subscriptions) {
            if (subscription->channel == each->relname) {
                subscription->changed.signal();
            }
        }
        ::PQfreemem(each);
    }
}

inline void postgres_listener::core::lose_all() noexcept {
    if (watched_fd >= 0) {
        lease_monitor::here().remove(watched_fd);
        close_watched();
    }
    listened.clear();
    const std::lock_guard held(lock);
    for (const auto& subscription : subscriptions) {
        subscription->is_lost = true;
        subscription->changed.signal();
    }
    subscriptions.clear();
}

class postgres_watch final : public slot_watch {
public:
    postgres_watch(const postgres_connection::key& at, std::string channel)
        : listener_(at),
          subscription_(std::make_shared<postgres_listener::subscription>(std::move(channel))) {}
    ~postgres_watch() override {
        if (is_mine() && is_listening_) {
            listener_.get().remove(subscription_);
        }
    }

    // Subscribes. The only operation that blocks.
    std::error_code begin(postgres_deadline until, std::string& error_text) {
        const std::error_code error = listener_.get().add(subscription_, until, error_text);
        is_listening_ = !error;
        return error;
    }

    int fd() const noexcept override { return subscription_->changed.fd(); }

    std::error_code drain() noexcept override {
        if (!is_mine()) {
            return std::make_error_code(
                std::errc::operation_not_permitted); // it belongs to the parent
        }
        subscription_->changed.drain();
        return listener_.get().is_lost(*subscription_) ? postgres_error("08006")
                                                       : std::error_code();
    }

private:
    bool is_mine() const noexcept { return process_ == ::getpid(); }

    shared_in_process<postgres_listener> listener_;
    const std::shared_ptr<postgres_listener::subscription> subscription_;
    const pid_t process_ = ::getpid();
    bool is_listening_ = false;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif

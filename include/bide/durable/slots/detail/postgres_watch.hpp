#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_WATCH_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_WATCH_HPP

// Watches of channels. All watches of a process with the same connection string share a connection
// that listens for them.
//
// The vigil's thread reads the connection when it is readable, and rings the bell of each watch
// whose channel is named. The reading never blocks. While watch() asks the server to listen to one
// more channel, its caller has the turn and reads what comes. If the vigil finds the turn taken, it
// notes that, and the caller reads once more before it gives the turn back.
//
// A connection that is lost ends its watches: each is readable, and drain() says so. The next
// watch() connects anew.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/vigil.hpp>
#include <bide/durable/detail/watched.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/postgres_connection.hpp>
#include <bide/durable/slots/detail/shared_connections.hpp>
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

// A pipe with a byte in it from the first signal after a clear() on.
class postgres_bell {
public:
    postgres_bell() {
        if (::pipe(ends_) != 0) {
            ends_[0] = ends_[1] = -1;
            return;
        }
        for (const int end : ends_) {
            ::fcntl(end, F_SETFD, FD_CLOEXEC);
            ::fcntl(end, F_SETFL, O_NONBLOCK);
        }
    }
    postgres_bell(const postgres_bell&) = delete;
    postgres_bell& operator=(const postgres_bell&) = delete;
    ~postgres_bell() {
        if (ends_[0] >= 0) {
            ::close(ends_[0]);
            ::close(ends_[1]);
        }
    }
    int fd() const noexcept { return ends_[0]; }
    void ring() const noexcept {
        [[maybe_unused]] const ssize_t n = ::write(ends_[1], "", 1); // a full pipe has rung
    }
    void clear() const noexcept {
        char some[256];
        while (::read(ends_[0], some, sizeof some) > 0) {
        }
    }

private:
    int ends_[2];
};

class postgres_listener {
public:
    using key = postgres_connection::key;

    explicit postgres_listener(const key& of) : core_(std::make_shared<core>(of)) {}
    postgres_listener(const postgres_listener&) = delete;
    postgres_listener& operator=(const postgres_listener&) = delete;
    ~postgres_listener() { core_->end(); }

    void leave() noexcept { core_->leave(); }

    // One channel's.
    struct ear {
        explicit ear(std::string to) : channel(std::move(to)) {}
        const std::string channel;
        const postgres_bell bell{};
        bool is_deaf = false; // under the listener's lock
    };

    // Blocks: until the server listens, or the deadline.
    std::error_code add(const std::shared_ptr<ear>& one, postgres_deadline until,
                        std::string& words) {
        return core_->add(one, until, words);
    }
    void remove(const std::shared_ptr<ear>& one) noexcept { core_->remove(one); }
    bool is_deaf(const ear& one) const {
        const std::lock_guard held(core_->lock);
        return one.is_deaf;
    }

private:
    struct core final : watched, std::enable_shared_from_this<core> {
        explicit core(const key& of) : link(of) {}

        void happened() noexcept override {
            {
                const std::lock_guard held(door);
                is_missed = !turn.try_lock();
                if (is_missed) {
                    return;
                }
            }
            take_in();
            give_back();
        }

        std::error_code add(const std::shared_ptr<ear>& one, postgres_deadline until,
                            std::string& words);
        std::error_code listen(const std::shared_ptr<ear>& one, postgres_deadline until);
        void remove(const std::shared_ptr<ear>& one) noexcept;
        void leave() noexcept {
            if (turn.try_lock()) { // or a thread of the parent was about to change it
                link.disown();
                close_watched();
            }
        }
        void end() noexcept {
            const std::lock_guard held(turn);
            forget();
            link.drop();
        }

        // In its turn, all. Reads what the server has said so far.
        void take_in() noexcept;
        void forget() noexcept;
        void close_watched() noexcept {
            if (watched_fd >= 0) {
                ::close(std::exchange(watched_fd, -1));
            }
        }
        // Ends the turn, and looks again where the vigil found it taken.
        void give_back() noexcept;

        mutex turn;
        postgres_connection link;       // in turn
        std::vector<std::string> heard; // in turn: the channels that the server was asked for
        int watched_fd = -1;            // in turn: the vigil's own descriptor of the connection
        postgres_connection::identity watched_link{}; // in turn: whose watched_fd is
        mutex door;                     // over the end of a turn
        bool is_missed = false;         // under door: the vigil found the turn taken
        mutable mutex lock;
        std::vector<std::shared_ptr<ear>> ears; // under lock
    };

    std::shared_ptr<core> core_;
};

inline std::error_code postgres_listener::core::add(const std::shared_ptr<ear>& one,
                                                    postgres_deadline until, std::string& words) {
    if (one->bell.fd() < 0) {
        return {EMFILE, std::generic_category()};
    }
    if (!turn.try_lock_until(until)) {
        words = "other calls of this process had the connection for all the time";
        return std::make_error_code(std::errc::timed_out);
    }
    struct ended {
        core* of;
        ~ended() {
            of->take_in();
            of->give_back();
        }
    } const ended_turn{this};
    const std::error_code error = listen(one, until);
    words = link.message();
    return error;
}

inline std::error_code postgres_listener::core::listen(const std::shared_ptr<ear>& one,
                                                       postgres_deadline until) {
    take_in();
    if (const std::error_code error = link.make_ready(until)) {
        forget();
        return error;
    }
    if (std::exchange(watched_link, link.id()) != link.id()) {
        forget(); // it was another connection until now
    }
    if (watched_fd < 0) { // libpq may close its own at any time, and the number be another file's
        watched_fd = ::fcntl(::PQsocket(link.native()), F_DUPFD_CLOEXEC, 0);
        if (watched_fd < 0 || !vigil::here().add(watched_fd, shared_from_this())) {
            close_watched();
            link.drop();
            return std::make_error_code(std::errc::too_many_files_open);
        }
    }
    std::string script;
    const auto is_wanted = [this](const std::string& channel) {
        const std::lock_guard held(lock);
        return std::any_of(ears.begin(), ears.end(),
                           [&](const auto& each) { return each->channel == channel; });
    };
    std::erase_if(heard, [&](const std::string& channel) {
        if (is_wanted(channel)) {
            return false;
        }
        script += "UNLISTEN " + channel + "; ";
        return true;
    });
    {
        const std::lock_guard held(lock);
        ears.push_back(one); // from the first word of the server on
    }
    heard.push_back(one->channel);
    const postgres_reply reply = link.run_script(script + "LISTEN " + one->channel, until);
    if (reply.error) { // no use of a connection of which nobody knows what it hears
        forget();
        link.drop();
        remove(one);
    }
    return reply.error;
}

inline void postgres_listener::core::remove(const std::shared_ptr<ear>& one) noexcept {
    const std::lock_guard held(lock);
    std::erase(ears, one); // the server is told with the next LISTEN
}

inline void postgres_listener::core::give_back() noexcept {
    for (;;) {
        if (watched_fd >= 0) {
            vigil::here().rearm(watched_fd);
        }
        {
            const std::lock_guard held(door);
            if (!std::exchange(is_missed, false)) {
                turn.unlock();
                return;
            }
        }
        take_in();
    }
}

inline void postgres_listener::core::take_in() noexcept {
    PGconn* const pq = link.native();
    if (pq == nullptr || ::PQconsumeInput(pq) == 0) {
        forget();
        return;
    }
    while (PGnotify* const each = ::PQnotifies(pq)) {
        const std::lock_guard held(lock);
        for (const auto& ear : ears) {
            if (ear->channel == each->relname) {
                ear->bell.ring();
            }
        }
        ::PQfreemem(each);
    }
}

// The connection is lost, and with it what it listened to.
inline void postgres_listener::core::forget() noexcept {
    if (watched_fd >= 0) {
        vigil::here().remove(watched_fd);
        close_watched();
    }
    heard.clear();
    const std::lock_guard held(lock);
    for (const auto& ear : ears) {
        ear->is_deaf = true;
        ear->bell.ring();
    }
    ears.clear();
}

class postgres_watch final : public slot_watch {
public:
    postgres_watch(const postgres_connection::key& at, std::string channel)
        : listener_(at), ear_(std::make_shared<postgres_listener::ear>(std::move(channel))) {}
    ~postgres_watch() override {
        if (is_mine() && is_listening_) {
            listener_.get().remove(ear_);
        }
    }

    // The only thing that may take its time.
    std::error_code begin(postgres_deadline until, std::string& words) {
        const std::error_code error = listener_.get().add(ear_, until, words);
        is_listening_ = !error;
        return error;
    }

    int fd() const noexcept override { return ear_->bell.fd(); }

    std::error_code drain() noexcept override {
        if (!is_mine()) {
            return std::make_error_code(std::errc::operation_not_permitted); // the parent's
        }
        ear_->bell.clear();
        return listener_.get().is_deaf(*ear_) ? postgres_error("08006") : std::error_code();
    }

private:
    bool is_mine() const noexcept { return process_ == ::getpid(); }

    shared_in_process<postgres_listener> listener_;
    const std::shared_ptr<postgres_listener::ear> ear_;
    const pid_t process_ = ::getpid();
    bool is_listening_ = false;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif

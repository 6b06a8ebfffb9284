// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_WATCH_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_WATCH_HPP

// A watch of one channel, on the connection that all watches of a target share.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/redis/listener.hpp>
#include <bide/durable/slots/detail/redis/target.hpp>
#include <bide/durable/slots/detail/server/shared_connections.hpp>

#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include <sys/types.h>
#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

class redis_watch final : public slot_watch {
public:
    using listener = shared_in_process<redis_listener>;

    redis_watch(listener from, std::shared_ptr<redis_listener::subscription> subscription) noexcept
        : from_(std::move(from)), subscription_(std::move(subscription)) {}
    ~redis_watch() override {
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
        // Order: acquire [redis_listener.lost]; the listener signals the pipe after the change.
        return subscription_->is_lost.load(std::memory_order_acquire)
                   ? std::make_error_code(std::errc::connection_reset)
                   : std::error_code();
    }

private:
    listener from_; // keeps the listener alive, so that get() returns it
    std::shared_ptr<redis_listener::subscription> subscription_;
    const pid_t owner_ = ::getpid();
};

struct redis_watch_made {
    std::unique_ptr<slot_watch> watch{};
    std::error_code error{};
    std::string error_text{};
};

inline redis_watch_made make_redis_watch(const redis_target& target, const std::string& channel,
                                         deadline end) {
    redis_watch::listener from(target);
    redis_watch_made made;
    auto made_one = from.get().listen(channel, end, made.error_text);
    if (made_one) {
        made.watch = std::make_unique<redis_watch>(std::move(from), *std::move(made_one));
    } else {
        made.error = made_one.error();
    }
    return made;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif

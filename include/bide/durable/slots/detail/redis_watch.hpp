#ifndef BIDE_DURABLE_SLOTS_DETAIL_REDIS_WATCH_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_REDIS_WATCH_HPP

// Listens to a channel, on a connection of its own. Messages are thrown away unread.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/redis_connection.hpp>
#include <bide/durable/slots/detail/redis_place.hpp>
#include <bide/durable/slots/detail/redis_reply.hpp>
#include <bide/durable/slots/detail/store_words.hpp>

#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

class redis_watch final : public slot_watch {
public:
    explicit redis_watch(redis_connection connection) noexcept
        : connection_(std::move(connection)) {}

    int fd() const noexcept override { return connection_.fd(); }

    std::error_code drain() noexcept override {
        if (connection_.owner() != ::getpid()) {
            return std::make_error_code(std::errc::operation_not_permitted);
        }
        return connection_.discard();
    }

private:
    redis_connection connection_;
};

struct redis_watch_made {
    std::unique_ptr<slot_watch> watch{};
    std::error_code error{};
    std::string words{};
};

inline redis_watch_made make_redis_watch(const redis_place& place, const std::string& channel,
                                         deadline end) {
    auto request = redis_connection::request({"SUBSCRIBE", channel});
    if (!request) {
        return {nullptr, request.error(), {}};
    }
    redis_connection listening;
    std::vector<redis_reply> replies;
    if (const std::error_code error = listening.open(place, {*request}, replies, end)) {
        return {nullptr, error, listening.words()};
    }
    if (replies[0]->type == REDIS_REPLY_ERROR) {
        return {nullptr, redis_error(*replies[0]),
                without_secret(one_line(redis_text(*replies[0])), place.password)};
    }
    return {std::make_unique<redis_watch>(std::move(listening)), {}, {}};
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif

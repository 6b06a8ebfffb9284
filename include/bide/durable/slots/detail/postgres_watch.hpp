#ifndef BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_WATCH_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_POSTGRES_WATCH_HPP

// A connection that listens to a channel.

#include <bide/core/config.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/postgres_connection.hpp>

#include <string>
#include <system_error>
#include <utility>

#include <libpq-fe.h>

namespace bide::inline BIDE_ABI {
namespace detail {

class postgres_watch final : public slot_watch {
public:
    explicit postgres_watch(std::string conninfo) : link_({std::move(conninfo), {}, postgres_connection::key::notices}) {}

    // The only thing that may take its time.
    std::error_code begin(const std::string& listen, postgres_deadline until) {
        if (const std::error_code error = link_.make_ready(until)) {
            return error;
        }
        return link_.run(listen, {}, until).error;
    }

    int fd() const noexcept override {
        return link_.native() == nullptr ? -1 : ::PQsocket(link_.native());
    }

    std::error_code drain() noexcept override {
        if (!link_.is_mine()) {
            return std::make_error_code(std::errc::operation_not_permitted); // the parent's
        }
        PGconn* const pq = link_.native();
        if (::PQconsumeInput(pq) == 0) {
            return postgres_error("08006");
        }
        while (PGnotify* const each = ::PQnotifies(pq)) {
            ::PQfreemem(each);
        }
        return {};
    }

    const std::string& message() const noexcept { return link_.message(); }

private:
    postgres_connection link_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif

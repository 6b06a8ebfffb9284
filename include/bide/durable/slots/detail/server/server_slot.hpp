// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_SERVER_SLOT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_SERVER_SLOT_HPP

// What the slots in a key of a server have in common: Redis and etcd.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/detail/server/connection_pool.hpp>
#include <bide/durable/slots/detail/server/text.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The answer of a server; or the error, its text, and whether a value may have been stored.
template <class T> struct server_answer {
    T of{};
    std::error_code error{};
    bool may_have_stored = false;
    std::string error_text{};
};

// Throws: std::system_error (invalid_argument) with this text about the argument of a slot.
[[noreturn]] inline void refuse_argument([[maybe_unused]] std::string error_text) {
    BIDE_THROW(std::system_error(std::make_error_code(std::errc::invalid_argument), error_text));
}

// A Client is a Connection of a pool, with `answer` and lost(), which drops it and returns an
// answer.
template <class Client> struct server_slot {
    std::string key;
    std::chrono::milliseconds retry_time;
    std::size_t max_value;
    shared_connection<Client> client;
    std::string last_error_text{}; // of the last operation that failed

    const auto& target() const noexcept { return client.of().target; }

    std::string explain() const {
        return one_line(target().name() + ", key " + key +
                            (last_error_text.empty() ? "" : ": " + last_error_text),
                        1'000);
    }

    // Sets the text that explain() returns. Returns the error.
    std::error_code failed(std::error_code error, std::string error_text = {}) {
        last_error_text = !error_text.empty() ? std::move(error_text) : error.message();
        return error;
    }
    cas_result not_stored(cas_status status, std::error_code error, std::string error_text = {}) {
        return {.status = status, .error = failed(error, std::move(error_text))};
    }

    // Calls question(client, end) on a connection.
    template <class Question> typename Client::answer ask(Question question) {
        const deadline end = deadline::after(retry_time);
        const auto got = client.get().take(end);
        if (!got.of) {
            return {{}, got.error, false, "the connections are in use"};
        }
        return got.error ? got.of->lost(got.error, false) : question(*got.of, end);
    }
};

}}} // namespace bide::BIDE_ABI::detail

#endif

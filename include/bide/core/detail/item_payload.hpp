// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_ITEM_PAYLOAD_HPP
#define BIDE_CORE_DETAIL_ITEM_PAYLOAD_HPP

// Defines the payload of a wait for an item, that is, the data that the wait carries. This header
// specialises wait_payload (core/wait_ops.hpp), which decides the layout of a basic_async_op. So
// each header that names a basic_async_op, of whatever type, must include this one.

#include <bide/core/wait_ops.hpp>

#include <optional>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// Returns a function that moves an item to `to`: an optional, or a vector with room for one more.
template <class Out> auto into(Out& to) noexcept {
    return [&to](typename Out::value_type& from) noexcept {
        if constexpr (requires { to.push_back(std::move(from)); }) {
            to.push_back(std::move(from));
        } else {
            to.emplace(std::move(from));
        }
    };
}

// The place where a waiting receiver wants its item. put() moves the item there, under the lock of
// the item's source.
struct destination {
    void (*put)(void* where, void* item) noexcept = nullptr;
    void* where = nullptr;

    destination() noexcept = default;
    // `to` is an optional, or a vector with room for one more.
    template <class Out> explicit destination(Out& to) noexcept : where(&to) {
        put = [](void* out, void* from) noexcept {
            detail::into (*static_cast<Out*>(out))(*static_cast<typename Out::value_type*>(from));
        };
    }
};

// Keeps an object alive. An empty keep_alive keeps no object.
class keep_alive {
public:
    using release = void (*)(void*) noexcept;

    keep_alive() noexcept = default;
    keep_alive(void* of, release how) noexcept : object_(of), how_(how) {}
    keep_alive(keep_alive&& other) noexcept
        : object_(std::exchange(other.object_, nullptr)), how_(other.how_) {}
    keep_alive& operator=(keep_alive&& other) noexcept {
        std::swap(object_, other.object_);
        std::swap(how_, other.how_);
        return *this;
    }
    ~keep_alive() {
        if (object_ != nullptr) {
            how_(object_);
        }
    }

private:
    void* object_ = nullptr;
    release how_ = nullptr;
};

// Gives the operations access to a channel, or to a handle of a channel. core() returns the core of
// that channel: a Source (item_wait.hpp) that also has send_n(), recv_n() and size(). keep()
// returns an object that keeps the core alive while an operation waits. For a channel, that object
// is empty, because the owner of the channel keeps the core alive.
struct channel_access {
    template <class Self> static auto& core(Self& of) noexcept { return of.core(); }
    template <class Self> static keep_alive keep(Self& of) noexcept {
        if constexpr (requires { of.keep(); }) {
            return of.keep();
        } else {
            return {};
        }
    }
};

template <class T> struct recv_payload {
    std::optional<T> item;
    destination to;
    keep_alive alive;

    recv_payload() noexcept = default;
    explicit recv_payload(keep_alive kept) noexcept : alive(std::move(kept)) {}
    recv_payload(recv_payload&& unused) noexcept : alive(std::move(unused.alive)) {}
};
struct recv_n_payload {
    destination to;
    keep_alive alive;

    recv_n_payload() noexcept = default;
    explicit recv_n_payload(keep_alive kept) noexcept : alive(std::move(kept)) {}
};

} // namespace detail

template <class T> struct wait_payload<result<std::optional<T>>> {
    using type = detail::recv_payload<T>;
};
template <> struct wait_payload<result<std::size_t>> {
    using type = detail::recv_n_payload;
};

}} // namespace bide::BIDE_ABI

#endif

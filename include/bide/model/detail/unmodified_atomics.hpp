// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_UNMODIFIED_ATOMICS_HPP
#define BIDE_MODEL_DETAIL_UNMODIFIED_ATOMICS_HPP

// The functions that code calls for its atomics, if it was compiled with -fsanitize=thread: see
// model/unmodified.hpp.

#include <bide/model/detail/plain_calls.hpp>
#include <bide/model/detail/unmodified_calls.hpp>

#include <type_traits>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

inline std::memory_order order_of(int number) noexcept {
    return static_cast<std::memory_order>(number & 0xff); // g++ adds bits of its own
}

// Operations on a real atomic of type T. Outside of a body, they are those of the processor.
template <class T> class real_atomic {
    using bits = ops::bits;
    static constexpr unsigned size = sizeof(T);

public:
    real_atomic(const volatile T* at, const void* code) noexcept
        : at_(const_cast<volatile T*>(at)), is_checked_(ops::in_body() ? 1 : 0) {
        if (is_checked_ != 0) {
            where_ = ops::place_of(code);
            object_ = ops::object_at(at, size, true, where_);
        }
    }

    T load(int order) noexcept {
        if (is_checked_ == 0) {
            return native_load();
        }
        clear_stack();
        const T value = of_bits(ops::load(object_, order_of(order), where_));
        ops::accessed(at_, size, object_, false, where_);
        return value;
    }
    void store(T value, int order) noexcept {
        if (is_checked_ == 0) {
            if constexpr (size == 16) {
                *at_ = value;
            } else {
                __atomic_store_n(at_, value, __ATOMIC_SEQ_CST);
            }
            return;
        }
        clear_stack();
        ops::store(object_, to_bits(value), order_of(order), where_);
        ops::accessed(at_, size, object_, true, where_);
    }
    // `next` computes the new value from the old one and `operand`. `native` is the operation of
    // the processor.
    template <class Native>
    T modify(bits (*next)(bits, bits), T operand, int order, Native native) noexcept {
        if (is_checked_ == 0) {
            return native();
        }
        clear_stack();
        const T value =
            of_bits(ops::modify(object_, next, to_bits(operand), order_of(order), where_));
        ops::accessed(at_, size, object_, true, where_);
        return value;
    }
    T exchange(T value, int order) noexcept {
        if (is_checked_ == 0) {
            T was = native_load();
            while (!native_compare_exchange(was, value)) {
            }
            return was;
        }
        return modify([](bits, bits by) { return by; }, value, order, [&] { return value; });
    }
    bool compare_exchange(T& expected, T desired, int success, int failure, bool weak) noexcept {
        if (is_checked_ == 0) {
            return native_compare_exchange(expected, desired);
        }
        bits seen = to_bits(expected);
        clear_stack();
        const bool done = ops::compare_exchange(object_, seen, to_bits(desired), order_of(success),
                                                order_of(failure), weak, where_);
        ops::accessed(at_, size, object_, done, where_);
        if (!done) {
            expected = of_bits(seen);
        }
        return done;
    }

private:
    // Outside of a body, an atomic of 16 bytes is accessed by one thread.
    T native_load() noexcept {
        if constexpr (size == 16) {
            return *at_;
        } else {
            return __atomic_load_n(at_, __ATOMIC_SEQ_CST);
        }
    }
    bool native_compare_exchange(T& expected, T desired) noexcept {
        if constexpr (size == 16) {
            const T was = *at_;
            const bool is_same = was == expected;
            *at_ = is_same ? desired : was;
            expected = was;
            return is_same;
        } else {
            return __atomic_compare_exchange_n(at_, &expected, desired, false, __ATOMIC_SEQ_CST,
                                               __ATOMIC_SEQ_CST);
        }
    }

    static bits to_bits(T value) noexcept {
        if constexpr (sizeof(T) == 16) {
            return ops::number_of(&value);
        } else {
            return static_cast<bits>(value);
        }
    }
    static T of_bits(bits value) noexcept {
        if constexpr (sizeof(T) == 16) {
            T out;
            ops::value_of(value, &out);
            return out;
        } else {
            return static_cast<T>(value);
        }
    }

    // Without padding: see clear_stack().
    volatile T* const at_;
    ops::site where_{};
    const int is_checked_;
    int object_ = ops::outside;
};

}}} // namespace bide::BIDE_ABI::model::detail

// The names are those that compilers call.
extern "C" {

void __tsan_atomic_thread_fence(int order) {
    namespace detail = bide::model::detail;
    if (detail::ops::in_body()) {
        detail::ops::fence(detail::order_of(order),
                           detail::ops::place_of(__builtin_return_address(0)));
    } else {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
}
void __tsan_atomic_signal_fence(int /*order*/) {}

#define BIDE_MODEL_AT(T) bide::model::detail::real_atomic<T>(at, __builtin_return_address(0))
#define BIDE_MODEL_NEXT(T, expression)                                                             \
    [](bide::model::detail::ops::bits was, bide::model::detail::ops::bits by) {                    \
        return static_cast<bide::model::detail::ops::bits>(static_cast<T>(expression));            \
    }
#define BIDE_MODEL_MODIFY(bits, T, name, expression)                                               \
    T __tsan_atomic##bits##_##name(volatile T* at, T operand, int order) {                         \
        return BIDE_MODEL_AT(T).modify(BIDE_MODEL_NEXT(T, expression), operand, order, [&] {       \
            return __atomic_##name(at, operand, __ATOMIC_SEQ_CST);                                 \
        });                                                                                        \
    }
#define BIDE_MODEL_LOAD_STORE(bits, T)                                                             \
    T __tsan_atomic##bits##_load(const volatile T* at, int order) {                                \
        return BIDE_MODEL_AT(T).load(order);                                                       \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile T* at, T value, int order) {                         \
        BIDE_MODEL_AT(T).store(value, order);                                                      \
    }                                                                                              \
    T __tsan_atomic##bits##_exchange(volatile T* at, T operand, int order) {                       \
        return BIDE_MODEL_AT(T).exchange(operand, order);                                          \
    }                                                                                              \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile T* at, T* expected, T desired,      \
                                                      int success, int failure) {                  \
        return BIDE_MODEL_AT(T).compare_exchange(*expected, desired, success, failure, false);     \
    }                                                                                              \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile T* at, T* expected, T desired,        \
                                                    int success, int failure) {                    \
        return BIDE_MODEL_AT(T).compare_exchange(*expected, desired, success, failure, true);      \
    }                                                                                              \
    T __tsan_atomic##bits##_compare_exchange_val(volatile T* at, T expected, T desired,            \
                                                 int success, int failure) {                       \
        bide::model::detail::ops::has_no_weak_exchange = true;                                     \
        BIDE_MODEL_AT(T).compare_exchange(expected, desired, success, failure, false);             \
        return expected;                                                                           \
    }
#define BIDE_MODEL_ATOMICS(bits, T)                                                                \
    BIDE_MODEL_LOAD_STORE(bits, T)                                                                 \
    BIDE_MODEL_MODIFY(bits, T, fetch_add, was + by)                                                \
    BIDE_MODEL_MODIFY(bits, T, fetch_sub, was - by)                                                \
    BIDE_MODEL_MODIFY(bits, T, fetch_and, was& by)                                                 \
    BIDE_MODEL_MODIFY(bits, T, fetch_or, was | by)                                                 \
    BIDE_MODEL_MODIFY(bits, T, fetch_xor, was ^ by)                                                \
    BIDE_MODEL_MODIFY(bits, T, fetch_nand, ~(was & by))
BIDE_MODEL_ATOMICS(8, std::uint8_t)
BIDE_MODEL_ATOMICS(16, std::uint16_t)
BIDE_MODEL_ATOMICS(32, std::uint32_t)
BIDE_MODEL_ATOMICS(64, std::uint64_t)

// Atomics of 16 bytes, such as a pointer with a counter. The second names are those of libatomic.
__extension__ typedef unsigned __int128 bide_model_wide;
BIDE_MODEL_LOAD_STORE(128, bide_model_wide)
bide_model_wide __atomic_load_16(const volatile void* address, int order) {
    const auto* const at = static_cast<const volatile bide_model_wide*>(address);
    return BIDE_MODEL_AT(bide_model_wide).load(order);
}
void __atomic_store_16(volatile void* address, bide_model_wide value, int order) {
    auto* const at = static_cast<volatile bide_model_wide*>(address);
    BIDE_MODEL_AT(bide_model_wide).store(value, order);
}
bide_model_wide __atomic_exchange_16(volatile void* address, bide_model_wide value, int order) {
    auto* const at = static_cast<volatile bide_model_wide*>(address);
    return BIDE_MODEL_AT(bide_model_wide).exchange(value, order);
}
// Compilers know the function by this name, with other parameters.
bool bide_model_compare_exchange_16(volatile void* address, void* expected, bide_model_wide desired,
                                    int success,
                                    int failure) __asm__("__atomic_compare_exchange_16");
bool bide_model_compare_exchange_16(volatile void* address, void* expected, bide_model_wide desired,
                                    int success, int failure) {
    auto* const at = static_cast<volatile bide_model_wide*>(address);
    return BIDE_MODEL_AT(bide_model_wide)
        .compare_exchange(*static_cast<bide_model_wide*>(expected), desired, success, failure,
                          false);
}
// clang 14 calls the functions for any size for 16 bytes, too. Other sizes have a lock in
// libatomic, which is not modelled.
void bide_model_load_any(std::size_t, void*, void*, int) __asm__("__atomic_load");
void bide_model_store_any(std::size_t, void*, void*, int) __asm__("__atomic_store");
void bide_model_exchange_any(std::size_t, void*, void*, void*, int) __asm__("__atomic_exchange");
bool bide_model_compare_exchange_any(std::size_t, void*, void*, void*, int,
                                     int) __asm__("__atomic_compare_exchange");

#define BIDE_MODEL_ANY(name)                                                                       \
    static constinit bide::model::detail::system_function<bool> system(name);                      \
    if (size != sizeof(bide_model_wide) && bide::model::detail::ops::in_body()) {                  \
        bide::model::detail::ops::refuse("an atomic of another size than 1, 2, 4, 8 or 16 bytes",  \
                                         BIDE_MODEL_HERE);                                         \
    }
void bide_model_load_any(std::size_t size, void* address, void* to, int order) {
    BIDE_MODEL_ANY("__atomic_load")
    if (size == sizeof(bide_model_wide)) {
        const auto* const at = static_cast<const volatile bide_model_wide*>(address);
        *static_cast<bide_model_wide*>(to) = BIDE_MODEL_AT(bide_model_wide).load(order);
    } else {
        system(size, address, to, order);
    }
}
void bide_model_store_any(std::size_t size, void* address, void* from, int order) {
    BIDE_MODEL_ANY("__atomic_store")
    if (size == sizeof(bide_model_wide)) {
        auto* const at = static_cast<volatile bide_model_wide*>(address);
        BIDE_MODEL_AT(bide_model_wide).store(*static_cast<bide_model_wide*>(from), order);
    } else {
        system(size, address, from, order);
    }
}
void bide_model_exchange_any(std::size_t size, void* address, void* from, void* to, int order) {
    BIDE_MODEL_ANY("__atomic_exchange")
    if (size == sizeof(bide_model_wide)) {
        auto* const at = static_cast<volatile bide_model_wide*>(address);
        *static_cast<bide_model_wide*>(to) =
            BIDE_MODEL_AT(bide_model_wide).exchange(*static_cast<bide_model_wide*>(from), order);
    } else {
        system(size, address, from, to, order);
    }
}
bool bide_model_compare_exchange_any(std::size_t size, void* address, void* expected, void* desired,
                                     int success, int failure) {
    BIDE_MODEL_ANY("__atomic_compare_exchange")
    if (size != sizeof(bide_model_wide)) {
        return system(size, address, expected, desired, success, failure);
    }
    auto* const at = static_cast<volatile bide_model_wide*>(address);
    return BIDE_MODEL_AT(bide_model_wide)
        .compare_exchange(*static_cast<bide_model_wide*>(expected),
                          *static_cast<bide_model_wide*>(desired), success, failure, false);
}
#undef BIDE_MODEL_ANY
#undef BIDE_MODEL_ATOMICS
#undef BIDE_MODEL_MODIFY
#undef BIDE_MODEL_NEXT
#undef BIDE_MODEL_LOAD_STORE
#undef BIDE_MODEL_AT

} // extern "C"

#endif

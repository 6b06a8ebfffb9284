#ifndef BIDE_TESTS_SUPPORT_SLOT_OFFERS_HPP
#define BIDE_TESTS_SUPPORT_SLOT_OFFERS_HPP

// Which of the additional operations a type of slot overrides.

#include <bide/durable/slot.hpp>

#include <type_traits>

namespace test {

// Of the slots on servers, whose handles only forward.
template <class S>
concept remote_slot = std::derived_from<S, bide::detail::slot_handle> &&
                      bide::slot_guarantees(S::guarantees).multi_host;

template <class S>
concept locked_slot =
    !std::is_same_v<decltype(&S::update_locked), decltype(&bide::slot::update_locked)> &&
    !remote_slot<S>;

template <class S>
concept clocked_slot = bide::slot_guarantees(S::guarantees).clock == bide::lock_clock::server;

template <class S>
concept present_slot =
    !std::is_same_v<decltype(&S::be_present), decltype(&bide::slot::be_present)> && !remote_slot<S>;

template <class S>
concept repairable_slot =
    !std::is_same_v<decltype(&S::replace_damaged), decltype(&bide::slot::replace_damaged)> &&
    !remote_slot<S>;

template <class S>
concept shared_store_slot = !std::is_same_v<decltype(&S::store), decltype(&bide::slot::store)>;

template <class S>
concept explaining_slot = !std::is_same_v<decltype(&S::explain), decltype(&bide::slot::explain)>;

} // namespace test

#endif

// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_RENEWERS_HPP
#define BIDE_DURABLE_DETAIL_RENEWERS_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/platform.hpp>
#include <bide/durable/detail/renewer.hpp>
#include <bide/sync/mutex.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace bide::inline BIDE_ABI {
namespace detail {

// The renewers of this process, by the name of their store: locks that share a store share one
// renewer and its thread. An entry is removed with its last lock. A child of fork() has a table of
// its own.
class renewers {
public:
    // Throws: std::bad_alloc.
    static std::shared_ptr<renewer> of(const std::string& store) {
        renewers& all = here();
        const std::lock_guard held(all.lock_);
        auto& entry = all.by_store_[store];
        auto found = entry.lock();
        if (found == nullptr) {
            found = std::shared_ptr<renewer>(new renewer(nullptr), forget{store});
            entry = found;
        }
        return found;
    }

    // Returns how many stores have a renewer at this moment.
    static std::size_t count() {
        renewers& all = here();
        const std::lock_guard held(all.lock_);
        return all.by_store_.size();
    }

private:
    struct forget {
        std::string store;
        void operator()(renewer* gone) const {
            delete gone;
            renewers& all = here();
            const std::lock_guard held(all.lock_);
            const auto entry = all.by_store_.find(store);
            if (entry != all.by_store_.end() && entry->second.expired()) {
                all.by_store_.erase(entry);
            }
        }
    };

    static renewers& here() {
        renewers* const all =
            process_wide<renewers, native_platform>::get(+[] { return new renewers; });
        if (all == nullptr) {
            throw_error(std::make_error_code(std::errc::not_enough_memory));
        }
        return *all;
    }

    mutex lock_;
    std::map<std::string, std::weak_ptr<renewer>> by_store_; // under lock_
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif

// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_IMPL_FILE_HPP
#define BIDE_DURABLE_SLOTS_IMPL_FILE_HPP

// The definitions of slots/file.hpp.

#include <bide/core/config.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/slots/detail/file/page_format.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>
#include <bide/durable/slots/detail/file/presence_file.hpp>
#include <bide/durable/slots/detail/file/store.hpp>
#include <bide/durable/slots/detail/file/watch.hpp>
#include <bide/durable/slots/file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI {

struct file_slot_operations::state {
    state(std::string its_name, const file_slot_options& options, bool is_synced)
        : has_marks(!options.any_filesystem), descriptor(options.descriptor),
          path(detail::absolute_path(std::move(its_name))),
          store(path, settings(options, is_synced)), marks(path + ".lock", options.mode) {}

    static detail::file_settings settings(const file_slot_options& options,
                                          bool is_synced) noexcept {
        constexpr std::size_t granule = detail::file_page::granule;
        constexpr std::size_t largest = std::size_t{1} << 30;
        const std::size_t size = std::clamp(options.page_size, granule, largest);
        return {.is_synced = is_synced,
                .page_size = static_cast<std::uint32_t>((size + granule - 1) / granule * granule),
                .max_value = std::min(options.max_value, largest),
                .retry_time_ns = 1'000'000 * std::clamp<std::int64_t>(options.retry_time.count(), 0,
                                                                      1'000'000'000),
                .mode = options.mode,
                .any_filesystem = options.any_filesystem};
    }

    const bool has_marks;
    const int descriptor;
    const std::string path;
    detail::file_store<detail::posix_io> store;
    const detail::presence_file marks;
};

BIDE_DURABLE_INLINE file_slot_operations::file_slot_operations(std::string path,
                                                               const file_slot_options& options,
                                                               bool is_synced)
    : state_(std::make_unique<state>(std::move(path), options, is_synced)) {}
BIDE_DURABLE_INLINE
file_slot_operations::file_slot_operations(file_slot_operations&&) noexcept = default;
BIDE_DURABLE_INLINE file_slot_operations&
file_slot_operations::operator=(file_slot_operations&&) noexcept = default;
BIDE_DURABLE_INLINE file_slot_operations::~file_slot_operations() = default;

BIDE_DURABLE_INLINE result<slot_snapshot, std::error_code> file_slot_operations::load() {
    return state_->store.load_snapshot();
}
BIDE_DURABLE_INLINE cas_result file_slot_operations::compare_exchange(slot_version version,
                                                                      std::string_view value) {
    return state_->store.compare_exchange(version, value);
}
BIDE_DURABLE_INLINE cas_result file_slot_operations::update_locked(const slot_update& update) {
    return state_->store.update_locked(update);
}
BIDE_DURABLE_INLINE cas_result file_slot_operations::replace_damaged(std::string_view value) {
    return state_->store.replace_damaged(value);
}
BIDE_DURABLE_INLINE std::string file_slot_operations::explain() const {
    return state_->store.failure.explain(state_->path);
}

#if defined(__linux__)
BIDE_DURABLE_INLINE result<std::unique_ptr<slot_watch>, std::error_code>
file_slot_operations::watch() {
    if (const std::error_code error = state_->store.create_lock_file()) {
        return unexpected{error};
    }
    const auto& lock = state_->store.lock();
    return detail::file_watch::of(lock.path().c_str(), lock.facts());
}
#endif

// The marks use no data of an operation. So any thread may call at any time.
BIDE_DURABLE_INLINE result<std::shared_ptr<slot_presence>, std::error_code>
file_slot_operations::be_present() {
    if (!detail::is_file_name(state_->path)) {
        return unexpected{make_error_code(durable_errc::invalid_argument)};
    }
    if (!state_->has_marks) {
        return unexpected{std::make_error_code(std::errc::operation_not_supported)};
    }
    return state_->descriptor < 0 ? state_->marks.be_present()
                                  : state_->marks.be_present_on(state_->descriptor);
}

BIDE_DURABLE_INLINE presence file_slot_operations::is_present(std::int64_t mark) const noexcept {
    return state_->has_marks ? state_->marks.is_present(mark) : presence::unknown;
}

BIDE_DURABLE_INLINE bool file_slot_operations::has_mark(int descriptor,
                                                        std::int64_t mark) const noexcept {
    return state_->has_marks && state_->marks.is_on(descriptor, mark);
}

}} // namespace bide::BIDE_ABI

#endif

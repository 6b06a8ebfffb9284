#ifndef BIDE_DURABLE_DETAIL_PROCESS_IDENTITY_HPP
#define BIDE_DURABLE_DETAIL_PROCESS_IDENTITY_HPP

// How one lock's contenders of this process are known in the record: by the process, and by a mark
// of presence where the slot keeps marks. A child of fork() is another process, with a mark of its
// own.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>
#include <bide/sync/mutex.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

class process_identity {
public:
    process_identity() : now_(std::make_shared<known>()) {}
    process_identity(const process_identity&) = delete;
    process_identity& operator=(const process_identity&) = delete;
    ~process_identity();

    // Where this process runs.
    std::shared_ptr<const durable::origin> here() {
        const std::lock_guard held(lock_);
        const auto& now = current();
        return {now, &now->here};
    }

    // The origin of a contender; bound to this process or not. A mark is taken for the first one that
    // is bound, and kept as long as this object.
    durable::origin origin(bool bound, slot_ref& slot);

    // The mark is kept until the process ends: a ticket that is bound to the process may outlive
    // this object.
    void keep_mark() noexcept {
        // Order: relaxed; read when the last reference is gone.
        keeps_mark_.store(true, std::memory_order_relaxed);
    }

private:
    struct known {
        const pid_t process = ::getpid();
        const durable::origin here = durable::this_origin(true);
        std::shared_ptr<slot_presence> mark{};
        bool has_no_mark = false; // nor can it have one
    };

    // Under lock_. What the parent of a forked process has is left as it is.
    const std::shared_ptr<known>& current() {
        if (now_->process != ::getpid()) {
            now_ = std::make_shared<known>();
        }
        return now_;
    }

    mutex lock_;
    std::shared_ptr<known> now_; // under lock_
    native_platform::atomic<bool> keeps_mark_{false};
};

inline process_identity::~process_identity() {
    // Order: relaxed; the last reference is gone.
    if (keeps_mark_.load(std::memory_order_relaxed) && now_->mark != nullptr) {
        struct kept {
            mutex lock;
            std::vector<std::shared_ptr<slot_presence>> marks;
        };
        static auto* const all = new kept; // never destroyed: the process's end closes them
        const std::lock_guard held(all->lock);
        all->marks.push_back(std::move(now_->mark));
    }
}

inline durable::origin process_identity::origin(bool bound, slot_ref& slot) {
    const std::lock_guard held(lock_);
    known& now = *current();
    durable::origin from = now.here;
    if (!bound) {
        from.pid = from.start = from.space = 0;
        return from;
    }
    if (now.mark == nullptr && !now.has_no_mark && slot.has_presence()) {
        auto taken = slot.be_present();
        if (taken) {
            now.mark = std::move(*taken);
        } else { // the pid has to do; where it was a passing trouble the next one tries again
            now.has_no_mark = taken.error() == std::errc::operation_not_supported;
        }
    }
    from.mark = now.mark != nullptr ? now.mark->mark() : 0;
    return from;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif

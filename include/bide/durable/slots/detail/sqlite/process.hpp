// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_PROCESS_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_PROCESS_HPP

// What happens to open connections when the process forks.
//
// SQLite keeps notes of the locks that its process holds on each file. A child inherits the notes
// and not the locks. While one inherited connection to a file exists, a new connection trusts the
// notes. In WAL mode the child then believes that it holds the lock that means "in use". Another
// process takes itself for the last one and deletes the log that the child uses.
//
// So the first operation in a child closes all connections that the parent's slots had, before it
// opens its own. If no connection was in an operation at the fork, that is safe: a close without a
// checkpoint neither writes nor releases locks. If one was in an operation, the inherited state is
// unusable, and all operations of slots in the child fail from then on.

#include <bide/core/config.hpp>

#include <mutex>
#include <utility>
#include <vector>

#include <pthread.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

class BIDE_SHARED sqlite_process {
public:
    // A connection, open or not. It is in the list from construction to destruction.
    class member {
    public:
        member() { here().add(*this); }
        member(const member&) = delete;
        member& operator=(const member&) = delete;
        virtual ~member() = default;

        // Closes what the parent opened.
        virtual void close_inherited() noexcept = 0;

    protected:
        // Call it in the destructor. True: what is open is the parent's and may be in an operation.
        bool leave_list() noexcept { return here().remove(*this); }
    };

    // The object of this process. It is never destroyed, because slots may be static.
    static sqlite_process& here() {
        static sqlite_process* const one = new sqlite_process;
        return *one;
    }

    // Begins an operation. False: the process was forked during an operation.
    bool enter() noexcept {
        const std::lock_guard lock(mutex_);
        notice_fork();
        if (is_unusable_) {
            return false;
        }
        if (std::exchange(has_inherited_, false)) {
            for (member* const m : members_) {
                m->close_inherited();
            }
        }
        ++busy_;
        return true;
    }

    void leave() noexcept {
        const std::lock_guard lock(mutex_);
        notice_fork();
        --busy_;
    }

    // Call it after an operation has called user code. Returns false if the user code has forked
    // and this is the child.
    bool is_still_here() noexcept {
        const std::lock_guard lock(mutex_);
        notice_fork();
        return !is_unusable_;
    }

private:
    // The handlers hold the mutex during a fork, so that the child can use it.
    sqlite_process() {
        ::pthread_atfork([] { here().mutex_.lock(); }, [] { here().mutex_.unlock(); },
                         [] { here().mutex_.unlock(); });
    }

    void notice_fork() noexcept {
        if (const ::pid_t now = ::getpid(); std::exchange(pid_, now) != now) {
            is_unusable_ = is_unusable_ || busy_ != 0;
            has_inherited_ = true;
        }
    }

    void add(member& m) {
        const std::lock_guard lock(mutex_);
        members_.push_back(&m);
    }

    bool remove(member& m) noexcept {
        const std::lock_guard lock(mutex_);
        notice_fork();
        std::erase(members_, &m);
        if (has_inherited_ && !is_unusable_) {
            m.close_inherited();
        }
        return is_unusable_;
    }

    std::mutex mutex_;
    // The mutex guards:
    ::pid_t pid_ = ::getpid();
    unsigned busy_ = 0; // running operations; in a child, at first those of its parent
    bool is_unusable_ = false;
    bool has_inherited_ = false;
    std::vector<member*> members_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif

#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_PROCESS_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_PROCESS_HPP

// What becomes of open connections when the process forks.
//
// SQLite keeps, for each file, what its process has locked; a child inherits the notes and not the
// locks. As long as one inherited connection to a file is there, a new one believes the notes: in
// WAL mode that it is protected by the lock that says "in use", while another process takes itself
// for the last one and deletes the log under it. So the first operation in a child closes all
// connections of slots that the parent had, before it opens its own. That harms nobody where none
// of them was in the midst of an operation at the fork: closing, told not to checkpoint, neither
// writes nor has locks to give up. Where one was, what the child has inherited is of no use, and
// slots are refused to it for good.

#include <bide/core/config.hpp>

#include <mutex>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <unistd.h>
#endif

namespace bide::inline BIDE_ABI {
namespace detail {

class sqlite_process {
public:
    // A connection, which may be open. In the list from its making to its end.
    class member {
    public:
        member() { here().add(*this); }
        member(const member&) = delete;
        member& operator=(const member&) = delete;
        virtual ~member() = default;

        // Closes what the parent had opened.
        virtual void close_inherited() noexcept = 0;

    protected:
        // Before the end. True: what is open is the parent's, and may be in the midst of something.
        bool leave_list() noexcept { return here().remove(*this); }

    private:
        friend class sqlite_process;
        member* next_ = nullptr;
        member* before_ = nullptr;
    };

    // Of this process. Never destroyed: slots may be static.
    static sqlite_process& here() {
        static sqlite_process* const one = new sqlite_process;
        return *one;
    }

    // An operation begins, unless it answers false: forked in the midst of one.
    bool enter() noexcept {
        const std::lock_guard lock(mutex_);
        notice_fork();
        if (is_unusable_) {
            return false;
        }
        for (member* m = has_inherited_ ? first_ : nullptr; m != nullptr; m = m->next_) {
            m->close_inherited();
        }
        has_inherited_ = false;
        ++busy_;
        return true;
    }

    void leave() noexcept {
        const std::lock_guard lock(mutex_);
        notice_fork();
        --busy_;
    }

    // An operation has called back: is it still in the process that began it?
    bool is_still_here() noexcept {
        const std::lock_guard lock(mutex_);
        notice_fork();
        return !is_unusable_;
    }

private:
#if defined(__unix__) || defined(__APPLE__)
    using id = ::pid_t;
    static id current() noexcept { return ::getpid(); }

    // Nobody else holds the mutex at a fork.
    sqlite_process() {
        ::pthread_atfork([] { here().mutex_.lock(); }, [] { here().mutex_.unlock(); },
                         [] { here().mutex_.unlock(); });
    }
#else
    using id = int;
    static id current() noexcept { return 0; }
    sqlite_process() = default;
#endif

    void notice_fork() noexcept {
        if (pid_ != current()) {
            pid_ = current();
            is_unusable_ = is_unusable_ || busy_ != 0;
            has_inherited_ = true;
        }
    }

    void add(member& m) noexcept {
        const std::lock_guard lock(mutex_);
        m.next_ = first_;
        if (first_ != nullptr) {
            first_->before_ = &m;
        }
        first_ = &m;
    }

    bool remove(member& m) noexcept {
        const std::lock_guard lock(mutex_);
        notice_fork();
        (m.before_ != nullptr ? m.before_->next_ : first_) = m.next_;
        if (m.next_ != nullptr) {
            m.next_->before_ = m.before_;
        }
        if (has_inherited_ && !is_unusable_) {
            m.close_inherited();
        }
        return is_unusable_;
    }

    std::mutex mutex_;
    // Under the mutex:
    id pid_ = current();
    unsigned busy_ = 0; // operations that are going on; in a child, first those of its parent
    bool is_unusable_ = false;
    bool has_inherited_ = false;
    member* first_ = nullptr;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif

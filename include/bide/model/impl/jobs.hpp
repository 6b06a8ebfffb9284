// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_JOBS_HPP
#define BIDE_MODEL_IMPL_JOBS_HPP

// Explores a body with several processes. Branches are independent of each other, so any process
// can explore any branch. The first process explores until there are enough branches, and starts
// the other processes by fork(). After that, it explores nothing, and passes branches from
// processes that have several to processes that have none. A message is a letter, the number of
// bytes, and the bytes:
//
//   to the first process    n  the sender has no branch left; the message has no bytes
//                           g  the sender gives branches away: the bytes are the branches
//                           r  the sender has found a failure: the bytes are the verdict
//   to another process      w  the receiver explores these branches

#include <bide/core/config.hpp>
#include <bide/model/check.hpp>
#include <bide/model/impl/exhaustive.hpp>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#define BIDE_MODEL_FORKS 1
#include <csignal>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#else
#define BIDE_MODEL_FORKS 0
#endif

namespace bide { inline namespace BIDE_ABI { namespace model::detail { namespace {

#if BIDE_MODEL_FORKS

// The counts that all processes share.
struct shared_counts {
    std::atomic<int> hungry{0}; // processes without branches
    std::atomic<std::uint64_t> executions{0};
    std::atomic<std::uint64_t> pruned{0};
    thread_names names;
};

class shared_page {
public:
    shared_page()
        : at_(::mmap(nullptr, sizeof(shared_counts), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
        if (at_ != MAP_FAILED) {
            ::new (at_) shared_counts;
        }
    }
    shared_page(const shared_page&) = delete;
    shared_page& operator=(const shared_page&) = delete;
    ~shared_page() {
        if (at_ != MAP_FAILED) {
            ::munmap(at_, sizeof(shared_counts));
        }
    }
    bool is_there() const noexcept { return at_ != MAP_FAILED; }
    shared_counts& operator*() const noexcept { return *static_cast<shared_counts*>(at_); }

private:
    void* at_;
};

bool put_all(int to, const char* bytes, std::size_t size) {
    while (size != 0) {
        const ssize_t n = ::send(to, bytes, size, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) {
            return false;
        }
        bytes += n < 0 ? 0 : n;
        size -= n < 0 ? 0 : static_cast<std::size_t>(n);
    }
    return true;
}

bool get_all(int from, char* bytes, std::size_t size) {
    while (size != 0) {
        const ssize_t n = ::recv(from, bytes, size, 0);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return false;
        }
        bytes += n < 0 ? 0 : n;
        size -= n < 0 ? 0 : static_cast<std::size_t>(n);
    }
    return true;
}

bool put_message(int to, char what, const std::string& bytes) {
    std::string head(1, what);
    append(head, static_cast<std::uint64_t>(bytes.size()));
    return put_all(to, head.data(), head.size()) && put_all(to, bytes.data(), bytes.size());
}

bool get_message(int from, char& what, std::string& bytes) {
    std::uint64_t size = 0;
    char head[sizeof size];
    if (!get_all(from, &what, 1) || !get_all(from, head, sizeof head)) {
        return false;
    }
    std::memcpy(&size, head, sizeof size);
    bytes.resize(static_cast<std::size_t>(size));
    return get_all(from, bytes.data(), bytes.size());
}

void append_text(std::string& out, const std::string& text) {
    append(out, static_cast<std::uint64_t>(text.size()));
    out += text;
}

std::string extract_text(std::string_view& from) {
    std::uint64_t size = 0;
    if (!extract(from, size) || size > from.size()) {
        return {};
    }
    std::string out(from.substr(0, static_cast<std::size_t>(size)));
    from.remove_prefix(static_cast<std::size_t>(size));
    return out;
}

std::string bytes_of(const verdict& v) {
    std::string out;
    append(out, v.what);
    for (const std::string* text : {&v.message, &v.trace, &v.report, &v.path}) {
        append_text(out, *text);
    }
    return out;
}

verdict verdict_of(std::string_view bytes) {
    verdict v;
    extract(bytes, v.what);
    for (std::string* text : {&v.message, &v.trace, &v.report, &v.path}) {
        *text = extract_text(bytes);
    }
    return v;
}

// The type of a function that explores as exploration::with() does. It calls its second argument
// after each execution. If that call returns false, the exploration ends.
using explores = std::function<verdict(exhaustive&, const std::function<bool(const verdict&)>&)>;

// The main function of a process that the first process has started. Never returns.
[[noreturn]] void work(int parent, shared_counts& all, const explores& explore) {
    constexpr std::uint64_t between = 256; // executions between two looks at `all`
    for (;;) {
        // Order: relaxed; a hint.
        all.hungry.fetch_add(1, std::memory_order_relaxed);
        char what = 0;
        std::string bytes;
        if (!put_message(parent, 'n', {}) || !get_message(parent, what, bytes)) {
            ::_exit(1);
        }
        all.hungry.fetch_sub(1, std::memory_order_relaxed);
        exhaustive search(false);
        search.begin_empty();
        search.add_branches(bytes);
        verdict told; // the counts that `all` has already
        const auto tell = [&](const verdict& v) {
            all.executions.fetch_add(v.executions - told.executions, std::memory_order_relaxed);
            all.pruned.fetch_add(v.pruned - told.pruned, std::memory_order_relaxed);
            told.executions = v.executions;
            told.pruned = v.pruned;
        };
        const verdict v = explore(search, [&](const verdict& so_far) {
            if ((so_far.executions + so_far.pruned) % between == 0) {
                tell(so_far);
                if (all.hungry.load(std::memory_order_relaxed) != 0 && search.branches() > 1) {
                    return put_message(parent, 'g', search.take_branches(search.branches() / 2));
                }
            }
            return true;
        });
        tell(v);
        if (v.what != failure::none && v.what != failure::empty) {
            put_message(parent, 'r', bytes_of(v));
            ::_exit(0);
        }
    }
}

// The processes that the first process has started.
class work_force {
    struct process {
        pid_t id = -1;
        int socket = -1;
        bool waits = false;
    };

public:
    work_force() = default;
    work_force(const work_force&) = delete;
    work_force& operator=(const work_force&) = delete;
    ~work_force() {
        for (const process& p : all_) {
            if (p.socket >= 0) {
                ::close(p.socket);
                ::kill(p.id, SIGKILL);
            }
            int status = 0;
            while (::waitpid(p.id, &status, 0) < 0 && errno == EINTR) {
            }
        }
    }

    // Starts a process. Returns false if it cannot be started.
    bool start(shared_counts& counts, const explores& explore) {
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
            return false;
        }
        std::fflush(nullptr);
        const pid_t id = ::fork();
        if (id == 0) {
            ::close(ends[0]);
            for (const process& p : all_) {
                ::close(p.socket);
            }
            work(ends[1], counts, explore);
        }
        ::close(ends[1]);
        if (id < 0) {
            ::close(ends[0]);
            return false;
        }
        all_.push_back({id, ends[0], false});
        return true;
    }

    bool empty() const noexcept { return all_.empty(); }

    // Gives branches to the processes until all branches are explored or a process finds a failure.
    // Calls look() repeatedly. If look() returns false, ends the exploration.
    verdict run(exhaustive& first, const std::function<bool()>& look) {
        const std::size_t share = first.branches() / all_.size() + 1;
        while (first.branches() != 0) {
            pool_.push_back(first.take_branches(share));
        }
        std::vector<pollfd> polled(all_.size());
        for (;;) {
            if (!pass_on()) {
                return {};
            }
            for (std::size_t i = 0; i < all_.size(); ++i) {
                polled[i] = {all_[i].socket, POLLIN, 0};
            }
            if (::poll(polled.data(), polled.size(), 200) < 0 && errno != EINTR) {
                return lost("poll() fails");
            }
            for (std::size_t i = 0; i < all_.size(); ++i) {
                if (polled[i].revents == 0) {
                    continue;
                }
                char what = 0;
                std::string bytes;
                if (!get_message(all_[i].socket, what, bytes)) {
                    return lost(
                        "a process that explores has ended, perhaps by an error of the body");
                }
                if (what == 'n') {
                    all_[i].waits = true;
                } else if (what == 'g') {
                    pool_.push_back(std::move(bytes));
                } else {
                    return verdict_of(bytes);
                }
            }
            if (!look()) {
                return {};
            }
        }
    }

private:
    static verdict lost(const char* why) {
        verdict v;
        v.what = failure::terminated;
        v.message = why;
        return v;
    }

    // Gives the available branches to processes that wait for branches. Returns false if all
    // processes wait and no branch is available: the exploration is complete.
    bool pass_on() {
        bool all_wait = true;
        for (process& p : all_) {
            if (p.waits && !pool_.empty()) {
                p.waits = !put_message(p.socket, 'w', pool_.front());
                pool_.pop_front();
            }
            all_wait = all_wait && p.waits;
        }
        return !all_wait || !pool_.empty();
    }

    std::vector<process> all_;
    std::deque<std::string> pool_;
};

#endif

}}}} // namespace bide::BIDE_ABI::model::detail

#endif

// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_BRANCHES_HPP
#define BIDE_MODEL_IMPL_BRANCHES_HPP

// Passes unexplored branches to other processes, and to later runs of the program. Branches are
// independent of each other, so any process and any run can explore any branch.
//
// An exploration by several processes begins in one. When there are enough branches, this first
// process starts the others by fork(). After that, it explores nothing, and passes branches from
// processes that have several to processes that have none. A message is a letter, the number of
// bytes, and the bytes:
//
//   to the first process    n  the sender has no branch left; the message has no bytes
//                           g  the sender gives branches away: the bytes are the branches
//                           r  the sender has found a failure: the bytes are the verdict
//   to another process      w  the receiver explores these branches
//
// The environment variable BIDE_MODEL_STATE names a folder. It has a file for each exploration that
// was not finished, so that another run of the program can continue it. A file that another build
// of the program has saved is ignored.

#include <bide/model/impl/exhaustive.hpp>

#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <typeinfo>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace model::detail { namespace {

// Returns the number of executions that were begun.
std::uint64_t total(const verdict& v) { return v.executions + v.pruned; }

// ---- Several processes

// What all processes share.
struct shared_counts {
    std::atomic<int> hungry{0}; // processes without branches
    std::atomic<std::uint64_t> executions{0};
    std::atomic<std::uint64_t> pruned{0};
    thread_names names;
};

// Calls part(bytes, size) until all bytes are sent or received. Returns false if a call fails.
template <class Part> bool all_parts(char* bytes, std::size_t size, Part&& part) {
    while (size != 0) {
        const ssize_t done = part(bytes, size);
        if (done == 0 || (done < 0 && errno != EINTR)) {
            return false;
        }
        bytes += std::max<ssize_t>(done, 0);
        size -= static_cast<std::size_t>(std::max<ssize_t>(done, 0));
    }
    return true;
}

bool put_message(int to, char what, const std::string& bytes) {
    std::string all(1, what);
    append(all, static_cast<std::uint64_t>(bytes.size()));
    all += bytes;
    return all_parts(all.data(), all.size(), [to](const char* from, std::size_t size) {
        return ::send(to, from, size, MSG_NOSIGNAL);
    });
}

bool get_message(int from, char& what, std::string& bytes) {
    const auto get = [from](char* to, std::size_t size) { return ::recv(from, to, size, 0); };
    std::uint64_t size = 0;
    bytes.resize(1 + sizeof size);
    if (!all_parts(bytes.data(), bytes.size(), get)) {
        return false;
    }
    std::string_view head = bytes;
    extract(head, what);
    extract(head, size);
    bytes.resize(static_cast<std::size_t>(size));
    return all_parts(bytes.data(), bytes.size(), get);
}

std::string bytes_of(const verdict& v) {
    std::string out;
    append(out, v.what);
    for (const std::string* text : {&v.message, &v.trace, &v.report, &v.path}) {
        out += *text + '\0';
    }
    return out;
}

verdict verdict_of(std::string_view bytes) {
    verdict v;
    extract(bytes, v.what);
    for (std::string* text : {&v.message, &v.trace, &v.report, &v.path}) {
        *text = bytes.substr(0, bytes.find('\0'));
        bytes.remove_prefix(text->size() + 1);
    }
    return v;
}

// The type of a function that explores as exploration::with() (impl/check.hpp) does. It calls its
// second argument after each execution. If that call returns false, the exploration ends.
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
        search.names = &all.names;
        search.begin_with(bytes);
        verdict told; // the counts that `all` has already
        const auto tell = [&](const verdict& v) {
            all.executions.fetch_add(v.executions - told.executions, std::memory_order_relaxed);
            all.pruned.fetch_add(v.pruned - told.pruned, std::memory_order_relaxed);
            told.executions = v.executions;
            told.pruned = v.pruned;
        };
        const verdict v = explore(search, [&](const verdict& so_far) {
            if (total(so_far) % between == 0) {
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
    work_force()
        : counts_(::mmap(nullptr, sizeof(shared_counts), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
        if (counts_ != MAP_FAILED) {
            ::new (counts_) shared_counts;
        }
    }
    work_force(const work_force&) = delete;
    work_force& operator=(const work_force&) = delete;
    ~work_force() {
        for (const process& p : all_) {
            ::close(p.socket);
            ::kill(p.id, SIGKILL);
            while (::waitpid(p.id, nullptr, 0) < 0 && errno == EINTR) {
            }
        }
        if (counts_ != MAP_FAILED) {
            ::munmap(counts_, sizeof(shared_counts));
        }
    }

    // Returns nullptr if there is no memory for the counts. Then no process is started.
    shared_counts* counts() const noexcept {
        return counts_ != MAP_FAILED ? static_cast<shared_counts*>(counts_) : nullptr;
    }

    // Starts as many processes as possible, at most `jobs`. Returns false if there is none.
    bool start(unsigned jobs, const explores& explore) {
        int ends[2];
        while (counts() != nullptr && all_.size() < jobs &&
               ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0) {
            std::fflush(nullptr);
            const pid_t id = ::fork();
            if (id == 0) {
                ::close(ends[0]);
                for (const process& p : all_) {
                    ::close(p.socket);
                }
                work(ends[1], *counts(), explore);
            }
            ::close(ends[1]);
            if (id < 0) {
                ::close(ends[0]);
                break;
            }
            all_.push_back({id, ends[0], false});
        }
        return !all_.empty();
    }

    // Gives branches to the processes until all branches are explored or a process finds a failure.
    // Calls look() repeatedly. If look() returns false, ends the exploration.
    verdict run(exhaustive& first, const std::function<bool()>& look) {
        const std::size_t share = first.branches() / all_.size() + 1;
        while (first.branches() != 0) {
            pool_.push_back(first.take_branches(share));
        }
        std::vector<pollfd> polled;
        for (const process& p : all_) {
            polled.push_back({p.socket, POLLIN, 0});
        }
        while (pass_on()) {
            if (::poll(polled.data(), polled.size(), 200) < 0 && errno != EINTR) {
                return {.what = failure::terminated, .message = "poll() fails"};
            }
            for (std::size_t i = 0; i < all_.size(); ++i) {
                char what = 0;
                std::string bytes;
                if (std::exchange(polled[i].revents, short{0}) == 0) {
                    continue;
                }
                if (!get_message(all_[i].socket, what, bytes)) {
                    return {.what = failure::terminated,
                            .message = "a process that explores has ended, perhaps by an error of "
                                       "the body"};
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
                break;
            }
        }
        return {};
    }

private:
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

    void* const counts_;
    std::vector<process> all_;
    std::deque<std::string> pool_;
};

// ---- A later run

class saved_state {
    using clock = std::chrono::steady_clock;

public:
    saved_state(std::string_view name, const options& how, [[maybe_unused]] const body& run) {
        const char* const folder = std::getenv("BIDE_MODEL_STATE");
        if (folder == nullptr || *folder == '\0') {
            return;
        }
        std::string file(name);
        std::replace_if(
            file.begin(), file.end(),
            [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
        static std::map<std::string, int, std::less<>> uses; // a program may use a name twice
        if (const int use = uses[std::string(name)]++; use != 0) {
            file += "." + std::to_string(use);
        }
        path_ = std::filesystem::path(folder) / (file + ".state");
        // Saved branches are valid only for the same program and the same body.
        head_ = "bide model 2\n" + std::string(name) + '\n';
#if defined(__cpp_rtti)
        head_ += std::string(run.target_type().name()) + '\n';
#endif
        for (const int of : {how.spurious, how.timeouts, how.weak_failures, how.clock_jumps,
                             how.reused_addresses, how.max_steps}) {
            head_ += std::to_string(of) + '\n';
        }
        std::error_code error;
        const std::filesystem::path self = "/proc/self/exe";
        append(head_, std::filesystem::file_size(self, error));
        append(head_, std::filesystem::last_write_time(self, error).time_since_epoch().count());
    }

    bool is_wanted() const noexcept { return !path_.empty(); }

    // Sets the counts, the names and the branches from the file, if there is a complete one.
    void load(exhaustive& to, verdict& counts) const {
        std::ifstream in(path_, std::ios::binary);
        const std::string all{std::istreambuf_iterator<char>(in), {}};
        std::string_view rest = all;
        verdict found;
        if (!rest.starts_with(head_)) {
            return;
        }
        rest.remove_prefix(head_.size());
        if (!extract(rest, found.executions) || !extract(rest, found.pruned)) {
            return;
        }
        const std::string_view threads = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(threads.size() + 1, rest.size()));
        if ((threads.empty() || to.names->read(threads)) && to.begin_with(rest)) {
            counts = found;
        }
    }

    // Counts an execution, and saves the state from time to time.
    void look(const exhaustive& s, const verdict& counts) {
        constexpr std::uint64_t between = 1'024;
        constexpr std::chrono::seconds every{30};
        if (++looks_ % between == 0 && clock::now() - last_ > every) {
            save(s, counts);
            last_ = clock::now();
        }
    }

    void save(const exhaustive& s, const verdict& counts) const {
        std::string all = head_;
        append(all, counts.executions);
        append(all, counts.pruned);
        all += s.names->text(max_threads) + '\n' + s.branch_text(s.branches());
        std::error_code error;
        std::filesystem::create_directories(path_.parent_path(), error);
        const std::filesystem::path next = path_.string() + ".new";
        const bool is_written =
            static_cast<bool>(std::ofstream(next, std::ios::binary)
                                  .write(all.data(), static_cast<std::streamsize>(all.size()))
                                  .flush());
        error.clear();
        if (is_written) {
            std::filesystem::rename(next, path_, error);
        }
        if (!is_written || error) {
            std::fprintf(stderr, "BIDE_MODEL_STATE: %s cannot be written\n", path_.c_str());
        }
    }

    void remove() const noexcept {
        std::error_code error;
        std::filesystem::remove(path_, error);
    }

private:
    std::filesystem::path path_;
    std::string head_; // the first bytes of the file
    std::uint64_t looks_ = 0;
    clock::time_point last_ = clock::now();
};

}}}} // namespace bide::BIDE_ABI::model::detail

#endif

// # 5. Graceful shutdown
//
// When its user presses Ctrl-C, a downloader finishes what is in flight within a grace time, and starts nothing new.
// It leaves no half-written file. A second Ctrl-C ends it at once.

#include <bide/bide.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#include <unistd.h>

using namespace std::chrono_literals;

// **The signals.** Hardly anything may be called in a signal handler, so there is none. The signals are blocked,
// and one thread takes them with `sigwait()`. Threads inherit what is blocked, so this object is made before
// any other thread. The first signal requests a stop of one `std::stop_source`, the next one of another. The
// rest of the program knows stop tokens only, and can be tested without a signal.

class interrupts {
public:
    interrupts() : listener_([this] { listen(); }) {}
    ~interrupts() { ::pthread_kill(listener_.native_handle(), SIGUSR1); } // and joins it
    interrupts(const interrupts&) = delete;
    interrupts& operator=(const interrupts&) = delete;

    std::stop_token first() const { return first_.get_token(); }
    std::stop_token second() const { return second_.get_token(); }

private:
    static sigset_t blocked() {
        sigset_t signals;
        ::sigemptyset(&signals);
        for (const int signal : {SIGINT, SIGTERM, SIGUSR1})
            ::sigaddset(&signals, signal);
        ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
        return signals;
    }
    void listen() {
        for (int signal = 0; ::sigwait(&signals_, &signal) == 0 && signal != SIGUSR1;)
            if (!first_.request_stop())
                second_.request_stop();
    }

    const sigset_t signals_ = blocked();
    std::stop_source first_;
    std::stop_source second_;
    std::jthread listener_;
};

// **A file in the making** has another name until it is complete. If it is not kept, its destructor removes it,
// whether an error or a cancellation ends the download.

class part_file {
public:
    explicit part_file(const std::filesystem::path& name) : name_(name), part_(name) {
        part_ += ".part";
        out_.exceptions(std::ios::failbit | std::ios::badbit); // a full disk throws
        out_.open(part_, std::ios::binary);
    }
    ~part_file() {
        std::error_code ignored;
        std::filesystem::remove(part_, ignored);
    }
    part_file(const part_file&) = delete;
    part_file& operator=(const part_file&) = delete;

    void write(const std::string& block) { out_ << block; }
    void keep() {
        out_.close();
        std::filesystem::rename(part_, name_);
    }

private:
    std::filesystem::path name_, part_;
    std::ofstream out_;
};

// The server of this chapter has three blocks of everything. What is "slow" has its second block after an event,
// what is "hung" never, and what is "missing" is an error. A real one is read through a socket.

struct server {
    bide::latch in_flight{3}; // slow and hung downloads that have begun
    bide::event slow_ones;
    bide::event never;

    bide::task<bide::result<std::string>> get(std::string name, int block) {
        if (name.starts_with("missing"))
            co_return bide::unexpected{bide::errc::closed};
        const bool waits = name.starts_with("slow") || name.starts_with("hung");
        if (waits && block == 1) {
            in_flight.count_down();
            co_await (name.starts_with("slow") ? slow_ones : never).async_wait();
        }
        co_await bide::this_task::yield();
        co_return block < 3 ? name + "\n" : "";
    }
};

// **A download** waits between blocks, so that is where a cancellation ends it. An error of the server ends this
// download alone. An exception, such as that of a full disk, would end all of them: they are in one group.

struct counts {
    std::atomic<int> saved{0}, failed{0};
    int started = 0;
};

bide::task<> download(server& from, std::filesystem::path to, counts& n, bide::permit) {
    part_file file(to);
    for (int block = 0;; ++block) {
        const auto bytes = co_await from.get(to.filename().string(), block);
        if (!bytes) {
            ++n.failed;
            co_return;
        }
        if (bytes->empty())
            break;
        file.write(*bytes);
    }
    file.keep();
    ++n.saved;
}

// **All downloads**, three at a time. The wait for a permit ends with the first signal. A permit that is there is
// granted even after a stop, so the loop asks the token, too.
//
// Then the downloads in flight end by themselves, or have the grace time from the signal on, or until the second
// signal. A wait of `async_join()` that ends early leaves the children alone. `cancel()` stops their waits, and the
// last `async_join()` returns when all have unwound and removed their files. Each case takes the same way out.

bide::task<> download_all(bide::scheduler& workers, server& from, std::filesystem::path folder,
                          const std::vector<std::string>& names, const interrupts& user,
                          std::chrono::milliseconds grace, counts& n) {
    const std::stop_token stop = user.first();
    const std::stop_token hurry = user.second();
    bide::semaphore room{3};
    bide::task_group downloads(workers);
    for (const std::string& name : names) {
        auto mine = co_await room.async_acquire().with_stop(stop);
        if (!mine || stop.stop_requested())
            break;
        downloads.spawn(download(from, folder / name, n, std::move(*mine)));
        ++n.started;
    }

    auto ended = co_await downloads.async_join().with_stop(stop);
    if (!ended)
        ended = co_await downloads.async_join().with_timeout(grace).with_stop(hurry);
    if (!ended) {
        downloads.cancel();
        co_await downloads.async_join();
    }
}

// The program is its own user: when three downloads are in flight, it sends itself SIGINT, and perhaps again. What
// is slow comes to its end after the first signal.

bool run(const std::vector<std::string>& names, std::chrono::milliseconds grace, bool is_in_a_hurry,
         int saved, int failed, int started) {
    const auto folder =
        std::filesystem::temp_directory_path() / ("bide_downloads_" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder);
    interrupts user;
    server from;
    counts n;
    {
        const std::stop_callback after_the_first(user.first(), [&] {
            from.slow_ones.set();
            if (is_in_a_hurry)
                ::kill(::getpid(), SIGINT);
        });
        const std::jthread keyboard([&from] {
            from.in_flight.wait();
            ::kill(::getpid(), SIGINT);
        });
        bide::scheduler workers;
        bide::sync_wait(workers, download_all(workers, from, folder, names, user, grace, n));
    }
    int files = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder))
        files += file.path().extension() == ".part" ? 1000 : 1;
    std::filesystem::remove_all(folder);
    std::printf("%d started, %d saved, %d failed\n", n.started, n.saved.load(), n.failed.load());
    return n.saved == saved && n.failed == failed && n.started == started && files == saved;
}

// In the first run, the slow downloads are finished and "d" is not started. In the second one, the grace time
// ends those that hang, in the third one the second signal. In a program, `main()` would make the `interrupts`,
// and return 130 after a SIGINT, as shells expect.

int main() {
    const bool finishes =
        run({"a", "missing", "b", "slow1", "slow2", "slow3", "d"}, 1h, false, 5, 1, 6);
    const bool gives_up = run({"a", "hung1", "hung2", "hung3", "d"}, 10ms, false, 1, 0, 4);
    const bool hurries = run({"a", "hung1", "hung2", "hung3", "d"}, 1h, true, 1, 0, 4);
    return finishes && gives_up && hurries ? 0 : 1;
}

// **Limits.** A call that blocks its thread, such as a lookup of a name or a write to a slow disk, is not ended by
// a cancellation; the group waits for it. Give such calls a time-out of their own. On Linux, `signalfd(2)` and the
// `epoll_driver` take the signals without a thread.

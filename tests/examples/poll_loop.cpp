// poll_loop: a program whose loop is poll(2), and whose work is done by threads and tasks of bide. It
// reads lines from stdin, lets a thread count the words of each, and prints the counts. All of its
// output comes from the thread of the loop, so nothing here has a lock.

#include <bide/bide.hpp>

#include <array>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include <poll.h>
#include <unistd.h>

namespace {

struct count {
    std::string line;
    int words;
};

// Runs on its own thread, and blocks.
void count_words(bide::channel<std::string>& lines, bide::channel<count>& counts) {
    for (std::string line : lines) {
        std::istringstream text(line);
        int words = 0;
        for (std::string word; text >> word;) {
            ++words;
        }
        if (!counts.send(count{std::move(line), words})) {
            return;
        }
    }
    counts.close();
}

// Runs on the thread of the loop: it waits for room without blocking the loop.
bide::task<> hand_over(bide::channel<std::string>& lines, bide::semaphore& turn, std::string line) {
    const auto mine = co_await turn.async_acquire(); // first come, first served
    const auto sent = co_await lines.async_send(std::move(line));
    if (!sent) {
        std::puts("a line is lost");
    }
}

} // namespace

int main() {
    bide::channel<std::string> lines(2);
    bide::channel<count> counts(2);
    bide::semaphore turn(1);
    std::jthread counting([&] { count_words(lines, counts); });

    bide::poll_executor loop; // runs tasks in this loop
    bide::executor_runner tasks(loop, [](std::exception_ptr) { std::puts("a task has failed"); });
    bide::pollable_wait<std::optional<count>> next; // readable when there is a count
    next.begin(counts.async_recv());

    std::string input;
    int total = 0;
    bool is_open = true;
    for (;;) {
        std::array<pollfd, 3> files{pollfd{loop.fd(), POLLIN, 0}, pollfd{next.fd(), POLLIN, 0},
                                    pollfd{is_open ? STDIN_FILENO : -1, POLLIN, 0}};
        if (::poll(files.data(), files.size(), -1) < 0) {
            continue; // a signal
        }
        loop.run();
        if (next.is_complete()) {
            auto counted = next.take().value();
            if (!counted) {
                break; // the channel is closed, and all lines are counted
            }
            std::printf("%d %s\n", counted->words, counted->line.c_str());
            total += counted->words;
            next.begin(counts.async_recv());
        }
        if (files[2].revents != 0) {
            std::array<char, 512> buffer{};
            const ssize_t n = ::read(STDIN_FILENO, buffer.data(), buffer.size());
            input.append(buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
            for (std::size_t end; (end = input.find('\n')) != std::string::npos;) {
                tasks.spawn(hand_over(lines, turn, input.substr(0, end))).detach();
                input.erase(0, end + 1);
            }
            is_open = n > 0;
        }
        if (!is_open && tasks.tasks() == 0) {
            lines.close(); // the counter ends after the last line
        }
    }
    std::printf("%d words\n", total);
}

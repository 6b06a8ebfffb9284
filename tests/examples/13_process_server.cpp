// # 13. A server with child processes
//
// A server starts a program for each connection, as inetd does. SIGTERM or Ctrl-C ends it: it accepts nothing more, asks
// its children to end, kills those that do not end within a grace time, and leaves no zombie. A second Ctrl-C ends the
// server at once. [Signals and children](../../include/bide/io/README.md#signals-and-child-processes) are for Linux.

#include <bide/bide.hpp>
#include <bide/io.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace std::chrono_literals;

// The program of a connection: a script that reads one word. "wait" waits for ever, and "stubborn" ignores SIGTERM, too.

const char* const script = "read word; case $word in"
                           " wait) echo ready; exec sleep 1000;;"
                           " stubborn) trap '' TERM; echo ready; exec sleep 1000;;"
                           " *) echo ready;; esac";

struct counts {
    std::atomic<int> exited{0}, asked{0}, killed{0};
};

// **A connection** belongs to its child, whose input and output it is. The descriptor of an `io_socket` does not block,
// but programs expect that theirs does. A stop ends the wait for the child, not the child. So the task asks the child to
// end, gives it the grace time, and kills it. The last wait is short: nothing survives SIGKILL.

bide::task<> run_child(bide::io_socket peer, std::stop_token stop, std::chrono::milliseconds grace,
                       counts& n) {
    const int fd = peer.release();
    ::fcntl(fd, F_SETFL, 0);
    auto child = bide::child_process::spawn({"sh", "-c", script}, {.in = fd, .out = fd});
    ::close(fd);
    if (!child) {
        std::fprintf(stderr, "cannot start sh: %s\n", child.error().message().c_str());
        co_return;
    }
    auto end = co_await child->async_wait().with_stop(stop);
    if (!end) {
        child->kill(SIGTERM);
        end = co_await child->async_wait().with_timeout(grace);
    }
    if (!end) {
        child->kill(SIGKILL);
        end = co_await child->async_wait();
    }
    ++(end->signal == SIGKILL ? n.killed : end->signal == SIGTERM ? n.asked : n.exited);
}

bide::task<> accept_all(bide::io_socket& door, bide::task_group& sessions, std::stop_token stop,
                        std::chrono::milliseconds grace, counts& n) {
    for (;;) {
        auto peer = co_await door.async_accept().with_stop(stop);
        if (peer) {
            sessions.spawn(run_child(std::move(*peer), stop, grace, n));
        } else if (stop.stop_requested()) {
            co_return;
        } else {
            co_await bide::this_task::sleep_for(100ms); // such as too many open files
        }
    }
}

// **The server.** All of its tasks are children of one group, so it returns when the last child process has ended. The
// signals have their usual action again after the block: from then on, Ctrl-C ends the process at once.

bide::task<> serve(bide::scheduler& workers, bide::io_socket& door, bide::event& is_open,
                   std::chrono::milliseconds grace, counts& n) {
    std::stop_source stop;
    bide::task_group sessions(workers);
    {
        bide::signal_set ends(SIGINT, SIGTERM);
        sessions.spawn(accept_all(door, sessions, stop.get_token(), grace, n));
        is_open.set();
        const int signal = co_await ends.async_wait();
        std::printf("signal %d: ends\n", signal);
    }
    stop.request_stop();
    co_await sessions.async_join();
}

// The program is its own user: three clients talk to it. When the first child has ended by itself, and the two others
// have said that they are ready, the program sends itself SIGTERM.

bide::task<> talk(bide::epoll_driver& files, sockaddr_in to, std::string word, bide::latch& ready) {
    auto peer = co_await bide::async_connect(files, to);
    if (!peer) {
        co_return;
    }
    std::array<std::byte, 16> answer{};
    static_cast<void>(co_await bide::async_write(*peer, std::as_bytes(std::span(word))));
    static_cast<void>(co_await peer->async_read_some(answer));
    ready.count_down();
    while (true) { // until the child closes the connection
        const auto got = co_await peer->async_read_some(answer);
        if (!got || *got == 0) {
            co_return;
        }
    }
}

bide::task<> clients(bide::scheduler& workers, bide::epoll_driver& files, sockaddr_in to,
                     bide::event& is_open) {
    co_await is_open.async_wait();
    bide::latch ready(3);
    bide::task_group all(workers);
    co_await talk(files, to, "hello\n", ready);
    for (const char* const word : {"wait\n", "stubborn\n"}) {
        all.spawn(talk(files, to, word, ready));
    }
    co_await ready.async_wait();
    ::kill(::getpid(), SIGTERM);
    co_await all.async_join();
}

bool has_children() {
    siginfo_t info{};
    return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

int main() {
    bide::epoll_driver files;
    bide::scheduler workers({.io = &files});
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto door = bide::listen_at(files, at);
    if (!door) {
        std::fprintf(stderr, "cannot listen: %s\n", door.error().message().c_str());
        return 1;
    }
    socklen_t size = sizeof at; // the port that the system has chosen
    if (::getsockname(door->fd(), reinterpret_cast<sockaddr*>(&at), &size) != 0) {
        return 1;
    }
    counts n;
    bide::event is_open;
    auto users = workers.spawn(clients(workers, files, at, is_open));
    workers.spawn(serve(workers, *door, is_open, 200ms, n)).join();
    std::move(users).join();
    std::printf("%d ended by themselves, %d when they were asked, %d were killed\n",
                n.exited.load(), n.asked.load(), n.killed.load());
    // Where the processors are busy, a child may need more than the grace time to end.
    const bool all_ended = n.exited == 1 && n.asked + n.killed == 2 && n.killed >= 1;
    return all_ended && !has_children() ? 0 : 1;
}

// **Limits.** A child that starts children of its own does not pass a signal on to them. If it has a group of its own
// (`child_options::has_own_group`), kill(2) with `-child.pid()` reaches all of them, and Ctrl-C in the terminal
// reaches none: the server decides. If the server itself is killed by SIGKILL, its children run on.

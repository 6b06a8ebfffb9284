// # 15. A chat server with limits
//
// A client says its name, and from then on hears what the other clients say. No client can harm another one: the number
// of places is limited, and so are the length and the rate of messages and the time without one; and a client that does
// not read misses messages, while no other waits for it. SIGTERM or Ctrl-C ends the server. The sockets are for Linux.

#include <bide/bide.hpp>
#include <bide/io.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace std::chrono_literals;

// **The room.** Each message is kept once, for all visitors. A `broadcast` keeps the last 64; a visitor that is further
// behind has missed some, and is told how many.

using message = std::shared_ptr<const std::string>;

struct room {
    bide::broadcast<message> said{64};
    bide::semaphore places;

    void say(std::string text) { said.send(std::make_shared<const std::string>(std::move(text))); }
};

bide::task<bool> write_text(bide::io_socket& peer, const std::string& text) {
    const auto sent =
        co_await bide::async_write(peer, std::as_bytes(std::span(text))).with_timeout(10s);
    co_return sent.has_value();
}

bide::task<> hear(bide::io_socket& peer, bide::broadcast_subscriber<message> from) {
    for (bool is_open = true; is_open;) {
        const auto got = co_await from.async_recv();
        if (got) {
            is_open = co_await write_text(peer, **got);
        } else if (got.error().code == bide::errc::lagged) {
            is_open = co_await write_text(peer, std::to_string(got.error().missed) + " missed\n");
        } else {
            co_return; // the room is closed
        }
    }
}

// **Lines.** A line that is longer than 256 bytes, five minutes of silence and the end of the connection all end the
// input. The rate limiter lets ten messages pass at once and then two a second; meanwhile the task does not read, so a
// client that floods the room fills the buffers of its own connection.

class lines {
public:
    explicit lines(bide::io_socket& from) : from_(from) {}

    bide::task<std::string> next() { // with its end; empty at the end of the input
        for (;;) {
            const auto end = text_.find('\n');
            if (end != std::string::npos) {
                std::string line = text_.substr(0, end + 1);
                text_.erase(0, end + 1);
                co_return line;
            }
            std::array<std::byte, 256> buffer{};
            const auto got = co_await from_.async_read_some(buffer).with_timeout(5min);
            if (!got || *got == 0 || text_.size() + *got > 2 * buffer.size()) {
                co_return "";
            }
            text_.append(reinterpret_cast<const char*>(buffer.data()), *got);
        }
    }

private:
    bide::io_socket& from_;
    std::string text_;
};

bide::task<> speak(lines& from, std::string name, room& in) {
    bide::rate_limiter rate(2, 1s, 10);
    for (std::string line = co_await from.next(); !line.empty(); line = co_await from.next()) {
        co_await rate.async_acquire();
        in.say(name + ": " + line);
    }
}

// **A visit** is two tasks on one socket. `when_any` cancels the other one when the first has ended, and returns when
// both have. The permit is the visitor's place, and goes back at the end of the scope, as the connection does.

bide::task<> visit(bide::io_socket peer, room& in) {
    bide::permit place(in.places, std::try_to_lock);
    if (!place) {
        co_await write_text(peer, "the room is full\n");
        co_return;
    }
    lines from(peer);
    std::string name = co_await from.next();
    if (name.empty()) {
        co_return;
    }
    name.pop_back();
    auto heard = in.said.subscribe();
    in.say(name + " is here\n");
    co_await bide::when_any(speak(from, name, in), hear(peer, std::move(heard)));
    in.say(name + " has left\n");
}

// **The server.** When the signal has come, it accepts nothing more and closes the room. Each visitor still hears what
// was said, then `hear()` ends, and with it the visit. A client that does not read has ten seconds.

bide::task<> accept_all(bide::io_socket& door, bide::task_group& visits, room& in) {
    for (;;) {
        auto peer = co_await door.async_accept();
        if (peer) {
            visits.spawn(visit(std::move(*peer), in));
        } else {
            co_await bide::this_task::sleep_for(100ms); // such as too many open files
        }
    }
}

bide::task<> until_signal(bide::event& is_open) {
    bide::signal_set ends(SIGINT, SIGTERM);
    is_open.set();
    co_await ends.async_wait();
}

bide::task<> serve(bide::scheduler& workers, bide::io_socket& door, room& in,
                   bide::event& is_open) {
    bide::task_group visits(workers);
    co_await bide::when_any(accept_all(door, visits, in), until_signal(is_open));
    in.say("the server ends\n");
    in.said.close();
    co_await visits.async_join();
}

// The program is its own user: two clients talk in a room with two places, a third finds no place, and SIGTERM ends all.

bide::task<bool> expect(lines& from, std::string text) {
    for (std::string line = co_await from.next(); !line.empty(); line = co_await from.next()) {
        if (line == text) {
            co_return true;
        }
    }
    co_return false;
}

bide::task<bool> clients(bide::epoll_driver& files, sockaddr_in to, bide::event& is_open) {
    co_await is_open.async_wait();
    auto ann = co_await bide::async_connect(files, to);
    auto bob = co_await bide::async_connect(files, to);
    if (!ann || !bob) {
        co_return false;
    }
    lines to_ann(*ann);
    lines to_bob(*bob);
    bool ok = co_await write_text(*ann, "ann\n") && co_await expect(to_ann, "ann is here\n");
    ok = ok && co_await write_text(*bob, "bob\n") && co_await expect(to_ann, "bob is here\n");
    ok = ok && co_await write_text(*ann, "hello\n") && co_await expect(to_bob, "ann: hello\n");
    if (auto eve = co_await bide::async_connect(files, to)) {
        lines to_eve(*eve);
        ok = co_await expect(to_eve, "the room is full\n") && ok;
    }
    ::kill(::getpid(), SIGTERM);
    ok = co_await expect(to_ann, "the server ends\n") && ok;
    ok = co_await expect(to_bob, "the server ends\n") && ok;
    co_return ok && (co_await to_bob.next()).empty();
}

int main() {
    bide::epoll_driver files;
    bide::scheduler workers({.io = &files});
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto door = bide::listen_at(files, at);
    socklen_t size = sizeof at; // the port that the system has chosen
    if (!door || ::getsockname(door->fd(), reinterpret_cast<sockaddr*>(&at), &size) != 0) {
        std::fprintf(stderr, "cannot listen\n");
        return 1;
    }
    room in{.places = bide::semaphore(2)};
    bide::event is_open;
    auto server = workers.spawn(serve(workers, *door, in, is_open));
    const bool ok = workers.spawn(clients(files, at, is_open)).join();
    std::move(server).join();
    std::printf("%s\n", ok ? "all heard what was said" : "something was not heard");
    return ok ? 0 : 1;
}

// **Limits.** The names of those in the room are not kept; a `synchronized_value` of a set is the place for them. A message is sent
// in one write each. Names are taken as they come, twice if two clients say the same, and there is no TLS.

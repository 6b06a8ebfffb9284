// echo_client ECHO: starts the server, and talks to it through plain sockets of several threads at once.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int clients = 8;
constexpr auto patience = std::chrono::seconds(40);

std::atomic<pid_t> server{0};

[[noreturn]] void give_up(const char* what) {
    std::fprintf(stderr, "echo_client: %s\n", what);
    if (const pid_t running = server; running > 0) {
        ::kill(running, SIGKILL);
    }
    std::_Exit(1);
}

int stream_socket() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    if (fd < 0 || ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0) {
        give_up("no socket");
    }
    const timeval limit{40, 0}; // a server that does not answer is a failure
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return fd;
}

// Reserves a port: it is bound here, and only the server listens.
class reserved_port {
public:
    reserved_port() : fd_(stream_socket()) {
        at_.sin_family = AF_INET;
        socklen_t size = sizeof at_;
        if (::bind(fd_, reinterpret_cast<sockaddr*>(&at_), size) != 0 ||
            ::getsockname(fd_, reinterpret_cast<sockaddr*>(&at_), &size) != 0) {
            give_up("no port");
        }
        at_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    reserved_port(const reserved_port&) = delete;
    reserved_port& operator=(const reserved_port&) = delete;
    ~reserved_port() { ::close(fd_); }

    std::string number() const { return std::to_string(ntohs(at_.sin_port)); }
    // Waits until the server listens.
    int connect() const {
        const auto end = std::chrono::steady_clock::now() + patience;
        while (std::chrono::steady_clock::now() < end) {
            const int fd = stream_socket();
            if (::connect(fd, reinterpret_cast<const sockaddr*>(&at_), sizeof at_) == 0) {
                return fd;
            }
            ::close(fd);
            std::this_thread::yield();
        }
        give_up("the server does not listen");
    }

private:
    int fd_;
    sockaddr_in at_{};
};

// Sends blocks of several sizes, and expects each back.
void talk(const reserved_port& to, int number) {
    const int fd = to.connect();
    std::size_t sent = 0;
    for (std::size_t size : {1u, 100u, 4'096u, 5'000u, 200'000u}) {
        std::string text(size, '\0');
        for (char& c : text) {
            c = static_cast<char>('a' + (sent++ + static_cast<std::size_t>(number)) % 26);
        }
        std::thread sending([&] {
            for (std::size_t done = 0; done < size;) {
                const ssize_t n = ::send(fd, text.data() + done, size - done, MSG_NOSIGNAL);
                if (n <= 0) {
                    give_up("cannot send");
                }
                done += static_cast<std::size_t>(n);
            }
        });
        std::string back(size, '\0');
        if (::recv(fd, back.data(), size, MSG_WAITALL) != static_cast<ssize_t>(size) ||
            back != text) {
            give_up("something else came back");
        }
        sending.join();
    }
    ::shutdown(fd, SHUT_WR);
    char more = 0;
    if (::recv(fd, &more, 1, 0) != 0) {
        give_up("the server does not close");
    }
    ::close(fd);
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        give_up("usage: echo_client ECHO");
    }
    const reserved_port port;
    const std::string number = port.number();
    const pid_t child = ::fork();
    if (child == 0) {
        ::execl(argv[1], argv[1], number.c_str(), static_cast<char*>(nullptr));
        std::_Exit(127);
    }
    server = child;
    const int idle = port.connect(); // says nothing, and keeps no other client waiting
    std::vector<std::thread> threads;
    for (int i = 0; i < clients; ++i) {
        threads.emplace_back([&port, i] { talk(port, i); });
    }
    for (std::thread& t : threads) {
        t.join();
    }
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) != 0) {
        server = 0;
        give_up("the server has ended");
    }
    ::close(idle);
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    std::puts("echo_client: passed");
}

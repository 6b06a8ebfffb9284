#ifndef BIDE_TESTS_SUPPORT_LOOPBACK_HPP
#define BIDE_TESTS_SUPPORT_LOOPBACK_HPP

// Sockets of 127.0.0.1.

#include <support/standard.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace test {

inline int new_socket(int flags = 0) noexcept {
    return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
}

inline sockaddr_in loopback(std::uint16_t port) noexcept {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

inline bool connects(int fd, std::uint16_t port) noexcept {
    const sockaddr_in address = loopback(port);
    return ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

inline bool binds(int fd, std::uint16_t port) noexcept {
    const sockaddr_in address = loopback(port);
    return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// Listens at a free port, and returns it.
inline std::uint16_t listens(int fd) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    if (!binds(fd, 0) || ::listen(fd, 64) != 0 ||
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        std::perror("listen");
        std::abort();
    }
    return ntohs(address.sin_port);
}

} // namespace test

#endif

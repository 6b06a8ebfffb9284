#include <bide/io/uring_driver.hpp>

#include <cstdio>
#include <system_error>

int main() {
    try {
        bide::uring_driver io;
        io.wake();
        return io.wait(bide::deadline::never()) == 0 ? 0 : 1;
    } catch (const std::system_error& error) {
        std::puts(error.what()); // many containers forbid io_uring
    }
}

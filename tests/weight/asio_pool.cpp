#include <asio/post.hpp>
#include <asio/thread_pool.hpp>

int main() {
    asio::thread_pool workers;
    asio::post(workers, [] {});
    workers.join();
}

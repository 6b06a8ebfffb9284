// A file of the program that includes the headers. Its types are those of the module.

#include <bide/bide.hpp>

#include <mutex>

bide::task<int> sum_of(bide::receiver<int> numbers) {
    int sum = 0;
    while (auto n = co_await numbers.async_recv()) {
        sum += *n;
    }
    co_return sum;
}

void count_to(bide::mutex& m, int& n, int last) {
    for (int i = 0; i < last; ++i) {
        const std::lock_guard lock(m);
        ++n;
    }
}

// Uses the library by `import bide;` alone: threads, coroutines, channels, select, fork-join.

#include <chrono>
#include <coroutine>
#include <cstdio>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

import bide;

// In mixed.cpp, which includes the headers.
bide::task<int> sum_of(bide::receiver<int> numbers);
void count_to(bide::mutex& m, int& n, int last);

namespace {

bool shares_a_mutex() {
    bide::mutex m{"shared"};
    int n = 0;
    std::thread other([&] { count_to(m, n, 1000); });
    for (int i = 0; i < 1000; ++i) {
        const std::lock_guard lock(m);
        ++n;
    }
    other.join();
    return n == 2000;
}

bool sends_to_a_task() {
    bide::scheduler s;
    auto [to, from] = bide::make_channel<int>(4);
    auto sum = s.spawn(sum_of(std::move(from)));
    for (int i = 1; i <= 100; ++i) {
        static_cast<void>(to.send(i));
    }
    to.close();
    return std::move(sum).join() == 5050;
}

bool selects() {
    bide::channel<int> numbers(1);
    bide::channel<char> letters(1);
    static_cast<void>(letters.try_send('b'));
    auto got = bide::select(bide::on_recv(numbers), bide::on_recv(letters));
    return got.index() == 1 && got.get<1>() == 'b';
}

bool waits_in_coroutines() {
    bide::semaphore permits(0);
    auto waits = [](bide::semaphore& s) -> bide::task<bool> {
        auto late =
            co_await s.async_acquire().with_timeout(std::chrono::milliseconds(1)).as_result();
        co_await bide::this_task::sleep_for(std::chrono::milliseconds(1));
        s.release();
        auto permit = co_await s.async_acquire();
        co_return !late && late.error() == bide::errc::timeout;
    };
    return bide::sync_wait(waits(permits));
}

bool sums_in_parallel() {
    std::vector<int> numbers(100'000);
    std::iota(numbers.begin(), numbers.end(), 0);
    bide::scheduler s;
    bide::parallel_for(s, 0, 100'000, [&](int i) { numbers[static_cast<std::size_t>(i)] *= 2; });
    return std::accumulate(numbers.begin(), numbers.end(), 0LL) == 9'999'900'000;
}

bool says(const char* what, bool ok) {
    std::printf("%s: %s\n", what, ok ? "yes" : "no");
    return ok;
}

} // namespace

int main() {
    const bool all[] = {
        says("shares a mutex with a file of the headers", shares_a_mutex()),
        says("sends to a task of a file of the headers", sends_to_a_task()),
        says("selects", selects()),
        says("waits in coroutines", waits_in_coroutines()),
        says("sums in parallel", sums_in_parallel()),
    };
    for (const bool one : all) {
        if (!one) {
            return 1;
        }
    }
}

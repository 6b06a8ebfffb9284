// # 2. A bounded pipeline with progress
//
// Three stages run at the same time, joined by channels with room for a few items, and say how far they are.
// The first stage reads lines, two tasks parse them, the last stage adds the numbers up. However fast the
// first stage is, only a few lines are in memory.

#include <bide/bide.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>

using namespace std::chrono_literals;

// To see that the memory has a bound, the pipeline counts its lines between the first stage and the last.

struct meter {
    std::atomic<int> now{0};
    int most = 0; // of the last stage alone
};

// **The first stage** owns a sender of the channel. When the channel is full, `async_send()` suspends the
// coroutine until there is room: the slowest stage sets the pace of all. That is back pressure, and no stage
// has a line of code for it. If the other side is gone, the send fails and the item comes back in its
// result; here it is dropped. At its end the coroutine drops its sender. With the last sender the channel is
// closed: receivers get the items that are left, and then nothing.

bide::task<> read(int lines, int damaged, bide::sender<std::string> out, meter& between) {
    for (int i = 1; i <= lines; ++i) {
        std::string line = i == damaged ? "n/a" : std::to_string(i);
        ++between.now;
        auto sent = co_await out.async_send(std::move(line));
        if (!sent)
            co_return;
    }
}

// **The second stage** runs twice, and each of the two has a receiver and a sender of its own, which are copies.
// A line goes to one of them. `std::stoi()` throws if a line is no number; nothing here catches that.

bide::task<> parse(bide::receiver<std::string> in, bide::sender<int> out) {
    while (auto line = co_await in.async_recv()) {
        auto sent = co_await out.async_send(std::stoi(*line));
        if (!sent)
            co_return;
    }
}

// **The last stage** publishes its progress in a watch, which keeps the latest value alone. So a slow display
// never holds up the pipeline. The stage may return before its input ends. That drops the receiver, the send
// of the stage before it fails, and so on to the first: the pipeline ends from its end.

struct progress {
    int lines = 0;
    long long sum = 0;
};

bide::task<> add(bide::receiver<int> in, int enough, bide::watch<progress>& shown, meter& between) {
    progress so_far;
    while (auto number = co_await in.async_recv()) {
        between.most = std::max(between.most, between.now--);
        so_far.sum += *number;
        shown.send(so_far = {so_far.lines + 1, so_far.sum});
        if (so_far.lines == enough)
            co_return;
    }
}

// The display waits for a change, shows it, and rests. It ends when the watch is closed and it has seen the
// last value.

bide::task<> display(bide::watch<progress>::receiver shown) {
    for (;;) {
        auto changed = co_await shown.async_changed();
        if (!changed)
            co_return; // errc::closed
        const progress latest = shown.see();
        std::printf("%d lines, sum %lld\n", latest.lines, latest.sum);
        co_await bide::this_task::sleep_for(5ms);
    }
}

// **All together.** The stages are children of a group. `join()` returns when all have ended. The first one that
// throws cancels the others: what they wait for ends, they unwind, and their handles are dropped. When all
// have ended, `join()` throws that exception. It leaves the scope of the other group, too, whose destructor
// then cancels the display. So no task is left behind, whatever happens.
//
// The last copy of a handle is moved, not copied. A sender that stayed here would keep the channel open, and
// the last stage would wait for ever.

progress run(bide::scheduler& workers, int lines, int damaged, int enough) {
    constexpr int room = 8; // of each channel
    meter between;
    bide::watch<progress> shown;
    bide::task_group reports(workers);
    reports.spawn(display(shown.subscribe()));
    {
        auto [lines_out, lines_in] = bide::make_channel<std::string>(room);
        auto [numbers_out, numbers_in] = bide::make_channel<int>(room);
        bide::task_group stages(workers);
        stages.spawn(read(lines, damaged, std::move(lines_out), between));
        stages.spawn(parse(lines_in, numbers_out));
        stages.spawn(parse(std::move(lines_in), std::move(numbers_out)));
        stages.spawn(add(std::move(numbers_in), enough, shown, between));
        stages.join();
    }
    shown.close();
    reports.join();

    // Two channels, and one line in the hands of each of the four tasks.
    if (between.most > 2 * room + 4) {
        std::printf("%d lines in memory\n", between.most);
        return {}; // is not what main() expects
    }
    return shown.get();
}

// Three runs: one to the end of the input, one that has enough after a hundred lines, and one whose line 500 is
// damaged. The input of the last two is endless, so they end only because the pipeline stops its stages.

int main() {
    bide::scheduler workers;
    const progress all = run(workers, 10'000, 0, INT_MAX);
    const progress some = run(workers, INT_MAX, 0, 100);
    bool has_failed = false;
    try {
        run(workers, INT_MAX, 500, INT_MAX);
    } catch (const std::invalid_argument&) {
        std::printf("a line is no number\n");
        has_failed = true;
    }
    return all.sum == 50'005'000 && some.lines == 100 && has_failed ? 0 : 1;
}

// **Limits.** The parsers overtake each other, so the numbers may come in another order than the lines. To keep
// the order, use `buffered()` of the streams, or `parallel_pipeline()`, whose stages are functions. Each channel
// hands every item from task to task; where the work on an item is as short as here, send batches. A stage that
// blocks its thread, as a read of a file does, belongs on a thread of `spawn_blocking()`: `send()` and `recv()`
// of the same channel block there.

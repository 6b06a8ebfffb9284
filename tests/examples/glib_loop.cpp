// glib_loop: tasks of bide in the main loop of GLib, as in a GTK program. Two downloads run on threads
// of their own and report to a channel; a task in the main loop shows the progress, and a GLib timer
// goes on meanwhile. Everything that prints runs on the main thread.

#include <bide/bide.hpp>
#include <bide/io.hpp>
#include <bide/sched/executor_runner.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <glib-unix.h>
#include <glib.h>

using namespace std::chrono_literals;

namespace {

// Connects an executor to the default main context, for as long as it lives.
class glib_loop {
public:
    glib_loop() : source_(g_unix_fd_add(executor.fd(), G_IO_IN, &on_readable, &executor)) {}
    glib_loop(const glib_loop&) = delete;
    glib_loop& operator=(const glib_loop&) = delete;
    ~glib_loop() { g_source_remove(source_); }

    bide::poll_executor executor;

private:
    static gboolean on_readable(gint, GIOCondition, gpointer of) {
        static_cast<bide::poll_executor*>(of)->run();
        return G_SOURCE_CONTINUE;
    }
    const guint source_;
};

struct progress {
    int of; // which download
    int percent;
};

void download(int number, bide::channel<progress>& reports) {
    for (int percent = 50; percent <= 100; percent += 50) {
        static_cast<void>(reports.send(progress{number, percent}));
    }
}

bide::task<> show(bide::channel<progress>& reports, GMainLoop* loop, std::thread::id main) {
    int open = 2;
    while (open != 0) {
        const auto next = co_await reports.async_recv().with_timeout(30s);
        if (!next || !*next) {
            throw std::runtime_error("no report");
        }
        const progress& p = **next;
        std::printf("download %d: %d %%%s\n", p.of, p.percent,
                    std::this_thread::get_id() == main ? "" : ", on another thread");
        open -= p.percent == 100 ? 1 : 0;
    }
    co_await bide::this_task::sleep_for(5ms);
    std::puts("all done");
    g_main_loop_quit(loop);
}

bide::task<> fail() {
    co_await bide::this_task::yield();
    throw std::runtime_error("a task that fails");
}

} // namespace

int main() {
    glib_loop ui;
    GMainLoop* const loop = g_main_loop_new(nullptr, FALSE);
    int ticks = 0;
    const auto tick = [](gpointer n) -> gboolean { // GLib's own sources run meanwhile
        ++*static_cast<int*>(n);
        return G_SOURCE_CONTINUE;
    };
    const guint timer = g_timeout_add(1, tick, &ticks);

    bide::channel<progress> reports(1);
    std::jthread one([&] { download(1, reports); });
    std::jthread two([&] { download(2, reports); });
    bide::spawn(ui.executor, fail(), [](std::exception_ptr error) {
        try {
            std::rethrow_exception(std::move(error));
        } catch (const std::exception& e) {
            std::printf("told: %s\n", e.what());
        }
    });
    auto shown = bide::spawn(ui.executor, show(reports, loop, std::this_thread::get_id()));
    g_main_loop_run(loop);

    while (!shown.done()) { // the task has asked for the end of the loop, and is about to end
        g_main_context_iteration(nullptr, TRUE);
    }
    std::move(shown).join();
    g_source_remove(timer);
    g_main_loop_unref(loop);
    return ticks > 0 ? 0 : 1;
}

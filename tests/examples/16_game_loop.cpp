// # 16. A game loop
//
// A game has a loop of its own: it reads the input, lets the world move, draws, and does so sixty times a second. Its
// scripts are coroutines on a `run_loop`, which the main thread runs once a frame, so they touch the world without a
// lock. What computes much is divided among the workers of a scheduler, and what blocks, such as reading a file, has
// threads of its own.

#include <bide/bide.hpp>
#include <bide/parallel.hpp>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

struct particle {
    float height, speed;
};

struct world {
    std::vector<particle> particles;
    bide::notify next_frame;
    float brightness = 0;
    int frames = 0;
};

// **A script** is written in the order in which things happen. It waits for frames, not for times: a game that is
// slow, or is paused, does not skip a part of it.

bide::task<> wait_frames(world& of, int count) {
    for (int i = 0; i < count; ++i) {
        co_await of.next_frame.async_wait();
    }
}

bide::task<> fade(world& of, float to, int frames) {
    const float step = (to - of.brightness) / static_cast<float>(frames);
    for (int i = 0; i < frames; ++i) {
        co_await wait_frames(of, 1);
        of.brightness += step;
    }
}

// The level is read on a thread for blocking calls, while the frames go on. The script continues on the main thread.

std::vector<particle> read_level() { return std::vector<particle>(100'000, {100, 0}); }

bide::task<> play(world& of, bide::scheduler& workers) {
    auto level = workers.spawn_blocking(read_level);
    co_await fade(of, 1, 10);
    of.particles = co_await std::move(level).async_join();
    co_await wait_frames(of, 30);
    co_await fade(of, 0, 10);
}

// **A frame.** `notify_all()` wakes the scripts that wait for the frame, and `poll()` runs them until each waits again.
// The main thread takes its part of the particles. What is left of the frame's time is for the loop: `run_until()`
// sleeps there, and runs what comes meanwhile, such as the level that has been read.

void move(particle& p) {
    p.speed -= 0.16F;
    p.height = p.height + p.speed > 0 ? p.height + p.speed : 0;
}

int main() {
    bide::scheduler workers;
    bide::run_loop loop;
    world of;
    loop.spawn(play(of, workers)).detach();
    while (loop.tasks() != 0) {
        const auto end = std::chrono::steady_clock::now() + 1ms; // of a game: 16 ms
        of.next_frame.notify_all();
        loop.poll();
        bide::parallel_for(workers, of.particles, move);
        ++of.frames; // here it would draw
        loop.run_until(end);
    }
    const bool ok = of.frames >= 50 && of.particles.size() == 100'000;
    std::printf("%zu particles, %s\n", of.particles.size(), ok ? "all frames" : "too few frames");
    return ok ? 0 : 1;
}

// **Limits.** A script that never waits stops the game; `run_for()` bounds how long the loop runs, not one step of a
// script. If the physics must not share workers with background jobs, give each a scheduler of its own.

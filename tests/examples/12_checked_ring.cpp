// # 12. A ring that is proven
//
// A lock-free ring for one producer and one consumer is forty lines, passes every stress test on the machine of
// its author, and loses values on another. This chapter writes one with two mistakes, lets the model checker
// find them, and ends with a ring that is proven within bounds.
//
// In a project of your own, `find_package(bide REQUIRED COMPONENTS model)` brings the checker, and
// `bide_add_model(checked_ring checked_ring.cpp)` builds a program like this one and adds it to ctest.

#include <bide/core/platform.hpp>
#include <bide/model/check.hpp>

#include <atomic>
#include <cstddef>
#include <cstdio>

// ## The ring
//
// All that two threads share comes from a parameter, the platform: atomics, and plain data as a `var`. With
// `bide::native_platform` those are `std::atomic<T>` and `T`, and the ring costs what it cost before. With
// `bide::model::platform` each access is a step of the checker's.
//
// The ring is a template on the memory orders as well, for this chapter only: so its wrong versions stand beside
// the right one. `published` is the order in which a side says that it is done with a slot, `seen` the one in
// which the other side looks.

template <class T, std::size_t Size, std::memory_order Published, std::memory_order Seen,
          class Platform = bide::native_platform>
class ring {
public:
    // Returns false if the ring is full.
    bool try_push(T value) {
        const std::size_t tail = tail_.load(std::memory_order::relaxed); // only this side writes it
        if (tail - head_.load(Seen) == Size)
            return false;
        slots_[tail % Size] = value;
        tail_.store(tail + 1, Published);
        return true;
    }

    // Returns false if the ring is empty.
    bool try_pop(T& value) {
        const std::size_t head = head_.load(std::memory_order::relaxed);
        if (tail_.load(Seen) == head)
            return false;
        value = slots_[head % Size];
        head_.store(head + 1, Published);
        return true;
    }

private:
    template <class U> using atomic = typename Platform::template atomic<U>;

    atomic<std::size_t> head_{0}; // values that were popped
    atomic<std::size_t> tail_{0}; // values that were pushed
    typename Platform::template var<T> slots_[Size];
};

constexpr auto relaxed = std::memory_order::relaxed;
constexpr auto acquire = std::memory_order::acquire;
constexpr auto release = std::memory_order::release;

// ## What must hold
//
// A body is a small program: it makes a ring, starts the producer, and is the consumer itself. It runs once for
// each execution that C++20 allows, so it makes everything anew. Three values through a ring of two: the producer
// has to wait for a slot, and uses one a second time. The loops wait as the code that uses a ring would; the
// checker sees that such a loop only waits.

namespace model = bide::model;

template <class Ring> void three_values() {
    Ring values;
    model::thread producer([&] {
        for (int value = 1; value <= 3; ++value)
            while (!values.try_push(value)) {
            }
    });
    for (int expected = 1; expected <= 3; ++expected) {
        int value = 0;
        while (!values.try_pop(value)) {
        }
        BIDE_MODEL_REQUIRE(value == expected);
    }
}

int main() {
    // ### The first mistake
    //
    // All orders are relaxed. On x86-64 the machine code is that of the right ring, so no test on that machine can
    // fail. `find()` explores until a failure, and is content with the one that it is told to expect.

    using careless = ring<int, 2, relaxed, relaxed, model::platform>;
    const model::verdict first = model::find("a ring whose orders are relaxed",
                                             model::failure::race, three_values<careless>);
    std::printf("%s\n", first.report.c_str());

    // The report has a column for each thread, and time goes down. The consumer sees the new `tail_`, and reads a
    // slot whose value may not have arrived: a race of plain data. Below the columns stands what is missing: which
    // store does not release, which load does not acquire. Where `check()` finds a failure, it says as well which
    // stronger orders would leave none.
    //
    // ### The second mistake
    //
    // So `tail_` is stored with release and loaded with acquire. It is tempting to stop there: what could go wrong
    // with `head_`, which publishes no value? Here is that ring: it publishes, but no side looks properly.

    using hasty = ring<int, 2, release, relaxed, model::platform>;
    model::find("a ring that releases and does not acquire", model::failure::race,
                three_values<hasty>);

    // ### The ring that is right
    //
    // `check()` expects no failure; if there is one, it prints the report and ends the program with the status 1,
    // which fails the test. It prints the number of executions: all that there are for this body. That is the
    // proof, and its bounds: three values, a ring of two, a thread on each side.

    using right = ring<int, 2, release, acquire, model::platform>;
    model::check("a ring of two, three values", three_values<right>);

    // ### Which order is needed?
    //
    // With `BIDE_MODEL_MUTANTS=60` in the environment, `check()` weakens each memory order in turn and explores the
    // body again, at most 60 seconds each. Here every weakened order is found, so none is stronger than it has to
    // be. An order that survives is too strong, or the body does not use the ring enough.
    //
    // ### The same ring in the program
    //
    // Nothing of the checker is left in it.

    ring<int, 2, release, acquire> native;
    int value = 0;
    if (!native.try_push(42) || !native.try_pop(value) || value != 42)
        return 1;
    std::puts("the native ring works, too");
    return 0;
}

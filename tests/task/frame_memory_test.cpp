#include <bide/task/detail/coroutine_frame.hpp>
#include <support/alloc.hpp>
#include <support/death.hpp>
#include <support/platforms.hpp>
#include <support/test.hpp>

// Every build tests recycling, also a build that does not recycle frames.
template <class P> using memory = bide::detail::basic_frame_memory<P, true>;
template <class P> using depot = bide::detail::basic_frame_depot<P>;

// Of the threads that share the depot.
#define BIDE_FRAME_MEMORY_TEST_CASE(name) TEMPLATE_TEST_CASE(name, "", test::native, test::jittery)

namespace {

struct held {
    void* at;
    std::size_t size;
};

template <class M> std::vector<held> take(int n, std::size_t size) {
    std::vector<held> all;
    all.reserve(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) {
        all.push_back({M::allocate(size), size});
    }
    return all;
}
template <class M> void put_back(const std::vector<held>& all) {
    for (const held& h : all) {
        M::release(h.at, h.size);
    }
}

// Returns how often f() calls operator new on this thread.
template <class F> std::size_t news(F f) {
    const std::size_t before = test::allocations_here();
    f();
    return test::allocations_here() - before;
}

// A thread-local object that is made before the thread's cache, so it is destroyed later.
struct late {
    void* block = nullptr;
    std::size_t* made = nullptr;
    ~late() {
        using m = memory<test::native>;
        if (made != nullptr) {
            m::release(block, 100);
            *made = news([] {
                for (int i = 0; i < 3; ++i) {
                    m::release(m::allocate(100), 100);
                }
            });
        }
    }
};

} // namespace

TEMPLATE_TEST_CASE(
    "frame_memory: a block is aligned, has the size asked for, and overlaps no other block", "",
    memory<test::native>, (bide::detail::basic_frame_memory<test::native, false>)) {
    for (int round = 0; round < 3; ++round) {
        std::vector<held> all;
        int misaligned = 0;
        for (std::size_t size = 0; size < 1'200; size = size * 9 / 8 + 1) {
            for (int i = 0; i < 3; ++i) {
                void* const at = TestType::allocate(size);
                const auto address = reinterpret_cast<std::uintptr_t>(at);
                misaligned += address % __STDCPP_DEFAULT_NEW_ALIGNMENT__ == 0 ? 0 : 1;
                std::memset(at, static_cast<int>(all.size() % 251), size);
                all.push_back({at, size});
            }
        }
        CHECK(misaligned == 0);
        int overwritten = 0;
        for (std::size_t i = 0; i < all.size(); ++i) {
            const auto* const bytes = static_cast<const unsigned char*>(all[i].at);
            for (std::size_t b = 0; b < all[i].size; ++b) {
                overwritten += bytes[b] == i % 251 ? 0 : 1;
            }
        }
        CHECK(overwritten == 0);
        put_back<TestType>(all);
    }
}

TEST_CASE("frame_memory: allocate returns the block that was released last") {
    using m = memory<test::native>;
    constexpr std::size_t smallest = depot<test::native>::grain + 1; // that is kept
    for (const std::size_t size :
         {smallest, std::size_t{64}, std::size_t{65}, std::size_t{500}, std::size_t{1'024}}) {
        void* const first = m::allocate(size);
        void* const second = m::allocate(size);
        m::release(first, size);
        m::release(second, size);
        void* const again = m::allocate(size);
        CHECK(again == second);
        m::release(again, size);
    }
}

TEST_CASE("frame_memory: the second burst needs no new memory") {
    using m = memory<test::native>;
    if (!test::counts_allocations()) {
        return;
    }
    for (const int n : {1, 50, 129, 3'000}) {
        m::trim();
        std::vector<held> all = take<m>(n, 300);
        put_back<m>(all);
        std::size_t needed = 0;
        for (held& h : all) {
            needed += news([&] { h.at = m::allocate(300); });
        }
        CHECK(needed == 0);
        put_back<m>(all);
    }
    m::trim();
}

TEST_CASE("frame_memory: a batch keeps its size when it is taken apart and refilled many times") {
    using m = memory<test::native>;
    constexpr std::size_t kind = 7;
    constexpr int batch = depot<test::native>::batch(kind);
    constexpr std::size_t size = depot<test::native>::size_of(kind);
    std::vector<std::size_t> kept;
    std::size_t made = 0;
    test::run_threads(1, [&](int) { // a thread with an empty cache
        m::trim();
        put_back<m>(take<m>(4 * batch, size));
        for (const int n : {4 * batch, 3 * batch + 1, 2 * batch - 1, 4 * batch, batch + 1}) {
            const std::vector<held> some = take<m>(n, size);
            kept.push_back(m::kept());
            put_back<m>(some);
            kept.push_back(m::kept());
        }
        std::vector<held> all(4 * batch, held{nullptr, size});
        made = news([&] {
            for (held& h : all) {
                h.at = m::allocate(size);
            }
        });
        put_back<m>(all);
    });
    const std::size_t b = depot<test::native>::batch_bytes(kind);
    CHECK(kept ==
          std::vector<std::size_t>{0, 2 * b, 0, 2 * b, 2 * b, 2 * b, 0, 2 * b, 2 * b, 2 * b});
    CHECK(made == 0);
    m::trim();
}

TEST_CASE(
    "frame_memory: large blocks come from operator new, and all blocks if it does not recycle") {
    if (!test::counts_allocations()) {
        return;
    }
    using straight = bide::detail::basic_frame_memory<test::native, false>;
    std::size_t large = 0;
    std::size_t all = 0;
    for (int i = 0; i < 10; ++i) {
        large += news(
            [] { memory<test::native>::release(memory<test::native>::allocate(1'025), 1'025); });
        all += news([] { straight::release(straight::allocate(100), 100); });
    }
    CHECK(large == 10);
    CHECK(all == 10);
}

TEST_CASE("frame_memory: a user that does not recycle may release a block of one that does") {
    using straight = bide::detail::basic_frame_memory<test::native, false>;
    for (const held& h : take<memory<test::native>>(300, 200)) {
        straight::release(h.at, h.size);
    }
}

TEST_CASE("frame_memory: keeps at most most_kept bytes, and trim frees them") {
    using m = memory<test::native>;
    m::trim();
    CHECK(m::kept() == 0);
    constexpr int n = 30'000; // of 1 KiB each: four times most_kept
    put_back<m>(take<m>(n, 1'000));
    CHECK(m::kept() <= m::most_kept);
    CHECK(m::kept() >
          m::most_kept - depot<test::native>::batch_bytes(depot<test::native>::kind_of(1'000)));
    if (test::counts_allocations()) {
        std::vector<held> all;
        const std::size_t anew =
            news([&] { all = take<m>(n, 1'000); }) - 1; // one is for the vector
        const std::size_t at_most =
            m::most_kept / 1'000 +
            2 * depot<test::native>::batch(depot<test::native>::kind_of(1'000));
        CHECK(anew >= n - at_most);
        CHECK(anew <= n - m::most_kept / 1'000 +
                          depot<test::native>::batch(depot<test::native>::kind_of(1'000)));
        put_back<m>(all);
    }
    m::trim();
    CHECK(m::kept() == 0);
    const std::vector<held> over = take<m>(200, 1'000);
    put_back<m>(take<m>(n, 1'000));
    test::run_threads(1, [&](int) { put_back<m>(over); }); // the depot has no room for its batches
    CHECK(m::kept() <= m::most_kept);
    m::trim();
    // The caches have room for as many blocks of another class.
    put_back<m>(take<m>(200'000, 60));
    CHECK(m::kept() > m::most_kept - depot<test::native>::batch_bytes(0));
    m::trim();
    CHECK(m::kept() == 0);
}

BIDE_FRAME_MEMORY_TEST_CASE(
    "frame_memory: a thread allocates blocks that another thread has released") {
    using m = memory<TestType>;
    constexpr int n = 40'000;
    constexpr std::size_t places = 512;
    m::trim();
    std::vector<std::atomic<std::uint64_t*>> ring(places);
    std::size_t made = 0;
    int wrong = 0;
    test::run_threads(2, [&](int me) {
        if (me == 0) {
            made = news([&] {
                for (std::uint64_t i = 0; i < n; ++i) {
                    auto& place = ring[i % places];
                    auto* const block = static_cast<std::uint64_t*>(m::allocate(200));
                    std::fill_n(block, 25, i);
                    while (place.load() != nullptr) {
                        std::this_thread::yield();
                    }
                    place.store(block);
                }
            });
        } else {
            for (std::uint64_t i = 0; i < n; ++i) {
                std::uint64_t* block;
                while ((block = ring[i % places].exchange(nullptr)) == nullptr) {
                    std::this_thread::yield();
                }
                wrong += block[0] == i && block[24] == i ? 0 : 1;
                m::release(block, 200);
            }
        }
    });
    CHECK(wrong == 0);
    if (test::counts_allocations() && std::is_same_v<TestType, test::native>) {
        CHECK(made < n / 10); // the ring, a few batches, and allocations that found the depot taken
    }
    m::trim();
}

TEST_CASE("frame_memory: a thread that ends gives full batches to the depot and frees the rest") {
    using m = memory<test::native>;
    m::trim();
    constexpr std::size_t batch = depot<test::native>::batch(depot<test::native>::kind_of(256));
    std::vector<held> all = take<m>(5 * batch + batch / 2, 256);
    test::run_threads(1, [&](int) { put_back<m>(all); });
    CHECK(m::kept() == 5 * depot<test::native>::batch_bytes(depot<test::native>::kind_of(256)));
    m::trim();
}

TEST_CASE("frame_memory: a block that is released after the end of the thread's cache is freed") {
    std::size_t made = 0;
    test::run_threads(1, [&](int) {
        static thread_local late mine;
        mine.made = &made;
        mine.block = memory<test::native>::allocate(100);
    });
    CHECK((made == 3 || !test::counts_allocations()));
}

TEST_CASE("frame_memory: allocate throws if there is no memory, and succeeds when there is some") {
    if (!test::counts_allocations()) {
        return;
    }
    using m = memory<test::native>;
    const auto fails = [](std::size_t size) {
        const test::out_of_memory none;
        try {
            m::release(m::allocate(size), size);
            return false;
        } catch (const std::bad_alloc&) {
            return true;
        }
    };
    bool failed[3];
    test::run_threads(1, [&](int) { // a thread with an empty cache
        m::trim();
        failed[0] = fails(700);
        failed[1] = fails(2'000);
        m::release(m::allocate(700), 700);
        failed[2] = fails(700);
    });
    CHECK(failed[0]);
    CHECK(failed[1]);
    CHECK_FALSE(failed[2]);
}

// Sanitizers may fail in such a child process.
#if BIDE_TESTS_CAN_DIE && BIDE_RECYCLE_FRAMES

BIDE_FRAME_MEMORY_TEST_CASE(
    "frame_memory: a child process that is forked during an exchange can allocate") {
    using m = memory<TestType>;
    std::atomic<bool> over{false};
    constexpr int children = 8;
    int alive = 0;
    {
        test::team busy(2, [&](int) {
            while (!over) {
                put_back<m>(take<m>(300, 100));
            }
        });
        for (int i = 0; i < children; ++i) {
            alive += test::dies([] {
                         put_back<m>(take<m>(1'000, 100));
                         std::abort();
                     }).empty()
                         ? 1
                         : 0;
        }
        over = true;
    }
    CHECK(alive == children);
    m::trim();
}

#endif

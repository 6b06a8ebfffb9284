// object_pool: never more objects than the limit, each has one borrower and is destroyed once, and no
// room is lost. Its waits are those of the permit queue; what is new is the list of idle objects.

#include <bide/sync/object_pool.hpp>
#include <model/sync_support.hpp>
#include <support/test.hpp>

using namespace sync_model;

namespace {

using quiet = model::platform_without_lock_sleep;

// A platform whose clock is always past every idle time.
struct hasty : quiet {
    static std::int64_t now() noexcept { return 0; }
};

// Counts itself. The count is atomic without a step of the model: it is the test's.
struct census {
    int alive = 0;
    int most = 0;
    int made = 0;
    int gone = 0;
};
struct item {
    explicit item(census& all) : in(all) {
        ++in.made;
        in.most = ++in.alive > in.most ? in.alive : in.most;
    }
    item(const item&) = delete;
    item& operator=(const item&) = delete;
    ~item() {
        --in.alive;
        ++in.gone;
    }
    census& in;
    var<int> uses{0}; // the checker sees whether two borrowers are ordered
};

bide::object_pool_options of(std::size_t limit) {
    bide::object_pool_options options;
    options.limit = limit;
    return options;
}
template <class Lease> void use(Lease& held) { increment(held->uses); }

// A pool whose counts are checked at its end.
template <class Platform = quiet> struct scene {
    template <class... Check>
    explicit scene(const bide::object_pool_options& options, Check... check)
        : limit(options.limit) {
        p.emplace(options, [this] { return item(all); }, check...);
    }

    void borrow() {
        auto held = p->acquire();
        use(held);
    }
    void end() {
        p.reset();
        MODEL_REQUIRE(all.alive == 0);
        MODEL_REQUIRE(all.made == all.gone);
        MODEL_REQUIRE(static_cast<std::size_t>(all.most) <= limit);
    }

    census all;
    const std::size_t limit;
    std::optional<bide::object_pool<item, Platform>> p;
};

} // namespace

TEST_CASE("object_pool: the objects are never more than the limit") {
    model::check("object_pool: two borrow the only object", [] {
        scene s(of(1));
        model::thread other([&] { s.borrow(); });
        s.borrow();
        other.join();
        MODEL_REQUIRE(s.p->size() == 1);
        MODEL_REQUIRE(s.all.made == 1);
        s.end();
    });
    model::check("object_pool: one discards, one borrows", [] {
        scene s(of(1));
        model::thread other([&] {
            auto held = s.p->acquire();
            use(held);
            held.discard();
        });
        s.borrow();
        other.join();
        MODEL_REQUIRE(s.p->size() == s.p->idle());
        s.end();
    });
    model::check("object_pool: an object fails its check, and one waits for a time",
                 {.timeouts = 1}, [] {
                     scene s(of(1), [](item& i) { return i.uses < 1; });
                     model::thread other([&] {
                         if (auto held = s.p->try_acquire_for(soon)) {
                             use(held);
                         }
                     });
                     s.borrow();
                     other.join();
                     MODEL_REQUIRE(s.p->acquire());
                     s.end();
                 });
}

TEST_CASE("object_pool: a close and a trim among the borrowers") {
    model::check("object_pool: one closes, one borrows", bounded(3), [] {
        scene s(of(1));
        s.p->acquire().reset();
        model::thread other([&] { s.p->close(); });
        if (auto held = s.p->try_acquire()) {
            use(held);
        }
        other.join();
        MODEL_REQUIRE(s.all.alive == 0);
        MODEL_REQUIRE(!s.p->try_acquire());
        s.end();
    });
    model::check("object_pool: one trims, one borrows, all expire", bounded(3), [] {
        auto options = of(1);
        options.idle_time = std::chrono::nanoseconds(0);
        scene<hasty> s(options);
        model::thread other([&] { s.p->trim(); });
        s.borrow();
        other.join();
        MODEL_REQUIRE(s.p->size() == 0);
        s.end();
    });
    model::check("object_pool: an idle object, a trim and two borrowers", random(10'000), [] {
        auto options = of(2);
        options.idle_time = std::chrono::nanoseconds(1); // the clock stands: none expires
        options.keep = 1;
        scene<hasty> s(options);
        s.p->acquire().reset();
        model::thread a([&] { s.borrow(); });
        model::thread b([&] { s.p->trim(); });
        s.borrow();
        a.join();
        b.join();
        MODEL_REQUIRE(s.p->size() == s.p->idle());
        s.end();
    });
    model::check("object_pool: three borrow, discard and close", random(10'000), [] {
        scene s(of(1));
        model::thread a([&] {
            if (auto held = s.p->acquire(platform::stop_token())) {
                use(*held);
                held->discard();
            }
        });
        model::thread b([&] { s.p->close(); });
        if (auto held = s.p->acquire(platform::stop_token())) {
            use(*held);
        }
        a.join();
        b.join();
        MODEL_REQUIRE(s.p->size() == 0);
        s.end();
    });
}

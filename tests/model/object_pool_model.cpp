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

template <class Platform> using pool_on = bide::object_pool<item, Platform>;
using pool = pool_on<quiet>;

bide::object_pool_options of(std::size_t limit) {
    bide::object_pool_options options;
    options.limit = limit;
    return options;
}

// A pool whose counts are checked at its end.
template <class Platform> struct checked {
    census all;
    std::size_t limit;
    int done = 0;

    explicit checked(std::size_t most) : limit(most) {}
    void require() const {
        MODEL_REQUIRE(all.alive == 0);
        MODEL_REQUIRE(all.made == all.gone);
        MODEL_REQUIRE(static_cast<std::size_t>(all.most) <= limit);
    }
};

template <class Lease> void use(Lease& held) { increment(held->uses); }

} // namespace

TEST_CASE("object_pool: the objects are never more than the limit", "[object_pool]") {
    model::check("object_pool: two borrow the only object", {}, [] {
        checked<quiet> c(1);
        {
            pool p(of(1), [&] { return item(c.all); });
            const auto work = [&] {
                auto held = p.acquire();
                use(held);
            };
            model::thread other(work);
            work();
            other.join();
            MODEL_REQUIRE(p.size() == 1);
            MODEL_REQUIRE(c.all.made == 1);
        }
        c.require();
    });
    model::check("object_pool: one discards, one borrows", {}, [] {
        checked<quiet> c(1);
        {
            pool p(of(1), [&] { return item(c.all); });
            model::thread other([&] {
                auto held = p.acquire();
                use(held);
                held.discard();
            });
            {
                auto held = p.acquire();
                use(held);
            }
            other.join();
            MODEL_REQUIRE(p.size() == p.idle());
        }
        c.require();
    });
    model::check(
        "object_pool: an object fails its check, and one waits for a time", {.timeouts = 1}, [] {
            checked<quiet> c(1);
            {
                pool p(of(1), [&] { return item(c.all); }, [](item& i) { return i.uses < 1; });
                model::thread other([&] {
                    if (auto held = p.try_acquire_for(soon)) {
                        use(held);
                    }
                });
                {
                    auto held = p.acquire();
                    use(held);
                }
                other.join();
                MODEL_REQUIRE(p.acquire());
            }
            c.require();
        });
}

TEST_CASE("object_pool: a close and a trim among the borrowers", "[object_pool]") {
    model::check("object_pool: one closes, one borrows", bounded(3), [] {
        checked<quiet> c(1);
        {
            pool p(of(1), [&] { return item(c.all); });
            p.acquire().reset();
            model::thread other([&] { p.close(); });
            if (auto held = p.try_acquire()) {
                use(held);
            }
            other.join();
            MODEL_REQUIRE(c.all.alive == 0);
            MODEL_REQUIRE(!p.try_acquire());
        }
        c.require();
    });
    model::check("object_pool: one trims, one borrows, all expire", bounded(3), [] {
        checked<hasty> c(1);
        {
            auto options = of(1);
            options.idle_time = std::chrono::nanoseconds(0);
            pool_on<hasty> p(options, [&] { return item(c.all); });
            model::thread other([&] { p.trim(); });
            {
                auto held = p.acquire();
                use(held);
            }
            other.join();
            MODEL_REQUIRE(p.size() == 0);
        }
        c.require();
    });
    model::check("object_pool: an idle object, a trim and two borrowers", random(10'000), [] {
        checked<hasty> c(2);
        {
            auto options = of(2);
            options.idle_time = std::chrono::nanoseconds(1); // the clock stands: none expires
            options.keep = 1;
            pool_on<hasty> p(options, [&] { return item(c.all); });
            const auto work = [&] {
                auto held = p.acquire();
                use(held);
            };
            p.acquire().reset();
            model::thread a(work);
            model::thread b([&] { p.trim(); });
            work();
            a.join();
            b.join();
            MODEL_REQUIRE(p.size() == p.idle());
        }
        c.require();
    });
    model::check("object_pool: three borrow, discard and close", random(10'000), [] {
        checked<quiet> c(1);
        {
            pool p(of(1), [&] { return item(c.all); });
            model::thread a([&] {
                if (auto held = p.acquire(platform::stop_token())) {
                    use(*held);
                    held->discard();
                }
            });
            model::thread b([&] { p.close(); });
            if (auto held = p.acquire(platform::stop_token())) {
                use(*held);
            }
            a.join();
            b.join();
            MODEL_REQUIRE(p.size() == 0);
        }
        c.require();
    });
}

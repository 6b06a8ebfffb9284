// The tokens of a rate_limiter: each is taken by one caller, and those that come back are taken
// again.

#include <bide/task/rate_limiter.hpp>
#include <model/check.hpp>
#include <support/test.hpp>

namespace {

using platform = model::platform;
using tokens = bide::detail::basic_token_count<platform>;
template <class T> using var = platform::var<T>;

constexpr std::int64_t never = (std::numeric_limits<std::int64_t>::max)();

// A token that is kept is marked by its owner; two owners are a data race or a wrong mark.
struct ledger {
    tokens all{0, 1, 10, 1};
    var<int> owners[4]{var<int>{0}, var<int>{0}, var<int>{0}, var<int>{0}};

    void take(bool gives_back) {
        const auto some = all.take(0, 1, never);
        const auto which = some.from / all.parts();
        MODEL_REQUIRE(some.to == some.from + all.parts());
        MODEL_REQUIRE(some.ready == static_cast<std::int64_t>(which) * 10);
        if (!gives_back || !all.give_back(some)) {
            owners[which] = owners[which] + 1;
        }
    }
    // The first `n` tokens have one owner each, and the others none.
    void require(int n) {
        for (int i = 0; i < 4; ++i) {
            MODEL_REQUIRE(owners[i] == (i < n ? 1 : 0));
        }
    }
};

} // namespace

TEST_CASE("rate_limiter: each token has one owner") {
    const auto three_take = [](bool two_give_back) {
        ledger in;
        model::thread a([&] { in.take(two_give_back); });
        model::thread b([&] { in.take(two_give_back); });
        in.take(false);
        a.join();
        b.join();
        const auto next = in.all.take(0, 1, never);
        const auto taken = next.from / in.all.parts();
        MODEL_REQUIRE(two_give_back ? taken >= 1 && taken <= 3 : taken == 3);
        in.require(static_cast<int>(taken));
        model::record(taken == 1 ? "both back" : taken == 2 ? "one back" : "none back");
    };
    model::check("three take", [=] { three_take(false); });
    model::check("three take, two give back", [=] { three_take(true); });
    CHECK(model::outcomes({}, [=] { three_take(true); }) == "both back none back one back");
    model::check("two take what is there, of one", [] {
        tokens all(0, 1, 10, 1);
        var<int> taken{0};
        model::thread a([&] {
            if (all.take(0, 1, 0)) {
                taken = taken + 1;
            }
        });
        if (all.take(0, 1, 0)) {
            taken = taken + 1;
        }
        a.join();
        MODEL_REQUIRE(taken == 1);
    });
}

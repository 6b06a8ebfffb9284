// The face of std::atomic, as far as it is not the library's own need.

#include <model/check.hpp>
#include <support/catch.hpp>

TEST_CASE("platform: an atomic of the checker is made, read and changed as std::atomic is",
          "[platform]") {
    model::check("one thread", [] {
        model::platform::atomic<int> a{1};
        MODEL_REQUIRE(a.load() == 1);
        MODEL_REQUIRE(a.exchange(2) == 1);
        MODEL_REQUIRE(a.fetch_add(3) == 2);
        int seen = 4;
        MODEL_REQUIRE(!a.compare_exchange_strong(seen, 6));
        MODEL_REQUIRE(seen == 5 && a.compare_exchange_weak(seen, 6));
        MODEL_REQUIRE(a.load() == 6);
    });
}

#include <bide/task/detail/coroutine_frame.hpp>
#include <model/check.hpp>
#include <support/test.hpp>

// The depot of memory blocks. Each batch that is given has one taker, which sees all earlier writes
// to it. No batch is lost. A thread that finds the lock taken does without the depot.

namespace {

template <int Looks> using depot = bide::detail::basic_frame_depot<model::basic_platform<Looks>>;
using block = bide::detail::frame_block;

constexpr std::size_t kind = 3;

// The first block of a batch, and the content that the giver writes.
struct batch : block {
    batch() : block{nullptr, nullptr} {}
    model::var<int> content{0};
};

struct one {
    block* got = nullptr;
    int seen = -1;

    template <class Depot> void take(Depot& d) {
        got = d.take(kind);
        if (got != nullptr) {
            seen = static_cast<batch*>(got)->content;
            static_cast<batch*>(got)->content = -1;
        }
    }
};

// A giver or taker may find the lock taken; its call then has no effect.
template <int Looks> void given_and_taken() {
    depot<Looks> d(10 * depot<Looks>::batch_bytes(kind));
    batch b[2];
    bool given[2];
    one taker;
    {
        model::thread giver([&] {
            b[0].content = 1;
            given[0] = d.give(kind, &b[0]);
        });
        model::thread other([&] { taker.take(d); });
        b[1].content = 2;
        given[1] = d.give(kind, &b[1]);
    }
    MODEL_REQUIRE(taker.got == nullptr || taker.seen == (taker.got == &b[0] ? 1 : 2));
    int left = (given[0] ? 1 : 0) + (given[1] ? 1 : 0) - (taker.got != nullptr ? 1 : 0);
    model::record(std::to_string(left));
    MODEL_REQUIRE(d.bytes() == static_cast<std::size_t>(left) * depot<Looks>::batch_bytes(kind));
    while (block* const rest = d.take(kind)) {
        MODEL_REQUIRE(rest != taker.got);
        --left;
    }
    MODEL_REQUIRE(left == 0);
}

template <int Looks> void taken_by_two() {
    depot<Looks> d(depot<Looks>::batch_bytes(kind));
    batch b[2];
    b[0].content = 1;
    MODEL_REQUIRE(d.give(kind, &b[0]));
    MODEL_REQUIRE(!d.give(kind, &b[1])); // the depot is full
    one takers[2];
    {
        model::thread other([&] { takers[1].take(d); });
        takers[0].take(d);
    }
    MODEL_REQUIRE(takers[0].got == nullptr || takers[1].got == nullptr);
    MODEL_REQUIRE(takers[0].got != nullptr || takers[1].got != nullptr);
    MODEL_REQUIRE(takers[0].seen + takers[1].seen == 0); // one taker has seen 1
}

} // namespace

TEST_CASE("frame_depot: each batch has one taker, which sees all writes to it") {
    model::check("two give, one takes", given_and_taken<0>);
    model::check("two take the same", taken_by_two<1>);
    CHECK(model::outcomes({}, given_and_taken<0>) == "0 1 2");
}

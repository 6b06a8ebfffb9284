#include <bide/core/platform.hpp>
#include <bide/core/wait_ops.hpp>
#include <support/catch.hpp>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace {

struct parcel { // what a wait for a `delivery` carries
    std::unique_ptr<int> inside;
};
struct delivery {};

using platform = bide::native_platform;
using waiter = bide::basic_waiter<platform>;
using plain = bide::result<int>;
using carrying = bide::result<delivery>;

int collected = 0;
int returned = 0;

constexpr auto tries = [](const bide::wait_target&) noexcept { return bide::wait_status::waiting; };
constexpr auto enqueues = [](const bide::wait_target&, waiter&) noexcept { return false; };
constexpr auto cancels = [](const bide::wait_target&, waiter&, bide::wait_status) noexcept {
    return true;
};
constexpr auto collects = [](const bide::wait_target& t, bide::wait_status what) -> plain {
    ++collected;
    if (what != bide::wait_status::granted) {
        return bide::unexpected{bide::errc_of(what)};
    }
    return static_cast<int>(t.amount);
};

constexpr bide::wait_ops<plain, platform> collecting{tries, enqueues, cancels, collects};
constexpr bide::wait_ops<plain, platform> returning{
    tries, enqueues, cancels, collects,
    [](const bide::wait_target&, bide::wait_status) noexcept { ++returned; }};

} // namespace

template <> struct bide::wait_payload<carrying> {
    using type = parcel;
};

static_assert(std::is_same_v<bide::as_result_t<int>, bide::result<int>>);
static_assert(std::is_same_v<bide::as_result_t<void>, bide::result<void>>);
static_assert(std::is_same_v<bide::as_result_t<plain>, plain>);
static_assert(
    std::is_same_v<bide::as_result_t<bide::result<void, long>>, bide::result<void, long>>);
static_assert(std::is_empty_v<bide::wait_payload_t<plain>>);
static_assert(std::is_same_v<bide::wait_payload_t<carrying>, parcel>);

TEST_CASE("wait_ops: each fate but granted has its errc") {
    CHECK(bide::errc_of(bide::wait_status::closed) == bide::errc::closed);
    CHECK(bide::errc_of(bide::wait_status::stopped) == bide::errc::stopped);
    CHECK(bide::errc_of(bide::wait_status::timed_out) == bide::errc::timeout);
}

TEST_CASE("wait_ops: a target carries a cargo where there is one, and is the same otherwise") {
    int queue = 0;
    int owner = 0;
    bide::wait_target target{&queue, &owner, 3};
    CHECK(target.payload == nullptr);
    bide::wait_payload_t<plain> none;
    target.carry(none);
    CHECK(target.payload == nullptr);
    parcel some;
    target.carry(some);
    CHECK(target.payload == &some);
    CHECK(target.queue == &queue);
    CHECK(target.owner == &owner);
    CHECK(target.amount == 3);
}

TEST_CASE(
    "wait_ops: what nobody collects is given back, by collecting where there is no other way") {
    const bide::wait_target target{nullptr, nullptr, 7};
    collected = returned = 0;
    CHECK(collecting.collect(target, bide::wait_status::granted).value() == 7);
    CHECK(collecting.collect(target, bide::wait_status::closed).error() == bide::errc::closed);
    CHECK(collected == 2);
    collecting.give_back(target, bide::wait_status::granted);
    CHECK(collected == 3);
    returning.give_back(target, bide::wait_status::granted);
    CHECK(collected == 3);
    CHECK(returned == 1);
}

TEST_CASE("wait_ops: a wait that has not begun takes its cargo along") {
    static constexpr bide::wait_ops<carrying, platform> ops{
        tries, enqueues, cancels,
        [](const bide::wait_target&, bide::wait_status) -> carrying { return delivery(); }};
    bide::basic_wait<carrying, platform> first(ops, bide::wait_target{},
                                               parcel{std::make_unique<int>(42)});
    const bide::basic_wait<carrying, platform> second(std::move(first));
    CHECK(second.ops == &ops);
    CHECK(first.payload.inside == nullptr);
    REQUIRE(second.payload.inside != nullptr);
    CHECK(*second.payload.inside == 42);
}

#include <bide/core/platform.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>
#include <support/test.hpp>

namespace {

struct parcel { // what a wait for a `delivery` carries
    std::unique_ptr<int> inside;
};
struct delivery {};

using platform = bide::native_platform;
using waiter = bide::basic_waiter<platform>;
using bide::wait_status;
using plain = bide::result<int>;
using carrying = bide::result<delivery>;

struct calls {
    int collected = 0;
    int returned = 0;
    int cancelled = 0;
};

// An operation with the steps that each must have.
struct collecting {
    calls& seen;
    int value;

    wait_status try_now() const noexcept {
        return value == 0 ? wait_status::waiting : wait_status::granted;
    }
    wait_status enqueue(waiter&) const noexcept { return try_now(); }
    bool cancel(waiter&, wait_status why) const noexcept { return why == wait_status::stopped; }
    plain collect(wait_status what) const {
        ++seen.collected;
        if (what != wait_status::granted) {
            return bide::unexpected{bide::errc_of(what)};
        }
        return value;
    }
};

// The same with all that it may have.
struct returning : collecting {
    static constexpr bool yields_first = true;
    static constexpr bool stands_alone = true;
    void give_back(wait_status) const noexcept { ++seen.returned; }
    void on_cancel() const noexcept { ++seen.cancelled; }
};

struct largest {
    calls& a;
    calls& b;
    calls& c;

    wait_status try_now() const noexcept { return wait_status::waiting; }
    wait_status enqueue(waiter&) const noexcept { return wait_status::waiting; }
    bool cancel(waiter&, wait_status) const noexcept { return true; }
    plain collect(wait_status) const { return a.collected + b.collected + c.collected; }
};

// Each step gets the payload if it takes it; cancel() does not.
struct delivering {
    wait_status try_now(parcel& p) const noexcept {
        return p.inside != nullptr ? wait_status::granted : wait_status::waiting;
    }
    wait_status enqueue(waiter&, parcel& p) const noexcept { return try_now(p); }
    bool cancel(waiter&, wait_status) const noexcept { return true; }
    carrying collect(wait_status, parcel& p) const {
        p.inside.reset();
        return delivery();
    }
};

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

static_assert(bide::wait_operation<collecting, plain>);
static_assert(!bide::wait_operation<collecting, carrying>, "it has another result");
static_assert(bide::wait_operation<delivering, carrying>);
static_assert(!bide::wait_operation<parcel, plain>);
static_assert(std::is_trivially_copyable_v<bide::wait_target>);

TEST_CASE("wait_ops: each status but granted has its errc") {
    CHECK(bide::errc_of(wait_status::closed) == bide::errc::closed);
    CHECK(bide::errc_of(wait_status::stopped) == bide::errc::stopped);
    CHECK(bide::errc_of(wait_status::timed_out) == bide::errc::timeout);
}

TEST_CASE("wait_ops: a target returns the operation that it was made of, and its payload") {
    calls a;
    calls b;
    calls c;
    static_assert(sizeof(bide::wait_target_with<bide::wait_payload_t<plain>>) ==
                  sizeof(bide::wait_target));
    const bide::wait_target_with<parcel> target(largest{a, b, c});
    const bide::wait_target& copy = target;
    CHECK(&copy.operation<largest>().a == &a);
    CHECK(&copy.operation<largest>().b == &b);
    CHECK(&copy.operation<largest>().c == &c);
    CHECK(&copy.carried<parcel>() == &target.payload);
}

TEST_CASE("wait_ops: the table calls the functions of the operation") {
    calls seen;
    waiter w;
    const auto& ops = bide::detail::ops_of<collecting, plain, platform>;
    const bide::wait_target waits(collecting{seen, 0});
    CHECK(ops.try_now(waits) == wait_status::waiting);
    CHECK_FALSE(ops.enqueue(waits, w));
    CHECK(ops.cancel(waits, w, wait_status::stopped));
    CHECK_FALSE(ops.cancel(waits, w, wait_status::timed_out));
    const bide::wait_target completes(collecting{seen, 7});
    CHECK(ops.try_now(completes) == wait_status::granted);
    CHECK(ops.enqueue(completes, w));
    CHECK(ops.collect(completes, wait_status::granted).value() == 7);
    CHECK(ops.collect(completes, wait_status::closed).error() == bide::errc::closed);
    CHECK(seen.collected == 2);
}

TEST_CASE("wait_ops: an outcome that is not collected is given back, by collecting if need be") {
    calls seen;
    const bide::wait_target first(collecting{seen, 7});
    bide::detail::ops_of<collecting, plain, platform>.give_back(first, wait_status::granted);
    CHECK(seen.collected == 1);
    const bide::wait_target second(returning{{seen, 7}});
    bide::detail::ops_of<returning, plain, platform>.give_back(second, wait_status::granted);
    CHECK(seen.collected == 1);
    CHECK(seen.returned == 1);
    using none = bide::wait_payload_t<plain>;
    CHECK(bide::detail::steps_of<collecting, none, platform>.give_back == nullptr);
    CHECK(bide::detail::steps_of<returning, none, platform>.give_back != nullptr);
}

TEST_CASE("wait_ops: what an operation may leave out has its default") {
    calls seen;
    const auto& less = bide::detail::ops_of<collecting, plain, platform>;
    CHECK_FALSE(less.yields_first);
    CHECK_FALSE(less.stands_alone);
    CHECK(less.on_cancel == nullptr);
    CHECK(less.retry_on_grant == nullptr);
    const auto& more = bide::detail::ops_of<returning, plain, platform>;
    CHECK(more.yields_first);
    CHECK(more.stands_alone);
    REQUIRE(more.on_cancel != nullptr);
    more.on_cancel(bide::wait_target(returning{{seen, 7}}));
    CHECK(seen.cancelled == 1);
}

TEST_CASE("wait_ops: a wait that has not begun is moved with its payload") {
    const auto& ops = bide::detail::ops_of<delivering, carrying, platform>;
    bide::basic_wait<carrying, platform> first{
        &ops, bide::wait_target_with<parcel>(delivering(), parcel{std::make_unique<int>(42)})};
    bide::basic_wait<carrying, platform> second(std::move(first));
    CHECK(second.ops == &ops);
    CHECK(first.target.payload.inside == nullptr);
    REQUIRE(second.target.payload.inside != nullptr);
    CHECK(*second.target.payload.inside == 42);
    CHECK(ops.try_now(second.target) == wait_status::granted);
    CHECK(ops.collect(second.target, wait_status::granted).has_value());
    CHECK(ops.try_now(second.target) == wait_status::waiting);
}

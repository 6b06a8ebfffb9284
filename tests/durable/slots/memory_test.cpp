#include <bide/durable/slots/memory.hpp>

#include <support/alloc.hpp>
#include <support/slot_conformance.hpp>
#include <support/slot_results.hpp>

#if BIDE_TESTS_CAN_FORK
#include <unistd.h>
#endif

using namespace bide;

static_assert(any_slot<memory_slot>);
static_assert(test::locked_slot<memory_slot>);
static_assert(!test::clocked_slot<memory_slot>);
static_assert(std::is_copy_constructible_v<memory_slot>);
static_assert(memory_slot::guarantees.keeps_acknowledged);
static_assert(!memory_slot::guarantees.multi_host);
static_assert(memory_slot::guarantees.clock == lock_clock::boottime);

namespace {

struct memory_store {
    using slot = memory_slot;
    static constexpr std::size_t limit = memory_slot::largest_value;
    static constexpr bool processes = false;

    slot open() { return memory; }
    void fresh() { memory = memory_slot(); }

    memory_slot memory;
};

} // namespace

TEST_CASE("memory_slot: keeps the contract of slots", "[promise.slot-contract]") {
    memory_store store;
    test::check_slot(store);
}

TEST_CASE("memory_slot: copies share one memory, and separate slots do not") {
    memory_slot one;
    memory_slot copy = one;
    memory_slot other;
    REQUIRE(one.compare_exchange(0, "here").status == cas_status::stored);
    CHECK(test::value_of(copy) == "here");
    CHECK(other.load().value().version == 0);
    other = copy;
    CHECK(test::value_of(other) == "here");
    const cas_status later = other.compare_exchange(1, "there").status;
    CHECK(later == cas_status::stored);
    CHECK(test::value_of(one) == "there");
}

TEST_CASE("memory_slot: a memory lives as long as the last slot over it") {
    auto first = std::make_unique<memory_slot>();
    REQUIRE(first->compare_exchange(0, "kept").status == cas_status::stored);
    memory_slot second = *first;
    first.reset();
    CHECK(test::value_of(second) == "kept");
}

TEST_CASE("memory_slot: a conflict returns the current value") {
    memory_slot slot;
    const auto none = slot.compare_exchange(7, "x");
    REQUIRE(none.current);
    CHECK(none.current->version == 0);
    const auto stored = slot.compare_exchange(0, "there");
    const auto conflict = slot.compare_exchange(0, "x");
    REQUIRE(conflict.current);
    CHECK(conflict.current->version == stored.version);
    CHECK(conflict.current->value == "there");
}

TEST_CASE("memory_slot: an operation that runs out of memory has no effect") {
    if (!test::counts_allocations()) {
        return;
    }
    memory_slot slot;
    const std::string large(1000, 'x');
    const auto first = slot.compare_exchange(0, large);
    const slot_update change = [&](const slot_snapshot& there) { return there.value + "y"; };
    int thrown = 0;
    const auto tried = [&](auto operation) {
        try {
            const test::out_of_memory none;
            operation();
        } catch (const std::bad_alloc&) {
            ++thrown;
        }
    };
    tried([&] { static_cast<void>(slot.load()); });
    tried([&] { slot.compare_exchange(first.version, large); });
    tried([&] {
        slot.compare_exchange(first.version + 1, "");
    }); // the conflict returns the current value
    tried([&] { slot.update_locked(change); });
    tried([&] { memory_slot(); });
    CHECK(thrown == 5);
    const slot_snapshot there = slot.load().value();
    CHECK(there.version == first.version);
    CHECK(there.value == large);
}

#if BIDE_TESTS_CAN_FORK

namespace {

void change(memory_slot slot) {
    slot.update_locked([](const slot_snapshot& there) { return there.value; });
}

} // namespace

TEST_CASE("memory_slot: a child has a memory of its own") {
    memory_slot slot;
    REQUIRE(slot.compare_exchange(0, "both").status == cas_status::stored);
    test::children child(1, [&](int, auto) {
        const std::string inherited = test::value_of(slot);
        change(slot);
        slot.compare_exchange(slot.load().value().version, "child's");
        return inherited + ", " + test::value_of(slot);
    });
    CHECK(child.reports() == std::vector<std::string>{"both, child's"});
    CHECK(test::value_of(slot) == "both");
    CHECK(slot.compare_exchange(1, "parent's").status == cas_status::stored);
}

#endif

#include <bide/durable/slot.hpp>

#include <bide/durable/slots/memory.hpp>
#include <support/slot_conformance.hpp>
#include <support/slot_results.hpp>

#if BIDE_TESTS_CAN_FORK
#include <fcntl.h>
#include <unistd.h>
#endif

using namespace bide;

namespace {

// The smallest slot: what a user writes for a store of their own.
class minimal_slot : public slot {
public:
    static constexpr slot_guarantees guarantees{false, true, lock_clock::observed};

    struct cell {
        std::mutex mutex;
        slot_snapshot there;
    };
    explicit minimal_slot(cell& in) : cell_(&in) {}

    result<slot_snapshot, std::error_code> load() override {
        const std::lock_guard lock(cell_->mutex);
        return cell_->there;
    }
    cas_result compare_exchange(slot_version version, std::string_view value) override {
        if (value.size() > 1000) {
            return {cas_status::failed, 0, {}, durable_errc::too_large};
        }
        const std::lock_guard lock(cell_->mutex);
        if (cell_->there.version != version) {
            return {cas_status::conflict, 0, {}, {}};
        }
        cell_->there.value = value;
        return {cas_status::stored, ++cell_->there.version, {}, {}};
    }

private:
    cell* cell_;
};

struct minimal_store {
    using slot = minimal_slot;
    static constexpr std::size_t limit = 1000;
    static constexpr bool processes = false;

    slot open() { return slot(*cell); }
    void fresh() { cell = std::make_unique<minimal_slot::cell>(); }

    std::unique_ptr<minimal_slot::cell> cell = std::make_unique<minimal_slot::cell>();
};

static_assert(any_slot<minimal_slot>);
static_assert(!test::locked_slot<minimal_slot> && test::locked_slot<memory_slot>);

// Types that lack one part of a slot.
struct is_no_slot {
    [[maybe_unused]] static constexpr slot_guarantees guarantees{};
};
struct guarantees_nothing : slot {
    result<slot_snapshot, std::error_code> load() override { return slot_snapshot(); }
    cas_result compare_exchange(slot_version, std::string_view) override { return {}; }
};
struct stays_where_it_is : minimal_slot {
    stays_where_it_is(stays_where_it_is&&) = delete;
};
static_assert(!any_slot<is_no_slot>);
static_assert(!any_slot<guarantees_nothing>);
static_assert(!any_slot<stays_where_it_is>);

static_assert(!std::is_copy_constructible_v<slot_ref>);
static_assert(std::is_nothrow_move_constructible_v<slot_ref>);
static_assert(std::is_nothrow_move_assignable_v<slot_ref>);
static_assert(std::is_constructible_v<slot_ref, memory_slot>);
static_assert(std::is_constructible_v<slot_ref, allow_relaxed_t, minimal_slot>);
static_assert(std::is_constructible_v<slot_ref, allow_relaxed_t, memory_slot>);
static_assert(!std::is_constructible_v<slot_ref, int>);

// Counts the objects of it.
struct counted_slot : minimal_slot {
    counted_slot(minimal_slot::cell& in, int& n) : minimal_slot(in), count(&n) { ++*count; }
    counted_slot(counted_slot&& other) noexcept : minimal_slot(other), count(other.count) {
        ++*count;
    }
    counted_slot& operator=(counted_slot&&) noexcept = default;
    ~counted_slot() { --*count; }
    int* count;
};

} // namespace

TEST_CASE("slot: a slot of the test's own passes the conformance suite") {
    minimal_store store;
    test::check_slot(store);
}

TEST_CASE("slot_ref: refers to the slot that it owns") {
    memory_slot memory;
    slot_ref ref(memory);
    CHECK(ref.guarantees().keeps_acknowledged);
    CHECK_FALSE(ref.guarantees().multi_host);
    CHECK(ref.guarantees().clock == lock_clock::boottime);
    CHECK(ref->load().value().version == 0);
    const auto stored = test::stored(*ref, 0, "one");
    CHECK(memory.load().value().value == "one");
    CHECK(memory.load().value().version == stored.version);
}

TEST_CASE("slot: an operation that the slot does not offer is refused, and does nothing") {
    minimal_slot::cell cell;
    slot_ref ref(allow_relaxed, minimal_slot(cell));
    CHECK_FALSE(ref.guarantees().keeps_acknowledged);
    CHECK(ref.guarantees().multi_host);
    CHECK(ref.guarantees().clock == lock_clock::observed);
    bool is_asked = false;
    const cas_result updated = ref->update_locked([&](const slot_snapshot&) {
        is_asked = true;
        return std::string("made");
    });
    CHECK(test::fails(updated, std::errc::operation_not_supported));
    CHECK_FALSE(is_asked);
    CHECK(cell.there.version == 0);
    CHECK(ref->be_present().error() == std::errc::operation_not_supported);
    CHECK(ref->is_present(1) == presence::unknown);
    CHECK(test::fails(ref->replace_damaged("new"), std::errc::operation_not_supported));
    CHECK(ref->store() == "");
    CHECK(ref->for_renewals() == nullptr);
    CHECK(ref->explain() == "");
}

TEST_CASE("slot_ref: owns its slot, and a move passes it on") {
    minimal_slot::cell cell;
    minimal_slot::cell other_cell;
    int count = 0;
    {
        slot_ref first(allow_relaxed, counted_slot(cell, count));
        CHECK(count == 1);
        slot_ref second = std::move(first);
        CHECK(count == 1);
        CHECK(second->compare_exchange(0, "there").status == cas_status::stored);
        slot_ref third(allow_relaxed, counted_slot(other_cell, count));
        CHECK(count == 2);
        third = std::move(second);
        CHECK(count == 1);
        CHECK(third->load().value().value == "there");
        first = std::move(third);
        CHECK(first->load().value().value == "there");
        CHECK(count == 1);
    }
    CHECK(count == 0);
}

#if BIDE_TESTS_CAN_FORK

namespace {

// The fault of a slot.
enum class fault {
    none,
    absent_fails,
    reads_apart,      // the value of one write, the version of another
    guards_threads,   // but not processes
    checks_apart,     // the version is compared before the lock is taken
    version_half,     // 32 bits of the version are compared
    same_value,       // a stale version is stored on if the value is what is there
    stores_anyway,    // a conflict, and stored
    answers_failed,   // instead of a conflict
    wrong_current,    // a conflict that brings something else
    text_only,        // bytes up to the first 0
    cuts,             // what is too large is cut
    other_error,      // too large, but not said so
    starts_again,     // what was deleted starts with version 1 again
    next_version,     // `stored` with another version than it has
    keeps_old,        // objects do not see that it was deleted
    forgets,          // what is stored goes with its object
    dies_with_writer, // and with the process that stored it
    dies_by_moving,   //
    not_after_fork,   // only the process that opened it may use it
    hurts_the_parent, // a child that destroys it takes the parent's
    updates_apart,    // an update is not locked
    updates_nothing,  // and stores it
    updates_too_large,
    clock_goes_back,
    clock_in_seconds,
    brings_no_clock,
    leaks_files,
    falls_back,
    is_unsure
};

// A value in memory that processes share. The slot offers every optional operation, with the fault
// that it is told. A fault that needs a concurrent operation happens for certain: the slot waits
// for one.
struct page {
    static constexpr std::size_t limit = 8300;

    std::atomic<pid_t> locked{0}; // by this process
    fault wrong = fault::none;
    pid_t maker = ::getpid();
    pid_t writer = 0;      // the last one
    slot_version last = 0; // never taken back
    int generation = 0;    // of the place; an erasure begins one
    // The current value is not changed: a process may be killed while it writes the next one.
    struct stored_value {
        slot_version version = 0;
        std::size_t size = 0;
        std::array<char, limit + 1> bytes{};
    };
    std::array<stored_value, 2> values{};
    std::atomic<std::size_t> current{0};
    stored_value& now() { return values[current]; }
    int opened = 0;              // slot objects, so far
    bool has_been_apart = false; // one has waited for another's change in the middle of its own
    std::int64_t asked_for_time = 0;
    bool is_hurt = false;
};

struct holding {
    explicit holding(page& p) : of(p) {
        for (pid_t by = 0; !of.locked.compare_exchange_strong(by, ::getpid()); by = 0) {
            if (::kill(by, 0) != 0) { // it was killed
                of.locked.compare_exchange_strong(by, 0);
            }
            std::this_thread::yield();
        }
    }
    holding(const holding&) = delete;
    holding& operator=(const holding&) = delete;
    ~holding() { of.locked = 0; }
    page& of;
};

class page_slot : public slot {
public:
    static constexpr slot_guarantees guarantees{true, true, lock_clock::server};

    explicit page_slot(page& p) : page_(&p), generation_(p.generation) {
        if (is(fault::leaks_files)) {
            [[maybe_unused]] const int leaked = ::dup(STDERR_FILENO);
        }
        const holding held(*page_);
        ++page_->opened;
    }
    page_slot(page_slot&& other) noexcept
        : page_(std::exchange(other.page_, nullptr)), generation_(other.generation_),
          is_dead_(page_->wrong == fault::dies_by_moving) {}
    page_slot& operator=(page_slot&& other) noexcept {
        page_ = std::exchange(other.page_, nullptr);
        generation_ = other.generation_;
        is_dead_ = other.is_dead_;
        opener_ = other.opener_;
        return *this;
    }
    ~page_slot() {
        if (page_ != nullptr && is(fault::hurts_the_parent) && ::getpid() != opener_) {
            page_->is_hurt = true;
        }
        if (page_ != nullptr && is(fault::forgets)) {
            page_->now() = {};
        }
    }

    result<slot_snapshot, std::error_code> load() override {
        if (const std::error_code error = trouble()) {
            return unexpected{error};
        }
        slot_snapshot there;
        slot_version last = 0;
        {
            const holding held(*page_);
            there = read();
            last = page_->last;
        }
        if (is(fault::absent_fails) && there.version == 0) {
            return unexpected{std::make_error_code(std::errc::no_such_file_or_directory)};
        }
        if (is(fault::reads_apart)) {
            let_another_store(last);
            const holding held(*page_);
            there.version = page_->now().version;
        }
        return there;
    }

    cas_result compare_exchange(slot_version version, std::string_view value) override {
        if (const std::error_code error = trouble()) {
            return {cas_status::failed, 0, {}, error};
        }
        if (value.size() > page::limit) {
            if (is(fault::other_error)) {
                return {cas_status::failed, 0, {}, durable_errc::storage_error};
            }
            if (!is(fault::cuts)) {
                return {cas_status::failed, 0, {}, durable_errc::too_large};
            }
            value = value.substr(0, page::limit);
        }
        bool is_same = false;
        slot_version last = 0;
        {
            const holding held(*page_);
            is_same = matches(version, value);
            last = page_->last;
            if (!is(fault::checks_apart) &&
                (!is(fault::guards_threads) || page_->maker == ::getpid())) {
                return put_if(is_same, value);
            }
        }
        if (is_same) {
            let_another_store(last);
        }
        const holding held(*page_);
        return put_if(is_same, value);
    }

    cas_result update_locked(const slot_update& update) override {
        if (const std::error_code error = trouble()) {
            return {cas_status::failed, 0, {}, error};
        }
        std::optional<holding> held(std::in_place, *page_);
        std::optional<std::string> value = update(read());
        if (is(fault::updates_apart)) {
            const slot_version last = page_->last;
            held.reset();
            let_another_store(last);
            held.emplace(*page_);
        }
        if (!value && is(fault::updates_nothing)) {
            value = read().value;
        }
        if (!value) {
            return {cas_status::stored, page_->now().version, {}, {}};
        }
        if (value->size() > page::limit && !is(fault::updates_too_large)) {
            return {cas_status::failed, 0, {}, durable_errc::too_large};
        }
        return put_if(true, std::string_view(*value).substr(0, page::limit));
    }

private:
    bool is(fault f) const noexcept { return page_->wrong == f; }

    // If several processes work, one waits once in the middle of its operation until another has
    // stored.
    void let_another_store(slot_version last) {
        {
            const holding held(*page_);
            if (page_->opened < 4 || std::exchange(page_->has_been_apart, true)) {
                return;
            }
        }
        test::eventually([&] {
            const holding held(*page_);
            return page_->last != last;
        });
    }

    std::error_code trouble() const {
        const bool is_lost =
            is_dead_ || page_->is_hurt || (is(fault::not_after_fork) && ::getpid() != opener_);
        return is_lost ? std::make_error_code(std::errc::io_error) : std::error_code();
    }

    // The other members are under the page's lock.

    std::int64_t time() const {
        const std::int64_t n = ++page_->asked_for_time;
        return is(fault::clock_in_seconds)  ? 1'800'000'000 + n
               : is(fault::clock_goes_back) ? 1'800'000'000'000 - 5 * n
                                            : 1'800'000'000'000 + n / 8;
    }

    slot_snapshot read() {
        slot_snapshot there;
        if (is(fault::dies_with_writer) && ::kill(page_->writer, 0) != 0) {
            page_->now() = {};
        }
        if (generation_ != page_->generation && is(fault::keeps_old)) {
            there.version = page_->last;
            return there;
        }
        there.version = page_->now().version;
        there.value.assign(page_->now().bytes.data(), page_->now().size);
        there.fell_back = is(fault::falls_back) && page_->now().version > 2;
        if (!is(fault::brings_no_clock)) {
            there.server_ms = time();
        }
        return there;
    }

    bool matches(slot_version version, std::string_view value) const {
        const std::string_view there(page_->now().bytes.data(), page_->now().size);
        return page_->now().version == version ||
               (is(fault::version_half) &&
                std::uint32_t(page_->now().version) == std::uint32_t(version)) ||
               (is(fault::same_value) && version != 0 && there == value);
    }

    cas_result put_if(bool is_same, std::string_view value) {
        if (is_same || is(fault::stores_anyway)) {
            page_->writer = ::getpid();
            put(value);
        }
        if (is_same) {
            const slot_version off = is(fault::next_version) ? 1 : 0;
            if (is(fault::is_unsure) && page_->now().version % 8 == 0) {
                return {cas_status::indeterminate, 0, {}, durable_errc::indeterminate};
            }
            return {cas_status::stored, page_->now().version + off, {}, {}};
        }
        if (is(fault::answers_failed)) {
            return {cas_status::failed, 0, {}, durable_errc::storage_error};
        }
        cas_result conflict{cas_status::conflict, 0, read(), {}};
        if (is(fault::wrong_current)) {
            conflict.current->value += "?";
        }
        return conflict;
    }

    void put(std::string_view value) {
        if (is(fault::text_only)) {
            value = value.substr(0, value.find('\0'));
        }
        const std::size_t other = 1 - page_->current;
        page::stored_value& next = page_->values[other];
        std::copy(value.begin(), value.end(), next.bytes.begin());
        next.size = value.size();
        next.version = ++page_->last;
        page_->current = other;
    }

    page* page_;
    int generation_;
    bool is_dead_ = false;
    pid_t opener_ = ::getpid();
};

static_assert(test::locked_slot<page_slot> && test::clocked_slot<page_slot>);

struct page_store {
    using slot = page_slot;
    static constexpr std::size_t limit = page::limit;
    static constexpr bool processes = true;

    explicit page_store(fault wrong) { at->wrong = wrong; }

    slot open() { return slot(*at); }
    void fresh() {
        const fault wrong = at->wrong;
        ::new (&*at) page();
        at->wrong = wrong;
    }
    void erase() {
        const holding held(*at);
        at->now() = {};
        ++at->generation;
        if (at->wrong == fault::starts_again) {
            at->last = 0;
        }
    }

    test::shared_with_children<page> at;
};

using page_suite = test::slot_suite<page_store>;

} // namespace

TEST_CASE("slot_suite: a slot with every optional operation passes the suite") {
    page_store store(fault::none);
    test::check_slot(store);
}

TEST_CASE("slot_suite: finds each planted fault of a slot") {
    struct wrong {
        fault is;
        void (page_suite::*part)();
        const char* found;
    };
    const wrong all[] = {
        {fault::absent_fails, &page_suite::absent, "absent: load() fails"},
        {fault::reads_apart, &page_suite::torn, "a version was read with the value of another"},
        {fault::checks_apart, &page_suite::torn, "a version was replaced twice"},
        {fault::checks_apart, &page_suite::increments, "instead of 200 increments"},
        {fault::checks_apart, &page_suite::created_once,
         "created once, threads: another's value is there"},
        {fault::guards_threads, &page_suite::torn, "one read, processes: "},
        {fault::guards_threads, &page_suite::increments, "increments, processes: "},
        {fault::version_half, &page_suite::exchanges, "stored instead of conflict"},
        {fault::same_value, &page_suite::exchanges, "stored instead of conflict"},
        {fault::stores_anyway, &page_suite::exchanges, "another value, after a conflict"},
        {fault::answers_failed, &page_suite::exchanges,
         "failed (the store failed) instead of conflict"},
        {fault::wrong_current, &page_suite::exchanges,
         "the conflict's `current` is not what is there"},
        {fault::text_only, &page_suite::bytes, "load() returns another value"},
        {fault::cuts, &page_suite::too_large, "stored instead of failed"},
        {fault::other_error, &page_suite::too_large, "failed (the store failed): not too_large"},
        {fault::starts_again, &page_suite::versions, "a version was there before"},
        {fault::starts_again, &page_suite::versions,
         "stored instead of conflict, a version of what was"},
        {fault::next_version, &page_suite::exchanges, "load() returns another version"},
        {fault::keeps_old, &page_suite::versions, "an old version of what was deleted"},
        {fault::forgets, &page_suite::reopened, "after all others are gone"},
        {fault::dies_by_moving, &page_suite::moved, "failed (Input/output error), after it moved"},
        {fault::not_after_fork, &page_suite::forked, "! load() fails"},
        {fault::hurts_the_parent, &page_suite::forked, "! load() fails"},
        {fault::updates_apart, &page_suite::locked<>, "locked, threads: "},
        {fault::updates_nothing, &page_suite::locked<>, "stored: leaving what is there"},
        {fault::updates_too_large, &page_suite::locked<>, "stored instead of too_large"},
        {fault::clock_goes_back, &page_suite::clocked<>, "the store's clock went back"},
        {fault::clock_in_seconds, &page_suite::clocked<>,
         "the store's clock is not in milliseconds since 1970"},
        {fault::brings_no_clock, &page_suite::clocked<>,
         "load() does not return the store's clock"},
        {fault::dies_with_writer, &page_suite::killed, "not what was acknowledged"},
        {fault::leaks_files, &page_suite::keeps_no_files, "files are left open"},
        {fault::falls_back, &page_suite::versions, "load() sets fell_back"},
        {fault::is_unsure, &page_suite::versions, "indeterminate"},
    };
    for (const wrong& one : all) {
        page_store store(one.is);
        page_suite suite(store, 100ms);
        (suite.*one.part)();
        CAPTURE(static_cast<int>(one.is), one.found, suite.faults());
        bool is_found = false;
        for (const std::string& said : suite.faults()) {
            is_found = is_found || said.find(one.found) != std::string::npos;
        }
        CHECK(is_found);
    }
}

#endif

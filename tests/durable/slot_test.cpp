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
    CHECK(ref->watch().error() == std::errc::operation_not_supported);
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
    reads_apart,       // the value of one write, the version of another
    guards_threads,    // but not processes
    checks_apart,      // the version is compared before the lock is taken
    version_half,      // 32 bits of the version are compared
    same_value,        // a stale version is stored on if the value is what is there
    stores_anyway,     // a conflict, and stored
    answers_failed,    // instead of a conflict
    wrong_current,     // a conflict that brings something else
    text_only,         // bytes up to the first 0
    cuts,              // what is too large is cut
    other_error,       // too large, but not said so
    starts_again,      // what was deleted starts with version 1 again
    next_version,      // `stored` with another version than it has
    keeps_old,         // objects do not see that it was deleted
    forgets,           // what is stored goes with its object
    dies_with_writer,  // and with the process that stored it
    dies_by_moving,    //
    not_after_fork,    // only the process that opened it may use it
    hurts_the_parent,  // a child that destroys it takes the parent's
    rings_early,       // the watch rings before the change
    rings_for_others,  // but not for its own object's changes
    rings_once,        // and never again
    never_quiet,       // drained, and still readable
    deaf_to_processes, // rings for its own process only
    updates_apart,     // an update is not locked
    updates_nothing,   // and stores it
    updates_too_large,
    clock_goes_back,
    clock_in_seconds,
    brings_no_clock,
    leaks_files,
    falls_back,
    is_unsure
};

// Which thread of which process.
struct actor {
    pid_t process = ::getpid();
    std::thread::id thread = std::this_thread::get_id();

    friend bool operator==(const actor&, const actor&) = default;
};

// A value in memory that processes share. The slot offers every optional operation, with the fault
// that it is told. A fault that needs a concurrent operation happens for certain: the slot waits
// for one.
struct page {
    static constexpr std::size_t limit = 8300;
    static constexpr int watches = 16;

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
    std::array<bool, watches> watched{};
    std::array<pid_t, watches> watcher{};
    std::array<const void*, watches> watched_by{};
    std::array<actor, watches> watch_maker{};
    int rung = 0;                // so often before a change
    int drained = -1;            // how many of these before a watch was last drained
    int looked = -1;             // and before its maker's last look after that
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

// Pipes that were made before any process, so that all have them.
struct bells {
    bells() {
        for (auto& bell : ends) {
            REQUIRE(::pipe(bell.data()) == 0);
            for (const int end : bell) {
                ::fcntl(end, F_SETFL, O_NONBLOCK);
            }
        }
    }
    bells(const bells&) = delete;
    bells& operator=(const bells&) = delete;
    ~bells() {
        for (const auto& bell : ends) {
            ::close(bell[0]);
            ::close(bell[1]);
        }
    }
    std::array<std::array<int, 2>, page::watches> ends{};
};

class page_watch final : public slot_watch {
public:
    page_watch(page& p, const bells& b, std::size_t at) : page_(p), bells_(b), at_(at) {}
    ~page_watch() override {
        static_cast<void>(empty());
        const holding held(page_);
        page_.watched[at_] = false;
    }
    int fd() const noexcept override { return bells_.ends[at_][0]; }
    std::error_code drain() noexcept override {
        return page_.wrong == fault::never_quiet ? std::error_code() : empty();
    }

private:
    std::error_code empty() noexcept {
        int rung = 0;
        {
            const holding held(page_);
            rung = page_.rung;
        }
        char some[64];
        while (::read(fd(), some, sizeof some) > 0) {
        }
        const int why = errno;
        const holding held(page_);
        page_.drained = rung;
        return why == EAGAIN ? std::error_code() : std::error_code(why, std::system_category());
    }

    page& page_;
    const bells& bells_;
    const std::size_t at_;
};

class page_slot : public slot {
public:
    static constexpr slot_guarantees guarantees{true, true, lock_clock::server};

    page_slot(page& p, const bells& b) : page_(&p), bells_(&b), generation_(p.generation) {
        if (is(fault::leaks_files)) {
            [[maybe_unused]] const int leaked = ::dup(STDERR_FILENO);
        }
        const holding held(*page_);
        ++page_->opened;
    }
    page_slot(page_slot&& other) noexcept
        : page_(std::exchange(other.page_, nullptr)), bells_(other.bells_),
          generation_(other.generation_), is_dead_(page_->wrong == fault::dies_by_moving) {}
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
            page_->looked = is_watched(true) ? page_->drained : page_->looked;
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
        if (is(fault::rings_early)) {
            int rung = 0;
            {
                const holding held(*page_);
                ring();
                rung = ++page_->rung;
            }
            let_others_look(rung);
        }
        if (is(fault::deaf_to_processes)) {
            let_others_look(0);
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

    result<std::unique_ptr<slot_watch>, std::error_code> watch() override {
        const holding held(*page_);
        for (std::size_t i = 0; i < page::watches; ++i) {
            if (!std::exchange(page_->watched[i], true)) {
                page_->watcher[i] = ::getpid();
                page_->watched_by[i] = this;
                page_->watch_maker[i] = actor();
                return std::unique_ptr<slot_watch>(
                    std::make_unique<page_watch>(*page_, *bells_, i));
            }
        }
        return unexpected{std::make_error_code(std::errc::too_many_files_open)};
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

    // Until another one that watches has drained its watch after it has rung so often, and has
    // looked then.
    void let_others_look(int rung) {
        test::eventually([&] {
            const holding held(*page_);
            return !is_watched(false) || page_->looked >= rung;
        });
    }

    std::error_code trouble() const {
        const bool is_lost =
            is_dead_ || page_->is_hurt || (is(fault::not_after_fork) && ::getpid() != opener_);
        return is_lost ? std::make_error_code(std::errc::io_error) : std::error_code();
    }

    // The other members are under the page's lock.

    // By the caller, or by another.
    bool is_watched(bool by_caller) const {
        for (std::size_t i = 0; i < page::watches; ++i) {
            if (page_->watched[i] && (page_->watch_maker[i] == actor()) == by_caller) {
                return true;
            }
        }
        return false;
    }

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
        if (!is(fault::rings_early)) {
            ring();
        }
    }

    void ring() {
        for (std::size_t i = 0; i < page::watches; ++i) {
            if (!page_->watched[i] ||
                (is(fault::rings_for_others) && page_->watched_by[i] == this) ||
                (is(fault::deaf_to_processes) && page_->watcher[i] != ::getpid())) {
                continue;
            }
            const char one = 1;
            static_cast<void>(!::write(bells_->ends[i][1], &one, 1));
            if (is(fault::rings_once)) {
                page_->watched[i] = false;
            }
        }
    }

    page* page_;
    const bells* bells_;
    int generation_;
    bool is_dead_ = false;
    pid_t opener_ = ::getpid();
};

static_assert(test::locked_slot<page_slot> && test::watchable_slot<page_slot> &&
              test::clocked_slot<page_slot>);

struct page_store {
    using slot = page_slot;
    static constexpr std::size_t limit = page::limit;
    static constexpr bool processes = true;

    explicit page_store(fault wrong) { at->wrong = wrong; }

    slot open() { return slot(*at, rung); }
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
    bells rung;
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
        {fault::rings_early, &page_suite::watched<>, "watched, a thread: ! a change was missed"},
        {fault::rings_for_others, &page_suite::watched<>,
         "a change does not make the watch readable"},
        {fault::rings_once, &page_suite::watched<>, "a change does not make the watch readable"},
        {fault::never_quiet, &page_suite::watched<>, "readable after a drain without a change"},
        {fault::deaf_to_processes, &page_suite::watched<>,
         "watched, a process: ! a change was missed"},
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

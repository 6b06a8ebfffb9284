// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_OPS_HPP
#define BIDE_MODEL_IMPL_OPS_HPP

#include <bide/model/impl/report.hpp>

namespace bide { inline namespace BIDE_ABI { namespace model {
namespace detail {

namespace {

// Clears the stack where the frame of execution::step() will be. That frame may have unused parts,
// and find_loop() compares it with that of the previous round of a loop.
BIDE_NOINLINE void clear_frame() noexcept {
    volatile std::uint64_t below[20];
    for (volatile std::uint64_t& word : below) {
        word = 0;
    }
}

// Makes the second half of the read-modify-write whose first half is `read`. It is not inlined, so
// that its request leaves nothing in the frame of a caller: find_loop() compares that frame.
BIDE_NOINLINE void write_half(execution& x, const request& read, bits value, order o,
                              const char* text = "") {
    x.step({.what = request::kind::write,
            .object = read.object,
            .with = o,
            .exclusive = true,
            .quiet = read.quiet,
            .inside = true,
            .from = x.self().message,
            .value = value,
            .where = read.where,
            .text = text});
}

void fail_if(execution& x, failure what, const std::string* message) {
    if (message != nullptr) {
        x.fail_now(what, *message);
    }
}

} // namespace

// ---- Freed blocks
//
// The freed blocks of one size are modelled as an object, its list. A `delete` writes the address of
// its block to the list. A `new` reads one of these addresses, or the initial value: then the block
// is new. No two reads take the same write. A read happens after the write that it takes, as in an
// allocator.

namespace {

// Returns the execution if blocks are used again in it; otherwise nullptr.
execution* reusing() noexcept {
    execution* const x = execution::current();
    return x != nullptr && heap::inside >= 0 && heap::may_reuse && x->reuses_addresses() ? x
                                                                                         : nullptr;
}

} // namespace

void* heap::reused(std::size_t size, std::size_t alignment) noexcept {
    execution* const x = reusing();
    if (x == nullptr || x->self().left.reused_addresses == 0 || alignment > 16 || size == 0) {
        return nullptr;
    }
    const bits taken = x->step({.what = request::kind::read,
                                .object = x->free_list_of(size),
                                .with = order::acquire,
                                .text = "new"});
    if (taken == 0) {
        return nullptr;
    }
    --x->self().left.reused_addresses;
    const leave guard;
    auto* const block = reinterpret_cast<std::byte*>(taken);
    std::erase_if(freed_blocks, [&](const freed_block& b) { return b.begin == block; });
    (reinterpret_cast<header*>(block) - 1)->mark = used;
    ++live;
    if (on_freed != nullptr) {
        x->watched.reuse(taken, size, [x] { return x->mem().make_memory(x->self().knows); });
    }
    return block;
}

void heap::offer(void* block, std::size_t size, const void* code) noexcept {
    if (execution* const x = reusing(); x != nullptr) {
        ops::site where = ops::place_of(code);
        where.is_given = 1;
        x->step({.what = request::kind::write,
                 .object = x->free_list_of(size),
                 .with = order::release,
                 .value = reinterpret_cast<bits>(block),
                 .where = where,
                 .text = "delete"});
    }
}

void heap::fail_too_large() {
    execution::needed().fail_now(failure::too_large,
                                 "a thread of a body allocates more than 4 MiB by new");
}

namespace ops {

// ---- Atomics

int make_atomic(bits initial) {
    execution* const x = execution::current();
    if (x == nullptr) {
        return outside;
    }
    const heap::leave guard;
    x->self().waits.acts();
    return x->mem().make_object(initial, x->self().knows, false);
}

void drop_atomic(int object) noexcept {
    if (execution* const x = execution::current(); x != nullptr && object != outside) {
        if (!x->mem().is_object(object)) {
            x->fail_now(failure::lifetime, "an atomic is destroyed again");
        }
        fail_if(*x, failure::lifetime,
                x->mem().drop(object, x->self().knows,
                              code_places::brief(__builtin_return_address(0))));
    }
}

namespace {

execution& need(int object, site s) {
    execution* const x = &execution::needed();
    if (!x->mem().is_object(object)) {
        x->fail_now(failure::lifetime,
                    object == outside ? "an atomic that was not made by the body"
                                      : "access to a destroyed atomic",
                    s);
    }
    return *x;
}

} // namespace

bits load(int object, order o, site s) noexcept {
    execution& x = need(object, s);
    const order with = x.weakened(o, 0, s);
    clear_frame();
    return x.step({.what = request::kind::read, .object = object, .with = with, .where = s});
}

void store(int object, bits value, order o, site s) noexcept {
    execution& x = need(object, s);
    x.step({.what = request::kind::write,
            .object = object,
            .with = x.weakened(o, 0, s),
            .value = value,
            .where = s});
}

bits modify(int object, bits (*next)(bits, bits), bits operand, order o, site s) noexcept {
    execution& x = need(object, s);
    const request r{.what = request::kind::read,
                    .object = object,
                    .with = x.weakened(o, 0, s),
                    .exclusive = true,
                    .where = s};
    clear_frame();
    const bits seen = x.step(r);
    write_half(x, r, next(seen, operand), r.with);
    return seen;
}

bool compare_exchange(int object, bits& expected, bits desired, order success, order failure,
                      bool weak, site s) noexcept {
    execution& x = need(object, s);
    request r{.what = request::kind::read,
              .object = object,
              .with = x.weakened(success, 0, s),
              .with_failure = x.weakened(failure, 1, s),
              .exclusive = true,
              .compare = true,
              .expected = expected,
              .where = s};
    if (weak && x.self().left.weak_failures > 0 && x.choose(2, s, "fails for no reason?") == 1) {
        --x.self().left.weak_failures;
        r.compare = r.exclusive = false;
        r.with = r.with_failure;
        if (x.step(r) != expected) {
            x.leave_out(); // the values differ: this is no spurious failure
        }
        return false;
    }
    clear_frame();
    const bits seen = x.step(r);
    if (seen != expected) {
        expected = seen;
        return false;
    }
    write_half(x, r, desired, r.with);
    return true;
}

void fence(order o, site s) noexcept {
    execution& x = execution::needed();
    if (const order with = x.weakened(o, 0, s); with != order::relaxed) {
        x.step({.what = request::kind::fence, .with = with, .where = s});
    }
}

// ---- Plain data

int make_plain() {
    execution* const x = execution::current();
    if (x == nullptr) {
        return outside;
    }
    const heap::leave guard;
    return x->mem().make_plain(x->self().knows);
}

namespace {

// Returns the text for a failure that names the thread that freed the memory of `at`.
std::string freed_text(const heap::freed_block* block) {
    if (block == nullptr) {
        return {};
    }
    const heap::leave guard;
    const std::string where = text(site{in_code, places().add(code_places::none, block->code), 0});
    return ", whose memory was freed by " + thread_text(block->thread) +
           (where.empty() ? "" : " at " + where);
}

void access_var(execution& x, failure what, clash::access how, int object, const void* at,
                const void* code) {
    const int place = code_places::brief(code);
    const bool exists = object == outside || x.mem().is_plain(object);
    const std::string* const wrong = x.mem().access_plain(how, object, x.self().knows, place);
    if (wrong != nullptr && !exists) {
        x.fail_now(failure::lifetime, *wrong + freed_text(heap::freed_block_of(at)),
                   place_of(code));
    }
    fail_if(x, what, wrong);
}

} // namespace

void drop_plain(int object) noexcept {
    if (execution* const x = execution::current(); x != nullptr) {
        access_var(*x, failure::lifetime, clash::access::destroy, object, nullptr,
                   __builtin_return_address(0));
    }
}

void plain_read(int object, const void* at) noexcept {
    if (execution* const x = execution::current(); x != nullptr) {
        access_var(*x, failure::race, clash::access::read, object, at, __builtin_return_address(0));
    }
}

void plain_write(int object, const void* at) noexcept {
    if (execution* const x = execution::current(); x != nullptr) {
        x->self().waits.acts();
        access_var(*x, failure::race, clash::access::write, object, at,
                   __builtin_return_address(0));
    }
}

// ---- Futex
//
// The kernel's wait queue for an address is modelled as an atomic object. Each futex_wait() and
// each futex_wake() makes a read-modify-write of this object, so the calls have one order. A wait
// reads the futex word between the two halves of its read-modify-write. The wait may read an old
// value of the word, but none older than the newest value that an earlier waker knew. Waits and
// wakes do not synchronise with each other.

namespace {

// The first half of an operation that modifies the queue of an address.
request to_enter(execution& x, const void* address, site s, const char* text) {
    return {.what = request::kind::read,
            .object = x.queue_of(address),
            .exclusive = true,
            .quiet = true,
            .where = s,
            .text = text};
}

// Sleeps until a wake takes the thread out of the queue that `enter` has read. `mine` is the
// message that has added the thread. Returns false if the time-out has ended the sleep.
bool sleep_in(execution& x, const request& enter, int mine, bool timed, std::int64_t until) {
    model_thread& t = x.self();
    const bool may_be_spurious = t.left.spurious > 0;
    const bool may_time_out = timed && t.left.timeouts > 0;
    int early = 0;
    if (may_be_spurious || may_time_out) {
        const int both = may_be_spurious && may_time_out ? 3 : 2;
        early = x.choose(both, enter.where, "futex_wait: ends early?");
        early = early == 1 && !may_time_out ? 2 : early; // 1: time-out, 2: for no reason
    }
    if (early == 0) {
        t.timed = timed;
        x.step({.what = request::kind::sleep,
                .object = enter.object,
                .from = mine,
                .where = enter.where,
                .text = "futex_wait: woken"});
        return true;
    }
    --(early == 1 ? t.left.timeouts : t.left.spurious);
    request leave = enter;
    leave.text = early == 1 ? "futex_wait: times out" : "futex_wait: ends for no reason";
    const bits now = x.step(leave);
    if (!contains(now, t.knows.thread)) {
        x.leave_out(); // a wake has taken it out already
    }
    write_half(x, enter, without(now, t.knows.thread), order::relaxed, "futex_wait: leaves");
    if (early == 1) {
        t.now = std::max(t.now, until);
    }
    return early != 1;
}

} // namespace

bool futex_wait(int object, const void* address, bits expected, unsigned width, std::int64_t until,
                site s) noexcept {
    execution& x = need(object, s);
    model_thread& t = x.self();
    const bool timed = until != std::numeric_limits<std::int64_t>::max();
    if (timed && until <= t.now) {
        return false;
    }
    const request enter = to_enter(x, address, s, "futex_wait: enters");
    const bits line = x.step(enter);
    const int entered = t.message;
    const clock known = x.mem().msg(entered).sync;
    const bits word = x.step({.what = request::kind::read,
                              .object = object,
                              .quiet = true,
                              .inside = true,
                              .known = &known,
                              .where = s,
                              .text = "futex_wait: the word"});
    const bool sleeps = ((word ^ expected) << (64 - 8 * width)) == 0;
    t.message = entered;
    if (!sleeps) {
        // The queue does not change. The write still gives this call a place in the order of the
        // calls on the queue.
        write_half(x, enter, line, order::relaxed, "futex_wait: goes on");
        return true;
    }
    write_half(x, enter, joined(line, t.knows.thread), order::relaxed, "futex_wait: sleeps");
    return sleep_in(x, enter, t.message, timed, until);
}

void futex_wake(const void* address, int count, site s) noexcept {
    execution& x = execution::needed();
    const request enter = to_enter(x, address, s, "futex_wake: enters");
    bits line = x.step(enter);
    for (; count > 0 && line != 0; --count) {
        // The system may wake any of the sleepers.
        const int asleep = sleepers(line);
        const int which = asleep > count ? x.choose(asleep, s, "futex_wake: which?") : 0;
        line = without(line, static_cast<int>((line >> (4 * which)) & 15) - 1);
    }
    write_half(x, enter, line, order::release, "futex_wake");
}

// ---- The rest

void pause() noexcept {
    execution::needed().step(
        {.what = request::kind::pause, .where = place_of(__builtin_return_address(0))});
}

void wait_for_lock(int object, const char* what, site s) noexcept {
    execution::needed().step(
        {.what = request::kind::pause, .object = object, .where = s, .text = what});
}

std::int64_t now() noexcept {
    execution& x = execution::needed();
    model_thread& t = x.self();
    if (t.left.clock_jumps > 0 && x.choose(2, {}, "the clock jumps?") == 1) {
        --t.left.clock_jumps;
        t.now += 1'000'000;
    }
    if (std::exchange(t.read_time, t.now) != t.now) {
        t.waits.acts(); // a loop that reads another time in each round may give up
    }
    return t.now + 1; // some callers use 0 for "no time"
}

void* local(const void* key, void* (*make)()) noexcept {
    execution& x = execution::needed();
    auto& mine = x.self().locals;
    if (const auto at = mine.find(key); at != mine.end()) {
        return at->second;
    }
    void* const made = make();
    const heap::leave guard;
    return mine.emplace(key, made).first->second;
}

int this_thread() noexcept { return execution::needed().self().knows.thread; }

void* service() noexcept { return execution::needed().service; }

void start_daemon(void (*body)(void*) noexcept, void* argument) noexcept {
    execution::needed().spawn([body, argument] { body(argument); }, true);
}

void name(int object, const char* text) noexcept {
    if (execution* const x = execution::current(); x != nullptr && object >= 0) {
        x->mem().at(object).name = text;
    }
}

} // namespace ops

} // namespace detail

// ---- The functions that a body calls: threads, requirements, choices.

thread::thread(std::function<void()> run)
    : id_(detail::execution::needed().spawn(std::move(run), false)) {}

void thread::join() noexcept {
    if (std::exchange(joined_, true)) {
        return;
    }
    detail::execution::needed().step(
        {.what = detail::request::kind::join, .other = id_, .text = "joins"});
}

void run_equal_threads(int count, const std::function<void()>& run) {
    detail::execution& x = detail::execution::needed();
    std::array<int, detail::max_threads> all{};
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        all[i] = x.spawn(run, false, i == 0 ? -1 : all[i - 1]);
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        x.step({.what = detail::request::kind::join, .other = all[i], .text = "joins"});
    }
}

void daemon(std::function<void()> run) { detail::execution::needed().spawn(std::move(run), true); }

void require(bool holds, const char* what, int line, const char* file) noexcept {
    if (!holds) {
        detail::execution::needed().fail_now(failure::assertion, what, {file, line});
    }
}

int choose(int n) noexcept {
    detail::execution& x = detail::execution::needed();
    if (n < 1) {
        x.fail_now(failure::assertion, "choose() among no values");
    }
    return x.choose(n, {}, "choose");
}

void assume(bool holds) noexcept {
    if (!holds) {
        detail::execution::needed().leave_out();
    }
}

void record(std::string outcome) {
    detail::execution& x = detail::execution::needed();
    const detail::heap::leave guard;
    x.outcomes.emplace_back(outcome.c_str());
}

void use_service(void* timer_service) noexcept {
    detail::execution::needed().service = timer_service;
}

}}} // namespace bide::BIDE_ABI::model

#endif

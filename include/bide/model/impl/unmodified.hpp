// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_UNMODIFIED_HPP
#define BIDE_MODEL_IMPL_UNMODIFIED_HPP

// The operations for code that was not written for the checker: plain memory (model/watch.hpp),
// real atomics, and the other operations of model/unmodified.hpp.

#include <bide/model/impl/ops.hpp>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

namespace {

// The memory that is the running thread's own: not watched.
const ops::memory_range* thread_local_memory = nullptr;
std::size_t thread_local_ranges = 0;

bool is_thread_local(std::uintptr_t byte) noexcept {
    for (std::size_t i = 0; i < thread_local_ranges; ++i) {
        if (byte - thread_local_memory[i].from < thread_local_memory[i].size) {
            return true;
        }
    }
    return false;
}

bool is_on_stack(execution& x, const void* at) {
    for (int t = 0; t < x.threads(); ++t) {
        if (x.thread(t).stack.holds(at)) {
            return true;
        }
    }
    return false;
}

void save_if_outside(execution& x, std::uintptr_t byte) {
    const auto* const at = reinterpret_cast<const void*>(byte);
    if (heap::restores && !heap::is_ours(at) && !is_on_stack(x, at)) {
        x.watched.save(byte);
    }
}

} // namespace

namespace ops {

bool in_body() noexcept { return heap::inside >= 0 && execution::current() != nullptr; }

site place_of(const void* code) noexcept {
    execution* const x = execution::current();
    if (x == nullptr) {
        return {};
    }
    const heap::leave guard;
    return {in_code, places().add(x->self().calls, code), 0};
}

void enter_function(const void* code) noexcept {
    if (in_body()) {
        const heap::leave guard;
        int& calls = execution::current()->self().calls;
        calls = places().add(calls, code);
    }
}

void leave_function() noexcept {
    if (in_body()) {
        const heap::leave guard;
        int& calls = execution::current()->self().calls;
        calls = places().caller_of(calls);
    }
}

// ---- Plain memory

void watch(const void* from, std::size_t size, bool writes, const void* code) noexcept {
    // Accesses of the checker itself are not watched. The checker and the body share instances of
    // templates of the standard library. The linker may choose the instances that were compiled
    // with -fsanitize=thread, so the checker can call this function, too.
    if (!in_body()) {
        return;
    }
    const auto first = reinterpret_cast<std::uintptr_t>(from);
    if (is_thread_local(first)) {
        return;
    }
    execution* const x = execution::current();
    const int place = place_of(code).line;
    const heap::leave guard;
    if (writes && !x->self().stack.holds(from)) {
        x->self().waits.acts(); // a loop that writes memory does more than wait
    }
    memory& m = x->mem();
    const view& v = x->self().knows;
    const auto how = writes ? clash::access::write : clash::access::read;
    for (std::uintptr_t byte = first; byte != first + size; ++byte) {
        if (const shadow::cell* const c = x->watched.cell_of(byte); c != nullptr) {
            fail_if(*x, failure::race, m.access_as_plain(writes, c->object, v, place));
            if (writes) {
                x->watched.end(*c);
            }
        }
        const int p = x->watched.plain(m, byte);
        const bool exists = m.is_plain(p);
        if (writes && exists && m.is_unwritten(p)) {
            save_if_outside(*x, byte);
        }
        const std::string* const wrong = m.access_plain(how, p, v, place);
        if (!exists) {
            const std::string freed = text(site_at(m.found().first_at));
            x->fail_now(failure::lifetime, std::string(writes ? "write to" : "read of") +
                                               " memory that was freed by " +
                                               thread_text(m.found().first.thread) +
                                               (freed.empty() ? "" : " at " + freed));
        }
        fail_if(*x, failure::race, wrong);
    }
}

bool watch_frees() noexcept {
    heap::on_freed = [](std::uintptr_t block, std::size_t size, const void* code) noexcept {
        execution* const x = execution::current();
        if (x == nullptr) {
            return;
        }
        if (ops::unmodified != nullptr) {
            ops::unmodified->frees(reinterpret_cast<const void*>(block), size, code);
        }
        const int place = place_of(code).line;
        const heap::leave guard;
        memory& m = x->mem();
        const view& v = x->self().knows;
        const auto fail = [x](const std::string* wrong) {
            if (wrong != nullptr) {
                x->fail_now(failure::lifetime, "memory is freed; " + *wrong);
            }
        };
        const auto drop = [&](int byte) {
            fail(m.access_plain(clash::access::destroy, byte, v, place));
        };
        const int rest = m.make_watched(); // for all bytes that were never accessed
        drop(rest);
        x->watched.free(block, size, rest, drop,
                        [&](const shadow::cell& c) { fail(m.drop(c.object, v, place)); });
    };
    return true;
}

// ---- Real atomics

namespace {

// The values of 16 bytes that bodies have used. An atomic of the checker has 8 bytes, so it has the
// number of such a value.
struct wide_values {
    using value = std::array<unsigned char, 16>;
    std::map<value, bits> numbers;
    std::vector<value> values;

    bits number(const value& v) {
        const auto [at, fresh] = numbers.try_emplace(v, values.size());
        if (fresh) {
            values.push_back(v);
        }
        return at->second;
    }
};

wide_values& wide() {
    static wide_values all;
    return all;
}

bits in_memory(std::uintptr_t at, unsigned size) {
    if (size == 16) {
        wide_values::value v{};
        std::memcpy(v.data(), reinterpret_cast<const void*>(at), size);
        return wide().number(v);
    }
    bits value = 0;
    std::memcpy(&value, reinterpret_cast<const void*>(at), size);
    return value;
}

// Notes the contents of the memory of a cell.
void note_value(shadow::cell& c) {
    if (c.has_value) {
        std::memcpy(c.value.data(), reinterpret_cast<const void*>(c.from), c.size);
    }
}

bool has_changed(const shadow::cell& c) {
    return c.has_value &&
           std::memcmp(c.value.data(), reinterpret_cast<const void*>(c.from), c.size) != 0;
}

} // namespace

bits number_of(const void* value) noexcept {
    const heap::leave guard;
    wide_values::value v{};
    std::memcpy(v.data(), value, v.size());
    return wide().number(v);
}

void value_of(bits number, void* value) noexcept {
    const heap::leave guard;
    const wide_values::value& v = wide().values[static_cast<std::size_t>(number)];
    std::memcpy(value, v.data(), v.size());
}

int object_at(const volatile void* address, unsigned size, bool has_value, site s) noexcept {
    execution& x = execution::needed();
    const heap::leave guard;
    const auto from = reinterpret_cast<std::uintptr_t>(address);
    if (is_thread_local(from)) {
        x.fail_now(failure::refused, "an atomic or a lock that is thread_local is not modelled", s);
    }
    shadow::cell* c = x.watched.cell_of(from);
    if (c != nullptr && c->from == from && c->size == size && !has_changed(*c)) {
        return c->object;
    }
    memory& m = x.mem();
    const view& v = x.self().knows;
    for (std::uintptr_t byte = from; byte != from + size; ++byte) {
        c = x.watched.cell_of(byte);
        if (c == nullptr) {
            continue;
        }
        if (c->has_value && has_value && !has_changed(*c) && (c->from != from || c->size != size)) {
            x.fail_now(failure::refused,
                       "atomic accesses of " + std::to_string(c->size) + " and of " +
                           std::to_string(size) + " bytes to the same memory are not modelled",
                       s);
        }
        // The memory was written, and the write was not reported.
        x.watched.end(*c);
    }
    for (std::uintptr_t byte = from; byte != from + size; ++byte) {
        const int p = x.watched.plain_if_any(byte);
        if (p < 0 || (m.is_plain(p) && m.is_unwritten(p))) {
            save_if_outside(x, byte);
        } else if (!m.is_plain(p)) {
            fail_if(x, failure::lifetime, m.access_as_atomic(false, p, v, s.line));
        }
    }
    const int object = m.make_object(has_value ? in_memory(from, size) : 0, v, false);
    m.at(object).made = {};
    note_value(x.watched.make_cell(from, size, object, has_value));
    return object;
}

void accessed(const volatile void* address, unsigned size, int object, bool writes,
              site s) noexcept {
    execution& x = execution::needed();
    const heap::leave guard;
    const auto from = reinterpret_cast<std::uintptr_t>(address);
    memory& m = x.mem();
    for (std::uintptr_t byte = from; byte != from + size; ++byte) {
        if (const int p = x.watched.plain_if_any(byte); p >= 0) {
            const bool exists = m.is_plain(p);
            fail_if(x, exists ? failure::race : failure::lifetime,
                    m.access_as_atomic(writes, p, x.self().knows, s.line));
        }
    }
    shadow::cell* const c = x.watched.cell_of(from);
    if (!writes || c == nullptr || c->object != object || !c->has_value) {
        return;
    }
    const bits newest = m.msg(m.at(object).messages.back()).value;
    if (size == 16) {
        std::memcpy(reinterpret_cast<void*>(from),
                    wide().values[static_cast<std::size_t>(newest)].data(), size);
    } else {
        std::memcpy(reinterpret_cast<void*>(from), &newest, size);
    }
    note_value(*c);
}

// ---- Threads, and what they wait for

int start_thread(void (*start)(void* (*run)(void*), void*), void* (*run)(void*), void* argument) {
    heap::may_reuse = false;
    std::function<void()> all = [=] { start(run, argument); };
    heap::may_reuse = true;
    return execution::needed().spawn(std::move(all), false);
}

void join_thread(int thread) noexcept {
    execution::needed().step({.what = request::kind::join, .other = thread, .text = "joins"});
}

void detach_thread(int thread) noexcept { execution::needed().thread(thread).is_daemon = true; }

bool sleep_on(const void* address, std::int64_t until, void (*between)(void*), void* argument,
              site s) noexcept {
    execution& x = execution::needed();
    const bool timed = until != std::numeric_limits<std::int64_t>::max();
    if (timed && until <= x.self().now) {
        between(argument);
        return false;
    }
    const request enter = to_enter(x, address, s, "futex_wait: enters");
    const bits line = x.step(enter);
    write_half(x, enter, joined(line, x.self().knows.thread), order::relaxed, "futex_wait: sleeps");
    const int mine = x.self().message;
    between(argument);
    return sleep_in(x, enter, mine, timed, until);
}

void advance(std::int64_t ns) noexcept {
    std::int64_t& now = execution::needed().self().now;
    now = ns > std::numeric_limits<std::int64_t>::max() - now ? now
                                                              : now + std::max<std::int64_t>(ns, 0);
}

void refuse(const char* what, site s) noexcept {
    const heap::leave guard;
    execution::needed().fail_now(failure::refused, std::string(what) + " is not modelled", s);
}

bool times_out(std::int64_t until, site s) noexcept {
    execution& x = execution::needed();
    model_thread& t = x.self();
    if (until <= t.now) {
        return true;
    }
    if (t.left.timeouts == 0 || x.choose(2, s, "times out?") == 0) {
        return false;
    }
    --t.left.timeouts;
    t.now = until;
    return true;
}

int futex_word_at(const void* at, site s) noexcept {
    {
        const heap::leave guard;
        const auto from = reinterpret_cast<std::uintptr_t>(at);
        const shadow::cell* const c = execution::needed().watched.cell_of(from);
        if (c != nullptr && c->from == from && c->size == sizeof(bits) && !has_changed(*c)) {
            return c->object;
        }
    }
    return object_at(at, sizeof(std::uint32_t), true, s);
}

void misuse(const char* what, site s) noexcept {
    const heap::leave guard;
    execution::needed().fail_now(failure::assertion, what, s);
}

void set_thread_local(const memory_range* all, std::size_t count) noexcept {
    thread_local_memory = all;
    thread_local_ranges = count;
}

} // namespace ops

}}} // namespace bide::BIDE_ABI::model::detail

#endif

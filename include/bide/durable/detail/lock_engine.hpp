// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_LOCK_ENGINE_HPP
#define BIDE_DURABLE_DETAIL_LOCK_ENGINE_HPP

// Reads and changes the record of one lock, which lies in a slot:
//
//   slot_part      what one process keeps for a slot, with its update lock
//   process_part   what one process keeps for a lock: the record as last seen, and its waiters
//   lock_engine    the rules of durable/record.hpp as operations on the record
//
// If it is unknown whether a change was stored, the record is read and the rule applied again. The
// rule finds the entry with the ticket's nonce. A child of fork() uses the slot that it inherited.

#include <bide/durable/detail/background.hpp>
#include <bide/durable/expiry.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/record_json.hpp>

#include <set>
#include <thread>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// While the result exists, this thread may block on a store. If the thread runs a scheduler's
// worker, another thread takes over the worker.
inline auto blocking_section() noexcept {
    using host = basic_worker_host<native_platform>;
    struct unblock {
        void operator()(host* of) const noexcept { of->unblocks(); }
    };
    host* const here = worker_local<native_platform>::get().host;
    if (here != nullptr) {
        here->blocks();
    }
    return std::unique_ptr<host, unblock>(here);
}

// Sleeps; in a simulation with threads, in simulated time.
inline void pause_for(std::chrono::nanoseconds rest) {
    if (auto* const simulated = simulated_threads()) [[unlikely]] {
        simulated->sleep([](const void*) noexcept { return false; }, nullptr,
                         native_platform::now() + rest.count());
    } else {
        std::this_thread::sleep_for(rest);
    }
}

struct slot_part {
    explicit slot_part(slot& its, bool may_keep = false) : of(its), keeps(may_keep) {}

    // Returns the error, and keeps what the slot says about it.
    std::error_code failed(std::error_code error) {
        std::string why = of.explain();
        const std::lock_guard held(state);
        trouble = std::move(why);
        return error;
    }
    std::string explain() { // what the slot said of the last operation that failed
        const std::lock_guard held(state);
        return one_line(trouble, trouble.npos);
    }

    slot& of;

    mutex update_lock;   // serves its waiters in the order of arrival
    mutex state;         // may be locked with `update_lock` held, or without it
    std::string trouble; // under state

    const bool keeps; // a server's value, because to load it takes a round trip
    // Under the update lock: the value that this process has last loaded or stored, and
    // boottime_ms() before it was read.
    std::optional<slot_snapshot> kept;
    std::int64_t kept_ms = 0;
    bool uses_kept = false; // apply() is called with it
};

// Updates the value of a slot: loads it, calls apply(), and stores the result by a
// compare-and-swap. If another contender has changed the value meanwhile, tries again. From the
// second try on, uses the store's own lock if the slot offers update_locked(). Stops trying at
// `until`, or after retry_time if that is earlier.
//
// The first try uses the kept value if it was read in the last 20 ms, but a call that changes
// nothing always loads. The compare-and-swap stores only if the kept value is still the current
// one. So the update did the same as one whose load took that long.
//
// begin() is called once, under the update lock. For each try, apply(snapshot, looked_ms,
// maybe_done, error) returns the new value, or nothing to keep the current one, or sets the error.
// `looked_ms` is boottime_ms() before the snapshot was read. `maybe_done` is true if an earlier try
// may have been stored. Only the last call of apply() counts. written() is called after each try
// that was stored, or that may have been.
//
// Returns: store_busy if other threads of this process held the update lock until the time was up;
// conflict_timeout if other contenders changed the value until then, and certainly no try was
// stored; indeterminate if a try may have been stored; the error of apply() or of the slot.
template <class Begin, class Apply, class Written>
std::error_code update_value(slot_part& mine, deadline until, std::chrono::milliseconds retry_time,
                             Begin begin, Apply apply, Written written) {
    const std::int64_t end_ns =
        std::min(until.steady_ns(), deadline::after(retry_time).steady_ns());
    const auto rest = [end_ns] {
        return std::chrono::nanoseconds(end_ns - native_platform::now());
    };
    const std::unique_lock updates(mine.update_lock, rest());
    if (!updates) {
        return make_error_code(durable_errc::store_busy);
    }
    const auto section = blocking_section();
    begin();
    // What the next try need not load, and boottime_ms() before it was read.
    std::optional<slot_snapshot> known = std::exchange(mine.kept, std::nullopt);
    std::int64_t known_ms = mine.kept_ms;
    mine.uses_kept = known && durable::boottime_ms() - known_ms < 20;
    if (!mine.uses_kept) {
        known.reset();
    }
    const auto keep = [&](slot_version version, std::string text) {
        const bool is_of_server = known->server_ms || known->counter;
        if (mine.keeps && is_of_server && !known->fell_back && !known->lost_acknowledged) {
            mine.kept = {.version = version,
                         .value = std::move(text),
                         .server_ms = known->server_ms,
                         .counter = known->counter};
            mine.kept_ms = known_ms;
        }
    };
    bool maybe_done = false;
    bool may_lock = true; // the slot offers update_locked(), as far as is known
    for (unsigned tries = 0;; ++tries) {
        const std::int64_t now_ms = durable::boottime_ms();
        std::error_code error;
        cas_result tried;
        if (tries != 0 && may_lock) {
            tried = mine.of.update_locked([&](const slot_snapshot& from) {
                known.reset();
                return apply(from, now_ms, maybe_done, error);
            });
            may_lock = tried.error != std::errc::operation_not_supported;
        }
        if (tries == 0 || !may_lock) {
            std::optional<std::string> changed;
            do {
                if (!known) {
                    auto loaded = mine.of.load();
                    if (!loaded) {
                        return mine.failed(loaded.error());
                    }
                    known = std::move(*loaded);
                    known_ms = now_ms;
                }
                changed = apply(*known, known_ms, maybe_done, error);
                // Only what was loaded decides that nothing changes.
                if (std::exchange(mine.uses_kept, false) && !changed) {
                    known.reset();
                }
            } while (!known);
            if (!changed && !error) {
                keep(known->version, std::move(known->value));
                return {};
            }
            if (changed) {
                tried = mine.of.compare_exchange(known->version, *changed);
                if (tried.status == cas_status::stored) {
                    keep(tried.version, std::move(*changed));
                }
                known = std::move(tried.current);
                known_ms = now_ms;
            }
        }
        if (error || tried.status == cas_status::failed) {
            return mine.failed(error ? error : tried.error);
        }
        const bool is_conflict = tried.status == cas_status::conflict;
        if (!is_conflict) {
            written();
        }
        if (tried.status == cas_status::stored) {
            return {};
        }
        maybe_done = maybe_done || !is_conflict;
        if (rest().count() <= 0) {
            return maybe_done ? mine.failed(make_error_code(durable_errc::indeterminate))
                              : make_error_code(durable_errc::conflict_timeout);
        }
        if (!known && !(may_lock && is_conflict)) {
            // Up to 0.2 ms after the first try, doubled after each further one, up to 25.6 ms.
            const std::int64_t most_ns = std::int64_t{200'000} << std::min(tries, 7U);
            pause_for(std::min(std::chrono::nanoseconds(jitter(most_ns)), rest()));
        }
    }
}

// ---- renewals

// Returns the queue for the renewals of a lock: see slot::store() and slot::for_renewals(). A
// renewal that hangs delays the later ones. If `store` is empty, a renewal waits for the update
// lock, at most until the lease ends.
// Throws: std::bad_alloc, std::system_error.
inline std::shared_ptr<job_queue> renewal_queue(const std::string& store) {
    const auto make = [] { return std::make_shared<job_queue>(&store_threads::post<true>); };
    return store.empty() ? make() : shared_by_key<std::string, job_queue>::find(store, make);
}

// ---- what a process has for a lock

// A ticket that is bound to this process may outlive the lock object that opened its mark of
// presence (slot_presence). This table keeps the mark open until a lock object of this process has
// released the grant or found it lost.
struct BIDE_SHARED bound_tickets {
    mutex lock;
    // Under the lock: by the nonces of the tickets.
    std::map<std::string, std::set<std::shared_ptr<slot_presence>>> marks;
};

// Only a thread that holds the update lock uses `watch`, `last`, `last_text` and `seen`.
struct process_part final : slot_part, durable::process_knowledge {
    process_part(slot& its, bool is_local) : slot_part(its, !is_local), watch(signal, is_local) {}

    // Returns the origin of a contender. If it is `bound` to this process, opens a mark of
    // presence, which stays open as long as this object.
    durable::origin origin(bool bound) {
        durable::origin from = here;
        if (!bound) {
            from.pid = from.start = from.space = from.network = 0;
            return from;
        }
        const std::lock_guard held(marking);
        if (own_mark == nullptr && !can_have_none) {
            auto taken = of.be_present();
            if (taken) {
                own_mark = std::move(*taken);
                // Order: release [process_part.mark]; publishes the mark.
                has_mark.store(true, std::memory_order_release);
            } else { // only the pid identifies it; after another error, tries again next time
                can_have_none = taken.error() == std::errc::operation_not_supported;
            }
        }
        from.mark = own_mark != nullptr ? own_mark->mark() : wake_number;
        return from;
    }

    std::shared_ptr<slot_presence> mark() const noexcept {
        // Order: acquire [process_part.mark]; the mark is seen.
        return has_mark.load(std::memory_order_acquire) ? own_mark : nullptr;
    }

    bool runs(const durable::origin& it) const noexcept override { return watch.runs(it); }
    presence is_present(std::int64_t of_process) const override {
        return of.is_present(of_process);
    }

    // Requires: decode() of the text returns this record.
    void note(const durable::record& now, const std::string& text) {
        last_text.clear(); // in case that a copy throws
        last = now;
        last_text = text;
    }

    // Called in a child of fork(): a mark that stays open there would outlive the parent.
    void leave() noexcept {
        if (const auto mine = mark()) {
            mine->leave();
            own_mark.reset();
        }
        if (const std::unique_lock held(update_lock, std::try_to_lock); held) {
            watch.leave();
        }
    }

    const durable::origin here = durable::this_origin(true); // where this process runs
    const std::string name = here.host + ":" + std::to_string(::getpid());
    // If there is no mark of presence: the value of origin::mark, which names the wake socket.
    const std::int64_t wake_number = std::stoll(fresh_nonce().substr(0, 7), nullptr, 16) << 25;

    mutex marking;
    std::shared_ptr<slot_presence> own_mark; // under `marking` until has_mark; constant afterwards
    bool can_have_none = false;              // under `marking`
    native_platform::atomic<bool> has_mark{false};

    const std::shared_ptr<job_queue> withdrawals =
        std::make_shared<job_queue>(&store_threads::post<>);
    const std::shared_ptr<job_queue> renewals = renewal_queue(of.store());

    const std::shared_ptr<change_signal> signal = std::make_shared<change_signal>();
    change_watch watch;

    // The record that this process read or wrote last, and its stored text; empty if there is none.
    // A read that finds the same text, as most do, does not parse it again.
    durable::record last;
    std::string last_text;
    durable::observations seen;
};

// ---- the rules

enum class intent { // of a contender that is not granted its permits
    nothing,        // it leaves no entry
    queue,          // it enters the queue
    wait,           // as queue, and it is going to wait for the signal
    listen          // as wait; before this read, opens a descriptor that notifies it
};

// The record at the time of a read.
struct record_view {
    const durable::origin& here; // where this process runs
    std::int64_t looked_ms;      // boottime_ms() before the read
    durable::record record{};
    bool exists = false;
    bool is_mended = false;         // the record differs from what was read, and has to be stored
    std::int64_t now_ms = 0;        // the time of the read, on the record's clock
    std::int64_t first_fence = 0;   // the least token of a grant that is made now
    std::int64_t good_until_ms = 0; // the end, on boottime_ms(), of a lease that is stored now
    std::error_code refused{};      // set by the rule: the record is not stored
    durable::expiry_judge judge{lock_clock::caller, 0, here}; // which leases have expired
};

class lock_engine {
public:
    // Throws: std::system_error (durable_errc::invalid_argument) if an option is out of range.
    lock_engine(slot_ref slot, std::int64_t permits, durable_options options)
        : options_(std::move(options)), main_(std::move(slot)),
          margin_ms_(options_.margin.count() != 0 ? options_.margin.count()
                                                  : options_.lease.count() / 10 + 1) {
        terms_.permits = permits;
        terms_.clock = options_.clock.value_or(main_.of.guarantees().clock);
        terms_.lease_ms = options_.lease.count();
        terms_.waiter_ttl_ms =
            options_.waiter_ttl.count() != 0 ? options_.waiter_ttl.count() : terms_.lease_ms;
        terms_.max_waiters = options_.max_waiters;
        terms_.adopt_permits = options_.adopt_permits;
        const bool sane = durable::is_valid(terms_, 0) && margin_ms_ > 0 &&
                          margin_ms_ < terms_.lease_ms && options_.drift >= 0 &&
                          options_.drift <= 10 && options_.retry_time.count() > 0 &&
                          options_.attempt_limit.count() >= 0 && options_.poll_least.count() > 0 &&
                          options_.poll_most >= options_.poll_least &&
                          durable::detail::is_text(options_.holder_id, 0, durable::longest_name) &&
                          (terms_.clock != lock_clock::server ||
                           main_.of.guarantees().clock == lock_clock::server);
        if (!sane) {
            BIDE_THROW(std::system_error(make_error_code(durable_errc::invalid_argument),
                                         "bide: the options of a durable lock"));
        }
        if (!main_.of->store().empty()) {
            apart_ = std::make_unique<access>(main_.of.for_renewals());
        }
    }

    struct acquired {
        durable::acquire_outcome outcome;
        std::int64_t good_until_ms = 0; // granted, held: the end of the lease, on boottime_ms()
        // If the contender waits:
        std::int64_t expiry_in_ms = 0; // time until the next lease expires; 0: not known
        bool is_told = false;          // each change that concerns it is signalled
        bool can_be_told = false;      // a try with intent::listen may make is_told true
    };

    // Acquires the permits, or enters the queue. `terms` are those of the engine, with what the
    // contender asks for. The outcome is never `refused`: a refusal is returned as an error. If
    // `of` is not nullptr, the grant is bound to this mark of presence, and not to the process.
    result<acquired, std::error_code> acquire(const durable_ticket& t, intent what,
                                              durable::terms terms,
                                              deadline until = deadline::never(),
                                              const slot_presence* of = nullptr,
                                              const durable::description& about = {}) {
        process_part& mine = main_.own();
        terms.enqueue = what != intent::nothing;
        durable::contender self{t.holder_id, t.nonce, t.weight,
                                mine.origin(t.process_bound && of == nullptr), about};
        if (of != nullptr) {
            self.from.mark = of->mark();
        }
        acquired got;
        bool is_valid_unstored = false; // the outcome is valid even if nothing was stored
        const auto rule = [&](record_view& view, bool maybe_done) {
            durable::acquire_outcome& out = got.outcome;
            terms.first_fence = view.first_fence;
            out = durable::acquire(view.record, self, terms, view.now_ms, view.judge);
            got.good_until_ms = view.good_until_ms;
            if (out.expires_at != 0) { // another contender has stored the lease
                got.good_until_ms = view.looked_ms + (out.expires_at - view.now_ms) - margin_ms_;
            }
            got.expiry_in_ms =
                out.next_ms == 0 ? 0 : std::max<std::int64_t>(out.next_ms - view.now_ms, 1);
            if (what >= intent::wait) {
                mine.watch.follow(view.record, view.here);
                got.is_told = mine.watch.hears(self.from.mark);
                got.can_be_told = out.status == durable::acquire_status::waiting &&
                                  mine.watch.can_open(self.from.mark);
            }
            const bool is_refused = out.status == durable::acquire_status::refused;
            const bool is_held = out.status == durable::acquire_status::waiting && !terms.enqueue;
            is_valid_unstored = !mine.uses_kept && !maybe_done && (is_refused || is_held);
            return out.changed || (view.is_mended && !is_refused);
        };
        const std::error_code error = update(main_, what, until, rule, self.from.mark);
        if (error && !is_valid_unstored) {
            return unexpected{error};
        }
        if (got.outcome.status == durable::acquire_status::refused) {
            return unexpected{got.outcome.error};
        }
        return got;
    }

    // Returns the time until which the lease is valid on this machine. If `apart` is true, uses
    // slot::for_renewals() if there is one, and so does not wait for the update lock.
    // Returns: lock_lost if the grant is lost.
    result<std::int64_t, std::error_code>
    renew(const durable_ticket& t, deadline until = deadline::never(), bool apart = false) {
        access& by = apart && apart_ != nullptr ? *apart_ : main_;
        const durable::origin origin = main_.own().origin(t.process_bound);
        std::int64_t good_until_ms = 0;
        const std::error_code error =
            update(by, intent::nothing, until, [&](record_view& view, bool) {
                view.refused = durable::renew(view.record, t.nonce, t.fence, terms_, view.now_ms,
                                              view.judge, origin);
                good_until_ms = view.good_until_ms;
                return true;
            });
        if (error == durable_errc::lock_lost) {
            forget_marks(t);
        }
        return error ? unexpected{error} : result<std::int64_t, std::error_code>(good_until_ms);
    }

    // Releases a grant or a place in the queue. Returns false if there was neither. If `how.settle`
    // is true, writes the record even then, so that a delayed write of an earlier try fails.
    // Returns: clock_mismatch if the grant has a minimum hold time and the record has another
    // clock, unless `how.undo` is true.
    result<bool, std::error_code> release(const durable_ticket& t, durable::release_terms how = {},
                                          deadline until = deadline::never()) {
        bool was_there = false;
        const auto rule = [&](record_view& view, bool maybe_done) {
            const durable::holder* const held =
                durable::detail::find_holder(view.record, t.nonce, t.fence);
            if (!how.undo && view.record.clock != terms_.clock && held != nullptr &&
                held->held_until != 0) { // on a clock that this object cannot read
                view.refused = make_error_code(durable_errc::clock_mismatch);
                return false;
            }
            const bool is_removed =
                durable::release(view.record, t.nonce, t.fence, view.now_ms, view.here, how) !=
                durable::release_status::not_there;
            was_there = is_removed || maybe_done;
            main_.own().watch.follow(view.record, view.here); // one waiter less, perhaps
            return is_removed || how.settle;
        };
        if (const std::error_code error = update(main_, intent::nothing, until, rule)) {
            return unexpected{error};
        }
        if (was_there) {
            signal().signal();
        }
        if (how.but == 0) {
            forget_marks(t);
        }
        return was_there;
    }

    // Returns: clock_mismatch if the record has another clock.
    result<std::optional<durable::inspection>, std::error_code> inspect() {
        std::optional<durable::inspection> seen;
        const auto look = [&](record_view& view, bool) {
            seen.reset();
            if (view.record.clock != terms_.clock) { // it cannot tell which leases have expired
                view.refused = make_error_code(durable_errc::clock_mismatch);
            } else if (view.exists) {
                seen = durable::inspect(view.record, view.judge);
            }
            return false;
        };
        if (const std::error_code error = update(main_, intent::nothing, deadline::never(), look)) {
            return unexpected{error};
        }
        return seen;
    }

    // Calls change(record, number, note) for an administrator. Returns false if it changed nothing.
    result<bool, std::error_code> administer(bool (*change)(durable::record&, std::int64_t,
                                                            durable::admin_note),
                                             std::int64_t number, durable::admin_note note) {
        bool done = false;
        const auto rule = [&](record_view& view, bool maybe_done) {
            if (!durable::is_valid(terms_, view.now_ms)) { // a time that no record can have
                view.refused = make_error_code(durable_errc::invalid_argument);
                return false;
            }
            note.at = terms_.clock == lock_clock::observed ? durable::unix_ms() : view.now_ms;
            const bool changed = view.exists && change(view.record, number, note);
            done = changed || maybe_done;
            return changed;
        };
        if (const std::error_code error = update(main_, intent::nothing, deadline::never(), rule)) {
            return unexpected{error};
        }
        signal().signal();
        return done;
    }
    // Returns false if the record can be read.
    result<bool, std::error_code> repair(std::int64_t min_fence, durable::admin_note note) {
        process_part& mine = main_.own();
        const std::lock_guard updates(mine.update_lock);
        const auto section = blocking_section();
        const auto failed = [&](std::error_code why) { return told(mine.failed(why)); };
        const auto loaded = mine.of.load();
        std::error_code error = loaded ? std::error_code() : loaded.error();
        if (loaded && loaded->version != 0) {
            const auto there = durable::decode(loaded->value);
            if (there) {
                return false;
            }
            error = there.error(); // a record of a later format is not replaced
        }
        if (error && error != durable_errc::corrupt_record) {
            return unexpected{failed(error)};
        }
        note.at =
            terms_.clock == lock_clock::boottime ? durable::boottime_ms() : durable::unix_ms();
        durable::terms first = terms_;
        first.first_fence = loaded ? first_fence(*loaded) : durable::floor_of_now();
        const std::string made =
            durable::encode(durable::repair(first, min_fence, std::move(note)));
        const cas_result tried = loaded ? mine.of.compare_exchange(loaded->version, made)
                                        : mine.of.replace_damaged(made);
        if (tried.status == cas_status::stored) {
            return true;
        }
        error = tried.error ? tried.error : durable_errc::conflict_timeout;
        const bool is_left = error == std::errc::operation_not_supported; // cannot be replaced
        return unexpected{failed(is_left ? durable_errc::corrupt_record : error)};
    }

    // Keeps the mark of presence of a ticket that is bound to this process: see bound_tickets.
    // Throws: std::bad_alloc, std::system_error.
    void keep_mark(const durable_ticket& t) {
        if (const auto mark = t.process_bound ? main_.own().mark() : nullptr) {
            auto& all = of_process<bound_tickets>();
            const std::lock_guard held(all.lock);
            all.marks[t.nonce].insert(mark);
        }
    }

    // Makes a ticket. If `holder_id` is empty, the name is that of the options, or of the process.
    durable_ticket ticket(std::string holder_id, std::int64_t weight, bool process_bound) {
        if (holder_id.empty()) {
            holder_id = options_.holder_id.empty() ? main_.own().name : options_.holder_id;
        }
        return {std::move(holder_id), fresh_nonce(), weight, process_bound, 0};
    }

    slot& on() const noexcept { return *main_.of; } // for calls without the update lock
    std::string explain() { return main_.own().explain(); }

    const durable_options& options() const noexcept { return options_; }
    durable_observer& observer() const noexcept {
        return options_.observer != nullptr ? *options_.observer : no_observer_;
    }
    std::chrono::nanoseconds grace() const noexcept { // durable_options::attempt_limit
        return std::chrono::nanoseconds(deadline::saturated_ns(options().attempt_limit));
    }
    call_limits retry_time() const { // the limits of a call that has no other ones
        return {deadline::after(options().retry_time), grace(), {}};
    }
    const durable::terms& terms() const noexcept { return terms_; }
    bool is_local() const noexcept { return !main_.of.guarantees().multi_host; }
    // How long before the loss of a lock the observer is warned.
    std::int64_t warn_before_ms() const noexcept { return (terms_.lease_ms - margin_ms_) / 3; }

    // What this process keeps for the lock. The signal wakes all its waiters.
    change_signal& signal() { return *main_.own().signal; }
    const std::shared_ptr<job_queue>& withdrawals() { return main_.own().withdrawals; }
    const std::shared_ptr<job_queue>& renewals() { return main_.own().renewals; }

private:
    // A slot, and the state that each process keeps for it.
    struct access {
        explicit access(slot_ref to) noexcept : of(std::move(to)) {}
        process_part& own() {
            return parts.get([this] { return process_part(*of, !of.guarantees().multi_host); });
        }

        slot_ref of;
        per_process<process_part> parts;
    };

    // Closes the marks of a ticket that holds nothing and waits for nothing.
    static void forget_marks(const durable_ticket& t) noexcept {
        if (t.process_bound) {
            try_to([&] { // if there is no memory for the table, there are no marks
                auto& all = of_process<bound_tickets>();
                const std::lock_guard held(all.lock);
                all.marks.erase(t.nonce);
            });
        }
    }

    // Carries out a rule, by update_value(): for each try, rule(record_view, maybe_done) changes
    // the record, and returns true if the record has to be stored. The observer is not told of an
    // error that the rule sets in record_view::refused. `mark` is origin::mark of the contender.
    template <class Rule>
    std::error_code update(access& by, intent what, deadline until, Rule rule,
                           std::int64_t mark = 0) {
        process_part& mine = by.own();
        std::vector<std::int64_t> concerned; // marks of the processes to wake
        std::error_code refused;
        const auto begin = [&] {
            if (what == intent::listen) {
                mine.watch.open(mark);
            }
            if (what >= intent::wait) {
                mine.watch.drain(mine.of, mark);
            }
        };
        const auto apply = [&](const slot_snapshot& from, std::int64_t looked_ms, bool maybe_done,
                               std::error_code& error) -> std::optional<std::string> {
            concerned.clear();
            record_view view{mine.here, looked_ms};
            error = read(view, from, mine);
            const bool changes = !error && rule(view, maybe_done);
            refused = view.refused;
            if (!changes || refused) {
                return std::nullopt;
            }
            if (view.exists) {
                durable::terms terms = terms_;
                terms.first_fence = view.first_fence;
                durable::pass_on(view.record, terms, view.now_ms, view.judge, view.here);
                concerned = durable::concerned_by_change(mine.last, view.record);
            }
            std::string changed = durable::encode(view.record);
            mine.note(view.record, changed);
            return changed;
        };
        const auto wake = [&] { std::ranges::for_each(concerned, &wake_socket::wake); };
        const std::error_code error =
            told(update_value(mine, until, options_.retry_time, begin, apply, wake));
        return error ? error : refused;
    }

    // Returns the least token of a grant that is made after the read.
    static std::int64_t first_fence(const slot_snapshot& from) noexcept {
        return from.counter     ? *from.counter
               : from.server_ms ? durable::floor_of(*from.server_ms)
                                : durable::floor_of_now();
    }
    // Reads the snapshot into a view of which only `here` and `looked_ms` are set.
    // Throws: what durable_options::now throws, std::bad_alloc.
    std::error_code read(record_view& view, const slot_snapshot& from, process_part& mine) {
        std::int64_t sent_ms = view.looked_ms; // the beginning of a lease that is stored now
        const bool is_given = terms_.clock == lock_clock::caller && options_.now;
        switch (terms_.clock) {
        case lock_clock::caller:
            view.now_ms = is_given ? options_.now().count() : durable::unix_ms();
            break;
        case lock_clock::boottime:
            // The lease begins now, which is after the value was read. If the value has changed
            // since the read, the compare-and-swap fails, so no lease begins.
            view.now_ms = sent_ms = durable::boottime_ms();
            break;
        case lock_clock::server:
            if (!from.server_ms) { // no other time may replace it
                return make_error_code(durable_errc::storage_error);
            }
            view.now_ms = *from.server_ms;
            break;
        case lock_clock::observed:
            view.now_ms = durable::boottime_ms(); // only this machine reads it
            break;
        }
        view.good_until_ms = sent_ms + terms_.lease_ms - margin_ms_;
        durable::terms first = terms_;
        first.first_fence = view.first_fence = // with options_.now, no other clock counts
            is_given ? durable::floor_of(view.now_ms) : first_fence(from);
        view.exists = from.version != 0;
        if (view.exists) {
            if (mine.last_text.empty() || mine.last_text != from.value) {
                const auto decoded = durable::decode(from.value);
                if (!decoded) {
                    return decoded.error();
                }
                mine.note(*decoded, from.value);
            }
            view.record = mine.last;
        } else {
            view.record = durable::fresh_record(first);
        }
        if (from.fell_back || from.lost_acknowledged) { // also if no value is left
            durable::make_up_for_lost(view.record, from.lost_acknowledged, first, view.now_ms,
                                      view.here);
            view.is_mended = true;
        }
        view.judge = durable::expiry_judge(terms_.clock, view.now_ms, view.here, &mine);
        if (!is_given) {
            mine.seen.note(view.record, durable::boottime_ms());
            view.judge = view.judge.bounded_by(mine.seen, view.looked_ms, options_.drift);
        }
        return {};
    }

    // Returns the error, and tells the observer of it.
    std::error_code told(std::error_code error) const noexcept {
        if (error) {
            observer().store_failed(error);
        }
        return error;
    }

    const durable_options options_;
    mutable durable_observer no_observer_; // does nothing
    std::unique_ptr<access> apart_;        // nullptr: renewals use main_
    access main_;
    durable::terms terms_;
    const std::int64_t margin_ms_; // durable_options::margin
};

}}} // namespace bide::BIDE_ABI::detail

#endif

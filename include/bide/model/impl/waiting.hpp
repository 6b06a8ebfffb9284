// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_WAITING_HPP
#define BIDE_MODEL_IMPL_WAITING_HPP

// Loops that wait: a thread repeats the same steps until a value that it reads changes. Such a loop
// has no end in the graph of an execution, so the checker must know it. The body marks it by
// pause(), or the checker detects it.
//
// The rule, and why it is sound:
//
//   A round      goes from a read to the same read (the same place, object and expected value). If
//                the thread changes nothing in a round, and is at its end what it was at its
//                beginning, the round can repeat. "Changes nothing": it makes no step except reads,
//                fences, and read-modify-writes that write the value which was there; it makes no
//                object and writes no plain data. "Is what it was": its registers, its stack and
//                its part of the heap have the same bytes. pause() says the same of a loop.
//   First read   A hash is taken only at places where some execution has read twice (loop_places).
//                An execution that finds such a place begins again. So all executions treat a place
//                alike, and the first round counts, too. After a hundred hashes at a place that
//                have stopped no thread, no more are taken there. If a first round differs from the
//                later ones in what it leaves in registers, the second one is made as well. Searches of
//                schedules have no such places: there, the second round is the first that counts.
//   Stop         After such a round, the thread makes no step until one of the objects that it has
//                read gets another value. A round without effect can be cut out of any execution:
//                the rest is still an execution, in which the thread knows less than before.
//                So each failure of an execution with more rounds is also a failure of one with
//                fewer rounds.
//   Graphs       In a search of graphs (exhaustive.hpp), a stopped thread never continues. What it
//                would do after another value is explored by revisits: a store that is added later
//                changes what the last read of the thread has read. If that read was not maximally
//                added, no store can revisit it, and the execution ends (in_vain()). A store that
//                was added before is among the values of the read.
//   Schedules    In a search of schedules (schedules.hpp), a stopped thread continues when an object
//                has a newer value than the thread has read. It then reads only newer values.
//   For ever     If all threads have stopped or ended, and each stopped thread has read the newest
//                values of what it reads in a round, no round can succeed any more: the loop waits
//                for ever, which is a failure. If a newer value is there, the execution is only
//                incomplete, because every store is seen in the end. After a pause(), the round is
//                not known. If what the thread has read since its last change leaves a doubt, the
//                thread makes one more round at the end, which is no part of the execution
//                (may_continue() in execution.hpp).
//
// What the checker cannot know: whether a loop writes a global variable that is not watched. The
// README names that limit. A loop that writes to the stack or the heap of another thread, and ends
// after some rounds, is refused (try_loops() in execution.hpp).

#include <bide/model/impl/fiber.hpp>
#include <bide/model/impl/heap.hpp>
#include <bide/model/impl/memory.hpp>

#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// Returns true if the second half of a read-modify-write writes the value that is there already.
inline bool repeats(const request& r, const memory& m) {
    return r.exclusive && !r.quiet && m.msg(r.from).value == r.value;
}

// The places in the source at which some execution has read again what it had read there. There, the
// state of a thread is known from the first read on. At other places it is not, as a hash takes time.
// The same holds for a place at which many hashes have found no loop that waits.
class loop_places {
public:
    bool has(site at) const noexcept { return find(at) != all_.size(); }
    bool is_hashed(site at) const noexcept {
        const std::size_t n = find(at);
        return n != all_.size() && (all_[n].waits || all_[n].hashes != most_hashes);
    }
    void add(site at) { all_.push_back({at}); }

    // The first read of a round was hashed.
    void hashed(site at) noexcept {
        if (const std::size_t n = find(at); n != all_.size() && all_[n].hashes != most_hashes) {
            ++all_[n].hashes;
        }
    }
    // A thread was stopped there.
    void stopped(site at) noexcept {
        if (const std::size_t n = find(at); n != all_.size()) {
            all_[n].waits = all_[n].waits || all_[n].hashes != most_hashes;
        }
    }

    static bool is_same(site a, site b) noexcept { return a.line == b.line && a.file == b.file; }

private:
    static constexpr int most_hashes = 100;
    struct place {
        site at;
        int hashes = 0;
        bool waits = false; // a thread was stopped there while hashes were taken
    };

    std::size_t find(site at) const noexcept {
        std::size_t n = 0;
        while (n != all_.size() && !is_same(all_[n].at, at)) {
            ++n;
        }
        return n;
    }

    std::vector<place> all_;
};

// What is known of the loop in which a thread may be.
class waiting {
public:
    // The thread was stopped before a read, without a pause().
    bool is_unmarked = false;

    void begin() noexcept {
        looked_.clear();
        newer_.clear();
        looks_.clear();
        is_unmarked = hashes_ = false;
    }
    // The thread changes something, so it does more than wait.
    void acts() noexcept { looks_.clear(); }

    // Returns true if the hash of the suspended thread is needed.
    bool needs_hash(const request& r, const loop_places& loops) const noexcept {
        return r.what == request::kind::read && (find(r) != nullptr || loops.is_hashed(r.where));
    }

    enum class found {
        nothing,
        loop,  // the thread waits in a loop, and is to be stopped
        place, // the thread reads again at a place that is not in `loops`
    };
    // Called after each announcement of the thread. If needs_hash(), requires: the thread is
    // suspended, with the stack `stack`.
    found announces(const request& r, const memory& m, const fiber& stack, int thread,
                    const loop_places& loops) {
        announced_ = 0;
        hashes_ = needs_hash(r, loops);
        if (r.what == request::kind::fence || (r.what == request::kind::write && repeats(r, m))) {
            return found::nothing;
        }
        if (r.what != request::kind::read || r.quiet || r.inside || m.at(r.object).free_list) {
            looks_.clear();
            return found::nothing;
        }
        const std::size_t heap_size = heap::regions[thread].taken;
        last_ = {r.where, r.object, r.expected, r.exclusive, 0, heap_size};
        const look* const found_look = find(r);
        if (found_look == nullptr) {
            looks_.push_back(last_);
            return found::nothing;
        }
        last_ = *found_look;
        const auto before = looks_.begin() + (found_look - looks_.data());
        announced_ = last_.state == 0 ? 0 : state_of(stack, thread, last_.heap);
        if (last_.state == 0 || last_.state != announced_) {
            std::rotate(before, before + 1, looks_.end()); // in the order of the last visits
            return last_.state == 0 && !loops.has(r.where) ? found::place : found::nothing;
        }
        // What the thread has not read since is no part of the round.
        std::erase_if(looked_, [&](const auto& l) {
            return std::none_of(before, looks_.end(),
                                [&](const look& in) { return in.object == l.first; });
        });
        looks_.clear();
        return found::loop;
    }
    // Called before the thread reads. Requires: the thread is suspended.
    void will_read(const request& r, const fiber& stack, int thread, loop_places& loops) {
        if (look* const now = hashes_ ? find(r) : nullptr) {
            if (now->state == 0) {
                loops.hashed(r.where);
            }
            now->state = last_.state =
                announced_ != 0 ? announced_ : state_of(stack, thread, now->heap);
        }
    }
    // The thread has read `message` of `object`.
    void reads(const memory& m, int object, int message) {
        if (!looks_.empty() && !saw_same(m, object, message)) {
            looks_.assign(1, last_); // a round may begin with this read
        }
        forget(looked_, object);
        forget(newer_, object);
        looked_.emplace_back(object, message);
    }
    // The thread has written `message` of `object`. `is_repeat` is repeats() of its request.
    void writes(int object, int message, bool is_repeat) {
        if (is_repeat) {
            forget(looked_, object);
            looked_.emplace_back(object, message);
        } else {
            looked_.clear();
            newer_.clear();
        }
    }
    // The thread was stopped, and continues.
    void continues() {
        newer_ = looked_;
        looked_.clear();
    }

    // Returns the message that the thread had read of `object` when it was stopped. Now it reads
    // newer messages, if there are any. Returns -1 if it reads any message.
    int old_message(int object) const noexcept {
        const auto old = std::find_if(newer_.begin(), newer_.end(),
                                      [&](const auto& l) { return l.first == object; });
        return old == newer_.end() ? -1 : old->second;
    }
    // Returns true if an object has a newer value than the thread has read from it. Then a stopped
    // thread can continue, if the search explores schedules. `in_round`: only these objects count.
    bool may_look_again(const memory& m, const std::vector<int>* in_round = nullptr) const {
        return std::any_of(looked_.begin(), looked_.end(), [&](const auto& l) {
            return (in_round == nullptr ||
                    std::find(in_round->begin(), in_round->end(), l.first) != in_round->end()) &&
                   is_old(m, l);
        });
    }
    // As may_look_again(), of the last read only.
    bool last_is_old(const memory& m) const { return is_old(m, looked_.back()); }
    // Returns true if no later write revisits a read of the stopped thread `t`. Then `t` never
    // continues. This is so if the last read of `t` did not read the newest value of that time:
    // that read is not maximally added, and each revisit would change or drop it.
    bool in_vain(const memory& m, int t) const {
        if (looked_.empty()) {
            return false;
        }
        const auto [object, message] = looked_.back();
        const auto& readers = m.msg(message).readers;
        const auto read = std::find_if(readers.rbegin(), readers.rend(),
                                       [&](int r) { return m.event_at(r).id.thread == t; });
        if (read == readers.rend()) {
            return false;
        }
        const auto newer_ones = m.behind(object, message);
        return std::any_of(newer_ones.begin(), newer_ones.end(), [&](int later) {
            const detail::message& newer = m.msg(later);
            return !newer.repeats && m.event_at(newer.event).stamp < m.event_at(*read).stamp;
        });
    }

private:
    // A read that the thread has announced. After this read, the thread has made only steps that
    // change nothing: it has read the same values as before, or has written values that were there
    // already.
    struct look {
        site where{};
        int object = -1;
        bits expected = 0;
        bool exclusive = false;  // of a read-modify-write
        std::uint64_t state = 0; // of the thread before it read last; 0: it is not known
        std::size_t heap = 0;    // the size of the thread's heap at the first of these reads
    };
    using seen = std::vector<std::pair<int, int>>; // objects, and the message that was read

    static bool is_old(const memory& m, const std::pair<int, int>& read) {
        const auto newer = m.behind(read.first, read.second);
        return std::any_of(newer.begin(), newer.end(),
                           [&](int later) { return !m.msg(later).repeats; });
    }
    static void forget(seen& all, int object) {
        std::erase_if(all, [&](const auto& l) { return l.first == object; });
    }
    const look* find(const request& r) const noexcept {
        for (const look& l : looks_) {
            if (l.object == r.object && l.expected == r.expected && l.exclusive == r.exclusive &&
                loop_places::is_same(l.where, r.where)) {
                return &l;
            }
        }
        return nullptr;
    }
    look* find(const request& r) noexcept {
        return const_cast<look*>(std::as_const(*this).find(r));
    }
    // Returns true if `message` is the message of `object` that the thread read last. Also returns
    // true if `message` is newer, and it and all messages between the two only repeat the value. If
    // the thread has not read the object, returns true, too.
    bool saw_same(const memory& m, int object, int message) const {
        for (const auto& [o, last] : looked_) {
            if (o == object) {
                const auto& all = m.at(object).messages;
                const auto begin = std::find(all.begin(), all.end(), last);
                const auto end = std::find(begin, all.end(), message);
                return end != all.end() &&
                       (begin == end ||
                        std::all_of(begin + 1, end + 1, [&](int n) { return m.msg(n).repeats; }));
            }
        }
        return true;
    }
    // Returns a hash of what the thread may have changed since its last read: its stack, its
    // registers and the first `heap_size` bytes of its heap. Returns 0 if that is not known.
    static std::uint64_t state_of(const fiber& of, int thread, std::size_t heap_size) {
        constexpr std::size_t most = 64 * 1024; // a larger heap is left out
        const std::uint64_t stack = of.state();
        // If plain memory is watched, its writes are known.
        const bool is_left_out =
            stack == 0 || heap::on_freed != nullptr || heap_size == 0 || heap_size > most;
        return is_left_out ? stack : (stack ^ digest(heap::regions[thread].begin, heap_size)) | 1;
    }

    seen looked_;                 // since the last change that the thread has made
    seen newer_;                  // `looked_` when the thread was stopped last
    std::vector<look> looks_;     // in the order of the last visits
    look last_;                   // of the last announced read
    bool hashes_ = false;         // needs_hash() at the last announcement
    std::uint64_t announced_ = 0; // the hash at the last announcement; 0: none was taken
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif

#include <bide/durable/expiry.hpp>
#include <bide/durable/record.hpp>

#include <support/stress.hpp>
#include <support/test.hpp>

// Every run of a few clients on one record, breadth first, so that a fault is shown by the shortest
// run that leads to it.
//
// A world is the record in the store, and for each client what it knows and believes. A client
// believes that it holds from the reply to its request until a lease after it *sent* the request,
// on its own clock. A step is one of:
//   - a client loads the record and runs a rule; if the record has to change, the changed record is
//     on its way to the store from then on (in scopes of one step it is stored at once);
//   - a record that is on its way arrives, and the client gets the reply; or it arrives and the
//     reply is lost, so that the client has to read again; or the client gives up, and the record
//     arrives later; the store refuses a record that was overtaken, and the client reads again;
//   - a client is killed, and starts again with the same name and no memory;
//   - a tick of time;
//   - in some scopes, once: the clock is set back; the newest record is lost, so that the one
//     before it is read; the record vanishes; a client goes on in another boot with its ticket.
// After each step the invariants are checked: see broken() and on_store().
//
// Worlds are normalized: times are counted from the present and are cut off where they make no
// difference any more, tokens and nonces are renumbered in their order, and clients that differ
// only in their number are sorted. So there are finitely many worlds, and the search ends because
// it has seen all of them.

namespace {

namespace durable = bide::durable;
using bide::durable_errc;
using bide::lock_clock;
using durable::acquire_status;
using durable::contender;
using durable::holder;
using durable::record;
using durable::release_status;
using durable::terms;
using durable::waiter;
using test::is_long_run;

using small = std::int8_t;
small to_small(std::int64_t n) { return static_cast<small>(n); }

constexpr std::int64_t epoch = 1000; // the present, as a record writes it
constexpr int most_clients = 4;
constexpr int most_holders = 4;
constexpr int most_places = 7;
constexpr int most_boots = 3;
constexpr small never = -1;

// An array that is indexed by any integer. Worlds are compared as bytes.
template <class T, std::size_t Size> struct row {
    std::array<T, Size> all{};

    template <class Index> T& operator[](Index i) { return all[static_cast<std::size_t>(i)]; }
    template <class Index> const T& operator[](Index i) const {
        return all[static_cast<std::size_t>(i)];
    }
};

// Up to `Most` values. The unused ones are as they were made.
template <class T, std::size_t Most> struct few : row<T, Most> {
    small count = 0;

    T* begin() { return this->all.data(); }
    T* end() { return begin() + count; }
    const T* begin() const { return this->all.data(); }
    const T* end() const { return begin() + count; }
    void renew(std::size_t size) {
        this->all.fill(T{});
        count = static_cast<small>(size);
    }
    // The index of the first value that is so; -1: there is none.
    template <class F> int find(F is) const {
        const T* const at = std::find_if(begin(), end(), is);
        return at == end() ? -1 : static_cast<int>(at - begin());
    }
};

// ---- the scope of a search

struct scope {
    int clients = 3;
    int permits = 1;
    std::array<small, most_clients> weight{1, 1, 1, 1};
    int lease = 2;
    int short_lease = 0; // not 0: a lease may also be renewed for so long
    int ttl = 3;
    int at_least = 0;       // terms::at_least_ms
    bool undoes = false;    // a client may take back a grant: it gave up before it had it
    int ghosts = 1;         // no client is killed while the record has so many entries of dead ones
    bool two_steps = false; // load now, store later
    bool lost_answers = true; // a change is stored, and the reply is lost
    bool late = false;        // the client gives up, and the change is stored later
    int longest_way = 3;      // ticks; no request is on its way for longer
    bool asks_again = false;  // a holder may acquire again
    bool enqueue = true;
    bool listens = false; // clients are granted their permits by the changes of others
    bool gets_in = true;  // also check that no client is stuck
    bool probed = true;   // and that unknown tokens and nonces change nothing

    lock_clock clock = lock_clock::caller;
    std::array<small, most_clients> offset{};         // the offset of each client's clock
    std::array<small, most_clients> rate{1, 1, 1, 1}; // the length of a tick on it
    int margin = 0;                                   // observed: how much longer than the length

    bool bounded = false;                      // observation bounds leases on a clock, too
    std::array<small, most_clients> boot{};    // boottime: the boot of each client; 0: not known
    bool moves = false;                        // a client may go on in the other boot
    bool brief = false;                        // each try is of a new process
    int jump = 0;                              // ticks by which the clock is set back, once
    bool marked = false;                       // grants are bound to a mark alone
    bool cannot_ask = false;                   // at times a client cannot ask for the mark
    std::array<small, most_clients> goes_by{}; // not 0: the permits that each client adopts
    bool loses = false;                        // the newest record is lost, once
    bool vanishes = false;                     // the record vanishes, once
    int rounds = 64;                           // within so many ticks every client acquires

    bool by_name = false; // planted fault: clients are identified by name

    // A lease that ended so long ago has ended for every client.
    int floor() const {
        return -(longest_way + 1) +
               std::min<int>(0, *std::min_element(offset.begin(), offset.end()));
    }
    // Likewise for the clients whose clock is that of this boot.
    int floor_of_boot(int of) const {
        for (std::size_t i = 0; clock == lock_clock::boottime && i < boot.size(); ++i) {
            if (boot[i] == of) {
                return offset[i] - (longest_way + 1);
            }
        }
        return floor();
    }
    // How the clock of a boot compares with the record's.
    int offset_of_boot(int of) const { return offset[client_of_boot(of)]; }
    int rate_of_boot(int of) const { return rate[client_of_boot(of)]; }
    std::size_t client_of_boot(int of) const {
        return static_cast<std::size_t>(std::find(boot.begin(), boot.end(), of) - boot.begin()) %
               boot.size();
    }
    bool has_one_time() const { // of all boots
        return clock == lock_clock::caller || clock == lock_clock::server;
    }
    bool observes() const { return clock == lock_clock::observed || bounded; }
    bool adopts() const { return goes_by != decltype(goes_by){}; }
    bool has_one_clock() const {
        return offset == decltype(offset){} && rate == decltype(rate){1, 1, 1, 1};
    }
};

enum phase : small { out, wants, has, leaves };
enum purpose : small { nothing, acquiring, renewing, renewing_for_short, releasing, undoing };

// Times are counted from the present: the times of the record as its clock would write them, the
// times of a client on its own clock.
struct request {
    small what = nothing;
    small nonce = 0;
    small fence = 0;
    small weight = 0;
    small offset = 0;
    small when = 0;
    small boot = 0;
    small goes_by = 0;
    small cannot_ask = 0; // for marks
    // observed: entries that had been unchanged for long enough at the load; bits by index
    small holders_over = 0;
    small places_over = 0;
};

// Why a grant that its client believes in may be absent from the record: the newest record was
// lost, which contenders know; or the record vanished, which they do not know.
enum loss : small { safe, with_the_newest, with_all };

struct client {
    small weight = 0;
    small offset = 0;
    small rate = 0;
    small boot = 0;
    small goes_by = 0;
    small is = out;
    small nonce = 0;      // 0: none
    small fence = 0;      // 0: none that it knows
    small until = 0;      // it believes to hold until then; 0: not at all
    small missing = safe; // its belief differs from the store
    request sent{};
    row<small, most_holders> saw_holder{}; // observed: since so long; never
    row<small, most_places> saw_place{};

    void sees_anew() {
        saw_holder.all.fill(never);
        saw_place.all.fill(never);
    }
};

// Stored observations: for how long contenders have seen an entry, by boots, from 1.
using stored_observations = row<small, most_boots>;
constexpr stored_observations no_observations{{never, never, never}};

struct held {
    small nonce = 0;
    small fence = 0;
    small lane = 0;
    small weight = 0;
    small lease = 0;
    small expires = 0;
    small boot = 0;
    small is_unknown = 0; // stands for a holder of a lost record
    stored_observations observed = no_observations;
    small held_until = 0;
    small held_boot = 0;
    small is_resting = 0;
    small kept = 0; // true time until which no other client may be granted its permits
};

struct place {
    small nonce = 0;
    small weight = 0;
    small ttl = 0;
    small expires = 0;
    small boot = 0;
    small age = 0; // since it was last stored; up to its ttl
    stored_observations observed = no_observations;
};

struct world {
    small next = 1;    // token
    small largest = 0; // that was ever granted
    small permits = 0;
    small fell_back = 0; // a record was lost: 1 before it was acknowledged, 2 afterwards
    small mishaps = 0;
    few<held, most_holders> holders{};
    few<place, most_places> places{};
    few<client, most_clients> clients{};
    request late{}; // on its way, after its client gave up

    friend bool operator==(const world& a, const world& b) noexcept {
        return std::memcmp(&a, &b, sizeof(world)) == 0;
    }
};
static_assert(std::has_unique_object_representations_v<world>);

int holder_of(const world& w, int nonce) {
    return w.holders.find([&](const held& h) { return h.nonce == nonce; });
}
// The entry of a grant, also if it rests.
int grant_of(const world& w, std::int64_t fence) {
    return w.holders.find([&](const held& h) { return h.fence == fence; });
}
int place_of(const world& w, int nonce) {
    return w.places.find([&](const place& a) { return a.nonce == nonce; });
}
const client* client_of(const world& w, int nonce) {
    const int at = w.clients.find([&](const client& c) { return c.nonce == nonce; });
    return at < 0 ? nullptr : &w.clients[at];
}

// ---- the rules and their arguments

char nonce_letter(int nonce) { return static_cast<char>('`' + nonce); }
std::string nonce_text(int nonce) { return std::string(1, nonce_letter(nonce)); }
int nonce_number(const std::string& text) { return text[0] - '`'; }
// Resting entries have numbers that no client has.
int nonce_number(const holder& h) {
    return durable::is_resting(h) ? 40 + static_cast<int>(h.fence) : nonce_number(h.nonce);
}
bool is_unknown(const holder& h) { return h.nonce.starts_with("lost-"); } // number 12

std::string boot_text(int boot) { return boot == 0 ? std::string() : nonce_text(boot); }
int boot_number(const durable::origin& from) {
    return from.boot.empty() ? 0 : nonce_number(from.boot);
}

// Tokens beyond a leap come after all other tokens of the world.
std::int64_t token_of_world(std::int64_t token) {
    return token >= durable::fence_leap ? token - durable::fence_leap + 60 : token;
}

// durable::expiry_judge, for this world: a lease expires at its end, on a clock that can be read;
// or when it was seen unchanged for longer than its length and the margin. A mark exists as long as
// its client.
struct judge {
    const scope* s;
    const world* w;
    const request* q;
    bool waiters_expire = true;
    int early = 0;
    // Planted faults:
    bool other_boots_are_gone = false;
    bool reads_other_boots = false;
    bool goes_by_clock_alone = false;
    bool leases_end_marks = false;
    bool sees_no_mark_end = false;
    bool reads_observations_of_other_boots = false;
    bool leaves_the_margin_out = false; // of observations that are stored
    bool leaves_minimum_out = false;    // of grants whose mark has ended

    std::int64_t now() const { return epoch + q->offset + q->when; }
    durable::origin here() const {
        durable::origin from{.boot = boot_text(q->boot), .mark = s->marked ? q->nonce : 0};
        from.pid = from.space = s->listens ? 1 : 0;
        return from;
    }

    bool expired(const holder& h) const {
        const bide::presence mark = ask(h.from.mark);
        if (mark == bide::presence::yes && !leases_end_marks) {
            return false;
        }
        const int at = h.renewals == 0 ? grant_of(*w, h.fence) : -1;
        return is_over(h, h.lease_ms, h.renewals, -early, at, q->holders_over) ||
               (mark == bide::presence::no && !sees_no_mark_end && !is_held(h));
    }
    bool expired(const waiter& a, bool at_head) const {
        if (!waiters_expire) {
            return false;
        }
        const int at = a.refreshes == 0 ? place_of(*w, nonce_number(a.nonce)) : -1;
        return is_over(a, a.ttl_ms, a.refreshes, 0, at, q->places_over) ||
               (at_head && ask(a.from.mark) == bide::presence::no);
    }

    // The minimum hold time has not passed, as far as this boot knows.
    bool is_held(const holder& h) const {
        const bool is_other =
            !s->has_one_time() && (q->boot == 0 || h.held_boot != boot_text(q->boot));
        return h.held_until != 0 && !leaves_minimum_out && (is_other || h.held_until > now());
    }

private:
    bide::presence ask(std::int64_t mark) const {
        return mark == 0 || q->cannot_ask != 0                    ? bide::presence::unknown
               : client_of(*w, static_cast<int>(mark)) != nullptr ? bide::presence::yes
                                                                  : bide::presence::no;
    }
    template <class Entry>
    bool is_over(const Entry& e, std::int64_t length, std::int64_t moves, std::int64_t later_ms,
                 int at, int over) const {
        const bool has_boot = s->clock == lock_clock::boottime;
        const bool is_other = has_boot && (q->boot == 0 || boot_number(e.from) != q->boot);
        if (is_other && other_boots_are_gone) {
            return true;
        }
        const bool has_clock = s->clock != lock_clock::observed && (!is_other || reads_other_boots);
        const int margin = leaves_the_margin_out ? 0 : s->margin;
        const auto has_stood = [&](const durable::stored_observation& o) {
            return (o.boot == boot_text(q->boot) || reads_observations_of_other_boots) &&
                   o.moves == moves && now() - o.since > length + margin + later_ms;
        };
        return (has_clock && e.expires_at + later_ms <= now()) ||
               (s->observes() && !goes_by_clock_alone && at >= 0 && (over >> at & 1) != 0) ||
               (s->observes() && has_boot && q->boot != 0 &&
                std::any_of(e.observed.begin(), e.observed.end(), has_stood));
    }
};

// The arguments of a rule.
struct acquire_call {
    record& r;
    const contender& self;
    const terms& t;
    std::int64_t now;
    const judge& j;
};
struct renew_call {
    record& r;
    std::string_view nonce;
    std::int64_t fence;
    const terms& t;
    std::int64_t now;
    const judge& j;
};
struct release_call {
    record& r;
    std::string_view nonce;
    std::int64_t fence;
    const judge& j;
    bool undo;
};
struct make_up_call {
    record& r;
    bool acknowledged;
    const terms& t;
    std::int64_t now;
    const durable::origin& here;
};

durable::acquire_outcome acquires(const acquire_call& c) {
    return durable::acquire(c.r, c.self, c.t, c.now, c.j);
}
std::error_code renews(const renew_call& c) {
    return durable::renew(c.r, c.nonce, c.fence, c.t, c.now, c.j, c.j.here());
}
release_status releases(const release_call& c) {
    return durable::release(c.r, c.nonce, c.fence, c.j.now(), c.j.here(), {.undo = c.undo});
}
void makes_up(const make_up_call& c) {
    durable::make_up_for_lost(c.r, c.acknowledged, c.t, c.now, c.here);
}
void passes_on(record& r, const terms& t, const judge& j) {
    durable::pass_on(r, t, j.now(), j, j.here());
}

// The real rules; a planted fault replaces one.
struct rules {
    std::function<durable::acquire_outcome(const acquire_call&)> acquire = acquires;
    std::function<std::error_code(const renew_call&)> renew = renews;
    std::function<release_status(const release_call&)> release = releases;
    std::function<void(const make_up_call&)> make_up = makes_up;
    std::function<record(const terms&)> fresh = durable::fresh_record;
    std::function<void(record&, const terms&, const judge&)> pass_on = passes_on;
};

std::vector<durable::stored_observation> observations_of(const scope& s,
                                                         const stored_observations& seen) {
    std::vector<durable::stored_observation> all;
    for (int boot = 1; boot <= most_boots; ++boot) {
        const small since = seen[boot - 1];
        if (since != never) {
            all.push_back({boot_text(boot), 0, epoch + s.offset_of_boot(boot) - since, {}});
        }
    }
    return all;
}
template <class Entry>
stored_observations observations_in(const scope& s, const Entry& e, std::int64_t moves) {
    stored_observations seen = no_observations;
    for (const durable::stored_observation& o : e.observed) {
        const int boot = nonce_number(o.boot);
        if (o.moves == moves) {
            seen[boot - 1] = to_small(epoch + s.offset_of_boot(boot) - o.since);
        }
    }
    return seen;
}

void read_into(record& r, const scope& s, const world& w) {
    r.permits = w.permits;
    r.clock = s.clock;
    r.fence = w.next;
    r.holders.resize(static_cast<std::size_t>(w.holders.count));
    for (std::size_t i = 0; i < r.holders.size(); ++i) {
        const held& from = w.holders[i];
        holder& h = r.holders[i];
        h.fence = from.fence;
        if (from.is_resting != 0) {
            h.nonce = "rest-" + std::to_string(h.fence);
        } else {
            h.nonce.assign(1, nonce_letter(from.nonce));
        }
        h.lane = from.lane;
        h.weight = from.weight;
        h.lease_ms = from.lease;
        h.expires_at = epoch + from.expires;
        h.renewals = 0;
        h.from.boot = boot_text(from.boot);
        const bool is_bound = from.is_unknown == 0 && from.is_resting == 0;
        h.from.mark = s.marked && is_bound ? from.nonce : 0;
        h.held_until = s.at_least != 0 && from.is_unknown == 0 ? epoch + from.held_until : 0;
        h.held_boot = boot_text(from.held_boot);
        h.observed = observations_of(s, from.observed);
    }
    r.waiters.resize(static_cast<std::size_t>(w.places.count));
    for (std::size_t i = 0; i < r.waiters.size(); ++i) {
        const place& from = w.places[i];
        waiter& a = r.waiters[i];
        a.nonce.assign(1, nonce_letter(from.nonce));
        a.weight = from.weight;
        a.ttl_ms = from.ttl;
        a.expires_at = epoch + from.expires;
        a.refreshes = 0;
        a.from.boot = boot_text(from.boot);
        a.from.mark = s.marked ? from.nonce : 0;
        a.from.pid = a.from.space = s.listens ? 1 : 0;
        a.lease_ms = s.listens ? s.lease : 0;
        a.at_least_ms = s.listens ? s.at_least : 0;
        a.observed = observations_of(s, from.observed);
    }
}

// What a rule made of a request.
struct answer {
    bool changed = false;
    bool refused = false;
    bool had = false; // acquiring: granted or held; renewing: renewed; releasing: was there
    bool granted = false;
    std::int64_t fence = 0;
    std::int64_t left = 0; // of the lease of an earlier grant, which stays as it is
};

// ---- one step

enum class act : small {
    poll,
    renew,
    renew_for_short,
    release,
    undo,
    arrive,
    give_up,
    kill,
    move,
    late,
    set_back,
    vanish,
    tick
};
struct action {
    act what = act::tick;
    small by = 0;      // client
    bool heard = true; // it gets the reply
    bool lost = false; // the stored record is lost then
    bool cannot_ask = false;
};

class machine {
public:
    machine(const scope& s, const rules& of) : s_(s), of_(of) {}

    world first() const {
        world w;
        w.permits = to_small(s_.permits);
        w.clients.renew(static_cast<std::size_t>(s_.clients));
        for (std::size_t i = 0; i < static_cast<std::size_t>(s_.clients); ++i) {
            client& c = w.clients[i];
            c.weight = s_.weight[i];
            c.offset = s_.offset[i];
            c.rate = s_.rate[i];
            c.boot = s_.boot[i];
            c.goes_by = s_.goes_by[i];
            forget(c);
        }
        return w;
    }

    // Takes the step if it is possible. Afterwards broken() names an invariant that does not hold.
    bool step(world& w, action a) {
        client& c = w.clients[a.by];
        const bool is_free = c.sent.what == nothing;
        if (a.lost && w.mishaps != 0) {
            return false;
        }
        is_lost_ = a.lost;
        cannot_ask_ = a.cannot_ask;
        switch (a.what) {
        case act::poll:
            if (!is_free || c.is == leaves || (c.is == has && !s_.asks_again)) {
                return false;
            }
            if (c.nonce == 0) {
                c.nonce = s_.by_name ? small{1} : fresh_nonce(w);
            }
            if (c.is == out) {
                c.is = wants;
            }
            return load(w, c, acquiring, 0, a.heard);
        case act::renew:
        case act::renew_for_short:
            if (!is_free || c.is != has ||
                (a.what == act::renew_for_short && s_.short_lease == 0)) {
                return false;
            }
            return load(w, c, a.what == act::renew ? renewing : renewing_for_short, c.fence,
                        a.heard);
        case act::release:
        case act::undo:
            if (!is_free || c.is == out || (a.what == act::undo && !s_.undoes)) {
                return false;
            }
            c.until = 0; // before it is sent
            c.missing = safe;
            c.is = leaves;
            return load(w, c, a.what == act::undo ? undoing : releasing, c.fence, a.heard);
        case act::arrive: {
            if (is_free) {
                return false;
            }
            const request q = c.sent;
            const answer got = store(w, q);
            if (a.heard) {
                tell(c, q, got);
            }
            return true;
        }
        case act::give_up:
            if (is_free || !s_.late || w.late.what != nothing) {
                return false;
            }
            w.late = c.sent;
            c.sent = request{};
            return true;
        case act::kill: {
            if (c.is == out) {
                return false;
            }
            if (s_.late && w.late.what == nothing) {
                w.late = c.sent;
            }
            forget(c);
            return ghosts(w) <= s_.ghosts;
        }
        case act::late: {
            if (w.late.what == nothing) {
                return false;
            }
            const request q = w.late;
            store(w, q);
            return ghosts(w) <= s_.ghosts;
        }
        case act::move: // with its ticket
            if (!s_.moves || !is_free || c.is == out || c.is == leaves) {
                return false;
            }
            for (std::size_t i = 0; i < static_cast<std::size_t>(s_.clients); ++i) {
                if (s_.boot[i] != c.boot) {
                    c.boot = s_.boot[i];
                    c.offset = s_.offset[i];
                    break;
                }
            }
            c.sees_anew();
            return true;
        case act::set_back:
            if (s_.jump == 0 || w.mishaps != 0) {
                return false;
            }
            w.mishaps = 1;
            for (held& h : w.holders) {
                h.expires = to_small(h.expires + s_.jump);
            }
            for (place& each : w.places) {
                each.expires = to_small(each.expires + s_.jump);
            }
            return true;
        case act::vanish: {
            if (!s_.vanishes || w.mishaps != 0) {
                return false;
            }
            terms t = on_terms(acquiring, 0);
            t.first_fence = durable::fence_leap; // later than all before, as the clock says
            w.mishaps = 1;
            w.next = to_small(token_of_world(of_.fresh(t).fence));
            w.holders.renew(0);
            w.places.renew(0);
            for (client& each : w.clients) {
                each.missing = each.until > 0 ? with_all : safe;
                each.sees_anew();
            }
            return true;
        }
        case act::tick: tick(w); return true;
        }
        return false;
    }

    const char* broken() const { return broken_; }

    // The invariants of every world.
    void check(const world& w) {
        is_lost_ = cannot_ask_ = false;
        int believed = 0;
        int latest_gone = 0;
        for (const client& c : w.clients) {
            believed += c.until > 0 && c.missing != with_all ? c.weight : 0;
            latest_gone = std::max<int>(latest_gone, c.missing == with_all ? c.fence : 0);
        }
        expect(believed <= w.permits, "more is believed to be held than there is");
        for (const client& c : w.clients) {
            if (c.until > 0 && c.missing == safe) {
                const int at = holder_of(w, c.nonce);
                expect(at >= 0 && w.holders[at].fence == c.fence,
                       "a hold was taken away before its lease was over");
                expect(c.fence > latest_gone, "the token does not tell who holds it");
            }
        }
    }

    // Tokens and nonces of no client: no request with them may change anything.
    void probe(const world& w) {
        world only_the_record = w;
        only_the_record.clients.renew(0);
        only_the_record.late = request{};
        if (!probed_.insert(only_the_record).second) {
            return;
        }
        const request q = ask(w.clients[0], renewing, 0, 0);
        const judge j{&s_, &w, &q};
        read_into(before_, s_, w);
        const auto changes_nothing = [&](int nonce, int fence) {
            after_ = before_;
            const std::string name = nonce_text(nonce);
            expect(of_.release({after_, name, fence, j, false}) == release_status::not_there &&
                       after_ == before_,
                   "a release with what is nobody's changed something");
            expect(of_.renew({after_, name, fence, on_terms(renewing, 0), epoch, j}) &&
                       after_ == before_,
                   "a renewal with what is nobody's changed something");
        };
        for (const held& h : w.holders) {
            changes_nothing(h.nonce, h.fence + 1);
            changes_nothing(20, h.fence);
            if (h.fence > 1) {
                changes_nothing(h.nonce, h.fence - 1);
            }
        }
        for (const place& a : w.places) {
            changes_nothing(a.nonce, 1);
        }
        changes_nothing(20, w.next);
    }

    // Brings a world into its normal form; order[i] is where the i-th client was.
    void normalise(world& w, std::array<small, most_clients>& order) const;

    // From here on no holder calls, and only the waiters ask: they acquire one after the other, and
    // each releases at once. Returns false if one of them does not acquire.
    bool everybody_gets_in(world w, bool last_first);

private:
    struct hash {
        std::size_t operator()(const world& w) const noexcept {
            std::string_view bytes(reinterpret_cast<const char*>(&w), sizeof w);
            return std::hash<std::string_view>()(bytes);
        }
    };

    void expect(bool is_so, const char* what) {
        if (!is_so && broken_ == nullptr) {
            broken_ = what;
        }
    }

    static void forget(client& c) {
        leave(c);
        c.sent = request{};
        c.sees_anew();
    }

    small fresh_nonce(const world& w) const {
        for (small n = 1;; ++n) {
            if (holder_of(w, n) < 0 && place_of(w, n) < 0 && client_of(w, n) == nullptr &&
                w.late.nonce != n) {
                return n;
            }
        }
    }

    int ghosts(const world& w) const {
        const auto is_left = [&](const auto& entry) {
            return client_of(w, entry.nonce) == nullptr;
        };
        const auto is_held = [&](const held& h) { return h.is_resting == 0 && is_left(h); };
        return static_cast<int>(std::count_if(w.holders.begin(), w.holders.end(), is_held) +
                                std::count_if(w.places.begin(), w.places.end(), is_left));
    }

    terms on_terms(int what, int goes_by) const {
        terms t;
        t.permits = goes_by != 0 ? goes_by : s_.permits;
        t.adopt_permits = goes_by != 0;
        t.clock = s_.clock;
        t.lease_ms = what == renewing_for_short ? s_.short_lease : s_.lease;
        t.waiter_ttl_ms = s_.ttl;
        t.at_least_ms = s_.at_least;
        t.enqueue = s_.enqueue;
        t.listens = s_.listens;
        return t;
    }

    request ask(const client& c, purpose what, small nonce, small fence) const {
        return {.what = what,
                .nonce = nonce,
                .fence = fence,
                .weight = c.weight,
                .offset = c.offset,
                .boot = c.boot,
                .goes_by = c.goes_by,
                .cannot_ask = small{cannot_ask_}};
    }

    // A client reads the record, and sends its change.
    bool load(world& w, client& c, purpose what, small fence, bool heard) {
        request q = ask(c, what, c.nonce, fence);
        if (s_.observes() && !s_.brief) {
            const auto mark = [](small& bits, int i, bool is_over) {
                bits = to_small(bits | (is_over ? 1 << i : 0));
            };
            for (int i = 0; i < w.holders.count; ++i) {
                small& since = c.saw_holder[i];
                since = std::max<small>(since, 0);
                const int length = w.holders[i].lease + s_.margin;
                mark(q.holders_over, i, since > length);
            }
            for (int i = 0; i < w.places.count; ++i) {
                small& since = c.saw_place[i];
                since = std::max<small>(since, 0);
                mark(q.places_over, i, since > w.places[i].ttl + s_.margin);
            }
        }
        const answer got = run(w, q);
        if (!got.changed) {
            tell(c, q, got);
            return heard && !is_lost_; // from the record itself
        }
        if (s_.two_steps) {
            c.sent = q;
            return heard; // that is still to come
        }
        const world was = w;
        put(w, q, got);
        if (heard) {
            tell(c, q, got);
        }
        if (is_lost_) { // before any client has read it
            w.holders = was.holders;
            w.places = was.places;
            w.next = was.next;
            w.permits = was.permits;
            w.fell_back = heard ? small{2} : small{1};
            w.mishaps = 1;
            for (int i = 0; i < s_.clients; ++i) {
                w.clients[i].saw_holder = was.clients[i].saw_holder;
                w.clients[i].saw_place = was.clients[i].saw_place;
            }
            c.missing = heard && c.until > 0 ? with_the_newest : safe;
        }
        return true;
    }

    answer run(const world& w, const request& q) {
        const judge j{&s_, &w, &q};
        const terms t = on_terms(q.what, q.goes_by);
        read_into(before_, s_, w);
        if (w.fell_back != 0) {
            of_.make_up({before_, w.fell_back == 2, t, j.now(), j.here()});
        }
        after_ = before_;
        const std::string nonce = nonce_text(q.nonce);
        answer got;
        if (q.what == acquiring) {
            const contender self{"same", nonce, q.weight, j.here()};
            const auto is = of_.acquire({after_, self, t, j.now(), j});
            got.refused = is.status == acquire_status::refused;
            got.changed = is.changed || (w.fell_back == 2 && !got.refused); // as lock_engine does
            got.granted = is.status == acquire_status::granted;
            got.had = got.granted || is.status == acquire_status::held;
            got.fence = token_of_world(is.fence);
            got.left = is.expires_at == 0 ? 0 : is.expires_at - j.now();
            if (got.refused) {
                expect(is.error == bide::durable_errc::permits_mismatch && s_.adopts(),
                       "something was refused");
                expect(place_of(w, q.nonce) < 0, "one that waits is refused");
                expect(is_anybody_there(q, j), "one is refused though nobody else is there");
                return got;
            }
            expect(!got.had || is.changed || got.left > 0, "what is had is not stored");
            expect(got.had || after_.permits != w.permits || !fits(w, q, j),
                   "permits lie idle although it is somebody's turn");
            if (!got.had && s_.enqueue) {
                const auto mine = std::find_if(after_.waiters.begin(), after_.waiters.end(),
                                               [&](const waiter& a) { return a.nonce == nonce; });
                expect(mine != after_.waiters.end() &&
                           mine->expires_at - j.now() >= s_.ttl - s_.ttl / 3,
                       "a poll leaves a place that is soon over");
            }
        } else if (q.what == releasing || q.what == undoing) {
            got.changed = got.had = of_.release({after_, nonce, q.fence, j, q.what == undoing}) !=
                                    release_status::not_there;
        } else {
            const auto is = of_.renew({after_, nonce, q.fence, t, j.now(), j});
            got.changed = got.had = !is;
            got.refused = is && is != durable_errc::lock_lost;
        }
        expect(!got.refused, "something was refused");
        if (got.changed && s_.listens) {
            of_.pass_on(after_, on_terms(acquiring, q.goes_by), j);
            const auto first = after_.waiters.begin();
            const bool is_alike = q.boot != 0 && first != after_.waiters.end() &&
                                  first->from.boot == boot_text(q.boot);
            expect(!is_alike || first->weight > durable::free_permits(after_) ||
                       j.expired(*first, true),
                   "free permits were not passed on");
        }
        return got;
    }

    // The waiters ahead and this client fit into the free permits; counted again, from the world.
    bool fits(const world& w, const request& q, const judge& j) const {
        std::int64_t room = w.permits;
        bool at_head = true;
        for (const holder& h : before_.holders) {
            room -= j.expired(h) ? 0 : h.weight;
        }
        const int mine = place_of(w, q.nonce);
        for (int i = 0; i < (mine < 0 ? w.places.count : mine); ++i) {
            const waiter& a = before_.waiters[static_cast<std::size_t>(i)];
            at_head = j.expired(a, at_head) && at_head;
            room -= at_head || j.expired(a, false) ? 0 : a.weight;
        }
        return q.weight <= room;
    }

    bool is_anybody_there(const request& q, const judge& j) const {
        return std::any_of(before_.holders.begin(), before_.holders.end(),
                           [&](const holder& h) { return !j.expired(h); }) ||
               std::any_of(before_.waiters.begin(), before_.waiters.end(), [&](const waiter& a) {
                   return a.nonce != nonce_text(q.nonce) && !j.expired(a, true);
               });
    }

    // Stores the record that run() has made.
    void put(world& w, const request& q, const answer& got);
    answer store(world& w, const request& q) {
        const answer got = run(w, q);
        put(w, q, got);
        return got;
    }
    void finish(world& w, client& c, purpose what) {
        load(w, c, what, c.fence, true);
        if (c.sent.what != nothing) {
            const request q = c.sent;
            tell(c, q, store(w, q));
        }
    }
    void on_store(const world& was, const world& w, const request& q, const answer& got);

    void tell(client& c, const request& q, const answer& got) {
        const int lease = q.what == renewing_for_short ? s_.short_lease : s_.lease;
        c.sent = request{};
        if (q.what == releasing || q.what == undoing) {
            leave(c);
        } else if (got.refused) { // it asks again
        } else if (got.had) {
            const auto until = s_.marked       ? small{100}
                               : got.left != 0 ? to_small(got.left)
                                               : to_small(std::max(0, q.when + lease));
            c.missing = safe;
            c.until = c.is == has && (q.what != acquiring || c.fence == got.fence)
                          ? std::max(c.until, until)
                          : until;
            c.fence = q.what == acquiring ? to_small(got.fence) : c.fence;
            c.is = has;
        } else if (q.what == acquiring && s_.enqueue) {
            c.is = wants;
            c.fence = 0;
            c.until = 0;
            c.missing = safe;
        } else {
            leave(c);
        }
    }

    static void leave(client& c) {
        c.missing = safe;
        c.is = out;
        c.nonce = 0;
        c.fence = 0;
        c.until = 0;
    }

    void tick(world& w) const {
        // With observed leases only the owner reads a time, on its own clock.
        const auto pass = [&](small& time, int nonce, int boot) {
            const client* const owner = client_of(w, nonce);
            const int by = owner != nullptr ? owner->rate : 1;
            const int floor = s_.clock == lock_clock::observed && owner != nullptr
                                  ? owner->offset - s_.longest_way * by - 1
                                  : s_.floor_of_boot(boot);
            time = to_small(std::max(floor, time - by));
        };
        const auto grow = [&](small& since, int by, int length) {
            since = since == never ? never : to_small(std::min(length + s_.margin + 1, since + by));
        };
        const auto grow_stored = [&](stored_observations& seen, int length) {
            for (int boot = 1; boot <= most_boots; ++boot) { // a request may have been sent earlier
                grow(seen[boot - 1], s_.rate_of_boot(boot), length + s_.longest_way);
            }
        };
        for (held& h : w.holders) {
            pass(h.expires, h.nonce, h.boot);
            if (s_.at_least != 0) {
                pass(h.held_until, h.nonce, h.held_boot);
                h.kept = to_small(std::max(0, h.kept - 1));
            }
            grow_stored(h.observed, h.lease);
        }
        for (place& a : w.places) {
            pass(a.expires, a.nonce, a.boot);
            grow_stored(a.observed, a.ttl);
            if (s_.observes()) {
                a.age = to_small(std::min<int>(a.ttl, a.age + 1));
            }
        }
        const auto wait = [&](request& q, int by) {
            if (q.what != nothing) {
                q.when = to_small(q.when - by);
                if (q.when < -s_.longest_way * by) {
                    q = request{};
                }
            }
        };
        for (client& c : w.clients) {
            wait(c.sent, c.rate);
            c.until = s_.marked ? c.until : to_small(std::max(0, c.until - c.rate));
            c.missing = c.until > 0 ? c.missing : small{safe};
            for (int k = 0; k < w.holders.count; ++k) {
                grow(c.saw_holder[k], c.rate, w.holders[k].lease);
            }
            for (int k = 0; k < w.places.count; ++k) {
                grow(c.saw_place[k], c.rate, w.places[k].ttl);
            }
        }
        wait(w.late, 1);
    }

    const scope& s_;
    const rules& of_;
    const char* broken_ = nullptr;
    bool is_lost_ = false; // what is stored next
    bool cannot_ask_ = false;
    record before_{};
    record after_{};
    mutable std::vector<small*> tokens_{}; // normalise() reuses its memory
    std::array<std::unordered_set<world, hash>, 2> fine_{};
    std::unordered_set<world, hash> probed_{};
};

void machine::put(world& w, const request& q, const answer& got) {
    const world was = w;
    row<int, most_holders> holder_before;
    row<int, most_places> place_before;
    if (after_.holders.size() > most_holders || after_.waiters.size() > most_places) {
        expect(false, "the record is larger than the scope");
        return;
    }

    w.next = to_small(token_of_world(after_.fence));
    w.permits = to_small(after_.permits);
    w.fell_back = 0;
    w.holders.renew(after_.holders.size());
    for (std::size_t i = 0; i < after_.holders.size(); ++i) {
        const holder& h = after_.holders[i];
        const int nonce = nonce_number(h);
        const int at = grant_of(was, token_of_world(h.fence));
        const held old = at >= 0 ? was.holders[at] : held{};
        w.holders[i] = {to_small(nonce),
                        to_small(token_of_world(h.fence)),
                        to_small(h.lane),
                        to_small(h.weight),
                        to_small(h.lease_ms),
                        to_small(h.expires_at - epoch),
                        to_small(boot_number(h.from)),
                        is_unknown(h) || old.is_unknown != 0 ? small{1} : small{0},
                        observations_in(s_, h, h.renewals),
                        to_small(h.held_until == 0 ? 0 : h.held_until - epoch),
                        to_small(h.held_boot.empty() ? 0 : nonce_number(h.held_boot)),
                        durable::is_resting(h) ? small{1} : small{0},
                        at >= 0 ? old.kept : to_small(std::max(0, s_.at_least + q.when))};
        holder_before[i] = h.renewals == 0 ? at : -1;
    }
    w.places.renew(after_.waiters.size());
    for (std::size_t i = 0; i < after_.waiters.size(); ++i) {
        const waiter& a = after_.waiters[i];
        const int nonce = nonce_number(a.nonce);
        const int at = a.refreshes == 0 ? place_of(was, nonce) : -1;
        w.places[i] = {to_small(nonce),
                       to_small(a.weight),
                       to_small(a.ttl_ms),
                       to_small(a.expires_at - epoch),
                       to_small(boot_number(a.from)),
                       at < 0 ? small{0} : was.places[at].age,
                       observations_in(s_, a, a.refreshes)};
        place_before[i] = at;
    }
    for (int i = 0; i < s_.clients; ++i) {
        client& c = w.clients[i];
        c.sent = request{}; // overtaken
        c.sees_anew();
        for (int k = 0; k < w.holders.count; ++k) {
            const int at = holder_before[k];
            c.saw_holder[k] = at < 0 ? never : was.clients[i].saw_holder[at];
        }
        for (int k = 0; k < w.places.count; ++k) {
            const int at = place_before[k];
            c.saw_place[k] = at < 0 ? never : was.clients[i].saw_place[at];
        }
    }
    w.late = request{};
    if (got.granted) {
        w.largest = std::max(w.largest, to_small(got.fence));
    }
    for (const held& h : w.holders) {
        w.largest = !s_.listens || h.is_unknown != 0 ? w.largest : std::max(w.largest, h.fence);
    }
    on_store(was, w, q, got);
}

// The invariants of every store.
void machine::on_store(const world& was, const world& w, const request& q, const answer& got) {
    expect(w.next >= was.next && w.next > w.largest, "the next token is not a new one");
    int weights = 0;
    for (const held& h : w.holders) {
        const int at = holder_of(was, h.nonce);
        const held* const old = at < 0 ? nullptr : &was.holders[at];
        weights += h.is_unknown != 0 ? 0 : h.weight;
        if (h.is_unknown != 0) { // of no client
        } else if (h.is_resting != 0) {
            const int before = grant_of(was, h.fence);
            expect(before >= 0 && client_of(w, h.nonce) == nullptr, "it rests without a grant");
        } else if (old == nullptr || old->fence != h.fence) {
            const bool was_waiting = s_.listens && place_of(was, h.nonce) >= 0;
            expect((got.granted && h.nonce == q.nonce && h.fence == got.fence) || was_waiting,
                   "somebody holds it to whom it was not granted");
            for (int k = 0; was_waiting && k < place_of(was, h.nonce); ++k) {
                const small earlier = was.places[k].nonce;
                expect(place_of(w, earlier) < 0 || earlier == q.nonce, "somebody was passed over");
            }
            expect(h.fence > was.largest,
                   "a token was given out that is not larger than all before");
            expect(h.lane >= 0 && h.lane < w.permits, "a lane that there is not");
        } else {
            expect(h.expires >= old->expires || s_.clock == lock_clock::observed ||
                       h.boot != old->boot,
                   "a lease was shortened");
        }
        for (const held* other = w.holders.begin(); other != &h; ++other) {
            expect(other->nonce != h.nonce && other->fence != h.fence, "one holds it twice");
            expect(other->lane != h.lane, "two have one lane");
        }
        expect(place_of(w, h.nonce) < 0, "who holds it waits for it, too");
    }
    expect(weights <= w.permits, "more is held than there is");
    for (const held& h : was.holders) {
        const int at = grant_of(w, h.fence);
        expect(h.kept == 0 || (at >= 0 && w.holders[at].weight == h.weight) ||
                   (q.what == undoing && h.nonce == q.nonce),
               "a hold ended before its minimum time");
    }

    // The queue has lost expired waiters only, and new ones are at its end.
    int last = -1;
    for (const place& a : w.places) {
        const int at = place_of(was, a.nonce);
        expect(at >= 0 ? at > last : a.nonce == q.nonce && &a == w.places.end() - 1,
               "the order of those who wait has changed");
        last = at;
    }
    if (!s_.has_one_clock()) {
        return;
    }
    int room = w.permits - weights;
    const int mine = place_of(was, q.nonce);
    for (int i = 0; i < was.places.count; ++i) {
        const place& a = was.places[i];
        const bool lives = client_of(was, a.nonce) != nullptr &&
                           (!s_.observes() || a.age < a.ttl) &&
                           (s_.clock == lock_clock::observed || a.expires > 0);
        if (s_.listens && holder_of(w, a.nonce) >= 0) {
            continue;
        }
        if (lives && a.nonce != q.nonce) {
            expect(place_of(w, a.nonce) >= 0, "somebody else who waits and lives lost its place");
            room -= a.weight;
            expect(!got.granted || (mine >= 0 && i > mine) || room >= 0,
                   "somebody who came earlier does not fit any more");
        }
    }
}

void machine::normalise(world& w, std::array<small, most_clients>& order) const {
    // Times that no client reads.
    if (s_.clock == lock_clock::observed) {
        for (held& h : w.holders) {
            const bool is_owned = client_of(w, h.nonce) != nullptr;
            if (!is_owned || (s_.short_lease == 0 && s_.at_least == 0)) {
                h.expires = 0;
            }
            if (!is_owned && !s_.marked) {
                h.held_until = 0;
            }
        }
        for (place& a : w.places) {
            a.expires = client_of(w, a.nonce) == nullptr ? small{0} : a.expires;
        }
    }

    // Tokens, by their order; 0 is none.
    row<bool, 128> is_used;
    std::vector<small*>& tokens = tokens_;
    tokens.clear();
    const auto use = [&](small& token) {
        if (token != 0) {
            is_used[token] = true;
            tokens.push_back(&token);
        }
    };
    use(w.next);
    use(w.largest);
    use(w.late.fence);
    for (held& h : w.holders) {
        use(h.fence);
    }
    for (client& c : w.clients) {
        use(c.fence);
        use(c.sent.fence);
    }
    row<small, 128> token_now;
    small next = 0;
    for (int i = 0; i < 128; ++i) {
        token_now[i] = is_used[i] ? ++next : small{0};
    }
    for (small* const token : tokens) {
        *token = token_now[*token];
    }

    // Nonces are numbered by their places in the record. The absent ones are alike, until clients
    // are sorted. Only one more may be on its way.
    constexpr small on_its_way = 100;
    constexpr small elsewhere = 101;
    row<small, 128> nonce_now;
    nonce_now.all.fill(elsewhere);
    nonce_now[0] = 0;
    if (w.late.nonce != 0) {
        nonce_now[w.late.nonce] = on_its_way;
    }
    small known = 0;
    for (const held& h : w.holders) {
        nonce_now[h.nonce] = ++known;
    }
    for (const place& a : w.places) {
        nonce_now[a.nonce] = ++known;
    }
    if (s_.by_name) {
        nonce_now[1] = 1;
    }
    const auto rename = [&](small& nonce) { nonce = nonce_now[nonce]; };
    for (held& h : w.holders) {
        rename(h.nonce);
    }
    for (place& a : w.places) {
        rename(a.nonce);
    }
    rename(w.late.nonce);
    for (client& c : w.clients) {
        rename(c.nonce);
        rename(c.sent.nonce);
    }

    for (std::size_t i = 0; i < most_clients; ++i) {
        order[i] = to_small(static_cast<std::int64_t>(i));
    }
    const auto before = [&](small a, small b) {
        return std::memcmp(&w.clients[a], &w.clients[b], sizeof(client)) < 0;
    };
    std::sort(order.begin(), order.begin() + s_.clients, before);
    const auto unsorted = w.clients;
    const small late_only = w.late.nonce == on_its_way ? ++known : small{0};
    for (std::size_t i = 0; i < static_cast<std::size_t>(s_.clients); ++i) {
        client& c = w.clients[i];
        c = unsorted[order[i]];
        if (c.nonce == on_its_way) {
            c.nonce = late_only;
        } else if (c.nonce == elsewhere) {
            c.nonce = ++known;
        }
        if (c.sent.what != nothing) {
            c.sent.nonce = c.nonce;
        }
    }
    if (w.late.nonce == on_its_way) {
        w.late.nonce = late_only;
    }
}

bool machine::everybody_gets_in(world w, bool last_first) {
    std::vector<world> way;
    auto& fine = fine_[last_first ? 1 : 0];
    for (client& c : w.clients) {
        c.sent = request{};
        if (c.is != wants) {
            forget(c);
        }
    }
    w.late = request{};
    for (int round = 0; round < s_.rounds; ++round) {
        std::array<small, most_clients> order{};
        normalise(w, order);
        bool is_somebody_left = false;
        if (fine.contains(w)) {
            is_somebody_left = false;
        } else {
            way.push_back(w);
            for (int n = 0; n < s_.clients; ++n) {
                const int i = last_first ? s_.clients - 1 - n : n;
                client& c = w.clients[i];
                if (c.is == wants) {
                    finish(w, c, acquiring);
                    if (c.is == has) {
                        finish(w, c, releasing);
                    }
                }
                is_somebody_left = is_somebody_left || c.is == wants;
            }
        }
        if (!is_somebody_left) {
            fine.insert(way.begin(), way.end());
            return true;
        }
        tick(w);
    }
    return false;
}

// ---- the search

struct finding {
    std::string what{}; // empty: no fault
    std::string how{};  // the shortest run that leads there
    std::size_t worlds = 0;
    std::size_t steps = 0;
};

class search {
public:
    search(const scope& s, const rules& of)
        : s_(s), m_(s_, of), index_(16, hash{this}, same{this}) {}

    finding run() {
        finding found;
        worlds_.push_back(m_.first());
        links_.push_back(link{});
        std::array<small, most_clients> order{};
        m_.normalise(worlds_[0], order);
        index_.insert(0);
        for (std::uint32_t at = 0; at < worlds_.size(); ++at) {
            for (const action& a : actions()) {
                world w = worlds_[at];
                if (!m_.step(w, a)) {
                    continue;
                }
                ++found.steps;
                link l{at, a, {}};
                m_.normalise(w, l.order);
                worlds_.push_back(w);
                links_.push_back(l);
                const auto last = static_cast<std::uint32_t>(worlds_.size() - 1);
                const bool is_new = index_.insert(last).second;
                if (const char* const broken = is_new ? examine(w) : m_.broken()) {
                    found.what = broken;
                    found.how = way_to(last) + "  here: " + broken + "\n";
                    found.worlds = worlds_.size();
                    return found;
                }
                if (!is_new) {
                    worlds_.pop_back();
                    links_.pop_back();
                }
            }
        }
        found.worlds = worlds_.size();
        return found;
    }

private:
    struct link {
        std::uint32_t from = 0;
        action by{};
        std::array<small, most_clients> order{};
    };
    struct hash {
        const search* of;
        std::size_t operator()(std::uint32_t at) const noexcept {
            const world& w = of->worlds_[at];
            return std::hash<std::string_view>()(
                std::string_view(reinterpret_cast<const char*>(&w), sizeof w));
        }
    };
    struct same {
        const search* of;
        bool operator()(std::uint32_t a, std::uint32_t b) const noexcept {
            return of->worlds_[a] == of->worlds_[b];
        }
    };

    const char* examine(const world& w) {
        m_.check(w);
        if (m_.broken() == nullptr && s_.probed) {
            m_.probe(w);
        }
        if (m_.broken() == nullptr && s_.gets_in &&
            !(m_.everybody_gets_in(w, false) && m_.everybody_gets_in(w, true))) {
            return "somebody waits for ever";
        }
        return m_.broken();
    }

    const std::vector<action>& actions() {
        if (actions_.empty()) {
            for (small i = 0; i < s_.clients; ++i) {
                for (const act what : {act::poll, act::renew, act::renew_for_short, act::release,
                                       act::undo, act::arrive}) {
                    actions_.push_back({what, i, true});
                    if (s_.lost_answers && (what == act::arrive) == s_.two_steps) {
                        actions_.push_back({what, i, false});
                    }
                }
                for (const act what : {act::poll, act::renew, act::release}) {
                    if (s_.loses) {
                        actions_.push_back({what, i, true, true});
                        actions_.push_back({what, i, false, true});
                    }
                }
                if (s_.cannot_ask) {
                    actions_.push_back({act::poll, i, true, false, true});
                }
                actions_.push_back({act::give_up, i});
                actions_.push_back({act::kill, i});
                actions_.push_back({act::move, i});
            }
            actions_.push_back({act::late});
            actions_.push_back({act::set_back});
            actions_.push_back({act::vanish});
            actions_.push_back({act::tick});
        }
        return actions_;
    }

    static std::string told(const action& a) {
        static constexpr const char* words[] = {"acquires",
                                                "renews",
                                                "renews for a short while",
                                                "releases",
                                                "takes back what it acquired",
                                                "is served",
                                                "gives up its request",
                                                "is killed",
                                                "goes on in another boot",
                                                "what was given up is served",
                                                "the clock is set back",
                                                "the record vanishes",
                                                "a tick"};
        return (a.what < act::late ? "  client " + std::to_string(a.by) + " " : std::string("  ")) +
               words[static_cast<std::size_t>(a.what)] +
               (a.cannot_ask ? ", and cannot ask for marks" : "") +
               (a.heard ? "" : ", and does not hear of it") + (a.lost ? ", which is lost" : "");
    }

    // Clients keep the number that they have at the start, and change their index.
    std::string way_to(std::uint32_t end) const {
        std::vector<std::uint32_t> way;
        for (std::uint32_t at = end; at != 0; at = links_[at].from) {
            way.push_back(at);
        }
        std::string text;
        std::array<small, most_clients> names{0, 1, 2, 3};
        for (auto at = way.rbegin(); at != way.rend(); ++at) {
            const link& l = links_[*at];
            text += told(renamed(l.by, names)) + "\n";
            const auto old = names;
            for (std::size_t i = 0; i < names.size(); ++i) {
                names[i] = old[static_cast<std::size_t>(l.order[i])];
            }
            text += shown(worlds_[*at], names);
        }
        return text;
    }

    static action renamed(action a, const std::array<small, most_clients>& names) {
        a.by = names[static_cast<std::size_t>(a.by)];
        return a;
    }

    std::string shown(const world& w, const std::array<small, most_clients>& names) const {
        const auto name = [&](int nonce) {
            const client* const c = client_of(w, nonce);
            if (c == nullptr) {
                return std::string("a ghost");
            }
            return std::to_string(names[static_cast<std::size_t>(c - w.clients.begin())]);
        };
        std::string text = "      held by:";
        for (const held& h : w.holders) {
            text += " " + (h.is_resting != 0 ? "none" : name(h.nonce)) + " (token " +
                    std::to_string(h.fence) + ", " + std::to_string(h.expires) + " left)";
        }
        text += "; waiting:";
        for (const place& a : w.places) {
            text += " " + name(a.nonce) + " (" + std::to_string(a.expires) + " left)";
        }
        return text + "\n";
    }

    scope s_;
    machine m_;
    std::vector<world> worlds_{};
    std::vector<link> links_{};
    std::unordered_set<std::uint32_t, hash, same> index_;
    std::vector<action> actions_{};
};

// The search finds the planted fault, and names it so.
void finds(const char* name, const char* what, const scope& s, const rules& of = {}) {
    const finding found = search(s, of).run();
    std::fprintf(stderr, "searched: %s: %zu worlds, %zu steps%s%s\n", name, found.worlds,
                 found.steps, found.what.empty() ? "" : "; found: ", found.what.c_str());
    INFO(name << "\n" << found.how);
    CHECK(found.what == what);
}

// The invariants hold in all worlds of this scope.
void holds(const char* name, const scope& s, const rules& of = {}) { finds(name, "", s, of); }

// ---- rules with planted faults

constexpr const char* two_holders = "more is believed to be held than there is";
constexpr const char* idle_permits = "permits lie idle although it is somebody's turn";
constexpr const char* old_token = "a token was given out that is not larger than all before";
constexpr const char* stuck = "somebody waits for ever";

template <class T> auto named(T& entries, std::string_view nonce) {
    return std::find_if(entries.begin(), entries.end(),
                        [&](const auto& e) { return e.nonce == nonce; });
}
std::vector<durable::stored_observation> observations_of(record& r, std::string_view nonce) {
    const auto mine = named(r.holders, nonce);
    return mine == r.holders.end() ? decltype(mine->observed)() : mine->observed;
}
void begins_now(holder& h, const terms& t, std::int64_t now) {
    h.lease_ms = t.lease_ms;
    h.expires_at = now + t.lease_ms;
}

// Judges wrongly, in acquisitions and renewals.
rules judges_by(void (*fault)(judge&)) {
    const auto wrong = [fault](judge j) {
        fault(j);
        return j;
    };
    rules of;
    of.acquire = [wrong](const acquire_call& c) {
        return acquires({c.r, c.self, c.t, c.now, wrong(c.j)});
    };
    of.renew = [wrong](const renew_call& c) {
        return renews({c.r, c.nonce, c.fence, c.t, c.now, wrong(c.j)});
    };
    return of;
}

} // namespace

TEST_CASE("record: the judge of the search decides as expiry_judge does") {
    struct marks final : durable::process_knowledge {
        bool runs(const durable::origin&) const noexcept override { return false; }
        bide::presence is_present(std::int64_t) const override { return says; }
        bide::presence says = bide::presence::unknown;
    } known;
    int asked = 0;
    for (int way = 0; way < 3 << 11; ++way) {
        int rest = way;
        const auto one_of = [&](int n) {
            const int got = rest % n;
            rest /= n;
            return got;
        };
        scope s;
        s.clients = 2;
        s.clock = static_cast<lock_clock>(one_of(4));
        s.bounded = one_of(2) != 0;
        s.marked = one_of(2) != 0;
        world w;
        request q;
        q.boot = to_small(one_of(2));
        const int has = one_of(2); // the entry's client runs
        q.cannot_ask = to_small(one_of(2));
        const int still = one_of(2); // it was unchanged for longer than its length
        const int over = one_of(2);  // expired by its clock
        const int boot = one_of(2);
        const int stored =
            one_of(4); // none, by this boot, by this boot long ago, by another boot long ago
        s.at_least = one_of(3); // none, over, or not over
        s.boot = {1, 2, 0, 0};
        w.clients.count = 2;
        w.clients[0].nonce = to_small(has != 0 ? 3 : 0);
        w.clients[1].nonce = to_small(has != 0 ? 4 : 0);
        w.holders.count = w.places.count = 1;
        const auto expires = to_small(over != 0 ? 0 : 1);
        w.holders[0] = {3, 1, 0, 1, 2, expires, to_small(boot), 0};
        w.holders[0].held_until = s.at_least == 1 ? small{0} : small{1};
        w.holders[0].held_boot = to_small(boot);
        w.places[0] = {4, 1, 2, expires, to_small(boot), 0};
        const int length = 2;
        const int stood = length + (still != 0 ? 1 : 0);
        q.holders_over = q.places_over = stood > length;
        if (stored != 0) {
            const int since = length + (stored != 1 ? 1 : 0);
            w.holders[0].observed[stored == 3 ? 1 : 0] = to_small(since);
            w.places[0].observed = w.holders[0].observed;
        }

        record r;
        read_into(r, s, w);
        const judge ours{&s, &w, &q};
        durable::observations seen;
        seen.note(r, epoch - stood);
        durable::origin here{.boot = boot_text(q.boot)};
        known.says = q.cannot_ask != 0 ? bide::presence::unknown
                     : has != 0        ? bide::presence::yes
                                       : bide::presence::no;
        const durable::expiry_judge by_clock(s.clock, epoch, here, &known);
        const durable::expiry_judge theirs =
            s.observes() ? by_clock.bounded_by(seen, epoch, 0) : by_clock;
        CAPTURE(way);
        REQUIRE(ours.expired(r.holders[0]) == theirs.expired(r.holders[0]));
        REQUIRE(ours.expired(r.waiters[0], true) == theirs.expired(r.waiters[0], true));
        REQUIRE(ours.expired(r.waiters[0], false) == theirs.expired(r.waiters[0], false));
        ++asked;
    }
    REQUIRE(asked == 3 << 11);
}

TEST_CASE(
    "record: whatever three clients do, one permit has one holder, and every client acquires it",
    "[promise.durable-exclusion]") {
    holds("three clients, one permit", {});
    holds("four clients, one permit", {.clients = 4, .ttl = 2, .ghosts = 0, .lost_answers = false});
    if (is_long_run()) {
        holds("four clients, ghosts, lost answers", {.clients = 4});
    }
}

TEST_CASE("record: weights share the permits, and a heavy request is not overtaken",
          "[promise.durable-exclusion]") {
    scope s{.permits = 2, .weight = {1, 1, 2, 0}, .ttl = 2, .lost_answers = is_long_run()};
    holds("two permits, two readers and a writer", s);
    s.ghosts = is_long_run() ? 1 : 0;
    s.permits = 3;
    s.weight = {1, 2, 3, 0};
    holds("three permits, weights of 1, 2 and 3", s);
    s.weight = {1, 1, 1, 0};
    holds("three permits, weights of 1", s);
    if (is_long_run()) {
        holds("three permits, weights of 1, 1, 2 and 2", {.clients = 4,
                                                          .permits = 3,
                                                          .weight = {1, 1, 2, 2},
                                                          .ttl = 2,
                                                          .ghosts = 0,
                                                          .lost_answers = false});
    }
}

TEST_CASE("record: late, overtaken and abandoned requests do no harm",
          "[promise.durable-exclusion]") {
    scope s{.clients = 2, .ttl = 2, .two_steps = true, .longest_way = 2};
    holds("two clients, requests on their way, ghosts", s);
    s.ghosts = 0;
    s.late = true;
    s.lost_answers = is_long_run();
    holds("two clients, requests that come late", s);
    if (is_long_run()) {
        s.longest_way = 3;
        s.ghosts = 1;
        holds("two clients, requests that come very late, ghosts", s);
        holds("three clients, requests on their way",
              {.ttl = 2, .ghosts = 0, .two_steps = true, .lost_answers = false, .longest_way = 2});
    }
}

TEST_CASE("record: the invariants hold with every option") {
    scope s{.clients = 2, .asks_again = true};
    holds("a holder that asks again", s);
    s.lease = 3;
    s.short_lease = 1;
    holds("leases of two lengths", s);
    s.enqueue = false;
    holds("without a queue", s);
}

TEST_CASE("record: the invariants hold with observed leases, without a common time",
          "[promise.durable-clocks]") {
    scope s{.clients = 2, .ttl = 2, .clock = lock_clock::observed, .offset = {0, 7, 0, 0}};
    holds("observed, two clients, clocks apart", s);
    s.lost_answers = false;
    s.ghosts = 0;
    s.lease = 3;
    s.short_lease = 1;
    s.asks_again = true;
    holds("observed, leases of two lengths", s);
    s = {.ttl = 2, .ghosts = 0, .lost_answers = false, .clock = lock_clock::observed};
    holds("observed, three clients", s);
    s.clients = 2;
    s.two_steps = true;
    s.longest_way = 1;
    holds("observed, two clients, requests on their way", s);
    if (is_long_run()) {
        s.longest_way = 2;
        s.late = true;
        holds("observed, two clients, requests that come late", s);
    }
}

TEST_CASE("record: with a margin, observed leases tolerate clocks of different rates") {
    scope s{.clients = is_long_run() ? 3 : 2,
            .lease = 5,
            .ttl = 5,
            .ghosts = 0,
            .lost_answers = false,
            .clock = lock_clock::observed,
            .rate = {2, 3, 3, 0},
            .margin = 3};
    holds("observed, two rates, a margin", s);
    s.margin = 0;
    finds("two rates, no margin", two_holders, s);
}

// Three clients of one machine.
const scope listeners{
    .ttl = 2, .ghosts = 0, .listens = true, .clock = lock_clock::boottime, .boot = {1, 1, 1, 1}};

TEST_CASE("record: permits that are passed on go to the first waiters, and to no other") {
    scope s = listeners;
    s.lease = 3;
    holds("listeners, one permit", s);
    s.clock = lock_clock::server;
    s.ghosts = 1;
    s.clients = 2;
    s.asks_again = s.undoes = true;
    holds("listeners, by the server's clock", s);
    s = listeners;
    s.permits = 2;
    s.weight = {1, 1, 2, 0};
    s.lost_answers = is_long_run();
    holds("listeners of two weights", s);
    s = listeners;
    s.clients = 2;
    s.at_least = 3;
    holds("listeners with a minimum hold time", s);
    s = listeners;
    s.clients = 2;
    s.longest_way = 2;
    s.two_steps = true;
    holds("listeners, and requests on their way", s);
    s = listeners;
    s.bounded = true;
    s.lost_answers = false;
    s.clients = is_long_run() ? 3 : 2;
    s.boot = is_long_run() ? decltype(s.boot){1, 1, 2, 0} : decltype(s.boot){1, 2, 0, 0};
    s.offset = is_long_run() ? decltype(s.offset){0, 0, 5, 0} : decltype(s.offset){0, 5, 0, 0};
    holds("listeners of two boots", s);
}

TEST_CASE("record: a minimum hold time keeps others out, whatever becomes of its holder",
          "[promise.durable-minimum-hold]") {
    scope s{.clients = 2, .ttl = 2, .at_least = 3, .undoes = true};
    holds("a minimum hold time longer than the lease", s);
    s.at_least = 2;
    s.lease = 3;
    s.asks_again = true;
    holds("a minimum hold time shorter than the lease", s);
    s = {.permits = 2,
         .weight = {1, 1, 2, 0},
         .ttl = 2,
         .at_least = is_long_run() ? 3 : 2,
         .ghosts = 0,
         .lost_answers = false};
    holds("minimum hold times of two permits", s);
    s.permits = 1;
    s.weight = {1, 1, 0, 0};
    s.clients = 2;
    s.longest_way = 2;
    s.two_steps = true;
    s.late = s.undoes = is_long_run();
    holds("minimum hold times, and requests on their way", s);
    holds("a minimum hold time longer than the mark",
          {.clients = 2, .ttl = 2, .at_least = 3, .clock = lock_clock::server, .marked = true});
}

// Two clients of two machines.
const scope two_machines{.clients = 2,
                         .ttl = 2,
                         .at_least = 3,
                         .ghosts = 0,
                         .lost_answers = false,
                         .clock = lock_clock::observed,
                         .offset = {0, 7, 0, 0},
                         .boot = {1, 2, 0, 0}};

TEST_CASE("record: a minimum hold time of an observed lease is not shorter") {
    scope s = two_machines;
    s.undoes = true;
    holds("observed, a minimum hold time", s);
    s.boot = {0, 0, 0, 0};
    holds("observed, a minimum hold time, boots that are not known", s);
    s = two_machines;
    s.moves = true;
    s.offset = {0, 2, 0, 0};
    s.at_least = s.lease = 2;
    holds("observed, a minimum hold time, a ticket that changes its boot", s);
}

// Two boots, whose clocks are far apart, and contenders of both.
const scope two_boots{.clients = 2,
                      .ttl = 2,
                      .ghosts = 0,
                      .lost_answers = false,
                      .longest_way = 0,
                      .clock = lock_clock::boottime,
                      .offset = {0, 5, 0, 0},
                      .bounded = true,
                      .boot = {1, 2, 0, 0}};

TEST_CASE("record: the invariants hold with contenders of different boots") {
    scope s = two_boots;
    s.lost_answers = true;
    s.ghosts = 1;
    holds("two boots", s);
    s.lost_answers = is_long_run();
    s.ghosts = 0;
    s.boot = {0, 0, 0, 0};
    holds("boots that are not known", s);
    s = two_boots;
    s.clients = 3;
    s.boot = {1, 1, 2, 0};
    s.offset = {0, 0, 5, 0};
    holds("two boots, three clients", s);
}

TEST_CASE(
    "record: a ticket used in another boot never gets a shorter lease than its holder believes") {
    scope s = two_boots;
    s.moves = true;
    s.asks_again = true;
    s.offset = {0, 3, 0, 0};
    holds("a ticket that changes its boot", s);
    s.lease = 3;
    s.short_lease = 1;
    s.asks_again = is_long_run();
    holds("a ticket that changes its boot, leases of two lengths", s);
    s = two_boots;
    s.moves = true;
    s.offset = {0, 2, 0, 0};
    s.at_least = 2;
    holds("a ticket that changes its boot, a minimum hold time", s);
}

// Contenders that remember only their one read.
const scope brief_contenders = [] {
    scope s = two_boots;
    s.brief = true;
    return s;
}();

// The clocks of two boots, one of which goes faster by half.
const scope boots_of_two_rates = [] {
    scope s = brief_contenders;
    s.lease = s.ttl = 5;
    s.rate = {2, 3, 0, 0};
    s.margin = 3;
    return s;
}();

TEST_CASE("record: the invariants hold with contenders that try once and observe together") {
    scope s = brief_contenders;
    s.lost_answers = true;
    s.ghosts = 1;
    holds("brief contenders of two boots", s);
    s.lost_answers = is_long_run();
    s.ghosts = 0;
    s.clients = 3;
    s.boot = {1, 2, 2, 0};
    s.offset = {0, 5, 5, 0};
    holds("brief contenders of two boots, three clients", s);
    s.boot = {1, 2, 3, 0};
    s.offset = {0, 5, 9, 0};
    holds("brief contenders of three boots", s);
    s = brief_contenders;
    s.two_steps = true;
    s.longest_way = 1;
    holds("brief contenders, requests on their way", s);
    s = brief_contenders;
    s.enqueue = false;
    s.lost_answers = true;
    s.ghosts = 1;
    holds("brief contenders without a queue", s);
    s = brief_contenders;
    s.moves = true;
    s.asks_again = true;
    s.lease = 3;
    s.short_lease = 1;
    s.offset = {0, 3, 0, 0};
    holds("brief contenders, a ticket that changes its boot", s);
    s = brief_contenders;
    s.loses = true;
    holds("brief contenders, the newest record is lost", s);
    holds("brief contenders, clocks of two rates, a margin", boots_of_two_rates);
}

TEST_CASE("record: a renewal by a program that does not know observations makes them void") {
    scope s = brief_contenders;
    s.lost_answers = true;
    holds("observations that a renewal keeps", s, {.renew = [](const renew_call& c) {
              const auto before = observations_of(c.r, c.nonce);
              const auto got = renews(c);
              if (!got) {
                  named(c.r.holders, c.nonce)->observed = before;
              }
              return got;
          }});
}

// A clock that is set back once, by far more than a lease.
const scope clock_set_back{.clients = 2,
                           .ttl = 2,
                           .ghosts = 0,
                           .lost_answers = false,
                           .longest_way = 0,
                           .bounded = true,
                           .jump = 8,
                           .rounds = 7};

TEST_CASE("record: if the clock is set back, observation ends the lease") {
    scope s = clock_set_back;
    s.lost_answers = is_long_run();
    s.ghosts = is_long_run() ? 1 : 0;
    holds("a clock that is set back, two clients", s);
    s = clock_set_back;
    s.asks_again = is_long_run();
    s.short_lease = 1;
    s.enqueue = is_long_run();
    holds("a clock that is set back, leases of two lengths", s);
    if (is_long_run()) {
        s = clock_set_back;
        s.clients = 3;
        holds("a clock that is set back, three clients", s);
    }
}

TEST_CASE("record: a grant that is bound to a mark alone lasts as long as the mark") {
    scope s{.clients = is_long_run() ? 3 : 2,
            .ttl = 2,
            .longest_way = 0,
            .bounded = true,
            .marked = true};
    holds("marks", s);
    s.clock = lock_clock::boottime;
    s.boot = {1, 2, 0, 0};
    s.offset = {0, 5, 0, 0};
    s.clients = 2;
    holds("marks of two boots", s);
    s.boot = {0, 0, 0, 0};
    holds("marks, and boots that are not known", s);
}

// Contenders with one permit and with two.
const scope two_groups{.ttl = 2, .lost_answers = false, .longest_way = 0, .goes_by = {1, 2, 2, 0}};

TEST_CASE("record: permits are adopted if there is no holder and no waiter") {
    scope s = two_groups;
    s.lost_answers = is_long_run();
    holds("groups with one and two permits", s);
}

TEST_CASE("record: if the newest record is lost, tokens grow and contenders wait for a lease") {
    scope s{.clients = 2,
            .ttl = 2,
            .ghosts = 0,
            .lost_answers = false,
            .longest_way = 0,
            .loses = true};
    holds("the newest record is lost, two clients", s);
    s.permits = 2;
    holds("the newest record is lost, two permits", s);
    s.permits = 1;
    s.clients = 3;
    holds("the newest record is lost, three clients", s);
    s = two_boots;
    s.loses = true;
    s.enqueue = is_long_run();
    holds("the newest record is lost, two boots", s);
}

TEST_CASE("record: if the record vanishes, the latest holder has the largest token") {
    holds("the record vanishes", {.ttl = 2,
                                  .ghosts = is_long_run() ? 1 : 0,
                                  .lost_answers = false,
                                  .longest_way = 0,
                                  .vanishes = true});
}

TEST_CASE("record: the search finds an admission that is wrong") {
    const char* const earlier = "somebody who came earlier does not fit any more";
    const rules barging{.acquire = [](const acquire_call& c) { // past earlier waiters
        record alone = c.r;
        std::erase_if(alone.waiters, [&](const waiter& a) { return a.nonce != c.self.nonce; });
        const auto got = acquires({alone, c.self, c.t, c.now, c.j});
        if (got.status != acquire_status::granted) {
            return acquires(c);
        }
        std::erase_if(c.r.waiters, [&](const waiter& a) { return a.nonce == c.self.nonce; });
        alone.waiters = c.r.waiters;
        c.r = alone;
        return got;
    }};
    finds("barging", earlier, {}, barging);
    finds("barging past the heavy", earlier, {.permits = 2, .weight = {1, 1, 2, 0}}, barging);
    finds(
        "first in line only", idle_permits, {.permits = 2}, {.acquire = [](const acquire_call& c) {
            durable::sweep(c.r, c.j, c.self.nonce);
            const bool is_first = c.r.waiters.empty() || c.r.waiters.front().nonce == c.self.nonce;
            if (is_first || named(c.r.holders, c.self.nonce) != c.r.holders.end()) {
                return acquires(c);
            }
            holder nobody;
            nobody.nonce = nonce_text(25);
            nobody.lane = nobody.weight = c.t.permits;
            nobody.expires_at = c.now + 100;
            c.r.holders.push_back(nobody);
            const auto got = acquires(c);
            c.r.holders.pop_back();
            return got;
        }});
    finds("a lost answer", "who holds it waits for it, too", {},
          {.acquire = [](const acquire_call& c) { // does not look for itself among the holders
              const auto mine = named(c.r.holders, c.self.nonce);
              if (mine != c.r.holders.end()) {
                  mine->nonce = nonce_text(25);
              }
              const auto got = acquires(c);
              const auto again = named(c.r.holders, nonce_text(25));
              if (again != c.r.holders.end()) {
                  again->nonce = c.self.nonce;
              }
              return got;
          }});
    finds("known by name", two_holders, {.by_name = true});
}

TEST_CASE("record: the search finds a place in the queue that is lost, or never expires") {
    finds("swept by oneself", idle_permits, {}, {.acquire = [](const acquire_call& c) {
              durable::sweep(c.r, c.j);
              return acquires(c);
          }});
    finds("not refreshed", "a poll leaves a place that is soon over", {},
          {.acquire = [](const acquire_call& c) {
              const auto place = named(c.r.waiters, c.self.nonce);
              const std::int64_t ends = place == c.r.waiters.end() ? 0 : place->expires_at;
              const auto got = acquires(c);
              const auto mine = named(c.r.waiters, c.self.nonce);
              if (ends != 0 && mine != c.r.waiters.end()) {
                  mine->expires_at = ends;
              }
              return got;
          }});
    finds("queued again by each poll", "the order of those who wait has changed", {},
          {.acquire = [](const acquire_call& c) {
              const auto got = acquires(c);
              const auto mine = named(c.r.waiters, c.self.nonce);
              if (got.changed && mine != c.r.waiters.end()) {
                  std::rotate(mine, mine + 1, c.r.waiters.end());
              }
              return got;
          }});
    finds("waiters that never expire", stuck, {},
          judges_by([](judge& j) { j.waiters_expire = false; }));
}

TEST_CASE("record: the search finds tokens that are granted twice or start again") {
    finds("tokens of the holders", old_token, {}, {.acquire = [](const acquire_call& c) {
              auto got = acquires(c);
              if (got.status == acquire_status::granted) { // one more than those that are held
                  got.fence = 1;
                  for (const holder& h : c.r.holders) {
                      got.fence =
                          h.nonce == c.self.nonce ? got.fence : std::max(got.fence, h.fence + 1);
                  }
                  named(c.r.holders, c.self.nonce)->fence = got.fence;
                  c.r.fence = got.fence + 1;
              }
              return got;
          }});
    rules from_one;
    from_one.fresh = [](terms t) {
        t.first_fence = 1;
        return durable::fresh_record(t);
    };
    finds("tokens from one", old_token,
          {.clients = 2, .ttl = 2, .longest_way = 0, .vanishes = true}, from_one);
}

TEST_CASE("record: the search finds leases that end too early") {
    finds("leases over too early", two_holders, {}, judges_by([](judge& j) { j.early = 1; }));
    finds("one clock, a tick apart", two_holders, {.offset = {0, 1, 0, 0}});
    const rules for_less{.renew = [](const renew_call& c) {
        const auto got = durable::renew(c.r, c.nonce, c.fence, c.t, c.now, c.j, {});
        if (!got) {
            begins_now(*named(c.r.holders, c.nonce), c.t, c.now);
        }
        return got;
    }};
    finds("a lease renewed for less", "a lease was shortened", {.short_lease = 1}, for_less);
    finds("a length renewed for less", two_holders,
          {.clients = 2, .lease = 3, .short_lease = 1, .clock = lock_clock::observed}, for_less);
}

TEST_CASE("record: the search finds renewals and releases that are not exactly the holder's") {
    const char* const renewed = "a renewal with what is nobody's changed something";
    const char* const released = "a release with what is nobody's changed something";
    const auto by_nonce = [](const renew_call& c) {
        const auto mine = named(c.r.holders, c.nonce);
        const std::int64_t fence = mine == c.r.holders.end() ? 1 : mine->fence;
        return durable::renew(c.r, c.nonce, fence, c.t, c.now, c.j, {});
    };
    const auto what_is_gone = [](const renew_call& c) -> std::error_code {
        const auto got = durable::renew(c.r, c.nonce, c.fence, c.t, c.now, c.j, {});
        if (got != durable_errc::lock_lost || named(c.r.holders, c.nonce) != c.r.holders.end()) {
            return got;
        }
        holder& h = c.r.holders.emplace_back();
        h.holder_id = "same";
        h.nonce = c.nonce;
        h.fence = c.fence;
        begins_now(h, c.t, c.now);
        return {};
    };
    finds("renewed by nonce", renewed, {}, {.renew = by_nonce});
    finds("renewed though gone", renewed, {}, {.renew = what_is_gone});
    finds("renewed though gone, by those who do so", "somebody holds it to whom it was not granted",
          {.probed = false}, {.renew = what_is_gone});
    finds("released by nonce", released, {}, {.release = [](const release_call& c) {
              return durable::release(c.r, c.nonce, 0, c.j.now(), c.j.here());
          }});
    finds("released by token", released, {}, {.release = [](const release_call& c) {
              const auto of =
                  std::find_if(c.r.holders.begin(), c.r.holders.end(),
                               [&](const holder& h) { return c.fence != 0 && h.fence == c.fence; });
              return of != c.r.holders.end()
                         ? durable::release(c.r, std::string(of->nonce), 0, c.j.now(), c.j.here())
                         : durable::release(c.r, c.nonce, c.fence, c.j.now(), c.j.here());
          }});
}

TEST_CASE("record: the search finds minimum hold times that are shorter") {
    const char* const over = "a hold ended before its minimum time";
    finds("a release that frees the permits at once", over, {.at_least = 3},
          {.release = [](const release_call& c) {
              return releases({c.r, c.nonce, c.fence, c.j, true});
          }});
    finds("a lease shorter than the minimum", over, {.at_least = 3},
          {.acquire = [](const acquire_call& c) {
              const auto got = acquires(c);
              if (got.status == acquire_status::granted) {
                  begins_now(*named(c.r.holders, c.self.nonce), c.t, c.now);
              }
              return got;
          }});
    finds("a mark that ends before the minimum", over,
          {.at_least = 3, .clock = lock_clock::server, .marked = true},
          judges_by([](judge& j) { j.leaves_minimum_out = true; }));
    const rules by_any_clock{.release = [](const release_call& c) {
        record other = c.r;
        for (holder& h : other.holders) {
            h.held_boot = boot_text(c.j.q->boot);
        }
        const auto got = releases({other, c.nonce, c.fence, c.j, c.undo});
        c.r = got != release_status::not_there ? other : c.r;
        return got;
    }};
    scope s = two_boots;
    s.at_least = 3;
    s.moves = true;
    s.offset = {0, 3, 0, 0};
    finds("a minimum on another boot's clock", over, s, by_any_clock);
    s = two_machines;
    s.moves = true;
    finds("a minimum on another machine's clock", over, s, by_any_clock);
}

TEST_CASE("record: the search finds faults with other boots") {
    finds("other boots are gone", two_holders, two_boots,
          judges_by([](judge& j) { j.other_boots_are_gone = true; }));
    finds("another boot's times on the own clock", two_holders, two_boots,
          judges_by([](judge& j) { j.reads_other_boots = true; }));
    scope s = two_boots;
    s.bounded = false;
    finds("other boots, not observed", stuck, s);
    s = two_boots;
    s.moves = true;
    s.offset = {5, 0, 0, 0};
    finds("a renewal that keeps the boot", "a lease was shortened", s,
          {.renew = [](const renew_call& c) {
              const auto mine = named(c.r.holders, c.nonce);
              const auto from = mine == c.r.holders.end() ? durable::origin() : mine->from;
              const auto got = renews(c);
              if (!got) {
                  mine->from = from;
              }
              return got;
          }});
    s.lease = 3;
    s.short_lease = 1;
    finds("renewed elsewhere for less", two_holders, s, {.renew = [](const renew_call& c) {
              const auto mine = named(c.r.holders, c.nonce);
              const bool is_other =
                  mine != c.r.holders.end() && boot_number(mine->from) != c.j.q->boot;
              const auto got = renews(c);
              if (!got && is_other) {
                  begins_now(*mine, c.t, c.now);
              }
              return got;
          }});
}

TEST_CASE("record: the search finds observations that are stored or read wrongly") {
    scope s = brief_contenders;
    finds("an observation that a renewal keeps", two_holders, s, {.renew = [](const renew_call& c) {
              const auto before = observations_of(c.r, c.nonce);
              const auto got = renews(c);
              if (!got) {
                  const auto mine = named(c.r.holders, c.nonce);
                  mine->observed = before;
                  for (durable::stored_observation& o : mine->observed) {
                      o.moves = mine->renewals;
                  }
              }
              return got;
          }});
    const auto changes_observations = [](auto change) {
        return rules{.acquire = [change](const acquire_call& c) {
            const auto got = acquires(c);
            for (holder& h : c.r.holders) {
                change(h.observed, c.self.from.boot);
            }
            return got;
        }};
    };
    finds("observations that are not stored", stuck, s,
          changes_observations([](auto& observed, const std::string&) { observed.clear(); }));
    s.clients = 3;
    s.boot = {1, 2, 2, 0};
    s.offset = {0, 5, 5, 0};
    finds("an observation of another boot, on the own clock",
          "a hold was taken away before its lease was over", s,
          judges_by([](judge& j) { j.reads_observations_of_other_boots = true; }));
    s.boot = {1, 2, 3, 0};
    s.offset = {0, 5, 9, 0};
    finds("two boots that overwrite each other", stuck, s,
          changes_observations([](auto& observed, const std::string& boot) {
              std::erase_if(observed, [&](const auto& o) { return o.boot != boot; });
          }));
    s = boots_of_two_rates;
    finds("an observation without the margin", two_holders, s,
          judges_by([](judge& j) { j.leaves_the_margin_out = true; }));
    s.margin = 0;
    finds("brief contenders, two rates, no margin", two_holders, s);
}

TEST_CASE("record: the search finds a lease that a clock keeps from expiring") {
    finds("by the clock alone", stuck, clock_set_back,
          judges_by([](judge& j) { j.goes_by_clock_alone = true; }));
}

TEST_CASE("record: the search finds marks that are ignored") {
    scope s{.clients = 2, .ttl = 2, .longest_way = 0, .bounded = true, .marked = true};
    finds("leases end marks", two_holders, s,
          judges_by([](judge& j) { j.leases_end_marks = true; }));
    finds("a mark that has ended", idle_permits, s,
          judges_by([](judge& j) { j.sees_no_mark_end = true; }));
    s.cannot_ask = true; // then the lease counts, so it has to be renewed
    finds("marks that cannot be asked for", two_holders, s);
}

TEST_CASE("record: the search finds permits that are adopted too early, or never") {
    finds("adopted while it is held", "more is held than there is", two_groups,
          {.acquire = [](const acquire_call& c) {
              c.r.permits = c.t.permits;
              return acquires(c);
          }});
    finds("adopted while somebody waits", "one that waits is refused", two_groups,
          {.acquire = [](const acquire_call& c) {
              record swept = c.r;
              durable::sweep(swept, c.j, c.self.nonce);
              c.r.permits = swept.holders.empty() ? c.t.permits : c.r.permits;
              return acquires(c);
          }});
    finds("never adopted", "one is refused though nobody else is there", two_groups,
          {.acquire = [](const acquire_call& c) {
              terms own = c.t;
              own.adopt_permits = false;
              return acquires({c.r, c.self, own, c.now, c.j});
          }});
}

TEST_CASE("record: the search finds lost records that are not compensated") {
    scope s{.clients = 2, .ttl = 2, .ghosts = 0, .longest_way = 0, .loses = true};
    rules of;
    of.make_up = [](const make_up_call&) {};
    finds("what was lost is forgotten", old_token, s, of);
    of.make_up = [](const make_up_call& c) { makes_up({c.r, false, c.t, c.now, c.here}); };
    finds("what was lost was not acknowledged", two_holders, s, of);
    of.make_up = [](const make_up_call& c) {
        makes_up(c);
        if (c.acknowledged) {
            --c.r.holders.back().lease_ms;
            --c.r.holders.back().expires_at;
        }
    };
    finds("waited for too short a time", two_holders, s, of);
    finds("renewed past the unknown", two_holders, s,
          {.renew = [](const renew_call& c) -> std::error_code {
              const auto got = renews(c);
              const auto mine = named(c.r.holders, c.nonce);
              if (got != durable_errc::lock_lost || mine == c.r.holders.end() ||
                  mine->fence != c.fence) {
                  return got;
              }
              mine->expires_at = c.now + c.t.lease_ms;
              return {};
          }});
    // With observed leases a ticket may renew a lease that had expired for other clients, if the
    // record that said so is lost. A guard does not renew a lease that it knows to have expired.
    s.clock = lock_clock::observed;
    finds("what was lost took an observed lease over", two_holders, s);
}

TEST_CASE("record: the search finds permits that are passed on wrongly") {
    const auto after_passing_on = [](auto change) { // of what pass_on() has made
        rules of;
        of.pass_on = [change](record& r, const terms& t, const judge& j) {
            const record before = r;
            passes_on(r, t, j);
            change(before, r);
        };
        return of;
    };
    finds("not passed on", "free permits were not passed on", listeners,
          after_passing_on([](const record& before, record& after) { after = before; }));
    finds("its place is kept", "who holds it waits for it, too", listeners,
          after_passing_on(
              [](const record& before, record& after) { after.waiters = before.waiters; }));
    finds(
        "its token is given again", "the next token is not a new one", listeners,
        after_passing_on([](const record& before, record& after) { after.fence = before.fence; }));
    rules of;
    of.pass_on = [](record& r, const terms& t, const judge& j) {
        const std::int64_t permits = std::exchange(r.permits, r.permits + 1);
        passes_on(r, t, j);
        r.permits = permits;
    };
    finds("passed on though held", "somebody holds it to whom it was not granted", listeners, of);
    of.pass_on = [](record& r, const terms& t, const judge& j) {
        std::reverse(r.waiters.begin(), r.waiters.end());
        passes_on(r, t, j);
        std::reverse(r.waiters.begin(), r.waiters.end());
    };
    finds("passed on to the last", "somebody was passed over", listeners, of);
    scope s = listeners;
    s.lease = 3;
    finds("a lease that begins when it is found", two_holders, s,
          {.acquire = [](const acquire_call& c) { // and stores nothing
              auto got = acquires(c);
              got.expires_at = got.expires_at != 0 ? c.now + c.t.lease_ms : 0;
              return got;
          }});
    s = listeners;
    s.at_least = 3;
    finds("without the minimum hold time", "a hold ended before its minimum time", s,
          after_passing_on([](const record&, record& after) {
              for (holder& h : after.holders) {
                  h.held_until = 0;
              }
          }));
}

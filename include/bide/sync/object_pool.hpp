// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_OBJECT_POOL_HPP
#define BIDE_SYNC_OBJECT_POOL_HPP

/// \file
/// A bounded pool of objects that are expensive to make, such as connections. Callers borrow them.
//
// A caller that has a permit (detail/permit_queue.hpp) has the right to an object. The callers wait
// in the queue of the permits, so this header adds no wait of its own. The proof that there are
// never more objects than the limit is below.

#include <bide/core/wait_ops.hpp>
#include <bide/sync/detail/permit_queue.hpp>

#include <memory>
#include <stdexcept>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The idle objects of an object_pool: a list of the objects that no caller has, in the order of
// their return. It has its own lock (core/lock_bits.hpp). No user code runs under that lock.
//
// Why there are never more than `limit` objects. A caller needs a permit of the pool to have an
// object, and also to destroy an idle one. Let `idle` be the number of idle objects. Let `busy` be
// the number of callers with a permit that have an object, make one or destroy one. A caller begins
// to make an object only if it finds the list empty. At that moment `idle` is 0, and this caller
// has a permit but does not count in `busy` yet. So busy + 1 <= limit. A caller that takes an
// object from the list or returns it there changes neither idle + busy nor the number of objects.
// So idle + busy <= limit always. Each object is idle or belongs to one of these callers, so there
// are at most `limit` objects. A close empties the list, and from then on no caller begins to make
// an object.

// An object, and its place in the list. Only the holder of the lock accesses the links and the
// time.
template <class T, class Platform> struct pooled_object {
    template <class V> using var = typename Platform::template var<V>;

    // Constructs the object in place if `make` returns a T.
    template <class Make> explicit pooled_object(std::in_place_t, Make& make) : value(make()) {}

    T value;
    var<pooled_object*> older{nullptr};
    var<pooled_object*> newer{nullptr};
    var<std::int64_t> since{0}; // the time of its return
};

// The next step of a caller with a permit.
enum class pool_step : unsigned char {
    lend,    // takes the object
    destroy, // destroys the object, which was idle for too long
    make,    // makes an object
    closed   // fails
};

template <class T, class Platform> class idle_objects {
    using lock = lock_bits<Platform, futex_word>;
    template <class V> using var = typename Platform::template var<V>;

public:
    using object = pooled_object<T, Platform>;

    static constexpr std::int64_t never_expires = (std::numeric_limits<std::int64_t>::max)();

    idle_objects(std::int64_t idle_ns, std::size_t keep) noexcept
        : idle_ns_(idle_ns), keep_(keep) {}
    idle_objects& operator=(idle_objects&&) = delete;

    // Returns the time for the calls below. If no object expires, does not read the clock.
    std::int64_t now() const noexcept { return idle_ns_ == never_expires ? 0 : Platform::now(); }

    // Chooses the next step of the caller. If the step is to lend or to destroy an object, stores
    // that object in `found`. The object that was returned last is checked first: if it has
    // expired, all idle objects have expired.
    pool_step take(std::int64_t now, object*& found) noexcept {
        const typename lock::guard inside(word_);
        if (closed_) {
            return pool_step::closed;
        }
        found = newest_;
        if (found == nullptr) {
            size_ = size_ + 1;
            return pool_step::make;
        }
        unlink(*found);
        return is_spare(*found, now) ? pool_step::destroy : pool_step::lend;
    }

    // Takes the object back. If the pool is closed, returns false, and the caller destroys the
    // object.
    bool put(object& returned, std::int64_t now) noexcept {
        const typename lock::guard inside(word_);
        if (closed_) {
            size_ = size_ - 1;
            return false;
        }
        returned.since = now;
        returned.newer = nullptr;
        object* const next = newest_;
        returned.older = next;
        (next != nullptr ? next->newer : oldest_) = &returned;
        newest_ = &returned;
        idle_ = idle_ + 1;
        return true;
    }

    // Removes an expired object from the list and returns it; nullptr if there is none. The caller
    // destroys the object.
    object* pop_expired(std::int64_t now) noexcept {
        if (idle_ns_ == never_expires) {
            return nullptr;
        }
        const typename lock::guard inside(word_);
        object* const old = oldest_;
        if (old == nullptr || !is_spare(*old, now)) {
            return nullptr;
        }
        unlink(*old);
        return old;
    }

    // Removes an object from the count. The caller has a permit, and destroys the object or could
    // not make it.
    void lose() noexcept {
        const typename lock::guard inside(word_);
        size_ = size_ - 1;
    }

    // Closes the pool and deletes the idle objects.
    void close() noexcept {
        object* all = nullptr;
        {
            const typename lock::guard inside(word_);
            closed_ = true;
            all = newest_;
            newest_ = nullptr;
            oldest_ = nullptr;
            size_ = size_ - idle_;
            idle_ = 0;
        }
        while (all != nullptr) {
            delete std::exchange(all, static_cast<object*>(all->older));
        }
    }

    // Snapshots: size() counts the objects that exist or are being made; idle() counts the idle
    // ones.
    std::size_t size() const noexcept {
        const typename lock::guard inside(word_);
        return size_;
    }
    std::size_t idle() const noexcept {
        const typename lock::guard inside(word_);
        return idle_;
    }

private:
    void unlink(object& o) noexcept {
        object* const newer = o.newer;
        object* const older = o.older;
        (newer != nullptr ? newer->older : newest_) = older;
        (older != nullptr ? older->newer : oldest_) = newer;
        idle_ = idle_ - 1;
    }

    // Returns true if the object has expired and the pool has more objects than it has to keep. If
    // the result is true, size_ no longer counts the object.
    bool is_spare(const object& o, std::int64_t now) noexcept {
        if (idle_ns_ == never_expires || size_ <= keep_ || now - o.since < idle_ns_) {
            return false;
        }
        size_ = size_ - 1;
        return true;
    }

    const std::int64_t idle_ns_;
    const std::size_t keep_;
    mutable typename Platform::template atomic<futex_word> word_{0};
    // Under the lock:
    var<object*> newest_{nullptr};
    var<object*> oldest_{nullptr};
    var<std::size_t> size_{0};
    var<std::size_t> idle_{0};
    var<bool> closed_{false};
};

// Next come the callables of a pool, and what a caller with a permit does to get an object. If a
// callable throws, the caller destroys the object, if it has one, and gives the permit back.

// The callables of a pool.
template <class T, class Platform> class object_source {
public:
    using object = pooled_object<T, Platform>;

    virtual ~object_source() = default;
    virtual object* make() = 0;
    virtual bool is_good(T& value) = 0;
};

template <class T, class Platform, class Make, class IsGood>
class object_source_of final : public object_source<T, Platform> {
    using object = pooled_object<T, Platform>;

public:
    object_source_of(Make&& make, IsGood&& is_good)
        : make_(std::move(make)), is_good_(std::move(is_good)) {}

    object* make() override { return std::make_unique<object>(std::in_place, make_).release(); }
    bool is_good(T& value) override { return static_cast<bool>(is_good_(value)); }

private:
    [[no_unique_address]] Make make_;
    [[no_unique_address]] IsGood is_good_;
};

struct always_good {
    template <class T> bool operator()(const T&) const noexcept { return true; }
};

// Holds a permit of a pool. After the caller has found or made an object, holds the object, too.
template <class T, class Platform> class object_place {
    using pool = object_pool<T, Platform>;
    using object = pooled_object<T, Platform>;

public:
    // Requires: the caller has a permit.
    explicit object_place(pool& of) noexcept : of_(of) {}
    object_place& operator=(object_place&&) = delete;
    // Destroys the object, and gives the permit back. That is the last access to the pool.
    ~object_place() {
        drop();
        if (!lent_) {
            of_.permits_.give(1);
        }
    }

    // Decides the next step. Returns `closed` if the pool is closed. Returns `lend` if it has found
    // a good idle object. Returns `make` if the caller has to call fill().
    // Throws: what is_good() throws; the object that was checked is destroyed.
    pool_step find() {
        for (;;) {
            object* found = nullptr;
            switch (of_.idle_.take(of_.idle_.now(), found)) {
            case pool_step::closed: return pool_step::closed;
            case pool_step::destroy: delete found; continue;
            case pool_step::make: counts_ = true; return pool_step::make;
            case pool_step::lend:
                counts_ = true;
                mine_ = found;
                if (of_.source_->is_good(found->value)) {
                    return pool_step::lend;
                }
                drop();
            }
        }
    }

    // Requires: find() has returned make.
    void fill(object* made) noexcept { mine_ = made; }

    object_lease<T, Platform> lend() noexcept {
        lent_ = true;
        counts_ = false;
        return object_lease<T, Platform>(of_, *std::exchange(mine_, nullptr));
    }

private:
    void drop() noexcept {
        delete std::exchange(mine_, nullptr);
        if (std::exchange(counts_, false)) {
            of_.idle_.lose();
        }
    }

    pool& of_;
    object* mine_ = nullptr;
    bool counts_ = false; // the pool counts the object
    bool lent_ = false;
};

} // namespace detail

/// Configures an object_pool.
struct object_pool_options {
    /// The largest number of objects that exist at a time, at least 1. The caller must set it.
    std::size_t limit = 0;
    /// The number of objects that do not expire, at most `limit`. These are also made on demand.
    std::size_t keep = 0;
    /// An object that was idle for this time has expired. By default, none expires.
    std::chrono::nanoseconds idle_time = (std::chrono::nanoseconds::max)();
};

namespace detail {

struct object_pool_access; // task/acquire_object.hpp

} // namespace detail

/// Holds a borrowed object of an object_pool, or nothing. The destructor returns the object to the
/// pool.
template <class T, class Platform> class [[nodiscard]] object_lease {
    using pool = object_pool<T, Platform>;
    using object = detail::pooled_object<T, Platform>;

public:
    /// Constructs a lease of nothing.
    object_lease() noexcept = default;
    /// Takes over what `other` has. `other` has nothing then.
    object_lease(object_lease&& other) noexcept = default;
    /// Returns its object and takes over what `other` has.
    object_lease& operator=(object_lease&& other) noexcept = default;
    /// Returns the object to the pool.
    ~object_lease() = default;

    /// Returns true if it has an object.
    explicit operator bool() const noexcept { return mine_ != nullptr; }
    /// Returns the object; nullptr if it has none.
    T* get() const noexcept { return mine_ != nullptr ? std::addressof(mine_->value) : nullptr; }
    /// Returns the object.
    /// Requires: the lease holds an object.
    T& operator*() const noexcept { return mine_->value; }
    /// Returns the object.
    /// Requires: the lease holds an object.
    T* operator->() const noexcept { return std::addressof(mine_->value); }

    /// Returns the object to the pool, which then also destroys idle objects that have expired. If
    /// the pool is closed, destroys the object instead. The lease is empty afterwards.
    void reset() noexcept { mine_.reset(); }
    /// Destroys the object instead of returning it, for example because it is broken. The lease is
    /// empty afterwards. The pool makes another object when it needs one.
    void discard() noexcept {
        if (object* const mine = mine_.release()) {
            mine_.get_deleter().of->destroy(*mine);
        }
    }

private:
    friend detail::object_place<T, Platform>;
    struct give_back {
        pool* of = nullptr;
        void operator()(object* mine) const noexcept {
            BIDE_SWITCH_AFTER();
            of->take_back(*mine);
        }
    };

    object_lease(pool& of, object& mine) noexcept : mine_(&mine, give_back{&of}) {}

    std::unique_ptr<object, give_back> mine_;
};

/// A bounded pool of objects for threads and coroutines. Callers borrow objects. If no object is
/// idle and the limit is not reached, the caller makes an object. If all objects are lent, the
/// caller waits, first come, first served. The object that was returned last is lent first.
///
/// \code
/// bide::object_pool<connection> pool({.limit = 8}, [] { return connection("db"); });
/// auto lease = pool.acquire(); // blocks while all are lent; a coroutine: co_await pool.async_acquire()
/// lease->query("select 1");    // the destructor of the lease returns the connection
/// \endcode
///
/// Several threads may call the two callables, `make` and `is_good`, at the same time. The
/// callables run on the thread of the caller that borrows. The destructor of an object runs on the
/// thread whose call destroys the object. No lock is held meanwhile. If `make` borrows from the
/// same pool, it may wait for itself. If `make` throws, the caller gets the exception, and the next
/// waiter may borrow. If `is_good` returns false, the object is destroyed, and the caller gets
/// another one. If `is_good` throws, the object is destroyed, and the caller gets the exception.
///
/// An object that has expired is not lent. The pool has no thread of its own. It destroys expired
/// objects in trim() and when an object is returned. An acquire that finds all idle objects expired
/// destroys them, too. If expired objects must also be destroyed while the pool is not used, the
/// program must call trim() from time to time.
///
/// To borrow an idle object allocates nothing. To make an object takes one allocation, besides
/// those of `make`.
///
/// Memory order: what happens before the return of an object happens before it is lent again.
///
/// Destroys: every lease must have returned its object before; terminates otherwise.
template <class T, class Platform> class object_pool {
    static_assert(
        std::is_object_v<T> && !std::is_const_v<T> && std::is_nothrow_destructible_v<T>,
        "bide: a pool has objects that are not const and whose destructor does not throw");
    static_assert(!detail::is_task<T>, "bide: async_acquire_object() awaits what makes an object");

    using object = detail::pooled_object<T, Platform>;
    using place = detail::object_place<T, Platform>;
    using queue = detail::basic_permit_queue<Platform>;

public:
    /// The type of the objects.
    using value_type = T;
    /// Has a borrowed object.
    using lease = object_lease<T, Platform>;

    /// Constructs a pool without objects. make() returns a T, which need not be movable.
    /// is_good(object) is called with each idle object before it is lent.
    /// Throws: std::invalid_argument if the limit is 0 or too large, if `keep` is more than the
    /// limit, or if the idle time is negative; std::bad_alloc; what moving the callables throws.
    template <class Make, class IsGood = detail::always_good>
    explicit object_pool(const object_pool_options& options, Make make, IsGood is_good = {})
        : permits_(valid(options)), idle_(options.idle_time.count(), options.keep),
          limit_(options.limit),
          source_(std::make_unique<detail::object_source_of<T, Platform, Make, IsGood>>(
              std::move(make), std::move(is_good))) {
        BIDE_CHECKED(detail::note_made<Platform>(this, "object_pool");)
    }

    /// Destroys the idle objects and the callables.
    /// Requires: every object was returned, and no caller waits; terminates otherwise.
    ~object_pool() {
        permits_.require_no_waiters("object_pool", this);
        if (permits_.forget(limit_) != limit_) {
            detail::fatal("object_pool", this, "destroyed while an object is borrowed");
        }
        idle_.close();
        BIDE_CHECKED(detail::note_gone<Platform>(this);)
    }

    object_pool& operator=(object_pool&&) = delete;

    /// Borrows an object. If none is idle and fewer than the limit exist, makes one.
    /// Blocks: until an object is idle or may be made, and every earlier waiter was served.
    /// Throws: closed_error if the pool is closed; what the callables throw.
    lease acquire() { return std::move(lend(wait(deadline::never())).value()); }

    /// Borrows an object as acquire() does, if that needs no wait for another caller.
    /// Throws: what the callables throw.
    /// Returns: the object, or nothing. It returns nothing if the pool is closed, if callers wait,
    /// or if the limit is reached. Callers that have, make or destroy an object count towards the
    /// limit.
    lease try_acquire() { return or_nothing(lend(wait(deadline::poll()))); }

    /// Borrows an object as acquire() does, but waits for other callers at most `rest`.
    /// Throws: what the callables throw. `rest` does not limit the time of the callables.
    /// Returns: the object; nothing after the time-out, or if the pool is closed. To tell these two
    /// apart, call is_closed(), or use acquire(stop), or async_acquire() with a time limit: the
    /// results of both contain the error.
    lease try_acquire_for(deadline::from_now rest) {
        return or_nothing(lend(wait(deadline(rest))));
    }
    /// Borrows an object as try_acquire_for() does, but waits at most until a point in time.
    lease try_acquire_until(deadline when) { return or_nothing(lend(wait(when))); }

    /// Borrows an object as acquire() does, unless a stop is requested during the wait.
    /// Throws: what the callables throw.
    /// Returns: errc::stopped or errc::closed if no object was borrowed.
    result<lease> acquire(typename Platform::stop_token stop) { return lend(wait(stop)); }

    /// Borrows an object as acquire() does, for a coroutine, which calls the callables when it
    /// resumes. If `make` has to wait, see async_acquire_object() (task/acquire_object.hpp).
    /// Returns: an operation for co_await; its value is the lease. The await throws what the
    /// callables throw.
    basic_async_op<lease, Platform> async_acquire() noexcept {
        return {acquiring{{permits_, 1}, *this}};
    }

    /// Closes the pool: every present and later wait fails with errc::closed, and the idle objects
    /// are destroyed. A borrowed object stays valid, and is destroyed when it is returned.
    void close() noexcept {
        permits_.close();
        idle_.close();
    }
    /// Returns true if close() was called.
    bool is_closed() const noexcept { return permits_.is_closed(); }

    /// Destroys the objects that have expired. During the call, the thread counts as a caller that
    /// has an object. If every object is lent, does nothing.
    /// Returns: the number of objects that it has destroyed.
    std::size_t trim() noexcept {
        if (!permits_.try_take(1)) {
            return 0;
        }
        const std::size_t destroyed = destroy_expired(idle_.now());
        permits_.give(1);
        return destroyed;
    }

    /// Returns the largest number of objects that exist at a time.
    std::size_t limit() const noexcept { return limit_; }
    /// Returns the number of objects that exist or are being made, which may be outdated.
    std::size_t size() const noexcept { return idle_.size(); }
    /// Returns the number of objects that are not lent, which may be outdated.
    std::size_t idle() const noexcept { return idle_.idle(); }
    /// Returns the number of waiters, which may be outdated.
    std::size_t waiters() const noexcept { return permits_.waiters(); }

private:
    friend lease;
    friend place;
    friend detail::object_pool_access;

    // A wait for a permit, from which lend() makes a lease (core/wait_ops.hpp).
    struct acquiring : queue::taking {
        object_pool& of;

        result<lease> collect(wait_status what) const { return of.lend(what); }
        void give_back(wait_status what) const noexcept {
            if (what == wait_status::granted) {
                of.permits_.give(1);
            }
        }
    };

    static std::ptrdiff_t valid(const object_pool_options& options) {
        if (options.limit == 0 || options.limit > static_cast<std::size_t>((queue::max)())) {
            BIDE_THROW(std::invalid_argument("bide::object_pool: limit outside [1, max]"));
        }
        if (options.keep > options.limit) {
            BIDE_THROW(std::invalid_argument("bide::object_pool: keeps more than its limit"));
        }
        if (options.idle_time.count() < 0) {
            BIDE_THROW(std::invalid_argument("bide::object_pool: negative idle time"));
        }
        return static_cast<std::ptrdiff_t>(options.limit);
    }
    static lease or_nothing(result<lease> got) noexcept { return got ? std::move(*got) : lease(); }

    template <class Limit> wait_status wait(const Limit& limit) noexcept {
        BIDE_SWITCH_AFTER();
        return permits_.try_take(1) ? wait_status::granted
                                    : thread_wait<queue, Platform>::until(permits_, 1, limit);
    }

    // Turns the permit that was granted to the wait into a lease.
    result<lease> lend(wait_status what) {
        if (what != wait_status::granted) {
            return unexpected{errc_of(what)};
        }
        place mine(*this);
        const detail::pool_step next = mine.find();
        if (next == detail::pool_step::closed) {
            return unexpected{errc::closed};
        }
        if (next == detail::pool_step::make) {
            mine.fill(source_->make());
        }
        return mine.lend();
    }

    // Gives the permit back last, because a caller needs one to return or destroy an object.
    void take_back(object& returned) noexcept {
        const std::int64_t now = idle_.now();
        if (idle_.put(returned, now)) {
            destroy_expired(now);
        } else {
            delete &returned;
        }
        permits_.give(1);
    }
    void destroy(object& broken) noexcept {
        delete &broken;
        idle_.lose();
        permits_.give(1);
    }
    // Requires: the caller has a permit.
    std::size_t destroy_expired(std::int64_t now) noexcept {
        std::size_t destroyed = 0;
        for (; object* const old = idle_.pop_expired(now); ++destroyed) {
            delete old;
        }
        return destroyed;
    }

    queue permits_;
    detail::idle_objects<T, Platform> idle_;
    const std::size_t limit_;
    const std::unique_ptr<detail::object_source<T, Platform>> source_;
};

/// Deduces the type of the objects from the result of make().
template <class Make, class... IsGood>
explicit object_pool(object_pool_options, Make, IsGood...)
    -> object_pool<std::invoke_result_t<Make&>>;

}} // namespace bide::BIDE_ABI

#endif

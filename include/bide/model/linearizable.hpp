// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_LINEARIZABLE_HPP
#define BIDE_MODEL_LINEARIZABLE_HPP

/// \file
/// Checks an object against a specification: a sequential object that does the same. The threads of
/// a body call the checked object through model::linearizable. It records each call with its
/// result. At the end of each execution, the checker looks for an order of the calls in which the
/// specification gives the same results.
///
/// \code
/// bide::model::check("my queue", [] {
///     my_queue queue;
///     bide::model::linearizable checked(queue, bide::model::spec::queue<int>());
///     bide::model::thread sender([&] {
///         checked.call("push", [](auto& q, int v) { q.push(v); }, 1);
///     });
///     checked.call("try_pop", [](auto& q) { return q.try_pop(); });
/// });
/// \endcode
///
/// In this order, call A comes before call B if the return of A happens before the beginning of B:
/// by the order of one thread, or by synchronisation. It does not matter which of two calls the
/// checker has run first, because no C++ program can observe that.
///
/// The namespace spec has specifications of common objects, and the functions with which a
/// specification says that a call waits.

#include <bide/model/check.hpp>
#include <bide/model/detail/history.hpp>

#include <concepts>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>

namespace bide { inline namespace BIDE_ABI { namespace model {

namespace detail {

// Whether the arguments of a call begin with the function for the specification.
template <class Spec, class... Args> inline constexpr bool begins_with_call = false;
template <class Spec, class First, class... Rest>
inline constexpr bool begins_with_call<Spec, First, Rest...> =
    std::invocable<First&, Spec&, Rest&...>;

template <class T> std::string text_of(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
        return value ? "true" : "false";
    } else if constexpr (requires(std::ostringstream& out) { out << value; }) {
        std::ostringstream out;
        out << value;
        return out.str();
    } else if constexpr (requires { value.has_value() ? *value : *value; }) {
        return value.has_value() ? text_of(*value) : "none";
    } else if constexpr (requires { value.has_value(); }) {
        return value.has_value() ? "a value" : "none";
    } else if constexpr (std::is_enum_v<T>) {
        return std::to_string(static_cast<std::underlying_type_t<T>>(value));
    } else if constexpr (requires { value.first, value.second; }) {
        return "(" + text_of(value.first) + ", " + text_of(value.second) + ")";
    } else {
        return "...";
    }
}

// A call of an object whose specification is a Spec.
template <class Spec> class specified_call {
public:
    virtual ~specified_call() = default;
    // Makes the call of a specification. Returns true if it returns the recorded result.
    virtual bool repeat(Spec& on) = 0;
    virtual std::string text() const = 0;
    virtual std::string result_text() const = 0;
    virtual std::string repeated_text() const = 0;
};

template <class Spec, class Call, class Result, class... Args>
class call_of final : public specified_call<Spec> {
    static constexpr bool has_result = !std::is_void_v<Result>;
    using kept = std::conditional_t<has_result, Result, char>;
    using specified = std::decay_t<std::invoke_result_t<Call&, Spec&, Args&...>>;

public:
    call_of(const char* called, const Call& call, const Args&... args)
        : name_(called), call_(call), args_(args...) {}

    bool repeat(Spec& on) override {
        const auto make = [&](Args... args) { return call_(on, args...); };
        if constexpr (has_result) {
            static_assert(!std::is_void_v<specified>,
                          "the specification returns what the object returns");
            repeated_.emplace(std::apply(make, args_));
            return !result_.has_value() || static_cast<bool>(*result_ == *repeated_);
        } else {
            std::apply(make, args_);
            return true;
        }
    }
    std::string text() const override {
        std::string out;
        const auto add = [&](const auto&... each) {
            ((out += (out.empty() ? "" : ", ") + text_of(each)), ...);
        };
        std::apply(add, args_);
        return name_ + "(" + out + ")";
    }
    std::string result_text() const override {
        if constexpr (has_result) {
            return result_.has_value() ? text_of(*result_) : std::string();
        }
        return {};
    }
    std::string repeated_text() const override {
        if constexpr (has_result) {
            return repeated_.has_value() ? text_of(*repeated_) : std::string();
        }
        return {};
    }
    void set_result(const kept& result) { result_.emplace(result); }

private:
    const std::string name_;
    Call call_;
    const std::tuple<Args...> args_;
    std::optional<kept> result_;
    std::optional<std::conditional_t<has_result, specified, char>> repeated_;
};

template <class Spec> class specified_history final : public history {
public:
    specified_history(const char* named, const Spec& initial) : history(named), states_{initial} {}

    bool repeat(int number, std::size_t depth) override {
        if (states_.size() > depth + 1) {
            states_[depth + 1] = states_[depth];
        } else {
            states_.push_back(Spec(states_[depth]));
        }
        return of(number).repeat(states_[depth + 1]);
    }
    bool is_remembered(std::uint64_t mask, std::size_t depth) const override {
        if constexpr (std::equality_comparable<Spec>) {
            const auto at = remembered_.find(mask);
            if (at != remembered_.end()) {
                for (const Spec& s : at->second) {
                    if (s == states_[depth]) {
                        return true;
                    }
                }
            }
        }
        return false;
    }
    void remember(std::uint64_t mask, std::size_t depth) override {
        if constexpr (std::equality_comparable<Spec>) {
            remembered_[mask].push_back(states_[depth]);
        }
    }
    void forget() override { remembered_.clear(); }
    std::string call_text(int number) const override { return of(number).text(); }
    std::string result_text(int number) const override { return of(number).result_text(); }
    std::string repeated_text(int number) override { return of(number).repeated_text(); }

    void add(std::unique_ptr<specified_call<Spec>> made) { all_.push_back(std::move(made)); }
    specified_call<Spec>& of(int number) const { return *all_[static_cast<std::size_t>(number)]; }

private:
    std::vector<std::unique_ptr<specified_call<Spec>>> all_;
    std::deque<Spec> states_; // a deque: a bool is no reference in a vector
    std::map<std::uint64_t, std::vector<Spec>> remembered_;
};

} // namespace detail

/// Records the calls of an object, and judges them at the end of each execution. If no order of the
/// calls is allowed by the specification, the execution fails with failure::not_linearizable. The
/// report then draws the smallest set of calls that has no order.
///
/// A body constructs it behind the checked object, and before its threads, so that it is destroyed
/// when the threads have ended. A call that has not returned then, or in which threads wait for
/// ever, may be in the order or not. The same holds for a call that throws. If the specification
/// throws, the call cannot return in this state. If the threads of a body wait for ever, the report says
/// whether the specification waits, too.
///
/// If a body calls operations of the object otherwise, they are not judged.
///
/// `Spec` is copyable. If it has an operator ==, the search is faster. At most 64 calls are
/// recorded in an execution.
template <class Spec, class Object> class linearizable {
public:
    /// Checks `object`, whose state is that of `initial`. Reports call it `called`.
    /// Requires: the text exists until the end of the exploration.
    explicit linearizable(Object& object, const Spec& initial = Spec(), const char* called = "")
        : object_(object) {
        const detail::ops::outside_of_body guard;
        auto made = std::make_unique<detail::specified_history<Spec>>(called, initial);
        past_ = made.get();
        detail::ops::keep_history(std::move(made));
    }
    linearizable(const linearizable&) = delete;
    linearizable& operator=(const linearizable&) = delete;
    /// Judges the calls.
    ~linearizable() { detail::ops::judge(*past_); }

    /// Calls `on_both` with the object and `args`, and returns the result. The judge calls it with
    /// the specification and the same arguments. So it is a generic lambda without captures:
    /// `[](auto& q, int v) { return q.try_push(v); }`. The two results are compared by ==. If the
    /// result is void, only the fact that the call has returned is judged. `name` is for reports.
    template <class Call, class... Args>
        requires(!detail::begins_with_call<Spec, Args...>)
    auto call(const char* name, Call on_both, Args... args) {
        return recorded(name, on_both, on_both, args...);
    }
    /// \overload
    /// Calls `on_object` with the object. The judge calls `on_spec` with the specification.
    template <class Call, class SpecCall, class... Args>
        requires(std::invocable<SpecCall&, Spec&, Args&...>)
    auto call(const char* name, Call on_object, SpecCall on_spec, Args... args) {
        return recorded(name, on_object, on_spec, args...);
    }

private:
    // Ends a call. If it was left by an exception, it counts as one that has not returned.
    struct scope {
        detail::history& of;
        bool has_returned = false;
        ~scope() { of.end(has_returned); }
    };

    template <class Call, class SpecCall, class... Args>
    auto recorded(const char* name, Call& on_object, SpecCall& on_spec, Args&... args) {
        static_assert(std::is_empty_v<SpecCall>, "what it needs are its arguments, not captures");
        using result = std::decay_t<std::invoke_result_t<Call&, Object&, Args&...>>;
        using record = detail::call_of<Spec, SpecCall, result, Args...>;
        begin<record>(name, on_spec, args...);
        detail::ops::clear_stack();
        scope now{*past_};
        if constexpr (std::is_void_v<result>) {
            on_object(object_, args...);
            now.has_returned = true;
        } else {
            result got = on_object(object_, args...);
            set_result<record>(got);
            detail::ops::clear_stack();
            now.has_returned = true;
            return got;
        }
    }
    // These functions are not inlined, so that they leave nothing in the frame of a caller: the
    // checker compares it to find loops that wait.
    template <class Record, class SpecCall, class... Args>
    BIDE_NOINLINE void begin(const char* name, const SpecCall& on_spec, const Args&... args) {
        const detail::ops::outside_of_body guard;
        past_->add(std::make_unique<Record>(name, on_spec, args...));
        past_->begin();
    }
    template <class Record, class Result> BIDE_NOINLINE void set_result(const Result& got) {
        const detail::ops::outside_of_body guard;
        static_cast<Record&>(past_->of(past_->running())).set_result(got);
    }

    Object& object_;
    detail::specified_history<Spec>* past_ = nullptr;
};
/// Deduces the types from the object and the initial specification.
template <class Object, class Spec>
linearizable(Object&, const Spec&) -> linearizable<Spec, Object>;
/// \overload
template <class Object, class Spec>
linearizable(Object&, const Spec&, const char*) -> linearizable<Spec, Object>;

/// Specifications, and what a specification can say of the call that the judge repeats.
namespace spec {

/// Says that the call cannot return in this state, but waits for another call. The result of the
/// call, and what it does to the state, are dropped.
inline void waits() noexcept { detail::repeated.waits = true; }

/// Returns false and true: the judge tries both. So a call can have several right results:
/// `if (spec::maybe()) { return false; }`.
inline bool maybe() noexcept {
    const unsigned bit = detail::repeated.asked++;
    return ((detail::repeated.answers >> bit) & 1) != 0;
}

/// Is a call, for must_follow().
class call {
public:
    /// Constructs a call from before the body, which each call follows.
    call() noexcept = default;
    /// Returns the call that the judge repeats now.
    static call now() noexcept { return call(detail::repeated.number); }
    /// Compares.
    friend bool operator==(const call&, const call&) = default;

private:
    explicit call(int number) noexcept : number_(number) {}
    friend bool follows(const call& before) noexcept;
    friend void must_follow(const call& before) noexcept;

    int number_ = -1;
};

/// Returns true if what comes before the call `before` happens before what follows the call that is
/// repeated now. If that call has not returned, returns true.
inline bool follows(const call& before) noexcept {
    const detail::repeated_call& now = detail::repeated;
    if (before.number_ < 0 || !now.is_complete) {
        return true;
    }
    const auto& all = now.of->calls;
    const auto& earlier = all[static_cast<std::size_t>(before.number_)].began;
    const auto& later = all[static_cast<std::size_t>(now.number)].returned;
    return earlier.thread == later.thread || later.follows(earlier);
}

/// Says that the call `before` synchronises with the call that is repeated now, as the unlock() of
/// a mutex does with the next lock(). If it does not, this order of the calls is not allowed.
inline void must_follow(const call& before) noexcept {
    if (!follows(before)) {
        detail::repeated.unordered = before.number_;
    }
}

/// Is a FIFO queue, or with a capacity a bounded one. Putting an element in synchronises with
/// taking it out.
template <class T> class queue {
public:
    /// Constructs an empty queue for `capacity` elements, or without a limit.
    explicit queue(std::size_t capacity = static_cast<std::size_t>(-1)) : capacity_(capacity) {}

    /// Appends an element. Waits while the queue is full.
    void push(T value) {
        if (!try_push(std::move(value))) {
            waits();
        }
    }
    /// Appends an element. Returns false if the queue is full.
    bool try_push(T value) {
        if (all_.size() == capacity_) {
            return false;
        }
        all_.emplace_back(std::move(value), call::now());
        return true;
    }
    /// Takes out the first element. Waits while the queue is empty.
    T pop() { return taken_or_waits(try_pop()); }
    /// Takes out the first element, if there is one.
    std::optional<T> try_pop() {
        return all_.empty() ? std::nullopt : std::optional<T>(taken(all_.begin()));
    }
    /// Takes out the last element, if there is one, as the owner of a deque of work does.
    std::optional<T> try_pop_back() {
        return all_.empty() ? std::nullopt : std::optional<T>(taken(std::prev(all_.end())));
    }
    /// Returns true if the queue is empty.
    bool empty() const { return all_.empty(); }
    /// Compares.
    friend bool operator==(const queue&, const queue&) = default;

protected:
    /// Returns the element. If there is none, says that the call waits.
    static T taken_or_waits(std::optional<T> element) {
        if (!element.has_value()) {
            waits();
            return T();
        }
        return *std::move(element);
    }

private:
    T taken(typename std::deque<std::pair<T, call>>::iterator at) {
        must_follow(at->second);
        T out = std::move(at->first);
        all_.erase(at);
        return out;
    }

    std::size_t capacity_;
    std::deque<std::pair<T, call>> all_;
};

/// Is a LIFO stack. Putting an element in synchronises with taking it out.
template <class T> class stack : queue<T> {
public:
    using queue<T>::push;
    using queue<T>::empty;
    /// Takes the top element. Waits while the stack is empty.
    T pop() { return this->taken_or_waits(try_pop()); }
    /// Takes the top element, if there is one.
    std::optional<T> try_pop() { return this->try_pop_back(); }
    /// Compares.
    friend bool operator==(const stack&, const stack&) = default;
};

/// Is a bounded queue that can be closed. Sending synchronises with receiving.
template <class T> class channel : queue<T> {
public:
    using queue<T>::queue;
    /// Appends an element. Waits while the channel is full. Returns false if it is closed.
    bool send(T value) {
        if (!closed_ && !this->try_push(std::move(value))) {
            waits();
        }
        return !closed_;
    }
    /// Appends an element. Returns false if the channel is full or closed.
    bool try_send(T value) { return !closed_ && this->try_push(std::move(value)); }
    /// Takes out the first element. Waits while the channel is empty. If it is empty and closed,
    /// returns none.
    std::optional<T> receive() {
        if (this->empty() && !closed_) {
            waits();
        }
        return this->try_pop();
    }
    /// Takes out the first element, if there is one.
    std::optional<T> try_receive() { return this->try_pop(); }
    /// Closes the channel.
    void close() { closed_ = true; }
    /// Compares.
    friend bool operator==(const channel&, const channel&) = default;

private:
    bool closed_ = false;
};

/// Is a set.
template <class T> class set {
public:
    /// Inserts a value. Returns false if it is there.
    bool insert(T value) { return all_.insert(std::move(value)).second; }
    /// Erases a value. Returns false if it is not there.
    bool erase(const T& value) { return all_.erase(value) != 0; }
    /// Returns true if the value is there.
    bool contains(const T& value) const { return all_.contains(value); }
    /// Compares.
    friend bool operator==(const set&, const set&) = default;

private:
    std::set<T> all_;
};

/// Is a map.
template <class K, class V> class map {
public:
    /// Inserts a value. Returns false if the key is there.
    bool insert(K key, V value) { return all_.emplace(std::move(key), std::move(value)).second; }
    /// Sets the value of a key. Returns true if the key was not there.
    bool insert_or_assign(K key, V value) {
        return all_.insert_or_assign(std::move(key), std::move(value)).second;
    }
    /// Erases a key. Returns false if it is not there.
    bool erase(const K& key) { return all_.erase(key) != 0; }
    /// Returns the value of a key, if it is there.
    std::optional<V> find(const K& key) const {
        const auto at = all_.find(key);
        return at == all_.end() ? std::nullopt : std::optional<V>(at->second);
    }
    /// Compares.
    friend bool operator==(const map&, const map&) = default;

private:
    std::map<K, V> all_;
};

/// Is a counter.
class counter {
public:
    /// Constructs a counter.
    explicit counter(long long initial = 0) : value_(initial) {}
    /// Adds to the value. Returns the previous value.
    long long add(long long by = 1) { return std::exchange(value_, value_ + by); }
    /// Returns the value.
    long long get() const { return value_; }
    /// Compares.
    friend bool operator==(const counter&, const counter&) = default;

private:
    long long value_;
};

/// Is a variable. In other texts, it is called a register.
template <class T> class variable {
public:
    /// Constructs a variable.
    explicit variable(T initial = T()) : value_(std::move(initial)) {}
    /// Returns the value.
    T load() const { return value_; }
    /// Sets the value.
    void store(T value) { value_ = std::move(value); }
    /// Sets the value. Returns the previous one.
    T exchange(T value) { return std::exchange(value_, std::move(value)); }
    /// If the value is `expected`, sets it to `desired`, and returns true.
    bool compare_exchange(const T& expected, T desired) {
        const bool is_same = value_ == expected;
        value_ = is_same ? std::move(desired) : value_;
        return is_same;
    }
    /// Compares.
    friend bool operator==(const variable&, const variable&) = default;

private:
    T value_;
};

/// Is a lock. unlock() synchronises with the next lock(), so two threads that hold it at once have
/// no order. A lock that is FIFO has two calls: arrive(), which must have returned before the
/// next thread arrives, and lock(), for the same number.
class mutex {
public:
    /// Locks it. Waits while it is locked.
    void lock() {
        if (!try_lock()) {
            waits();
        }
    }
    /// Locks it, if it is not locked.
    bool try_lock() {
        if (is_locked_) {
            return false;
        }
        must_follow(unlocked_);
        return is_locked_ = true;
    }
    /// Queues up.
    void arrive(int who) { queue_.push_back(who); }
    /// Locks it for the first one in the queue. Waits while another one is the first.
    void lock(int who) {
        if (queue_.empty() || queue_.front() != who) {
            waits();
            return;
        }
        queue_.pop_front();
        lock();
    }
    /// Unlocks it.
    void unlock() {
        is_locked_ = false;
        unlocked_ = call::now();
    }
    /// Compares.
    friend bool operator==(const mutex&, const mutex&) = default;

private:
    bool is_locked_ = false;
    call unlocked_;
    std::deque<int> queue_;
};

/// Is a semaphore. If an acquire needs permits of k releases, at least k of the releases before it
/// synchronise with it.
class semaphore {
public:
    /// Constructs a semaphore with `permits` permits.
    explicit semaphore(long long permits) : permits_(permits), initial_(permits) {}
    /// Takes n permits. Waits while there are fewer.
    void acquire(long long n = 1) {
        if (!try_acquire(n)) {
            waits();
        }
    }
    /// Takes n permits, if there are as many.
    bool try_acquire(long long n = 1) {
        if (permits_ < n) {
            return false;
        }
        permits_ -= n;
        taken_ += n;
        long long known = initial_;
        const call* missing = nullptr;
        for (const auto& [by, count] : releases_) {
            const bool is_known = follows(by);
            known += is_known ? count : 0;
            missing = is_known ? missing : &by;
        }
        if (known < taken_ && missing != nullptr) {
            must_follow(*missing);
        }
        return true;
    }
    /// Adds n permits.
    void release(long long n = 1) {
        permits_ += n;
        releases_.emplace_back(call::now(), n);
    }
    /// Compares.
    friend bool operator==(const semaphore&, const semaphore&) = default;

private:
    long long permits_;
    long long initial_;
    long long taken_ = 0;
    std::vector<std::pair<call, long long>> releases_;
};

} // namespace spec

}}} // namespace bide::BIDE_ABI::model

#endif

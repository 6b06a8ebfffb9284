#include <bide/parallel/parallel_sort.hpp>
#include <support/alloc.hpp>
#include <support/forking.hpp>
#include <support/narrow_iterator.hpp>
#include <support/scheduling.hpp>

namespace {

// As wide as a key and a place: see keyed().
using number = std::int64_t;
using numbers = std::vector<number>;

enum class shape {
    random,
    sorted,
    reversed,
    equal,
    pipe,
    few,
    teeth,
    nearly,
    appended,
    divided,
    count
};

constexpr const char* names[] = {"random", "sorted", "reversed", "equal",    "organ pipe",
                                 "few",    "teeth",  "nearly",   "appended", "divided"};

numbers make(shape of, std::size_t n, test::jitter& chance) {
    numbers made(n);
    const auto size = static_cast<number>(n);
    const auto any = [&] { return static_cast<number>(chance.below(1u << 30)); };
    for (number i = 0; i < size; ++i) {
        number& e = made[static_cast<std::size_t>(i)];
        switch (of) {
        case shape::random: e = any(); break;
        case shape::reversed: e = -i; break;
        case shape::equal: e = 5; break;
        case shape::pipe: e = std::min(i, size - i); break;
        case shape::few: e = any() % 10; break;
        case shape::teeth: e = i % (size / 5 + 1); break;
        case shape::nearly: e = chance.below(100) == 0 ? any() % size : i; break;
        case shape::appended: e = i > size - size / 50 ? any() % size : i; break;
        case shape::divided: // at the pivot, but in no order otherwise
            e = std::abs(i - size / 2) < 3 ? i
                                           : any() % (size / 2) + (i < size / 2 ? 0 : size / 2 + 2);
            break;
        default: e = i;
        }
    }
    return made;
}

// Numbers that know their place: by_key() sees only the keys.
numbers keyed(const numbers& keys) {
    numbers made;
    for (const number key : keys) {
        made.push_back(key * (number{1} << 32) + std::ssize(made));
    }
    return made;
}

numbers sorted(numbers v) {
    std::sort(v.begin(), v.end());
    return v;
}

// One comparison type for all orders of a type, because the sorts are compiled for each type.
template <class T> using order = std::function<bool(const T&, const T&)>;

// Calls one of the two sorts on workers.
template <class T>
void sort(const bide::fork_policy& on, bool stably, std::vector<T>& v, const order<T>& less) {
    stably ? bide::parallel_stable_sort(on, v, less) : bide::parallel_sort(on, v, less);
}

// Calls one of the two sorts, with one thread and random answers. Leaves out some elements at
// either end.
template <class T>
void sort(test::chance_forks::script& script, bool stably, std::vector<T>& v, order<T> less,
          std::size_t margin = 0) {
    const bide::detail::elements<T*> all{v.data() + margin, v.size() - 2 * margin};
    stably ? bide::detail::sort<true>(test::by_chance(script), all, less)
           : bide::detail::sort<false>(test::by_chance(script), all, less);
}

struct failure {};

// Not for the branchless parts: it can only be moved, which leaves an empty object. It knows its
// first place. Its moves count `moves_left` down; the one that comes to 0 throws, and moves nothing.
struct record {
    record(number k, int p) : key(k), place(p) { ++alive; }
    record(record&& other) : key((count_move(), other.key)), place(std::exchange(other.place, -1)) {
        ++alive;
    }
    record& operator=(record&& other) {
        count_move();
        key = other.key;
        place = std::exchange(other.place, -1);
        return *this;
    }
    ~record() {
        --alive;
        place = -1;
    }
    static void count_move() {
        if (moves_left != 0 && --moves_left == 0) {
            throw failure();
        }
    }
    static inline std::atomic<int> alive{0};
    static inline std::atomic<int> moves_left{0};
    number key;
    int place;
};

// For the branchless parts that copy elements, but do not select among their values.
struct wide {
    number key;
    int place;
    std::array<char, 40> rest{};
};

template <class T = record> std::vector<T> records(const numbers& keys) {
    std::vector<T> made;
    made.reserve(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        made.push_back(T{keys[i], static_cast<int>(i)});
    }
    return made;
}

const order<number> by_value = std::less<>();
const order<number> by_key = [](number a, number b) { return a >> 32 < b >> 32; };
template <class T = record> order<T> on_keys(order<number> less) {
    return [less](const T& a, const T& b) { return less(a.key, b.key); };
}
const order<record> by_record_key = [](const record& a, const record& b) { return a.key < b.key; };

template <class T> bool is_stably_sorted(const std::vector<T>& v) {
    return std::is_sorted(v.begin(), v.end(), [](const auto& a, const auto& b) {
        return a.key != b.key ? a.key < b.key : a.place < b.place;
    });
}

// Requires each place from 0 to n - 1 once, with its key, and no element that was only moved from.
template <class T> bool all_there(const std::vector<T>& v, const numbers& keys) {
    std::vector<char> seen(v.size());
    for (const T& r : v) {
        const auto at = static_cast<std::size_t>(r.place);
        if (at >= v.size() || seen[at]++ != 0 || r.key != keys[at]) {
            return false;
        }
    }
    return true;
}

// Returns true if they have the same elements, with an error probability of 2^-64.
bool all_there(const numbers& v, const numbers& keys) {
    const auto sum = [](const numbers& of) {
        std::uint64_t s = 0;
        for (const number e : of) {
            std::uint64_t x = static_cast<std::uint64_t>(e) + 0x9e37'79b9'7f4a'7c15u;
            x = (x ^ (x >> 30)) * 0xbf58'476d'1ce4'e5b9u;
            x = (x ^ (x >> 27)) * 0x94d0'49bb'1331'11ebu;
            s += x ^ (x >> 31);
        }
        return s;
    };
    return v.size() == keys.size() && sum(v) == sum(keys);
}

bool is_at(number e, const numbers& keys, std::size_t place) { return e == keys[place]; }
bool is_at(const auto& r, const numbers&, std::size_t place) {
    return r.place == static_cast<int>(place);
}

// Sorts all but two elements at either end. Whatever the comparison does, each element must be there then,
// and those at the ends where they were. Returns true unless the comparison threw.
template <class T>
bool survives(test::chance_forks::script& script, bool stably, std::vector<T> v,
              const numbers& keys, const order<T>& less) {
    bool has_thrown = false;
    try {
        sort<T>(script, stably, v, less, 2);
    } catch (const failure&) {
        has_thrown = true;
    }
    REQUIRE(all_there(v, keys));
    for (const std::size_t place : {std::size_t{0}, std::size_t{1}, v.size() - 2, v.size() - 1}) {
        REQUIRE(is_at(v[place], keys, place));
    }
    return !has_thrown;
}

// The allowed number of comparisons for n elements: `times` n log2(n).
double bound(double times, std::size_t n) {
    const auto size = static_cast<double>(n);
    return times * size * std::max(1.0, std::log2(size)) + 64;
}

// Two columns that are sorted together: rows exist only while they are moved, or as proxies.
template <class Extra> struct row {
    int key;
    Extra extra;
};
template <class Extra> struct row_proxy {
    int& key;
    Extra& extra;
    const row_proxy& operator=(row<Extra>&& r) const {
        key = r.key;
        extra = std::move(r.extra);
        return *this;
    }
};
template <class Extra> struct row_view {
    row_view(const row<Extra>& r) : key(r.key) {}
    row_view(const row_proxy<Extra>& r) : key(r.key) {}
    int key;
};

} // namespace

template <class Extra, template <class> class Q, template <class> class R>
struct std::basic_common_reference<row<Extra>, row_proxy<Extra>, Q, R> {
    using type = row_view<Extra>;
};
template <class Extra, template <class> class Q, template <class> class R>
struct std::basic_common_reference<row_proxy<Extra>, row<Extra>, Q, R> {
    using type = row_view<Extra>;
};

namespace {

// Has random access by its concept, and is an input iterator by its category.
template <class Extra> struct row_iterator {
    using iterator_concept = std::random_access_iterator_tag;
    using iterator_category = std::input_iterator_tag;
    using value_type = row<Extra>;
    using difference_type = std::ptrdiff_t;
    using reference = row_proxy<Extra>;
    using pointer = void;

    row_iterator() = default;
    row_iterator(int* k, Extra* e, std::ptrdiff_t i) : keys(k), extras(e), at(i) {}
    reference operator*() const { return {keys[at], extras[at]}; }
    reference operator[](difference_type n) const { return *(*this + n); }
    row_iterator& operator++() { return *this += 1; }
    row_iterator& operator--() { return *this += -1; }
    row_iterator operator++(int) { return std::exchange(*this, *this + 1); }
    row_iterator operator--(int) { return std::exchange(*this, *this + -1); }
    row_iterator& operator+=(difference_type n) { return at += n, *this; }
    row_iterator& operator-=(difference_type n) { return at -= n, *this; }
    friend row_iterator operator+(row_iterator i, difference_type n) { return i += n; }
    friend row_iterator operator+(difference_type n, row_iterator i) { return i += n; }
    friend row_iterator operator-(row_iterator i, difference_type n) { return i -= n; }
    friend difference_type operator-(row_iterator a, row_iterator b) { return a.at - b.at; }
    friend bool operator==(row_iterator a, row_iterator b) { return a.at == b.at; }
    friend auto operator<=>(row_iterator a, row_iterator b) { return a.at <=> b.at; }
    friend row<Extra> iter_move(row_iterator i) {
        return {i.keys[i.at], std::move(i.extras[i.at])};
    }
    friend void iter_swap(row_iterator i, row_iterator j) {
        std::swap(i.keys[i.at], j.keys[j.at]);
        std::swap(i.extras[i.at], j.extras[j.at]);
    }
    int* keys = nullptr;
    Extra* extras = nullptr;
    std::ptrdiff_t at = 0;
};

} // namespace

// Functions of the element's namespace, which must not be called, even if they fit better.
namespace elsewhere {

struct alignas(64) thing {
    int key;
    std::unique_ptr<int> owned{}; // not for the branchless parts
};
struct alignas(32) number {
    explicit number(int k) : key(k) {}
    number(number&&) = default;
    number& operator=(number&&) = default;
    number(const number&) = default;
    number& operator=(const number&) = default;
    template <class T> number(T&&) : key(-1) {} // takes what looks like a copy
    int key;
};
struct handle {
    explicit handle(int k) : key(k) {}
    handle(handle&&) = default;
    handle& operator=(handle&&) = default;
    int key;
};
static_assert(std::is_trivially_copyable_v<number> && std::is_trivially_copyable_v<handle>);

template <class T>
concept own = std::is_same_v<T, thing> || std::is_same_v<T, number>;

template <own T> void choose(std::ptrdiff_t, T*, T*) = delete;
template <own T, class C> void insert(T*, T*, C&) = delete;
template <own T, class C> void insertion_sort(T*, T*, C&) = delete;
template <own T, class C> void heap_sort(T*, T*, C&) = delete;
template <own T, class C> void small_sort(T*, T*, C&) = delete;
template <own T, class C> void sort_if_nearly(T*, T*, C&) = delete;
template <own T, class C> void sort_two(T*, T*, C&) = delete;
template <own T, class C> void sort_three(T*, T*, T*, C&) = delete;
template <own T, class C> void divide(T*, T*, C) = delete;
template <own T, class C> void cyclic_partition(T*, T*, C) = delete;
template <bool, own T, class C, class D> void partition_by(T*, T*, C&, D&&) = delete;
template <own T, class C> void choose_pivot(T*, T*, C&) = delete;
template <own T> void break_patterns(T*, T*) = delete;
template <class F, own T, class C, class L> void divide_in_parallel(F, T*, T*, C&&, L&&) = delete;
template <class F, own T> void reverse_in_parallel(F, T*, T*) = delete;
template <own T, class C> void merge_first(T*&, T*&, T*&, C&) = delete;
template <own T, class C> void merge_last(T*&, T*&, T*&, C&) = delete;
template <own T, class C> void merge_halves(T*, std::ptrdiff_t, T*, C&) = delete;
template <own T, class C> void sort_four(T*, std::ptrdiff_t, T*, C&) = delete;
template <int, own T, class C> void sort_few(T*, std::ptrdiff_t, T*, T*, C&) = delete;
template <own T, class C> void merge(T*, T*, T*, T*, T*, C&) = delete;
template <class F, own T, class C, class W>
void merge_parts(F, T*, T*, T*, T*, T*, C&, W&&) = delete;
template <bool, class F, own T, class C, class S> void sort_here(F, T*, T*, C&, S&) = delete;
template <bool, class F, own T, class P, class S> void sort_by_text(F, T*, T*, P&, S&) = delete;
template <class R, class C> void merge_both_ends(R&&, C&&) = delete;
template <class R, class C> void merge_few_with_many(R&&, C&&) = delete;

} // namespace elsewhere

TEST_CASE("parallel_sort: sorts all small sizes") {
    test::chance_forks::script script(test::run_seed());
    for (std::size_t n = 0; n < 150; ++n) {
        for (const std::uint32_t range : {2u, 5u, 1u << 20}) {
            for (const bool stably : {false, true}) {
                numbers v(n);
                for (number& e : v) {
                    e = script.chance.below(range);
                }
                const numbers expected = sorted(v);
                std::vector<record> large = records(v);
                const numbers keys = v;
                sort(script, stably, v, by_value);
                sort(script, stably, large, by_record_key);
                INFO(n << " below " << range << (stably ? ", stably" : ""));
                REQUIRE(v == expected);
                REQUIRE(all_there(large, keys));
                REQUIRE(std::ranges::is_sorted(large, {}, &record::key));
            }
        }
    }
}

TEST_CASE("parallel_sort: sorts all permutations of up to eight elements") {
    for (std::size_t n = 1; n <= 8; ++n) {
        numbers values(n);
        for (std::size_t i = 0; i < n; ++i) {
            values[i] = static_cast<number>(i * 2 / 3); // some are equal
        }
        const numbers expected = values;
        bool ok = true;
        do {
            numbers v = values;
            order<number> less = by_value;
            bide::detail::small_sort(v.data(), v.data() + n, less);
            ok = ok && v == expected;
        } while (std::next_permutation(values.begin(), values.end()));
        CHECK(ok);
    }
}

TEST_CASE("parallel_stable_sort: equal elements keep their order", "[promise.sort-safe]") {
    test::chance_forks::script script(test::run_seed());
    for (const std::size_t n : {5u, 40u, 1'000u, 12'000u}) {
        for (int of = 0; of < static_cast<int>(shape::count); ++of) {
            numbers keys = make(static_cast<shape>(of), n, script.chance);
            for (std::size_t i = 0; i < n; ++i) {
                if (static_cast<shape>(of) != shape::reversed) {
                    keys[i] /= 3;
                } else if (i > n / 2) {
                    ++keys[i]; // equals the one before
                }
            }
            numbers small = keyed(keys);
            std::vector<record> large = records(keys);
            std::vector<wide> copied = records<wide>(keys);
            sort(script, true, small, by_key);
            sort(script, true, large, by_record_key);
            sort(script, true, copied, on_keys<wide>(by_value));
            INFO(names[of] << ", " << n);
            REQUIRE(std::is_sorted(small.begin(), small.end()));
            REQUIRE(is_stably_sorted(large));
            REQUIRE(all_there(large, keys));
            REQUIRE(is_stably_sorted(copied));
            REQUIRE(all_there(copied, keys));
        }
    }
}

// As happens where a sequence was nearly in order.
TEST_CASE("parallel_stable_sort: a few elements merge with many in few comparisons") {
    constexpr int many = 8'000;
    for (const int few : {1, 3, 40}) {
        for (const bool few_first : {false, true}) {
            numbers keys;
            const auto add = [&](int n) {
                for (int i = 0; i < n; ++i) {
                    keys.push_back(i * (many / n));
                }
            };
            add(few_first ? few : many);
            add(few_first ? many : few);
            numbers from = keyed(keys);
            numbers to(from.size());
            int compared = 0;
            order<number> less = [&](number a, number b) { return ++compared, by_key(a, b); };
            number* const cut = from.data() + (few_first ? few : many);
            bide::detail::merge(from.data(), cut, cut, from.data() + from.size(), to.data(), less);
            INFO(few << (few_first ? " before many: " : " after many: ") << compared);
            CHECK(std::is_sorted(to.begin(), to.end()));
            CHECK(compared < many / 2);
        }
    }
}

TEST_CASE("parallel_sort: no shape takes more than its number of comparisons") {
    test::chance_forks::script script(test::run_seed());
    for (const std::size_t n : {1'000u, 8'000u}) {
        for (int of = 0; of < static_cast<int>(shape::count); ++of) {
            for (const bool stably : {false, true}) {
                numbers v = make(static_cast<shape>(of), n, script.chance);
                const numbers expected = sorted(v);
                std::size_t compared = 0;
                sort<number>(script, stably, v, [&](number a, number b) {
                    ++compared;
                    return a < b;
                });
                INFO(names[of] << ", " << n << (stably ? ", stably: " : ": ") << compared);
                REQUIRE(v == expected);
                REQUIRE(static_cast<double>(compared) < bound(1.6, n));
                switch (static_cast<shape>(of)) {
                case shape::sorted:
                case shape::reversed:
                case shape::equal: REQUIRE(compared < n + 64); break;
                case shape::pipe: REQUIRE(compared < 3 * n); break;
                case shape::teeth: REQUIRE(compared < 5 * n); break;
                case shape::appended: REQUIRE(compared < 5 * n); break;
                case shape::few: REQUIRE((stably || compared < 8 * n)); break;
                default:;
                }
            }
        }
    }
}

TEST_CASE("parallel_sort: the end of a long run is found, by one thread or several") {
    test::chance_forks::script script(test::run_seed());
    constexpr int n = 120'000;
    numbers v(n);
    for (const int around : {16'384, 32'768, 49'152, 65'536, 98'304, n - 2}) {
        for (const int at : {around - 1, around, around + 1}) {
            for (const bool descends : {false, true}) {
                for (int i = 0; i < n; ++i) {
                    const number e = i < at ? i : i - n;
                    v[static_cast<std::size_t>(i)] = descends ? -e : e;
                }
                std::size_t compared = 0;
                order<number> less = [&compared](number a, number b) { return ++compared, a < b; };
                bide::detail::long_runs<number*> runs;
                INFO(at << (descends ? ", down" : ", up"));
                REQUIRE(runs.find(test::chance_forks(script), v.data(), v.data() + n, less));
                REQUIRE(runs.size() == 2);
                REQUIRE(runs.end_of(0) - v.data() == at);
                REQUIRE(runs.end_of(1) - v.data() == n);
                REQUIRE(runs.descends(0) == descends);
                REQUIRE(compared < 2 * n + 128);
            }
        }
    }
}

// McIlroy, "A Killer Adversary for Quicksort", 1999: values that are decided only when compared, so
// that each pivot is about the least of what is left.
TEST_CASE("parallel_sort: never quadratic, not even against an adversary", "[promise.sort-safe]") {
    for (const std::size_t n : {100u, 1'000u, 20'000u}) {
        for (const bool stably : {false, true}) {
            test::chance_forks::script script(3);
            constexpr number gas = std::numeric_limits<number>::max();
            numbers values(n, gas);
            numbers v = make(shape::sorted, n, script.chance);
            values[0] = 1; // two values in the wrong order: otherwise the range would look sorted
            values[1] = 0;
            number solid = 2;
            number candidate = 0;
            const auto value = [&](number of) -> number& {
                return values[static_cast<std::size_t>(of)];
            };
            std::size_t compared = 0;
            sort<number>(script, stably, v, [&](number a, number b) {
                ++compared;
                if (value(a) == gas && value(b) == gas) {
                    value(a == candidate ? a : b) = solid++;
                }
                if (value(a) == gas) {
                    candidate = a;
                } else if (value(b) == gas) {
                    candidate = b;
                }
                return value(a) < value(b);
            });
            INFO(n << ", " << compared << (stably ? ", stably" : ""));
            REQUIRE(std::is_sorted(v.begin(), v.end(),
                                   [&](number a, number b) { return value(a) < value(b); }));
            REQUIRE(static_cast<double>(compared) < bound(4, n));
        }
    }
}

TEST_CASE("parallel_sort: sorts over-aligned elements, and ignores functions of the same names") {
    bide::scheduler s(test::with_serial_forks());
    const auto check = [&]<class type>(std::type_identity<type>) {
        std::vector<type> v;
        std::size_t misplaced = 0;
        const auto less = [&](const type& a, const type& b) {
            misplaced += reinterpret_cast<std::uintptr_t>(&a) % alignof(type);
            return a.key < b.key;
        };
        for (const bool stably : {false, true}) {
            v.clear();
            for (int i = 0; i < 500; ++i) {
                v.push_back(type{i * 271 % 500});
            }
            if (stably) {
                bide::parallel_stable_sort(s, v.begin(), v.end(), less);
            } else {
                bide::parallel_sort(s, v.begin(), v.end(), less);
            }
            int wrong = 0;
            for (int i = 0; i < 500; ++i) {
                wrong += v[static_cast<std::size_t>(i)].key == i ? 0 : 1;
            }
            CHECK(wrong == 0);
            CHECK(misplaced == 0);
        }
    };
    check(std::type_identity<elsewhere::thing>());
    check(std::type_identity<elsewhere::number>());
    check(std::type_identity<elsewhere::handle>());
}

TEMPLATE_TEST_CASE("parallel_sort: sorts two columns through an iterator with a proxy reference",
                   "", int, std::unique_ptr<int>) {
    test::chance_forks::script script(test::run_seed());
    bide::scheduler s(test::with(2, true));
    const auto of_extra = [](const TestType& extra) {
        if constexpr (std::is_same_v<TestType, int>) {
            return extra;
        } else {
            return extra ? *extra : -1;
        }
    };
    const auto check = [&](const numbers& keys, bool stably, std::uint32_t calls) {
        std::vector<int> sorted_keys(keys.begin(), keys.end());
        std::vector<TestType> extras;
        for (int i = 0; i < static_cast<int>(keys.size()); ++i) {
            if constexpr (std::is_same_v<TestType, int>) {
                extras.push_back(i);
            } else {
                extras.push_back(std::make_unique<int>(i));
            }
        }
        std::atomic<std::uint32_t> left{calls};
        const auto less = [&left](row_view<TestType> a, row_view<TestType> b) {
            return left-- == 0 ? throw failure() : a.key < b.key;
        };
        const row_iterator<TestType> begin(sorted_keys.data(), extras.data(), 0);
        const row_iterator<TestType> end = begin + std::ssize(keys);
        bool has_thrown = false;
        try {
            stably ? bide::parallel_stable_sort(s, begin, end, less)
                   : bide::parallel_sort(s, begin, end, less);
        } catch (const failure&) {
            has_thrown = true;
        }
        std::size_t misplaced = 0;
        std::vector<char> seen(keys.size());
        for (std::size_t i = 0; i != keys.size(); ++i) {
            const auto from = static_cast<std::size_t>(of_extra(extras[i]));
            misplaced += from >= keys.size() || seen[from]++ != 0 || keys[from] != sorted_keys[i];
            misplaced += stably && !has_thrown && i > 0 && sorted_keys[i - 1] == sorted_keys[i] &&
                         of_extra(extras[i - 1]) > of_extra(extras[i]);
        }
        CHECK(misplaced == 0);
        CHECK((has_thrown || std::is_sorted(sorted_keys.begin(), sorted_keys.end())));
    };
    for (int of = 0; of != static_cast<int>(shape::count); ++of) {
        for (const std::size_t n : {0u, 3u, 20u, 200u, 4'000u}) {
            const numbers keys = make(static_cast<shape>(of), n, script.chance);
            INFO(names[of] << ", " << n);
            for (const bool stably : {false, true}) {
                check(keys, stably, 1u << 31);
                check(keys, stably, script.chance.below(static_cast<std::uint32_t>(bound(1, n))));
            }
        }
    }
}

TEST_CASE("parallel_sort: accepts iterators and comparisons of all kinds") {
    test::jitter chance(test::run_seed());
    bide::scheduler s(test::with(2, true));
    struct item {
        number value;
        bool is_less(const item& than) const { return value < than.value; }
    };
    const auto sorts = [&](auto begin, auto end, const auto& mix, auto less, auto projection) {
        bide::parallel_sort(s, begin, end, less, projection);
        const bool is_sorted = std::ranges::is_sorted(begin, end, less, projection);
        mix();
        bide::parallel_stable_sort(s, begin, end, less, projection);
        return is_sorted && std::ranges::is_sorted(begin, end, less, projection);
    };
    for (int of = 0; of != static_cast<int>(shape::count); ++of) {
        for (const std::size_t n : {20u, 3'000u}) {
            const numbers keys = make(static_cast<shape>(of), n, chance);
            INFO(names[of] << ", " << n);
            std::vector<item> items(n);
            const auto mix = [&] {
                std::transform(keys.begin(), keys.end(), items.begin(),
                               [](number k) { return item{k}; });
            };
            mix();
            using narrow = test::narrow_iterator<item>;
            CHECK(sorts(narrow(items.data()), narrow(items.data() + n), mix, &item::is_less,
                        std::identity()));
            // Move-only elements of a container that is not contiguous, by references that are not const.
            std::deque<std::unique_ptr<number>> owners(n);
            const auto own = [&] {
                std::transform(keys.begin(), keys.end(), owners.begin(),
                               [](number k) { return std::make_unique<number>(k); });
            };
            own();
            const auto less = [](number& a, number& b) { return a < b; };
            const auto value = [](const auto& owner) -> number& { return *owner; };
            CHECK(sorts(owners.rbegin(), owners.rend(), own, less, value));
        }
    }
}

template <class It>
concept can_be_sorted = requires(bide::scheduler& s, It it) {
    bide::parallel_sort(s, it, it);
    bide::parallel_stable_sort(s, it, it);
};
static_assert(can_be_sorted<std::deque<bool>::iterator>);
static_assert(!can_be_sorted<std::vector<bool>::iterator>); // two threads would write to one word
static_assert(!can_be_sorted<std::vector<bool>::reverse_iterator>);
static_assert(!can_be_sorted<const int*> && !can_be_sorted<numbers::const_iterator>);
static_assert(!can_be_sorted<std::vector<row<int>>::iterator>); // they have no order
static_assert(std::random_access_iterator<row_iterator<int>>);

// At 300'000 elements all workers partition them.
TEST_CASE("parallel_sort: a comparison that throws loses no element", "[promise.sort-safe]") {
    test::chance_forks::script script(test::run_seed());
    for (const bool stably : {false, true}) {
        for (int round = 0; round < 150; ++round) {
            const bool is_large = !stably && round < 2;
            const shape of =
                is_large
                    ? shape::random
                    : static_cast<shape>(script.chance.below(static_cast<unsigned>(shape::count)));
            const std::size_t n = is_large          ? 300'000
                                  : round % 25 == 0 ? 10'000
                                                    : 2 + script.chance.below(1'500);
            const auto at = static_cast<std::ptrdiff_t>(script.chance.below(
                static_cast<std::uint32_t>(is_large ? bound(0.1, n) : bound(1, n))));
            std::ptrdiff_t left = at;
            const auto less = [&](number a, number b) {
                return --left < 0 ? throw failure() : a < b;
            };
            const numbers keys = make(of, n + 4, script.chance);
            INFO(names[static_cast<int>(of)] << ", " << n << ", the " << at << "th"
                                             << (stably ? ", stably" : ""));
            const bool is_sorted =
                survives<record>(script, stably, records(keys), keys, on_keys(less));
            REQUIRE(is_sorted == (left >= 0));
            left = at;
            survives<number>(script, stably, keys, keys, less);
            left = at;
            survives<wide>(script, stably, records<wide>(keys), keys, on_keys<wide>(less));
        }
    }
}

TEST_CASE("parallel_sort: after a comparison has thrown, no later part is sorted") {
    constexpr std::size_t n = 30'000;
    constexpr int thrown = 150'000;
    constexpr int few = 8 * 1'024; // one part that is not divided, and then merged
    test::chance_forks::script script(9);
    script.thieves = 0;
    for (const bool stably : {false, true}) {
        for (const auto of : {shape::random, shape::teeth, shape::few}) {
            const numbers keys = make(of, n, script.chance);
            int calls = 0;
            const auto less = [&calls](number a, number b) {
                if (++calls == thrown) {
                    throw failure();
                }
                return a < b;
            };
            INFO(names[static_cast<int>(of)] << (stably ? ", stably" : ""));
            numbers v = keys;
            if (of == shape::random) {
                CHECK_THROWS_AS(sort<number>(script, stably, v, less), failure);
                CHECK(calls - thrown <= few);
                CHECK(all_there(v, keys));
            }
            calls = 0;
            std::vector<record> w = records(keys);
            try {
                sort<record>(script, stably, w, on_keys(less));
                CHECK(calls < thrown);
            } catch (const failure&) {
                CHECK(calls - thrown <= few);
            }
            CHECK(all_there(w, keys));
        }
    }
}

TEST_CASE("parallel_sort: comparisons that are no order lose no element, and touch nothing outside",
          "[promise.sort-safe]") {
    test::chance_forks::script script(test::run_seed());
    for (int round = 0; round < 250; ++round) {
        const bool is_large = round == 5; // all workers partition
        const std::size_t n = is_large          ? 300'000
                              : round % 25 == 0 ? 5'000
                                                : script.chance.below(400);
        const std::uint32_t percent = 1 + script.chance.below(99);
        const bool stably = !is_large && script.chance.below(3) == 0;
        const int kind = round % 6;
        const auto less = [&](number a, number b) {
            switch (kind) {
            case 0: return true;
            case 1: return a <= b;
            case 2:
                return (static_cast<std::uint32_t>(a) * 31 ^ static_cast<std::uint32_t>(b)) *
                               2'654'435'769u >>
                           31 !=
                       0;
            case 3: return a % 7 != b % 7;
            case 4: return a % 3 != 0 && b % 3 != 0 && a < b; // like NaN among numbers
            default: return script.chance.below(100) < percent;
            }
        };
        const numbers keys = make(shape::random, n + 4, script.chance);
        INFO(kind << ", " << n << ", " << percent << " % less" << (stably ? ", stably" : ""));
        REQUIRE(survives<number>(script, stably, keys, keys, less));
        REQUIRE(survives<record>(script, stably, records(keys), keys, on_keys(less)));
        REQUIRE(survives<wide>(script, stably, records<wide>(keys), keys, on_keys<wide>(less)));
    }
}

TEST_CASE("parallel_sort: if a move throws, every object is still alive") {
    test::chance_forks::script script(test::run_seed());
    for (const bool stably : {false, true}) {
        for (int round = 0; round < 60; ++round) {
            const std::size_t n = 2 + script.chance.below(3'000);
            {
                std::vector<record> v = records(make(shape::random, n, script.chance));
                const int alive = record::alive;
                record::moves_left =
                    1 + static_cast<int>(script.chance.below(2u << script.chance.below(15)));
                try {
                    sort(script, stably, v, by_record_key);
                } catch (const failure&) {
                }
                record::moves_left = 0;
                REQUIRE(record::alive == alive);
            }
            REQUIRE(record::alive == 0);
        }
    }
}

TEST_CASE("parallel_sort: without memory to fork nothing is lost") {
    test::chance_forks::script script(test::run_seed());
    for (const bool stably : {false, true}) {
        for (const shape of : {shape::random, shape::teeth}) {
            const numbers keys = make(of, 20'000, script.chance);
            const auto has_memory = [&](auto v, const auto& less, int forks) {
                script.last_fork = forks;
                script.forks = 0;
                bool refused = false;
                try {
                    sort(script, stably, v, less);
                } catch (const std::bad_alloc&) {
                    refused = true;
                }
                REQUIRE(all_there(v, keys));
                return !refused;
            };
            const auto refuse_some = [&](const auto& fresh, const auto& less) {
                REQUIRE(has_memory(fresh(), less, 1 << 30));
                const int all = script.forks;
                REQUIRE(all > 1);
                const auto any = script.chance.below(static_cast<std::uint32_t>(all));
                for (const int forks : {0, 1, static_cast<int>(any), all - 2, all - 1}) {
                    INFO("after " << forks << " of " << all); // the last ones are merges
                    REQUIRE_FALSE(has_memory(fresh(), less, forks));
                }
            };
            INFO(names[static_cast<int>(of)] << (stably ? ", stably" : ""));
            refuse_some([&] { return records(keys); }, by_record_key);
            refuse_some([&] { return keys; }, by_value);
        }
    }
}

TEST_CASE("parallel_stable_sort: allocates once, and changes nothing without memory") {
    test::chance_forks::script script(test::run_seed());
    for (const shape of : {shape::random, shape::pipe}) {
        const numbers keys = make(of, 10'000, script.chance);
        const numbers expected = sorted(keys);
        numbers v = keys;
        const std::size_t before = test::allocations_here();
        sort(script, true, v, by_value);
        const std::size_t made = test::allocations_here() - before;
        CHECK(v == expected);
        if (!test::counts_allocations()) {
            continue;
        }
        CHECK(made == 1);

        v = keys;
        bool refused = false;
        {
            const test::out_of_memory none;
            try {
                sort(script, true, v, by_value);
            } catch (const std::bad_alloc&) {
                refused = true;
            }
        }
        CHECK(refused);
        CHECK(v == keys);
        {
            const test::out_of_memory none;
            sort(script, false, v, by_value); // works without a buffer
        }
        CHECK(v == expected);
    }
}

// The first bytes of strings are compared as numbers: so there are bytes above 127, zeros, strings
// that end within the first 8 bytes, and many with the same 8 bytes.
TEST_CASE("parallel_sort: sorts strings by their bytes, also stably, and without memory",
          "[promise.sort-safe]") {
    struct named {
        std::string name;
        std::size_t place;
    };
    test::chance_forks::script script(test::run_seed());
    bide::scheduler s(test::with(3, true));
    const auto sort_by = [&script](auto& v, auto less, auto projection) {
        bide::detail::sort<true>(test::by_chance(script), bide::detail::elements_of(v), less,
                                 projection);
    };
    for (const std::size_t n : {50u, 1'024u, 20'000u}) {
        INFO(n << " strings");
        std::vector<named> in;
        std::vector<std::string> strings;
        for (std::size_t i = 0; i != n; ++i) {
            std::string name(script.chance.below(3) * 5, '\xc3');
            for (auto left = script.chance.below(12); left != 0; --left) {
                name += std::string_view("\0\x01z\x80\xff", 5)[script.chance.below(5)];
            }
            in.push_back({name, i});
            strings.push_back(name);
        }
        std::vector<std::string> expected = strings;
        std::sort(expected.begin(), expected.end());
        std::vector<std::string> out = strings;
        bide::parallel_sort(s, out, std::ranges::less());
        REQUIRE(out == expected);
        out = strings;
        bide::parallel_sort(s, out.begin(), out.end(), std::greater());
        REQUIRE(std::equal(out.begin(), out.end(), expected.rbegin(), expected.rend()));
        sort_by(in, std::less(), &named::name);
        REQUIRE(std::is_sorted(in.begin(), in.end(), [](const named& x, const named& y) {
            return x.name != y.name ? x.name < y.name : x.place < y.place;
        }));
        REQUIRE(std::equal(in.begin(), in.end(), expected.begin(), expected.end(),
                           [](const named& x, const std::string& y) { return x.name == y; }));
        std::deque<std::string_view> views(strings.begin(), strings.end());
        sort_by(views, std::less<std::string_view>(), std::identity());
        REQUIRE(std::equal(views.begin(), views.end(), expected.begin(), expected.end()));
        if (test::counts_allocations()) {
            out = strings;
            {
                std::less<> less;
                const test::out_of_memory none;
                bide::detail::sort<false>(test::by_chance(script), bide::detail::elements_of(out),
                                          less);
            }
            REQUIRE(out == expected);
        }
    }
}

// Large enough to be partitioned in parallel.
TEST_CASE("parallel_sort: gives the same order of equal elements on any number of workers",
          "[promise.sort-same-order]") {
    test::chance_forks::script script(test::run_seed());
    constexpr std::size_t n = 300'000;
    bide::scheduler one(test::with(1, true));
    bide::scheduler three(test::with(3, true));
    const auto few_keys = [&](shape of) {
        numbers keys = make(of, n, script.chance);
        const number width = *std::max_element(keys.begin(), keys.end()) / 20 + 1;
        for (number& key : keys) {
            key /= width;
        }
        return keys;
    };
    for (const auto of : {shape::random, shape::equal, shape::divided}) {
        numbers small = keyed(few_keys(of));
        numbers small_again = small;
        sort(one, false, small, by_key);
        sort(three, false, small_again, by_key);
        INFO(names[static_cast<int>(of)]);
        REQUIRE(small == small_again);
        REQUIRE(std::is_sorted(small.begin(), small.end(), by_key));
    }
    const numbers keys = few_keys(shape::random);
    std::vector<record> large = records(keys);
    std::vector<record> large_again = records(keys);
    sort(script, false, large, by_record_key);
    sort(three, false, large_again, by_record_key);
    REQUIRE(std::equal(large.begin(), large.end(), large_again.begin(),
                       [](const auto& a, const auto& b) { return a.place == b.place; }));
    REQUIRE(std::is_sorted(large.begin(), large.end(), by_record_key));
    REQUIRE(all_there(large, keys));
}

TEST_CASE(
    "parallel_sort: sorts all shapes and sizes on workers, and its progress reaches the number of "
    "elements",
    "[promise.sort-stops][promise.loop-visits-once]") {
    test::chance_forks::script script(test::run_seed());
    bide::scheduler s(test::with(3, true));
    for (const std::size_t n : {0u, 1u, 2u, 10u, 40u, 1'023u, 1'024u, 4'000u, 18'000u, 300'000u}) {
        for (int of = 0; of != static_cast<int>(shape::count); ++of) {
            const numbers keys = make(static_cast<shape>(of), n, script.chance);
            const numbers expected = sorted(keys);
            for (const bool stably : {false, true}) {
                if (n > 100'000 && (stably || static_cast<shape>(of) != shape::few)) {
                    continue; // which has the most partitions by all workers
                }
                bide::fork_progress progress;
                const bide::fork_policy on(s, {.progress = &progress});
                numbers v = keys;
                std::vector<record> w = records(keys);
                sort(on, stably, v, by_value);
                sort(on, stably, w, by_record_key);
                INFO(names[of] << ", " << n << (stably ? ", stably" : ""));
                REQUIRE(progress.total() == 2 * n);
                REQUIRE(progress.done() == 2 * n);
                REQUIRE(v == expected);
                REQUIRE((stably ? is_stably_sorted(w)
                                : std::is_sorted(w.begin(), w.end(), by_record_key)));
            }
        }
    }
}

TEST_CASE("parallel_sort: a stop ends it early, and loses no element", "[promise.sort-stops]") {
    test::jitter chance(test::run_seed());
    bide::scheduler s(test::with(2, true));
    const struct {
        shape of;
        std::size_t n;
        int when;
    } stops[] = {{shape::random, 50'000, 0},
                 {shape::random, 50'000, 1},
                 {shape::random, 50'000, 300'000},
                 {shape::few, 300'000, 200'000}}; // in a partition by all workers
    for (const bool stably : {false, true}) {
        for (const auto [of, n, when] : stops) {
            const numbers keys = make(of, n, chance);
            std::vector<record> w = records(keys);
            std::stop_source stop;
            std::atomic<int> calls{0};
            if (when == 0) {
                stop.request_stop();
            }
            const auto less = [&, at = when](const record& a, const record& b) {
                if (++calls == at) {
                    stop.request_stop();
                }
                return a.key < b.key;
            };
            bide::fork_progress progress;
            const bide::fork_policy on(s, {.stop = stop.get_token(), .progress = &progress});
            INFO(names[static_cast<int>(of)] << ", at " << when << (stably ? ", stably" : ""));
            CHECK_THROWS_AS(sort<record>(on, stably, w, less), bide::stopped_error);
            CHECK(calls < when + 400'000);
            CHECK(progress.done() < n);
            CHECK(all_there(w, keys));
            CHECK((when != 0 || calls == 0));
        }
        numbers few{2, 1};
        std::stop_source stop;
        stop.request_stop();
        const bide::fork_policy on(s, {.stop = stop.get_token()});
        CHECK_THROWS_AS(sort(on, stably, few, by_value), bide::stopped_error);
        CHECK(few == numbers{2, 1});
    }
}

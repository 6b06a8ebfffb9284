#include <bide/io/detail/growing_table.hpp>
#include <model/check.hpp>
#include <support/test.hpp>

// A table whose objects are made at their first use. All threads find one object for a number, as it was
// constructed. Every chunk that is made is destroyed once.

namespace {

using platform = model::platform;
template <class T> using var = platform::var<T>;

struct object {
    var<int> made{1}; // a race if it is found before it was constructed
    platform::atomic<int> users{0};
};
using table = bide::detail::growing_table<object, platform>;

void use(object* o) {
    MODEL_REQUIRE(o != nullptr && o->made == 1);
    o->users.fetch_add(1, std::memory_order_relaxed);
}

int users_of(const table& t, std::uint32_t number) {
    const object* const o = t.find(number);
    return o == nullptr ? 0 : o->users.load(std::memory_order_relaxed);
}

// Several threads make the object of one number, and one looks for it.
void made_by(int makers, std::uint32_t number) {
    table t;
    bool found = false;
    {
        model::thread other([&] { use(t.make(number)); });
        std::unique_ptr<model::thread> third;
        if (makers == 3) {
            third = std::make_unique<model::thread>([&] { use(t.make(number)); });
        }
        if (object* const o = t.find(number)) {
            use(o);
            found = true;
        }
        use(t.make(number));
    }
    MODEL_REQUIRE(users_of(t, number) == makers + (found ? 1 : 0));
    int all = 0;
    t.each([&all](object& o) { all += o.users.load(std::memory_order_relaxed); });
    MODEL_REQUIRE(all == makers + (found ? 1 : 0));
    model::record(found ? "found" : "not");
}

// Two numbers of one chunk and one of another.
void in_two_chunks() {
    table t;
    {
        model::thread other([&] {
            use(t.make(2));
            use(t.make(0));
        });
        use(t.make(0));
        use(t.make(3));
    }
    MODEL_REQUIRE(t.find(2) != t.find(3) && t.find(1) == nullptr);
    MODEL_REQUIRE(users_of(t, 0) == 2 && users_of(t, 2) == 1 && users_of(t, 3) == 1);
}

// A thread writes a flag and visits all objects. Another finds or makes an object, which a third
// may make, too, and then reads the flag.
void visited_or_flagged(bool third_makes) {
    table t;
    platform::atomic<bool> flag{false};
    bool is_flagged = false;
    bool is_visited = false;
    {
        model::thread user([&] {
            use(t.make(0));
            is_flagged = flag.load(std::memory_order_seq_cst);
        });
        std::unique_ptr<model::thread> third;
        if (third_makes) {
            third = std::make_unique<model::thread>([&] { use(t.make(0)); });
        }
        flag.store(true, std::memory_order_seq_cst);
        t.each([&](object&) { is_visited = true; });
    }
    MODEL_REQUIRE(is_visited || is_flagged);
}

} // namespace

TEST_CASE("growing_table: threads that make one object at a time get the same") {
    model::check("two make, one of them finds", [] { made_by(2, 0); });
    model::check("two make, in a chunk of two", [] { made_by(2, 3); });
    model::check("three make, one of them finds", [] { made_by(3, 0); });
    model::check("two chunks", in_two_chunks);
    CHECK(model::outcomes({}, [] { made_by(2, 0); }) == "found not");
}

TEST_CASE("growing_table: an object is visited, or its finder or maker sees the flag") {
    model::check("made beside a visit", [] { visited_or_flagged(false); });
    model::check("made by two beside a visit", [] { visited_or_flagged(true); });
}

// Two variables, each side writes one and then reads the other: a sender writes its item and looks
// for a sleeper, a receiver says that it sleeps and looks for an item. At least one must see the
// other. That takes the single order of seq_cst for all four accesses, or a seq_cst fence between
// write and read on both sides, or one word that both change.

#include <model/known_bad/parts.hpp>

using namespace known_bad;

namespace {

struct meeting {
    word item{0};
    word asleep{0};
    bell rung;
    var<int> value{0};

    void wake_if(bool sleeper) noexcept {
        if (sleeper) {
            rung.ring();
        }
    }
    void sleep_unless(bool found) noexcept {
        if (!found) {
            rung.wait();
        }
    }
};

// Which side has a seq_cst fence between its two steps.
enum class fences { none, sender, receiver, both };

template <order Send, order LookForSleeper, order Sleep, order LookForItem,
          fences Has = fences::none>
struct two_words : meeting {
    void send() noexcept {
        item.store(1, Send);
        if (Has == fences::sender || Has == fences::both) {
            platform::fence(order::seq_cst);
        }
        wake_if(asleep.load(LookForSleeper) != 0);
    }
    void receive() noexcept {
        asleep.store(1, Sleep);
        if (Has == fences::receiver || Has == fences::both) {
            platform::fence(order::seq_cst);
        }
        sleep_unless(item.load(LookForItem) != 0);
    }
};

// The item is no part of the order of seq_cst: the sender's load may come before its store is seen.
// So it is on x86, where the two are plain moves.
using seq_cst_on_the_flag_only =
    two_words<order::release, order::seq_cst, order::seq_cst, order::acquire>;
using seq_cst_on_the_item_only =
    two_words<order::seq_cst, order::acquire, order::release, order::seq_cst>;
// Repaired.
using seq_cst_on_all_four =
    two_words<order::seq_cst, order::seq_cst, order::seq_cst, order::seq_cst>;

// A fence orders nothing for the side that has none. Release and acquire are for what the item publishes.
template <fences Has>
using fenced = two_words<order::release, order::relaxed, order::relaxed, order::acquire, Has>;

// Read-modify-writes see the newest value of their own word; of the other word they say nothing.
struct rmw_on_two_words : meeting {
    void send() noexcept {
        item.exchange(1, order::acq_rel);
        wake_if(asleep.load(order::acquire) != 0);
    }
    void receive() noexcept {
        asleep.exchange(1, order::acq_rel);
        sleep_unless(item.load(order::acquire) != 0);
    }
};

// Repaired: both change one word. The second thread there sees the first, and a receiver that
// comes second acquires what the sender wrote before. No seq_cst.
struct rmw_on_one_word : meeting {
    void send() noexcept {
        item.store(1, order::release);
        wake_if(asleep.fetch_add(0, order::release) != 0);
    }
    void receive() noexcept {
        asleep.fetch_or(1, order::acquire);
        sleep_unless(item.load(order::acquire) != 0);
    }
};

template <class Protocol> void one_item() {
    Protocol p;
    model::thread receiver([&] {
        p.receive();
        MODEL_REQUIRE(p.value == 42);
    });
    p.value = 42;
    p.send();
}

} // namespace

TEST_CASE("known bad: seq_cst on one of the two variables loses a wake", "[known_bad]") {
    model::find("seq_cst on the flag only", failure::lost_wakeup, {},
                one_item<seq_cst_on_the_flag_only>);
    model::find("seq_cst on the item only", failure::lost_wakeup, {},
                one_item<seq_cst_on_the_item_only>);
    model::check("seq_cst on all four accesses", {}, one_item<seq_cst_on_all_four>);
}

TEST_CASE("known bad: a fence on one side only loses a wake", "[known_bad]") {
    model::find("fence in the sender only", failure::lost_wakeup, {},
                one_item<fenced<fences::sender>>);
    model::find("fence in the receiver only", failure::lost_wakeup, {},
                one_item<fenced<fences::receiver>>);
    model::check("fences on both sides", {}, one_item<fenced<fences::both>>);
}

TEST_CASE("known bad: read-modify-writes on two words lose a wake", "[known_bad]") {
    model::find("two words", failure::lost_wakeup, {}, one_item<rmw_on_two_words>);
    model::check("one word", {}, one_item<rmw_on_one_word>);
}

// ---- What a fence does not do

namespace {

// A fence publishes nothing to a thread that has neither fence nor acquire.
struct published_by_a_fence {
    word ready{0};
    void publish() noexcept {
        platform::fence(order::seq_cst);
        ready.store(1, order::relaxed);
    }
    bool look() noexcept { return ready.load(order::relaxed) != 0; }
};

// Repaired: data is published by a release store and an acquire load of the same word. (With a
// fence on the other side, too, it would be right but for ThreadSanitizer, which sees no fences.)
struct published_by_a_release {
    word ready{0};
    void publish() noexcept { ready.store(1, order::release); }
    bool look() noexcept { return ready.load(order::acquire) != 0; }
};

template <class Protocol> void one_value() {
    Protocol p;
    var<int> value{0};
    model::thread reader([&] {
        if (p.look()) {
            MODEL_REQUIRE(value == 42);
        }
    });
    value = 42;
    p.publish();
}

} // namespace

TEST_CASE("known bad: data published by a fence is a race", "[known_bad]") {
    model::find("published by a fence", failure::race, {}, one_value<published_by_a_fence>);
    model::check("published by a release store", {}, one_value<published_by_a_release>);
}

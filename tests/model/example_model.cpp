// How to check a structure of your own: README.md walks through this file.
//
// A mailbox holds one message. Senders wait while it is full, receivers while it is empty; any
// number of either. Its slot is one word:
//
//   empty   a sender may claim it
//   busy    a thread writes or reads the message
//   full    a receiver may claim it
//
// Waiters sleep on an event count: senders on one, receivers on the other.

#include <bide/core/parker.hpp>
#include <bide/model/linearizable.hpp>
#include <model/check.hpp>
#include <support/test.hpp>

namespace {

template <class Platform> class mailbox {
public:
    // Blocks: while it is full.
    void put(int message) noexcept {
        claim(empty, emptied_);
        message_ = message;
        hand_over(full, filled_);
    }

    // Blocks: while it is empty.
    int take() noexcept {
        claim(full, filled_);
        const int message = message_;
        hand_over(empty, emptied_);
        return message;
    }

protected:
    using events = bide::basic_event_count<Platform>;

    static constexpr std::uint32_t empty = 0;
    static constexpr std::uint32_t busy = 1;
    static constexpr std::uint32_t full = 2;

    bool try_claim(std::uint32_t from) noexcept {
        // Order: acquire [M1]; what the one before did with the message happens before.
        return slot_.compare_exchange_strong(from, busy, std::memory_order_acquire,
                                             std::memory_order_relaxed);
    }

    void claim(std::uint32_t from, events& became) noexcept {
        while (!try_claim(from)) {
            const auto epoch = became.prepare();
            if (try_claim(from)) { // the second look
                became.cancel();
                return;
            }
            became.wait(epoch);
        }
    }

    void hand_over(std::uint32_t to, events& became) noexcept {
        // Order: release [M1]; the message is written, or read.
        slot_.store(to, std::memory_order_release);
        became.notify_one();
    }

    typename Platform::template atomic<std::uint32_t> slot_{empty};
    typename Platform::template var<int> message_{0};
    events filled_;
    events emptied_;
};

} // namespace

TEST_CASE("example: a message that is put is taken", "[example]") {
    model::check("mailbox, 2 threads", {}, [] {
        mailbox<model::platform> box;
        model::thread sender([&] { box.put(42); });
        BIDE_MODEL_REQUIRE(box.take() == 42);
    });
}

TEST_CASE("example: a second message waits until the first is taken", "[example][.long]") {
    model::check("mailbox, 2 threads, 2 messages", {}, [] {
        mailbox<model::platform> box;
        model::thread sender([&] {
            box.put(1);
            box.put(2);
        });
        BIDE_MODEL_REQUIRE(box.take() == 1);
        BIDE_MODEL_REQUIRE(box.take() == 2);
    });
}

namespace {

template <class Mailbox> void two_senders() {
    Mailbox box;
    model::thread sender([&] { box.put(1); });
    model::thread other([&] { box.put(2); });
    const int first = box.take();
    sender.join();
    other.join();
    BIDE_MODEL_REQUIRE(first + box.take() == 3);
}

} // namespace

TEST_CASE("example: of two senders both get their message in", "[example]") {
    model::check("mailbox, 3 threads", {}, two_senders<mailbox<model::platform>>);
}

TEST_CASE("example: two senders and two receivers lose no message", "[example]") {
    model::options random;
    random.how = model::options::method::pct;
    random.runs = 20'000;
    model::check("mailbox, 4 threads, at random", random, [] {
        mailbox<model::platform> box;
        int first = 0;
        model::thread sender([&] { box.put(1); });
        model::thread other([&] { box.put(2); });
        model::thread receiver([&] { first = box.take(); });
        const int second = box.take();
        receiver.join();
        BIDE_MODEL_REQUIRE(first + second == 3);
    });
}

TEST_CASE("example: the mailbox is a queue of one message", "[example]") {
    model::check("mailbox, its specification", [] {
        mailbox<model::platform> box;
        model::linearizable checked(box, model::spec::queue<int>(1), "box");
        const auto put = [&](int message) {
            checked.call(
                "put", [](auto& b, int m) { b.put(m); }, // of the mailbox
                [](auto& q, int m) { q.push(m); },       // of the queue
                message);
        };
        const auto take = [&] {
            return checked.call(
                "take", [](auto& b) { return b.take(); }, [](auto& q) { return q.pop(); });
        };
        model::thread sender([&] { put(1); });
        model::thread other([&] { put(2); });
        take();
        sender.join();
        other.join();
        take();
    });
}

// ---- Broken on purpose

namespace {

// No second look between prepare() and wait().
template <class Platform> class hasty_mailbox : public mailbox<Platform> {
public:
    int take() noexcept {
        while (!this->try_claim(this->full)) {
            this->filled_.wait(this->filled_.prepare());
        }
        const int message = this->message_;
        this->hand_over(this->empty, this->emptied_);
        return message;
    }
};

// One event count for both: a wake that is for the receiver may go to a sender.
template <class Platform> class one_bell_mailbox : public mailbox<Platform> {
public:
    void put(int message) noexcept {
        this->claim(this->empty, this->filled_);
        this->message_ = message;
        this->hand_over(this->full, this->filled_);
    }
    int take() noexcept {
        this->claim(this->full, this->filled_);
        const int message = this->message_;
        this->hand_over(this->empty, this->filled_);
        return message;
    }
};

// The message is not published.
template <class Platform> class relaxed_mailbox : public mailbox<Platform> {
public:
    void put(int message) noexcept {
        this->claim(this->empty, this->emptied_);
        this->message_ = message;
        this->slot_.store(this->full, std::memory_order_relaxed);
        this->filled_.notify_one();
    }
};

template <class Mailbox> void one_message() {
    Mailbox box;
    model::thread sender([&] { box.put(42); });
    BIDE_MODEL_REQUIRE(box.take() == 42);
}

} // namespace

TEST_CASE("example: a receiver that does not look again sleeps on", "[example]") {
    model::find("no second look", model::failure::lost_wakeup, {},
                one_message<hasty_mailbox<model::platform>>);
}

TEST_CASE("example: one event count for both sides needs three threads to fail", "[example]") {
    model::check("one bell, 2 threads", {}, one_message<one_bell_mailbox<model::platform>>);
    model::find("one bell, 3 threads", model::failure::lost_wakeup, {},
                two_senders<one_bell_mailbox<model::platform>>);
}

TEST_CASE("example: a message that is not published is a race", "[example]") {
    model::find("relaxed", model::failure::race, {}, one_message<relaxed_mailbox<model::platform>>);
}

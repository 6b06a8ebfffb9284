// Plain memory that is no model::var, in bodies that were compiled with -fsanitize=thread.

#include <model/check.hpp>
#include <support/test.hpp>

using model::failure;

namespace {

// A lock as its users write it.
class spin_lock {
public:
    explicit spin_lock(std::memory_order unlock) noexcept : unlock_(unlock) {}
    void lock() noexcept {
        while (held_.exchange(true, std::memory_order_acquire)) {
        }
    }
    void unlock() noexcept { held_.store(false, unlock_); }

private:
    model::atomic<bool> held_{false};
    const std::memory_order unlock_;
};

// Two threads that do so under a lock.
template <class F> auto twice(std::memory_order unlock, F f) {
    return [unlock, f] {
        spin_lock lock(unlock);
        std::vector<std::string> words;
        int count = 0;
        const auto change = [&] {
            lock.lock();
            f(words, count);
            lock.unlock();
        };
        model::thread other(change);
        change();
    };
}

void one_more(std::vector<std::string>& words, int& count) {
    words.push_back("a text that is too long for the object itself");
    ++count;
}

TEST_CASE("watch: what a lock guards is no race, what it does not guard is one") {
    model::check("a vector of strings under a lock", twice(std::memory_order_release, one_more));
    model::find("under a lock that unlocks relaxed", failure::race,
                twice(std::memory_order_relaxed, one_more));
#if defined(__clang__) // g++ does not say what memcpy() and memset() access
    model::find("a copy by memcpy", failure::race, [] {
        std::string from(40, 'a');
        std::string to(40, 'b');
        model::thread other([&] { std::memcpy(to.data(), from.data(), to.size()); });
        from[17] = 'c';
        other.join();
    });
#endif
    model::find("an object that is passed on relaxed", failure::race, [] {
        model::atomic<int*> place{nullptr};
        const auto made = std::make_unique<int>(0);
        model::thread other([&] {
            const int* const seen = place.load(std::memory_order_relaxed);
            MODEL_REQUIRE(seen == nullptr || *seen == 7);
        });
        *made = 7;
        place.store(made.get(), std::memory_order_relaxed);
        other.join();
    });
}

TEST_CASE("watch: bytes of a word are apart, and reads are no races") {
    model::check("two halves", [] {
        struct halves {
            short low = 0;
            short high = 0;
        } both;
        model::thread other([&] { both.high = 1; });
        both.low = 2;
        other.join();
        MODEL_REQUIRE(both.low == 2 && both.high == 1);
    });
    model::check("two readers", [] {
        int value = 3;
        int seen[2] = {};
        model::thread other([&] { seen[0] = value; });
        seen[1] = value;
        other.join();
        MODEL_REQUIRE(seen[0] + seen[1] == 6);
    });
    model::find("a word, and a byte of it", failure::race, [] {
        const auto word = std::make_unique<unsigned>(0u);
        model::thread other([&] { *word = 1; });
        reinterpret_cast<unsigned char*>(word.get())[2] = 2;
        other.join();
        MODEL_REQUIRE(*word != 0);
    });
}

struct node {
    int value = 0;
    node* next = nullptr;
};

// A stack whose nodes are freed at once, though another thread may look at them.
template <bool Frees> class node_stack {
public:
    ~node_stack() {
        for (node* n = head_.load(); n != nullptr;) {
            delete std::exchange(n, n->next);
        }
    }
    void push(int value) {
        auto* const n = new node{value, head_.load(std::memory_order_relaxed)};
        while (!head_.compare_exchange_weak(n->next, n, std::memory_order_release,
                                            std::memory_order_relaxed)) {
        }
    }
    node* pop() {
        node* n = head_.load(std::memory_order_acquire);
        while (n != nullptr && !head_.compare_exchange_weak(n, n->next, std::memory_order_acquire,
                                                            std::memory_order_acquire)) {
        }
        if (Frees) {
            delete n;
        }
        return n;
    }

private:
    model::atomic<node*> head_{nullptr};
};

template <bool Frees> void two_pop() {
    node_stack<Frees> stack;
    stack.push(1);
    stack.push(2);
    node* other_popped = nullptr;
    model::thread other([&] { other_popped = stack.pop(); });
    node* const popped = stack.pop();
    other.join();
    if (!Frees) {
        delete popped;
        delete other_popped;
    }
}

TEST_CASE("watch: memory that was freed is not accessed") {
    model::check("nodes that are freed when all have looked", two_pop<false>);
    model::find("nodes that are freed at once", failure::lifetime, two_pop<true>);
    const auto v = model::find("a read behind a delete of the same thread", failure::lifetime, [] {
        auto* const one = new node{1, nullptr};
        const int* const volatile value = &one->value; // volatile: compilers warn of what they see
        delete one;
        MODEL_REQUIRE(*value != 1);
    });
    CHECK(v.message.find("read of memory that was freed by T0") == 0);
    model::find("a read that the delete is not ordered behind", failure::lifetime, [] {
        model::atomic<int> done{0};
        auto* const one = new node{1, nullptr};
        model::thread other([&] {
            MODEL_REQUIRE(one->value == 1);
            done.store(1, std::memory_order_relaxed);
        });
        while (done.load(std::memory_order_relaxed) == 0) {
        }
        delete one;
    });
}

} // namespace

#ifndef BIDE_TESTS_SUPPORT_COUNTED_HPP
#define BIDE_TESTS_SUPPORT_COUNTED_HPP

#include <support/standard.hpp>

namespace test {

// How many values were made and how many are gone, wherever.
struct tally {
    std::atomic<int> made{0}; // by any constructor
    std::atomic<int> gone{0};
    std::atomic<int> copied{0};
    int alive() const noexcept { return made.load() - gone.load(); }
};

// A number that is counted in a tally. One that was moved from holds -1.
class counted {
public:
    counted(tally& in, int number) noexcept : tally_(&in), number_(number) { ++tally_->made; }
    counted(const counted& other) noexcept : tally_(other.tally_), number_(other.number_) {
        ++tally_->made;
        ++tally_->copied;
    }
    counted(counted&& other) noexcept
        : tally_(other.tally_), number_(std::exchange(other.number_, -1)) {
        ++tally_->made;
    }
    counted& operator=(const counted& other) noexcept {
        ++tally_->copied;
        number_ = other.number_;
        return *this;
    }
    counted& operator=(counted&& other) noexcept {
        number_ = std::exchange(other.number_, -1);
        return *this;
    }
    ~counted() { ++tally_->gone; }

    int number() const noexcept { return number_; }

private:
    tally* tally_;
    int number_;
};

// As counted, but it cannot be copied.
class counted_once : public counted {
public:
    using counted::counted;
    counted_once(counted_once&&) noexcept = default;
    counted_once& operator=(counted_once&&) noexcept = default;
};

// As counted, but it cannot be copied, and its moves count `moves_left` down. The move that comes to
// 0 throws a Failure, and moves nothing.
template <class Failure> class fickle : public counted {
public:
    using counted::counted;
    fickle(fickle&& other) noexcept(false) : counted((count(), std::move(other))) {}
    fickle& operator=(fickle&& other) noexcept(false) {
        count();
        counted::operator=(std::move(other));
        return *this;
    }

    static inline std::atomic<int> moves_left{0}; // several workers move

private:
    static void count() {
        if (--moves_left == 0) {
            throw Failure();
        }
    }
};

// A number that can only be moved, without a default constructor, and with an address and a comma of
// its own.
struct hostile_number {
    explicit hostile_number(int n) : number(std::make_unique<int>(n)) {}
    hostile_number* operator&() const = delete;
    template <class T> void operator,(T&&) const = delete;
    friend bool operator==(const hostile_number& a, const hostile_number& b) {
        return *a.number == *b.number;
    }
    std::unique_ptr<int> number;
};

} // namespace test

#endif

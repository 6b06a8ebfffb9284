#ifndef BIDE_TESTS_SUPPORT_TEXT_HPP
#define BIDE_TESTS_SUPPORT_TEXT_HPP

#include <support/standard.hpp>

namespace test {

// Which texts are alive, by address, since the last one of these was made.
class lives {
public:
    lives() {
        const std::lock_guard lock(mutex);
        alive.clear();
        strays = 0;
        copied = 0;
    }
    lives(const lives&) = delete;
    lives& operator=(const lives&) = delete;

    // Each that was made was destroyed, once.
    bool are_over() const {
        const std::lock_guard lock(mutex);
        return alive.empty() && strays == 0;
    }
    int copies() const {
        const std::lock_guard lock(mutex);
        return copied;
    }

private:
    friend class text;

    static inline std::mutex mutex;
    static inline std::set<const void*> alive;
    static inline int strays = 0; // destroyed where no text was
    static inline int copied = 0;
};

// Made of a literal by conversion, as std::string is. A second destructor at the same place finds
// no text there, and touches nothing else.
class text {
public:
    text(const char* what) noexcept : what_(what) { begin(); }
    text(const text& other) noexcept : what_(other.what_) { begin(1); }
    text(text&& other) noexcept : what_(std::exchange(other.what_, "")) { begin(); }
    text& operator=(const text&) noexcept = default;
    text& operator=(text&&) noexcept = default;
    ~text() {
        const std::lock_guard lock(lives::mutex);
        lives::strays += lives::alive.erase(this) == 0 ? 1 : 0;
    }

    bool operator==(const text& other) const { return std::string(what_) == other.what_; }

private:
    void begin(int copies = 0) noexcept {
        const std::lock_guard lock(lives::mutex);
        lives::alive.insert(this);
        lives::copied += copies;
    }

    const char* what_;
};

} // namespace test

#endif

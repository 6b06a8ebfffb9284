#ifndef BIDE_TESTS_SUPPORT_NARROW_ITERATOR_HPP
#define BIDE_TESTS_SUPPORT_NARROW_ITERATOR_HPP

#include <support/standard.hpp>

namespace test {

// An iterator over an array whose difference is narrower than a pointer.
template <class T> class narrow_iterator {
public:
    using value_type = T;
    using difference_type = std::int32_t;
    using iterator_category = std::random_access_iterator_tag;
    using pointer = T*;
    using reference = T&;

    narrow_iterator() = default;
    explicit narrow_iterator(T* at) : at_(at) {}
    T& operator*() const { return *at_; }
    T& operator[](std::int32_t n) const { return at_[n]; }
    narrow_iterator& operator++() { return *this += 1; }
    narrow_iterator operator++(int) { return std::exchange(*this, *this + 1); }
    narrow_iterator& operator--() { return *this -= 1; }
    narrow_iterator operator--(int) { return std::exchange(*this, *this - 1); }
    narrow_iterator& operator+=(std::int32_t n) {
        at_ += n;
        return *this;
    }
    narrow_iterator& operator-=(std::int32_t n) {
        at_ -= n;
        return *this;
    }
    friend narrow_iterator operator+(narrow_iterator i, std::int32_t n) { return i += n; }
    friend narrow_iterator operator+(std::int32_t n, narrow_iterator i) { return i += n; }
    friend narrow_iterator operator-(narrow_iterator i, std::int32_t n) { return i -= n; }
    friend std::int32_t operator-(narrow_iterator a, narrow_iterator b) {
        return static_cast<std::int32_t>(a.at_ - b.at_);
    }
    friend auto operator<=>(narrow_iterator, narrow_iterator) = default;

private:
    T* at_ = nullptr;
};
static_assert(std::random_access_iterator<narrow_iterator<int>>);

} // namespace test

#endif

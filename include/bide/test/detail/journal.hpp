// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TEST_DETAIL_JOURNAL_HPP
#define BIDE_TEST_DETAIL_JOURNAL_HPP

#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace bide { inline namespace BIDE_ABI { namespace test::detail {

inline std::string_view last_lines(std::string_view text, int lines) noexcept {
    std::size_t at = text.size();
    for (; at != 0 && lines >= 0; --at) {
        lines -= text[at - 1] == '\n' ? 1 : 0;
    }
    return text.substr(at == 0 ? 0 : at + 1);
}

// Sets an object to a value for as long as the `replaced` exists.
template <class T> class replaced {
public:
    replaced(T& object, std::type_identity_t<T> next) noexcept
        : object_(object), outer_(std::exchange(object, std::move(next))) {}
    replaced(const replaced&) = delete;
    replaced& operator=(const replaced&) = delete;
    ~replaced() { object_ = std::move(outer_); }

private:
    T& object_;
    T outer_;
};

// The journal of a run: a text with a line for each decision. It contains no address and no
// measured time, so equal runs have equal journals. If there is no memory for the text, terminates
// the program.
class BIDE_SHARED journal {
public:
    template <class... Parts> void line(const Parts&... parts) noexcept {
        bide::detail::made_or_fatal("no memory for the journal of a simulation", [&] {
            (add(parts), ...);
            text_ += '\n';
        });
    }

    const std::string& text() const noexcept { return text_; }

    // If set, receives the journal of each simulation that the thread destroys (test/explore.hpp).
    struct sink {
        std::string* to = nullptr;
    };
    void leave() noexcept {
        if (std::string* const to = native_platform::local<sink>().to) {
            *to = std::move(text_);
        }
    }

private:
    void add(std::string_view text) { text_ += text; }
    template <std::integral T> void add(T number) {
        char digits[24];
        const auto end = std::to_chars(digits, digits + sizeof digits, number);
        text_.append(digits, end.ptr);
    }

    std::string text_;
};

}}} // namespace bide::BIDE_ABI::test::detail

#endif

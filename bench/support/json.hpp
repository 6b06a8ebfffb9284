#ifndef BIDE_BENCH_SUPPORT_JSON_HPP
#define BIDE_BENCH_SUPPORT_JSON_HPP

// Writes JSON as it goes, nothing in memory. What is not a finite number becomes null.

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <ostream>
#include <string_view>
#include <vector>

namespace bench {

class json_writer {
public:
    explicit json_writer(std::ostream& out) : out_(out) {}

    json_writer& begin_object() { return open('{'); }
    json_writer& end_object() { return close('}'); }
    json_writer& begin_array() { return open('['); }
    json_writer& end_array() { return close(']'); }

    // Names the member that the next value is.
    json_writer& key(std::string_view name) {
        separate();
        quote(name);
        out_ << ": ";
        after_key_ = true;
        return *this;
    }

    json_writer& value(std::string_view text) {
        separate();
        quote(text);
        return *this;
    }
    json_writer& value(const char* text) { return value(std::string_view(text)); }

    json_writer& value(double number) {
        separate();
        if (!std::isfinite(number)) {
            out_ << "null";
            return *this;
        }
        char text[32];
        std::snprintf(text, sizeof text, "%.6g", number);
        out_ << text;
        return *this;
    }

    json_writer& value(bool truth) {
        separate();
        out_ << (truth ? "true" : "false");
        return *this;
    }

    template <class Value> json_writer& member(std::string_view name, const Value& what) {
        return key(name).value(what);
    }

    json_writer& member(std::string_view name, const std::vector<double>& numbers) {
        key(name).begin_array();
        for (const double number : numbers) {
            value(number);
        }
        return end_array();
    }

private:
    json_writer& open(char bracket) {
        separate();
        out_ << bracket;
        empty_.push_back(true);
        return *this;
    }

    json_writer& close(char bracket) {
        const bool was_empty = empty_.back();
        empty_.pop_back();
        if (!was_empty) {
            new_line();
        }
        out_ << bracket;
        if (empty_.empty()) {
            out_ << '\n';
        }
        return *this;
    }

    // Before a key or an element: the comma and the line break that it needs.
    void separate() {
        if (after_key_) {
            after_key_ = false;
            return;
        }
        if (empty_.empty()) {
            return;
        }
        if (!empty_.back()) {
            out_ << ',';
        }
        empty_.back() = false;
        new_line();
    }

    void new_line() {
        out_ << '\n';
        for (std::size_t i = 0; i < empty_.size(); ++i) {
            out_ << "  ";
        }
    }

    void quote(std::string_view text) {
        out_ << '"';
        for (const char c : text) {
            if (c == '"' || c == '\\') {
                out_ << '\\' << c;
            } else if (static_cast<unsigned char>(c) < 0x20) {
                char escape[8];
                std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
                out_ << escape;
            } else {
                out_ << c;
            }
        }
        out_ << '"';
    }

    std::ostream& out_;
    std::vector<bool> empty_; // of each open bracket: nothing inside yet
    bool after_key_ = false;
};

} // namespace bench

#endif

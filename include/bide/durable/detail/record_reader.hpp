// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_RECORD_READER_HPP
#define BIDE_DURABLE_DETAIL_RECORD_READER_HPP

// Fills a record with its fields while the text is parsed. Known fields are stored directly,
// without a tree of JSON values. Only unknown fields become a tree.

#include <bide/core/config.hpp>
#include <bide/durable/detail/record_fields.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bide::inline BIDE_ABI {
namespace durable {
namespace detail {

// Which value comes next, and where it is stored.
struct expectation {
    enum kind {
        root,
        number,
        text,
        clock,
        version,
        holders,
        one_holder,
        waiters,
        one_waiter,
        observations,
        one_observation,
        note,
        unknown
    };
    kind what = root;
    std::int64_t* number_at = nullptr;
    std::string* text_at = nullptr;
    std::int64_t least = 0; // the range of the number, or of the text's size in bytes
    std::int64_t most = 0;
};

// Finds the field of a name. After all fields were passed, `required` has the required ones.
class field_search {
public:
    explicit field_search(std::string_view name) : name_(name) {}

    expectation found{};
    std::uint32_t bit = 0; // the bit of the last field that was passed
    std::uint32_t required = 0;

    bool number(std::string_view name, std::int64_t& value, std::int64_t least, std::int64_t most) {
        return match(name, true, {expectation::number, &value, nullptr, least, most});
    }
    bool maybe_number(std::string_view name, std::int64_t& value, std::int64_t least,
                      std::int64_t most, bool) {
        return match(name, false, {expectation::number, &value, nullptr, least, most});
    }
    bool text(std::string_view name, std::string& value) {
        return match(name, true, {expectation::text, nullptr, &value, 1, longest_name});
    }
    bool maybe_text(std::string_view name, std::string& value, std::int64_t longest, bool) {
        return match(name, false, {expectation::text, nullptr, &value, 0, longest});
    }
    bool observations(std::string_view name, const std::vector<stored_observation>&) {
        return match(name, false, {expectation::observations});
    }
    bool note(std::string_view name, const std::optional<admin_note>&) {
        return match(name, false, {expectation::note});
    }
    bool clock(std::string_view name, lock_clock) {
        return match(name, true, {expectation::clock});
    }
    bool version(std::string_view name) { return match(name, true, {expectation::version}); }
    bool holders(std::string_view name, const std::vector<holder>&) {
        return match(name, true, {expectation::holders});
    }
    bool waiters(std::string_view name, const std::vector<waiter>&) {
        return match(name, true, {expectation::waiters});
    }

private:
    bool match(std::string_view name, bool has_to_be, const expectation& what) {
        bit = bit == 0 ? 1 : bit << 1;
        required |= has_to_be ? bit : 0;
        if (name != name_) {
            return false;
        }
        found = what;
        return true;
    }

    std::string_view name_;
};

// The limit of nesting: unknown fields are written by a function that calls itself for each level.
inline constexpr int deepest_nesting = 64;

// Makes a record from the events of nlohmann's parser. Each function returns whether the parser
// continues. If the text is not acceptable JSON, the functions return false. If the text is JSON
// but no valid record, the parser continues, because the record may have another version. A value
// in an unexpected place is then read like an unknown one.
class record_reader {
public:
    explicit record_reader(record& into) : into_(into) {}

    // To be called after all was parsed.
    bool has_version() const noexcept { return has_version_; }
    bool is_ours() const noexcept { return is_ours_; } // has the version of this format
    bool good() const noexcept { return good_; }

    bool null() { return keep(nullptr); }
    bool boolean(bool value) { return keep(value); }
    bool number_float(double value, const std::string&) { return keep(value); }
    bool number_unsigned(std::uint64_t value) {
        return value > std::uint64_t{largest_number} && !awaits(expectation::version)
                   ? keep(value)
                   : number_integer(static_cast<std::int64_t>(value));
    }

    bool number_integer(std::int64_t value) {
        if (awaits(expectation::number)) {
            *next_.number_at = value;
            good_ = good_ && value >= next_.least && value <= next_.most;
            return true;
        }
        if (awaits(expectation::version)) {
            has_version_ = true;
            is_ours_ = value == record_format;
            return true;
        }
        return keep(value);
    }

    bool string(std::string& value) {
        if (awaits(expectation::text)) {
            const auto bytes = static_cast<std::int64_t>(value.size());
            good_ = good_ && bytes >= next_.least && bytes <= next_.most;
            *next_.text_at = value; // not moved: the parser reuses its memory
            return true;
        }
        return awaits(expectation::clock) ? clock(value) : keep(std::move(value));
    }

    bool start_object(std::size_t) {
        if (++depth_ > deepest_nesting) {
            return false;
        }
        if (awaits(expectation::root)) {
            seen_[level_] = 0;
        } else if (awaits(expectation::one_holder)) {
            into_.holders.emplace_back();
            enter();
        } else if (awaits(expectation::one_waiter)) {
            into_.waiters.emplace_back();
            enter();
        } else if (awaits(expectation::one_observation)) {
            observed_by(object()).emplace_back();
            enter();
        } else if (awaits(expectation::note)) {
            into_.admin.emplace();
            enter();
        } else {
            open_.push_back(&place_of_next());
            *open_.back() = json::object();
        }
        return true;
    }

    // Refuses a second field of the same name: a reader that takes the first one would see another
    // record than a reader that takes the last one.
    bool key(std::string& name) {
        if (open_.empty()) {
            field_search search(name);
            if (each_field(search)) {
                next_ = search.found;
                const bool is_first = (seen_[level_] & search.bit) == 0;
                seen_[level_] |= search.bit;
                return is_first;
            }
            next_.what = expectation::unknown;
        }
        json& object = open_.empty() ? unknown_[level_] : *open_.back();
        const auto [at, is_first] = object.emplace(name, nullptr);
        value_of_key_ = &*at;
        return is_first;
    }

    bool end_object() {
        --depth_;
        if (!open_.empty()) {
            open_.pop_back();
            return true;
        }
        field_search all("");
        each_field(all);
        good_ = good_ && (seen_[level_] & all.required) == all.required;
        if (!unknown_[level_].is_null()) {
            extra() = unknown_[level_].dump();
            unknown_[level_] = nullptr;
        }
        if (level_ != 0) {
            next_.what = object();
            --level_;
        }
        return true;
    }

    bool start_array(std::size_t) {
        if (++depth_ > deepest_nesting) {
            return false;
        }
        if (awaits(expectation::holders)) {
            next_.what = expectation::one_holder;
        } else if (awaits(expectation::waiters)) {
            next_.what = expectation::one_waiter;
        } else if (awaits(expectation::observations)) {
            next_.what = expectation::one_observation;
        } else {
            open_.push_back(&place_of_next());
            *open_.back() = json::array();
        }
        return true;
    }

    bool end_array() {
        --depth_;
        if (!open_.empty()) {
            open_.pop_back();
        }
        return true;
    }

    bool binary(json::binary_t&) { return false; }
    bool parse_error(std::size_t, const std::string&, const json::exception&) { return false; }

private:
    bool awaits(expectation::kind kind) const noexcept {
        return next_.what == kind && open_.empty();
    }

    // Enters the next object: a holder, a waiter, an observation of either, or the note.
    void enter() noexcept {
        objects_[++level_] = next_.what;
        seen_[level_] = 0;
    }
    // Returns the kind of the innermost known object.
    expectation::kind object() const noexcept { return objects_[level_]; }

    std::vector<stored_observation>& observed_by(expectation::kind entry) noexcept {
        return entry == expectation::one_holder ? into_.holders.back().observed
                                                : into_.waiters.back().observed;
    }
    stored_observation& observation() noexcept { return observed_by(objects_[level_ - 1]).back(); }

    template <class F> bool each_field(F& f) {
        switch (object()) {
        case expectation::one_holder: return each_holder_field(into_.holders.back(), f);
        case expectation::one_waiter: return each_waiter_field(into_.waiters.back(), f);
        case expectation::one_observation: return each_observation_field(observation(), f);
        case expectation::note: return each_note_field(*into_.admin, f);
        default: return each_record_field(into_, f);
        }
    }
    std::string& extra() noexcept {
        switch (object()) {
        case expectation::one_holder: return into_.holders.back().extra;
        case expectation::one_waiter: return into_.waiters.back().extra;
        case expectation::one_observation: return observation().extra;
        case expectation::note: return into_.admin->extra;
        default: return into_.extra;
        }
    }

    bool clock(std::string_view name) noexcept {
        for (const clock_name& one : clock_names) {
            if (one.name == name) {
                into_.clock = one.clock;
                return true;
            }
        }
        good_ = false;
        return true;
    }

    bool keep(json&& value) {
        place_of_next() = std::move(value);
        return true;
    }
    json& place_of_next() {
        if (!open_.empty() && open_.back()->is_array()) {
            return open_.back()->emplace_back(nullptr);
        }
        if (!open_.empty() || next_.what == expectation::unknown) {
            return *value_of_key_;
        }
        good_ = false;
        return misplaced_;
    }

    record& into_;
    expectation next_{};
    std::size_t level_ = 0; // 0: the record; 1: a holder, waiter or note; 2: an observation
    expectation::kind objects_[3] = {expectation::root, expectation::root, expectation::root};
    std::uint32_t seen_[3] = {0, 0, 0}; // by level: the bits of the fields that were read
    json unknown_[3];                   // by level: the unknown fields
    std::vector<json*> open_;           // the nested containers within an unknown field
    json* value_of_key_ = nullptr;
    json misplaced_; // takes a value of the wrong type, until it is parsed
    int depth_ = 0;
    bool has_version_ = false;
    bool is_ours_ = false;
    bool good_ = true;
};

} // namespace detail
} // namespace durable
} // namespace bide::inline BIDE_ABI

#endif

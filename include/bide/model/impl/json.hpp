// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_JSON_HPP
#define BIDE_MODEL_IMPL_JSON_HPP

// Describes a failed execution in JSON, for editors and other programs. README.md of the room lists
// the members.

#include <bide/model/impl/report.hpp>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// An object of JSON whose members are texts, numbers and truth values.
class json_object {
public:
    json_object& add(const char* name, const std::string& value) {
        return add_raw(name, quoted(value));
    }
    json_object& add(const char* name, const char* value) { return add(name, std::string(value)); }
    json_object& add(const char* name, int value) { return add_raw(name, std::to_string(value)); }
    json_object& add(const char* name, bool value) {
        return add_raw(name, value ? "true" : "false");
    }
    // Adds the file, the line and the text of a place, if it is known.
    json_object& add(site where) {
        const site s = resolved(where);
        return s.file == nullptr
                   ? *this
                   : add("file", s.file).add("line", s.line).add("source", source_text(s));
    }
    json_object& add_raw(const char* name, const std::string& value) {
        members_ += (members_.empty() ? "" : ", ") + quoted(name) + ": " + value;
        return *this;
    }
    std::string print() const { return "{" + members_ + "}"; }

    static std::string quoted(const std::string& text) {
        std::string out = "\"";
        for (std::size_t at = 0; at < text.size(); ++at) {
            const char c = text[at];
            const std::size_t size = size_of_character(std::string_view(text).substr(at));
            if (static_cast<unsigned char>(c) < 0x20) {
                char code[8];
                std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
                out += code;
            } else if (size == 0) {
                out += "\\ufffd"; // the character that stands for an error
            } else {
                out += c == '"' || c == '\\' ? "\\" : "";
                out += text.substr(at, size);
                at += size - 1;
            }
        }
        return out + '"';
    }

private:
    // Returns how many bytes the first character of a text has in UTF-8; 0 if it is not valid.
    static std::size_t size_of_character(std::string_view text) {
        const auto first = static_cast<unsigned char>(text.front());
        const std::size_t size = first < 0x80                    ? 1
                                 : first >= 0xc2 && first < 0xe0 ? 2
                                 : first >= 0xe0 && first < 0xf0 ? 3
                                 : first >= 0xf0 && first < 0xf5 ? 4
                                                                 : 0;
        if (size > text.size()) {
            return 0;
        }
        for (std::size_t i = 1; i < size; ++i) {
            const auto next = static_cast<unsigned char>(text[i]);
            const bool is_too_small =
                (first == 0xe0 && next < 0xa0) || (first == 0xf0 && next < 0x90);
            const bool is_too_large =
                (first == 0xed && next > 0x9f) || (first == 0xf4 && next > 0x8f);
            if ((next & 0xc0) != 0x80 || (i == 1 && (is_too_small || is_too_large))) {
                return 0;
            }
        }
        return size;
    }

    std::string members_;
};

class json_report : account {
public:
    using account::account;

    // `failed` is the kind of the failure as text.
    std::string print(const char* failed) const {
        json_object out;
        out.add("format", 1)
            .add("failure", failed)
            .add("message", x_.message())
            .add("path", x_.path())
            .add("threads", x_.threads());
        if (x_.failed_by() >= 0) {
            out.add("failed_by", x_.failed_by());
        }
        return out.add_raw("steps", steps())
                   .add_raw("accesses", accesses())
                   .add_raw("calls", calls())
                   .add("report", report_of(x_))
                   .print() +
               "\n";
    }

private:
    static std::string array(const std::vector<std::string>& all) {
        std::string out;
        for (const std::string& one : all) {
            out += (out.empty() ? "\n  " : ",\n  ") + one;
        }
        return "[" + out + (all.empty() ? "]" : "\n]");
    }

    std::string steps() const {
        std::vector<std::string> all;
        for (const int number : order_.events()) {
            all.push_back(step_object(number).print());
        }
        return array(all);
    }
    json_object step_object(int number) const {
        constexpr std::array<const char*, 7> kinds = {"load",  "store", "fence", "choice",
                                                      "start", "join",  "local"};
        const event& e = memory_.event_at(number);
        json_object out;
        out.add("step", order_.place(number))
            .add("thread", static_cast<int>(e.id.thread))
            .add("operation", kinds[static_cast<std::size_t>(e.what)]);
        if (is_access(e)) {
            const int writer = e.what == event::kind::read ? memory_.msg(e.message).event : -1;
            out.add("object", (is_queue(e) ? "futex " : "") + names_[e.object])
                .add("order", detail::text(e.with))
                .add("value", detail::text(e.value))
                .add("half_of_rmw", e.exclusive);
            if (e.what == event::kind::read) {
                out.add("old", order_.newer_than(number) >= 0);
            }
            if (writer >= 0) {
                out.add("reads_from", order_.place(writer));
            }
        } else if (e.what == event::kind::fence) {
            out.add("order", detail::text(e.with));
        } else if (e.what == event::kind::choice) {
            out.add("value", std::to_string(e.pick));
        } else if (e.what == event::kind::start || e.what == event::kind::join) {
            out.add("value", std::to_string(e.value));
        }
        if (*e.text != '\0') {
            out.add("text", e.text);
        }
        return out.add(e.where);
    }

    // The two accesses that are not ordered, if that is the failure.
    std::string accesses() const {
        constexpr std::array<const char*, 5> kinds = {"read", "write", "make", "destroy", "use"};
        std::vector<std::string> all;
        if (const clash* const c = clash_of(x_); c != nullptr) {
            const auto add = [&](clash::access how, event_id at, int place) {
                if (at.is_initial()) {
                    return;
                }
                json_object one;
                one.add("thread", static_cast<int>(at.thread))
                    .add("operation", kinds[static_cast<std::size_t>(how)])
                    .add("object", names_.of(*c));
                if (const int next = memory_.number_of(at); next >= 0) {
                    one.add("before_step", order_.place(next));
                }
                all.push_back(one.add(site_at(place)).print());
            };
            add(c->earlier, c->first, c->first_at);
            add(c->later, c->second, c->second_at);
        }
        return array(all);
    }

    // The calls of objects with a specification.
    std::string calls() const {
        std::vector<std::string> all;
        for (const auto& h : x_.histories) {
            for (int n = 0; n < static_cast<int>(h->calls.size()); ++n) {
                const history::call& c = h->calls[index(n)];
                json_object one;
                one.add("object", h->name)
                    .add("thread", c.began.thread)
                    .add("call", h->call_text(n))
                    .add("returned", c.has_returned)
                    .add("result", h->result_text(n));
                all.push_back(one.print());
            }
        }
        return array(all);
    }
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif

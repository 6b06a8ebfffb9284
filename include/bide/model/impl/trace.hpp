// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_TRACE_HPP
#define BIDE_MODEL_IMPL_TRACE_HPP

#include <bide/core/config.hpp>
#include <bide/model/detail/execution.hpp>
#include <bide/model/detail/report.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

const char* text(order o) {
    switch (o) {
    case order::relaxed: return "relaxed";
    case order::consume: return "consume";
    case order::acquire: return "acquire";
    case order::release: return "release";
    case order::acq_rel: return "acq_rel";
    case order::seq_cst: return "seq_cst";
    }
    return "?";
}

std::string text(bits value) {
    char out[32];
    std::snprintf(out, sizeof out, value < 0x10000 ? "%llu" : "0x%llx",
                  static_cast<unsigned long long>(value));
    return out;
}

std::string text(site s) {
    if (s.file == nullptr) {
        return {};
    }
    const char* const name = std::strrchr(s.file, '/');
    return std::string(name == nullptr ? s.file : name + 1) + ":" + std::to_string(s.line);
}

std::string wrapped(const std::string& all, std::size_t width, std::size_t indent) {
    std::string out;
    for (std::size_t at = 0; at < all.size();) {
        const std::size_t end = std::min(all.find('\n', at), all.size());
        std::size_t room = width;
        while (end - at > room) {
            const std::size_t blank = all.rfind(' ', at + room);
            if (blank == std::string::npos || blank <= all.find_first_not_of(' ', at)) {
                break;
            }
            out.append(all, at, blank - at).append("\n").append(indent, ' ');
            at = blank + 1;
            room = width - indent;
        }
        out.append(all, at, end - at).append("\n");
        at = end + 1;
    }
    return out;
}

namespace {

std::string padded(std::string s, std::size_t width) {
    s.resize(s.size() < width ? width : s.size(), ' ');
    return s;
}

} // namespace

// Writes a line for each step: its number, its thread, the operation, and the source position. For
// a read, the line names the step that wrote the value, and says whether it was the newest one.
std::string execution::trace() {
    const auto name = [&](int o) {
        const object& x = memory_.at(o);
        if (x.name != nullptr) {
            return std::string(x.name);
        }
        return (x.queue ? "futex" : "a") + std::to_string(o);
    };
    const step_order steps(*this);
    std::string out;
    for (const int i : steps.events()) {
        const event& e = memory_.events[index(i)];
        const bool old = steps.newer_than(i) >= 0;
        std::string what;
        switch (e.what) {
        case event::kind::read: {
            const auto& from = memory_.msg(e.message);
            what = e.exclusive ? "rmw    " : "load   ";
            what += name(e.object) + " " + text(e.with) + " -> " + text(e.value);
            what += from.event < 0 ? ", the initial value"
                                   : ", of #" + std::to_string(steps.place(from.event));
            what += old ? " (old)" : "";
            break;
        }
        case event::kind::write:
            what = e.exclusive ? "   and  " : "store  ";
            what += name(e.object) + " " + text(e.with) + " := " + text(e.value);
            what += old ? " (before one that is there)" : "";
            break;
        case event::kind::fence: what = std::string("fence  ") + text(e.with); break;
        case event::kind::choice: what = std::string(e.text) + " " + std::to_string(e.pick); break;
        case event::kind::local: {
            what = e.text;
            const bool other = is_start(e) || is_join(e);
            what += other ? " T" + std::to_string(e.value) : "";
            break;
        }
        }
        const bool detail = e.what == event::kind::read || e.what == event::kind::write;
        if (detail && e.text[0] != '\0') {
            what += std::string("  [") + e.text + "]";
        }
        out += padded("#" + std::to_string(steps.place(i)), 5) + std::string(4 * e.id.thread, ' ') +
               "T" + std::to_string(e.id.thread) + " " + padded(std::move(what), 60) + "  " +
               text(e.where) + "\n";
    }
    return out;
}

}}} // namespace bide::BIDE_ABI::model::detail

#endif

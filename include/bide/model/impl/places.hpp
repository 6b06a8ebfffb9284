// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_PLACES_HPP
#define BIDE_MODEL_IMPL_PLACES_HPP

// Places in the machine code of a body. An access whose source line is not known is reported by the
// address of its instruction, and by the calls that lead there. The line is found in the debug
// information of the program, by the program addr2line, when a report needs it.

#include <bide/model/impl/heap.hpp>

#include <array>
#include <cstdio>
#include <string>
#include <unordered_map>
#include <vector>

#if defined(__linux__)
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// The file of a site whose line is the number of a place in code_places.
inline constexpr char in_code[] = "";

// A set of places that only grows. A place has the same number in all executions.
class code_places {
public:
    static constexpr int none = -1;

    // Returns the number of the place: the code before the return address `address`, in a function
    // that was called at the place `caller`.
    int add(int caller, const void* address) {
        const key wanted{reinterpret_cast<std::uintptr_t>(address), caller};
        recent& last = recent_[hash()(wanted) >> 56];
        if (last.number == none || !(last.of == wanted)) {
            last = {wanted, number_of(wanted)};
        }
        return last.number;
    }
    // Returns a number below `none` that stands for the address, without a look-up. Returns `none`
    // if the code is not in the program.
    static int brief(const void* address) noexcept {
        const std::uintptr_t distance = reinterpret_cast<std::uintptr_t>(address) - lowest();
        return distance < farthest ? -2 - static_cast<int>(distance) : none;
    }
    // Returns the number of the place for which `number` stands. Returns other numbers unchanged.
    int number_of_brief(int number) {
        return number >= none ? number
                              : add(none, reinterpret_cast<const void*>(
                                              lowest() + static_cast<std::uintptr_t>(-2 - number)));
    }
    int caller_of(int place) const noexcept {
        return place < 0 ? none : all_[static_cast<std::size_t>(place)].caller;
    }
    // Returns the source line of a place: the innermost one that is not in the standard library.
    ops::site line_of(int place) { return is_known(place) ? look_up(place).inner : ops::site{}; }
    // Returns the innermost source line in the user's own files, from which the place was reached.
    ops::site user_line_of(int place) {
        return is_known(place) ? look_up(place).outer : ops::site{};
    }

private:
    // The code of the program is at these addresses, less than 1 GiB from this function.
    static constexpr std::uintptr_t farthest = (std::uintptr_t{1} << 31) - 2;
    static std::uintptr_t lowest() noexcept {
        return reinterpret_cast<std::uintptr_t>(&is_of_system) - farthest / 2;
    }

    struct entry {
        std::uintptr_t address = 0;
        int caller = none;
        ops::site inner{};
        ops::site outer{};
        bool is_resolved = false;
    };
    struct key {
        std::uintptr_t address = 0;
        int caller = none;
        friend bool operator==(const key&, const key&) = default;
    };
    struct hash {
        std::size_t operator()(const key& k) const noexcept {
            return (k.address ^ (static_cast<std::size_t>(k.caller) << 32)) *
                   0x9e37'79b9'7f4a'7c15u;
        }
    };
    // A place that add() has returned.
    struct recent {
        key of;
        int number = none;
    };

    int number_of(const key& wanted) {
        const auto [at, fresh] = numbers_.try_emplace(wanted, size());
        if (fresh) {
            all_.push_back({wanted.address, wanted.caller, {}, {}, false});
        }
        return at->second;
    }
    // The lines of an instruction, from the innermost inlined function outwards.
    using lines = std::vector<std::pair<std::string, int>>;

    int size() const noexcept { return static_cast<int>(all_.size()); }
    bool is_known(int place) const noexcept { return place >= 0 && place < size(); }

    static bool is_of_standard_library(const std::string& file) {
        return file.find("/c++/") != file.npos || file.find("/bits/") != file.npos ||
               file.find("bide/model/") != file.npos || file.starts_with('?');
    }
    static bool is_of_system(const std::string& file) {
        return is_of_standard_library(file) || file.starts_with("/usr/");
    }

    const entry& look_up(int number) {
        entry& p = all_[static_cast<std::size_t>(number)];
        if (std::exchange(p.is_resolved, true)) {
            return p;
        }
        std::string file; // of the innermost line of all
        int line = 0;
        for (int at = number; is_known(at) && p.outer.file == nullptr; at = caller_of(at)) {
            for (const auto& [in, number_of_line] :
                 lines_at(all_[static_cast<std::size_t>(at)].address)) {
                if (file.empty() && !in.starts_with('?')) {
                    file = in;
                    line = number_of_line;
                }
                if (p.inner.file == nullptr && !is_of_standard_library(in)) {
                    p.inner = {kept(in), number_of_line, 0};
                }
                if (p.outer.file == nullptr && !is_of_system(in)) {
                    p.outer = {kept(in), number_of_line, 0};
                }
            }
        }
        if (p.inner.file == nullptr && !file.empty()) {
            p.inner = {kept(file), line, 0};
        }
        return p;
    }

    // Returns a copy of the text that exists as long as the program.
    const char* kept(const std::string& text) {
        return texts_.try_emplace(text, 0).first->first.c_str();
    }

    const lines& lines_at(std::uintptr_t address) {
        const auto [at, fresh] = known_.try_emplace(address);
        if (fresh) {
            resolve_all();
        }
        return known_[address];
    }

    // Finds the lines of all places whose lines are not known, by one call for each library.
    void resolve_all() {
#if defined(__linux__)
        std::unordered_map<std::string, std::vector<std::uintptr_t>> of_file; // addresses, offsets
        for (const entry& p : all_) {
            if (const auto at = known_.find(p.address); at != known_.end() && !at->second.empty()) {
                continue;
            }
            known_[p.address].emplace_back("?", 0);
            Dl_info in{};
            if (::dladdr(reinterpret_cast<void*>(p.address), &in) == 0 || in.dli_fname == nullptr) {
                continue;
            }
            const auto* const head = static_cast<const ElfW(Ehdr)*>(in.dli_fbase);
            auto& of = of_file[file_of(in.dli_fname)];
            of.push_back(p.address);
            of.push_back(p.address - 1 -
                         (head->e_type == ET_EXEC ? 0 : reinterpret_cast<std::uintptr_t>(head)));
        }
        for (const auto& [file, addresses] : of_file) {
            constexpr std::size_t most = 400; // numbers of one command line
            for (std::size_t from = 0; from < addresses.size(); from += most) {
                ask(file, addresses.data() + from, std::min(most, addresses.size() - from));
            }
        }
#endif
    }

#if defined(__linux__)
    static std::string file_of(const char* name) {
        return std::strchr(name, '/') == nullptr || ::access(name, R_OK) != 0 || is_program(name)
                   ? "/proc/" + std::to_string(::getpid()) + "/exe"
                   : std::string(name);
    }
    static bool is_program(const char* name) {
        Dl_info mine{};
        return ::dladdr(reinterpret_cast<void*>(&is_of_system), &mine) != 0 &&
               mine.dli_fname != nullptr && std::strcmp(mine.dli_fname, name) == 0;
    }

    // `all` has pairs: the address of a place, and its offset in the file.
    void ask(const std::string& file, const std::uintptr_t* all, std::size_t count) {
        std::string command = "exec addr2line -a -i -e '" + file + "'";
        for (std::size_t i = 1; i < count; i += 2) {
            char offset[32];
            std::snprintf(offset, sizeof offset, " 0x%zx", static_cast<std::size_t>(all[i]));
            command += offset;
        }
        command += " 2>/dev/null";
        std::FILE* const out = ::popen(command.c_str(), "r");
        if (out == nullptr) {
            return;
        }
        char text[1024];
        std::size_t at = 0; // the next pair
        lines* now = nullptr;
        while (std::fgets(text, sizeof text, out) != nullptr) {
            if (std::strncmp(text, "0x", 2) == 0) {
                now = at + 1 < count ? &known_[all[at]] : nullptr;
                at += 2;
                if (now != nullptr) {
                    now->clear();
                }
                continue;
            }
            std::string line = text;
            line.resize(std::min(line.find_first_of(" \n"), line.size()));
            const auto colon = line.rfind(':');
            if (now != nullptr && colon != line.npos) {
                now->emplace_back(line.substr(0, colon), std::atoi(line.c_str() + colon + 1));
            }
        }
        ::pclose(out);
    }
#endif

    std::array<recent, 256> recent_;
    std::vector<entry> all_;
    std::unordered_map<key, int, hash> numbers_;
    std::unordered_map<std::uintptr_t, lines> known_;
    std::unordered_map<std::string, int> texts_;
};

inline code_places& places() {
    static code_places all;
    return all;
}

// Returns the source line of a site that is a place in the code. Returns other sites unchanged.
inline ops::site resolved(ops::site s) {
    if (s.file != in_code) {
        return s;
    }
    const heap::leave guard;
    ops::site line = places().line_of(s.line);
    line.is_given = s.is_given;
    return line;
}

// Returns the user's line from which a site was reached, if it is another one than resolved().
inline ops::site caller_of(ops::site s) {
    if (s.file != in_code) {
        return {};
    }
    const heap::leave guard;
    const ops::site inner = places().line_of(s.line);
    const ops::site outer = places().user_line_of(s.line);
    return inner.file == outer.file && inner.line == outer.line ? ops::site{} : outer;
}

}}} // namespace bide::BIDE_ABI::model::detail

#endif

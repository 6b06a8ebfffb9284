#ifndef BIDE_TESTS_EXAMPLES_LOCK_HELP_HPP
#define BIDE_TESTS_EXAMPLES_LOCK_HELP_HPP

// The help text and the completions of the shells, made from the table.

#include "lock_table.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include <sysexits.h>

namespace lock_parts {

inline std::string forms_of(const row& r) { // -x, -e, --exclusive
    std::string forms;
    for (const char* letter = r.letters; *letter != '\0'; ++letter)
        forms += std::string("-") + *letter + ", ";
    forms += std::string("--") + r.name;
    return r.value != nullptr ? forms + " " + r.value : forms;
}

// Prints a term and its text, wrapped at 100 columns.
inline void print_term(const std::string& term, std::string_view text) {
    constexpr std::size_t indent = 30, width = 100;
    std::string line = "  " + term;
    if (line.size() + 2 > indent && !text.empty()) {
        std::puts(line.c_str());
        line.clear();
    }
    while (!text.empty()) {
        line.resize(std::max(line.size(), indent), ' ');
        while (!text.empty()) {
            const auto end = std::min(text.find(' '), text.size());
            const bool is_first = line.back() == ' ';
            if (!is_first && line.size() + 1 + end > width)
                break;
            line.append(is_first ? "" : " ").append(text.substr(0, end));
            text.remove_prefix(std::min(end + 1, text.size()));
        }
        std::puts(line.c_str());
        line.clear();
    }
}

inline void print_help() {
    const char* before = "usage:";
    for (const action_row& a : actions()) {
        std::printf("%-6s bide-lock %s\n", before, a.usage);
        before = "";
    }
    for (const row& r : rows()) {
        if (r.name != nullptr && r.text != nullptr)
            print_term(forms_of(r), r.text);
        else if (r.text != nullptr && r.value != nullptr) // a term that is no option
            print_term(r.value, r.text);
        else if (r.text != nullptr)
            std::fputs(r.text, stdout);
    }
}

// The options of some actions. kind: 'F': those whose value is a file; 'V': those with another value.
inline std::string options_of(unsigned of, char between = ' ', char kind = 0) {
    std::string words;
    for (const row& r : rows()) {
        const char is = r.value == nullptr ? 0 : std::string_view(r.value) == "FILE" ? 'F' : 'V';
        if (r.name == nullptr || (r.of & of) == 0 || (kind != 0 && kind != is))
            continue;
        for (const char* letter = r.letters; *letter != '\0'; ++letter)
            (words += '-') += {*letter, between};
        ((words += "--") += r.name) += between;
    }
    words.pop_back();
    return words;
}

inline void print_bash() {
    std::string names, cases;
    for (const action_row& a : actions())
        if (a.name != nullptr) {
            names += (names.empty() ? "" : "|") + std::string(a.name);
            cases += "    " + std::string(a.name) + ") words='" +
                     (a.bit == does::completion ? "bash zsh fish " : "") + options_of(a.bit) +
                     "' ;;\n";
        }
    std::string words = names;
    std::replace(words.begin(), words.end(), '|', ' ');
    std::printf(R"(_bide_lock() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} action= i words
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --) declare -F _command_offset > /dev/null && _command_offset $((i + 1)); return ;;
        %s) action=${action:-${COMP_WORDS[i]}} ;;
        esac
    done
    case $prev in
    %s) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    %s) return ;;
    esac
    case $action in
%s    *) words='%s'; [[ $cur == -* ]] || words='%s' ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _bide_lock bide-lock
)",
                names.c_str(), options_of(~0U, '|', 'F').c_str(), options_of(~0U, '|', 'V').c_str(),
                cases.c_str(), options_of(~0U).c_str(), words.c_str());
}

inline void print_fish() {
    const auto quoted = [](std::string_view text) { // up to its first full stop or semicolon
        std::string out = "'";
        for (const char c : text.substr(0, text.find_first_of(".;(")))
            (out += c == '\'' || c == '\\' ? "\\" : "") += c;
        return out + "'";
    };
    for (const action_row& a : actions())
        if (a.name != nullptr)
            std::printf("complete -c bide-lock -n __fish_use_subcommand -a %s\n", a.name);
    std::string_view text;
    for (const row& r : rows()) {
        if (r.name == nullptr)
            continue;
        text = r.text != nullptr ? r.text : text;
        std::printf("complete -c bide-lock -l %s", r.name);
        for (const char* letter = r.letters; *letter != '\0'; ++letter)
            std::printf(" -s %c", *letter);
        std::printf("%s -d %s\n", r.value != nullptr ? " -r" : "", quoted(text).c_str());
    }
}

// Throws: failure.
inline int print_completion(const std::string& shell) {
    if (shell == "zsh")
        std::fputs("#compdef bide-lock\nautoload -U +X bashcompinit && bashcompinit\n", stdout);
    if (shell == "bash" || shell == "zsh")
        print_bash();
    if (shell == "zsh") // the first completion, for which zsh loads this file as a function
        std::fputs("[[ $funcstack[1] != _bide-lock ]] || _bash_complete -o default -F _bide_lock\n",
                   stdout);
    if (shell == "bash" || shell == "zsh")
        return 0;
    if (shell != "fish")
        throw failure{EX_USAGE, "completion: bash, zsh or fish"};
    return print_fish(), 0;
}

} // namespace lock_parts

#endif

#ifndef BIDE_TESTS_EXAMPLES_LOCK_PARSER_HPP
#define BIDE_TESTS_EXAMPLES_LOCK_PARSER_HPP

// Parses bide-lock's command line, by the table in lock_table.hpp.

#include "lock_options.hpp"
#include "lock_secrets.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <getopt.h>
#include <grp.h>
#include <pwd.h>
#include <sysexits.h>

namespace lock_parts {

class parser;

// A row of the table: an option, or a piece of the help text.
struct row {
    const char* letters; // the short forms; ""
    const char* name;    // the long form; nullptr: this is only text
    const char* value;   // the name of the value; nullptr: none
    unsigned of;         // the actions that have it
    const char* text;    // nullptr: another name of the option above
    void (*take)(parser&);
};
struct action_row {
    const char* name;
    unsigned bit;
    const char* usage;
};
std::span<const row> rows();
std::span<const action_row> actions();

class parser {
public:
    parser(int argc, char** argv) : argc_(argc), argv_(argv) {}

    // Throws: failure.
    options parse() {
        for (char** one = argv_; *one != nullptr && std::string_view(*one) != "--"; ++one)
            speaks_json = speaks_json || std::string_view(*one) == "--json";
        if (char* const slot = std::getenv("BIDE_LOCK_SLOT")) {
            o.slot = slot;
            o.has_secret_slot = has_secret(slot);
            blot_out(slot);
        }
        read_options();
        if (!o.help && !o.version)
            check();
        return std::move(o);
    }

    // ---- for the table: the value of the current option

    const char* text() const { return value_; }
    std::int64_t number(std::int64_t least, std::int64_t greatest) const {
        const auto value = parse_number(value_, least, greatest);
        if (!value)
            fail("needs a number from " + std::to_string(least) + " to " +
                 std::to_string(greatest));
        return *value;
    }
    options::milliseconds time(std::int64_t least) const {
        const auto value = parse_time(value_);
        if (!value || value->count() < least)
            fail("needs a time, such as 500ms, 30s, 5m, 1.5h");
        return *value;
    }
    void slot() { // all users of the machine can read arguments: overwrites a password
        o.slot = value_;
        has_slot_ = true;
        blot_out(value_);
    }
    void slot_file() {
        std::string line;
        if (std::ifstream file(value_); !file || !std::getline(file, line))
            fail("cannot read " + std::string(value_));
        if (line.ends_with('\r'))
            line.pop_back();
        o.slot = line;
        has_slot_ = true;
    }
    void permits(std::int64_t count) { o.permits = count, counts_ = true; }
    void weight(std::int64_t count) { o.weight = count, counts_ = true; }
    void readers(std::int64_t weight) {
        o.permits = most_readers;
        o.weight = weight;
        ++modes_;
    }
    void victim(std::int64_t fence) { o.fence = fence, ++victims_; }
    void label() {
        const std::string_view pair(value_);
        const auto equals = pair.find('=');
        if (equals == 0 || equals == pair.npos)
            fail("needs NAME=VALUE");
        o.labels.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
    }
    void mode() {
        const auto bits = parse_number(value_, 0, 0777, 8);
        if (!bits || (*bits & 0600) != 0600)
            fail("needs an octal mode that begins with 6 or 7, such as 0660");
        o.mode = static_cast<unsigned>(*bits);
    }
    void owner() {
        const std::string both(value_);
        const auto colon = std::min(both.find(':'), both.size());
        const std::string user = both.substr(0, colon);
        const std::string group = both.substr(std::min(colon + 1, both.size()));
        constexpr std::int64_t most_ids = 0xffff'fffe;
        if (const auto id = parse_number(user, 0, most_ids))
            o.user = static_cast<uid_t>(*id);
        else if (const passwd* const found = ::getpwnam(user.c_str()))
            o.user = found->pw_uid;
        else if (!user.empty())
            fail("there is no user " + user);
        if (const auto id = parse_number(group, 0, most_ids))
            o.group = static_cast<gid_t>(*id);
        else if (const ::group* const found = ::getgrnam(group.c_str()))
            o.group = found->gr_gid;
        else if (!group.empty())
            fail("there is no group " + group);
    }
    void shell_command() { // as flock(1): by the user's shell
        const char* const shell = std::getenv("SHELL");
        static char flag[] = "-c";
        static std::string path = shell != nullptr && *shell != '\0' ? shell : "/bin/sh";
        static char* all[] = {path.data(), flag, value_, nullptr};
        o.command = all;
    }

    options o;

    static constexpr std::int64_t most_readers = 1024; // the same as in durable_shared_mutex
    static constexpr std::int64_t most_fence = (std::int64_t{1} << 53) - 1;

private:
    [[noreturn]] void fail(const std::string& what) const {
        throw failure{EX_USAGE, shown((option_.empty() ? "" : option_ + ": ") + what) +
                                    "\nTry: bide-lock --help"};
    }

    void read_options() {
        std::string shorts = "-:"; // in order, also operands; ':' for a missing value
        std::vector<option> longs;
        std::vector<const row*> of_long;
        for (const row& r : rows()) {
            if (r.name == nullptr)
                continue;
            for (const char* letter = r.letters; *letter != '\0'; ++letter)
                (shorts += *letter) += r.value != nullptr ? ":" : "";
            longs.push_back({r.name, r.value != nullptr ? 1 : 0, nullptr,
                             static_cast<int>(first_long + of_long.size())});
            of_long.push_back(&r);
        }
        longs.push_back({});
        ::opterr = 0;
        int got = 0;
        while ((got = ::getopt_long(argc_, argv_, shorts.c_str(), longs.data(), nullptr)) != -1) {
            if (got == 1) {
                if (operand(::optarg))
                    return;
                continue;
            }
            const auto is_it = [got](const row* r) {
                return std::string_view(r->letters).find(static_cast<char>(got)) !=
                       std::string_view::npos;
            };
            if (got == '?' || got == ':') {
                // A long option, without its value: that may be a password.
                const std::string_view last(argv_[::optind - 1]);
                option_ = last.starts_with("--") || ::optopt <= 0 || ::optopt >= first_long
                              ? std::string(last.substr(0, last.find('=')))
                              : std::string("-") + static_cast<char>(::optopt);
                if (got == ':')
                    fail("needs a value");
                fail(::optopt >= first_long ? "takes no value" : "there is no such option");
            }
            const row& r = got >= first_long
                               ? *of_long[static_cast<std::size_t>(got - first_long)]
                               : **std::find_if(of_long.begin(), of_long.end(), is_it);
            option_ = std::string("--") + r.name;
            value_ = ::optarg;
            if (r.value != nullptr && std::string_view(value_) == "--")
                fail("needs a value");
            r.take(*this);
            given_.push_back(&r);
        }
        option_.clear();
        if (::optind > 1 && std::string_view(argv_[::optind - 1]) == "--") {
            if (o.command != nullptr)
                fail("--command and a command behind --");
            o.command = argv_ + ::optind;
        } else {
            while (::optind < argc_) // where getopt_long() stops at an operand
                operands_.emplace_back(argv_[::optind++]);
        }
    }

    // Returns true if the operand begins the command: behind a path no -- is needed, as in flock(1).
    bool operand(char* text) {
        option_.clear();
        const bool is_behind_path =
            !operands_.empty() && operands_.back().find('/') != std::string_view::npos &&
            (operands_.size() == 1 || (operands_.size() == 2 && operands_[0] == "elect"));
        if (!is_behind_path || o.command != nullptr) {
            operands_.emplace_back(text);
            return false;
        }
        o.command = argv_ + ::optind - 1;
        return true;
    }

    void check() {
        find_action();
        for (const row* r : given_)
            if ((r->of & o.action) == 0)
                fail(std::string("--") + r->name + ": no option to " + action_name());
        if (o.action == does::completion)
            return;
        if (o.slot.empty())
            fail("--slot is needed: where the lock is; or a NAME that is a path");
        if (modes_ > 1 || (modes_ == 1 && counts_))
            fail("--shared, --exclusive and --permits or --weight exclude each other");
        if (o.weight > o.permits)
            fail("--weight: more than there are --permits");
        if (o.action == does::release && victims_ != 1)
            fail("either --force FENCE or --all");
        if (o.action == does::resize && !counts_ && modes_ == 0)
            fail("the number of permits is needed");
        if (o.grace() > o.lease / 2)
            fail("--kill-after: at most half of the --lease");
        if (!o.forks && (o.closes || o.is_leased))
            fail("--no-fork: the command holds the lock itself; no --close, no --lease");
    }

    std::string action_name() const {
        for (const action_row& a : actions())
            if (a.bit == o.action && a.name != nullptr)
                return a.name;
        return o.action == does::keep ? "a descriptor" : "run";
    }

    void find_action() {
        const bool runs = o.command != nullptr;
        if (operands_.empty())
            fail(runs ? "one NAME is needed, not 0" : "nothing to do: NAME -- command");
        const std::string_view first = operands_[0];
        for (const action_row& a : actions())
            if (a.name != nullptr && first == a.name &&
                (!runs || (a.bit == does::elect && operands_.size() == 2)))
                o.action = a.bit;
        if (o.action != 0)
            operands_.erase(operands_.begin());
        else if (runs)
            o.action = does::run;
        else if (operands_.size() == 1 && parse_number(first, 0, 1 << 20))
            o.action = does::keep;
        else
            fail(std::string(first) + ": not an action; a command stands behind --");
        if (runs && *o.command == nullptr)
            fail("there is no command behind --");
        if (o.action == does::elect && runs == o.observes)
            fail("elect: either -- command, or --observe");
        take_operands();
    }

    void take_operands() {
        if (o.action == does::keep) {
            o.descriptor = static_cast<int>(*parse_number(operands_[0], 0, 1 << 20));
            return find_descriptor();
        }
        if (o.unlocks)
            fail("--unlock: of a descriptor");
        if (o.action == does::completion) {
            o.name = operands_.size() == 1 ? operands_[0] : "";
            return;
        }
        if (o.action == does::resize && operands_.size() == 2) {
            const auto count = parse_number(operands_[1], 1, 1 << 30);
            if (!count || counts_)
                fail("resize: NAME and one number of permits");
            permits(*count);
            operands_.pop_back();
        }
        if (o.action == does::list && operands_.size() < 2) {
            o.name = operands_.empty() ? "*" : operands_[0];
            return;
        }
        if (operands_.size() != 1)
            fail("one NAME is needed, not " + std::to_string(operands_.size()) +
                 (o.command == nullptr ? "; a command stands behind --" : ""));
        o.name = operands_[0];
        if (o.name.find('/') != o.name.npos)
            split(o.name);
        if (!is_name(o.name))
            fail("not a name for a lock: " + o.name);
    }

    // A path is a lock in a file: --slot file:DIRECTORY NAME. It never depends on $BIDE_LOCK_SLOT.
    void split(std::string path) {
        if (has_slot_)
            fail("a path names the lock; --slot does, too");
        while (path.size() > 1 && path.ends_with('/'))
            path.pop_back();
        const auto slash = path.rfind('/');
        o.slot = "file:" + (slash == 0 ? "/" : path.substr(0, slash));
        o.name = path.substr(slash + 1);
    }

    void find_descriptor(); // in lock_descriptor.hpp

    int argc_;
    char** argv_;
    std::string option_; // the current option, for messages
    char* value_ = nullptr;
    std::vector<std::string_view> operands_;
    std::vector<const row*> given_;
    int modes_ = 0, victims_ = 0;
    bool counts_ = false, has_slot_ = false;

    static constexpr int first_long = 256;
};

} // namespace lock_parts

#endif

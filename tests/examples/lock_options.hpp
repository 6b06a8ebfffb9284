#ifndef BIDE_TESTS_EXAMPLES_LOCK_OPTIONS_HPP
#define BIDE_TESTS_EXAMPLES_LOCK_OPTIONS_HPP

// The options of bide-lock's command line.

#include "lock_secrets.hpp"
#include "lock_usage.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <poll.h>
#include <sysexits.h>
#include <unistd.h>

namespace lock_parts {

// Writes a message to stderr. Drops it if stderr is full: bide-lock must end the command in time.
inline void complain(const std::string& what) {
    pollfd room{STDERR_FILENO, POLLOUT, 0};
    int found = 0;
    while ((found = ::poll(&room, 1, 100)) < 0 && errno == EINTR) {
    }
    if (found != 0)
        std::fputs(("bide-lock: " + what + "\n").c_str(), stderr);
}

// Why bide-lock ends.
struct failure {
    int status;
    std::string what; // empty: no message
};

struct options {
    using milliseconds = std::chrono::milliseconds;

    std::string_view action = "run"; // or inspect, release, resize, repair
    std::string slot, name, holder, by, reason;
    std::string ca_file, cert_file, key_file;
    std::int64_t permits = 1, weight = 1;
    milliseconds lease{30'000};
    std::optional<milliseconds> kill_after; // none: see grace()
    std::optional<milliseconds> timeout;    // none: no limit
    std::int64_t conflict_status = 1;
    std::int64_t fence = 0;     // release: the holder with this fence; 0: all holders
    std::int64_t min_fence = 0; // repair
    bool relaxed = false, verbose = false, json = false, help = false;
    bool is_leased = false;       // --lease was given
    bool closes = false;          // --close
    bool has_secret_slot = false; // hides $BIDE_LOCK_SLOT from the command
    char** command = nullptr;     // run: ends with a nullptr, as execvp() wants it

    milliseconds grace() const { // from SIGTERM to SIGKILL after the lock was lost
        return kill_after.value_or(std::min(milliseconds(10'000), lease / 3));
    }
};

inline std::optional<std::int64_t> parse_number(std::string_view text, std::int64_t least,
                                                std::int64_t most) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most)
        return std::nullopt;
    return value;
}

inline std::optional<std::chrono::milliseconds> parse_time(std::string_view text) {
    const auto digits = std::min(text.find_first_not_of("0123456789."), text.size());
    const std::string number(text.substr(0, digits));
    const std::string_view unit = text.substr(digits);
    double ms = 0;
    if (unit == "ms")
        ms = 1;
    else if (unit == "s" || unit.empty())
        ms = 1e3;
    else if (unit == "m")
        ms = 60e3;
    else if (unit == "h")
        ms = 3600e3;
    else if (unit == "d")
        ms = 86400e3;
    else
        return std::nullopt;
    char* end = nullptr;
    ms *= std::strtod(number.c_str(), &end);
    if (number.empty() || *end != '\0' || ms > 1e12)
        return std::nullopt;
    return std::chrono::milliseconds(static_cast<std::int64_t>(ms + 0.999)); // rounds up
}

inline bool is_name(std::string_view name) { // a name that every store accepts, also a file system
    const auto is_bad = [](char c) {
        return c == '/' || static_cast<unsigned char>(c) < ' ' || c == 0x7f;
    };
    return !name.empty() && name.size() <= 200 && name[0] != '.' && name[0] != '-' &&
           std::none_of(name.begin(), name.end(), is_bad);
}

// Parses the command line.
class parser {
public:
    explicit parser(std::span<char*> args) : args_(args) {}

    // None: an error was reported.
    std::optional<options> parse() {
        if (char* const slot = std::getenv("BIDE_LOCK_SLOT")) {
            take_slot(slot);
            o_.has_secret_slot = has_secret(slot);
            blot_out(slot);
        }
        for (; !args_.empty() && trouble_.empty(); args_ = args_.subspan(1)) {
            const std::string_view arg = args_[0];
            if (arg == "--") {
                o_.command = args_.data() + 1;
                break;
            }
            if (arg.size() > 1 && arg[0] == '-')
                option(arg);
            else
                operands_.push_back(arg);
        }
        if (trouble_.empty() && !o_.help)
            check();
        if (trouble_.empty())
            return o_;
        complain(trouble_ + "\nTry: bide-lock --help");
        return std::nullopt;
    }

private:
    void option(std::string_view arg) { // -w 5, -w5, --timeout 5, --timeout=5
        const bool is_long = arg.starts_with("--");
        const auto end = std::min(is_long ? arg.find('=') : 2, arg.size());
        name_ = arg.substr(0, end);
        attached_.reset();
        if (end < arg.size())
            attached_ = arg.substr(is_long ? end + 1 : end);

        if (is("-h", "--help"))
            o_.help = flag();
        else if (is("", "--slot"))
            slot();
        else if (is("", "--slot-file"))
            slot_file(std::string(text()));
        else if (is("", "--ca"))
            o_.ca_file = text();
        else if (is("", "--cert"))
            o_.cert_file = text();
        else if (is("", "--key"))
            o_.key_file = text();
        else if (is("", "--relaxed"))
            o_.relaxed = flag();
        else if (is("-v", "--verbose"))
            o_.verbose = flag();
        else if (is("-n", "--nonblock", "run"))
            flag(), o_.timeout.emplace(0);
        else if (is("-w", "--timeout", "run"))
            o_.timeout = time(0);
        else if (is("-E", "--conflict-exit-code", "run"))
            o_.conflict_status = number(0, 255);
        else if (is("", "--permits"))
            o_.permits = number(1, 1 << 30), counts_ = true;
        else if (is("", "--weight", "run"))
            o_.weight = number(1, 1 << 30), counts_ = true;
        else if (is("-s", "--shared"))
            flag(), readers(1);
        else if (is("-x", "--exclusive"))
            flag(), readers(most_readers);
        else if (is("", "--holder", "run"))
            o_.holder = text();
        else if (is("", "--lease", "run"))
            o_.lease = time(1), o_.is_leased = true;
        else if (is("-o", "--close", "run"))
            o_.closes = flag();
        else if (is("", "--kill-after", "run"))
            o_.kill_after = time(0);
        else if (is("", "--json", "inspect"))
            o_.json = flag();
        else if (is("", "--force", "release"))
            o_.fence = number(1, most), ++victims_;
        else if (is("", "--all", "release"))
            flag(), ++victims_;
        else if (is("", "--min-fence", "repair"))
            o_.min_fence = number(1, most - (std::int64_t{1} << 32));
        else if (is("", "--by"))
            o_.by = text();
        else if (is("", "--reason"))
            o_.reason = text();
        else
            fail("there is no such option");
    }

    void take_slot(std::string_view text) { o_.slot = text; }

    // All users of the machine can read arguments: overwrites a password.
    void slot() {
        char* const whole = args_[0];
        const bool is_attached = attached_.has_value();
        const std::string_view value = text();
        take_slot(value);
        if (is_attached)
            blot_out(whole + (value.data() - whole));
        else if (!value.empty() && args_[0] == value.data())
            blot_out(args_[0]);
    }
    void slot_file(const std::string& path) {
        std::ifstream file(path);
        std::string line;
        if (path.empty() || !std::getline(file, line) || line.empty())
            return fail("there is no slot in " + path);
        take_slot(line);
    }

    // True if the current option has this name. It may belong to one action only.
    bool is(std::string_view short_name, std::string_view long_name,
            std::string_view only_to = {}) {
        if (name_ != short_name && name_ != long_name)
            return false;
        if (!only_to.empty())
            only_to_.emplace_back(long_name, only_to);
        return true;
    }

    bool flag() {
        if (attached_)
            fail("takes no value");
        return true;
    }
    std::string_view text() {
        if (attached_)
            return *attached_;
        if (args_.size() < 2 || std::string_view(args_[1]) == "--")
            return fail("needs a value"), "";
        args_ = args_.subspan(1);
        return args_[0];
    }
    std::int64_t number(std::int64_t least, std::int64_t greatest) {
        const auto value = parse_number(text(), least, greatest);
        if (!value)
            fail("needs a number from " + std::to_string(least) + " to " +
                 std::to_string(greatest));
        return value.value_or(least);
    }
    options::milliseconds time(std::int64_t least) {
        const auto value = parse_time(text());
        if (!value || value->count() < least)
            fail("needs a time, such as 500ms, 30s, 5m, 1.5h");
        return value.value_or(options::milliseconds(least));
    }
    void readers(std::int64_t weight) {
        o_.permits = most_readers;
        o_.weight = weight;
        ++modes_;
    }

    void fail(const std::string& what) {
        if (trouble_.empty())
            trouble_ = (name_.empty() ? "" : std::string(name_) + ": ") + what;
    }

    void check() {
        const bool runs = o_.command != nullptr;
        if (!runs && !operands_.empty()) {
            o_.action = operands_.front();
            operands_.erase(operands_.begin());
        }
        name_ = {};
        if (!runs && o_.action != "inspect" && o_.action != "release" && o_.action != "resize" &&
            o_.action != "repair")
            return fail("nothing to do: NAME -- command; or inspect, release, resize, repair NAME");
        if (runs && *o_.command == nullptr)
            return fail("there is no command behind --");
        if (operands_.size() != 1)
            return fail("one NAME is needed, not " + std::to_string(operands_.size()));
        o_.name = operands_.front();
        if (!is_name(o_.name))
            return fail("not a name for a lock: " + o_.name);
        for (const auto& [option, action] : only_to_)
            if (action != o_.action)
                return fail(std::string(option) + ": no option to " + std::string(o_.action));
        if (o_.slot.empty())
            return fail("--slot is needed: where the lock is");
        if (modes_ > 1 || (modes_ == 1 && counts_))
            return fail("--shared, --exclusive and --permits or --weight exclude each other");
        if (o_.weight > o_.permits)
            return fail("--weight: more than there are --permits");
        if (o_.action == "release" && victims_ != 1)
            return fail("either --force FENCE or --all");
        if (o_.action == "resize" && !counts_ && modes_ == 0)
            return fail("--permits N is needed");
        if (o_.grace() > o_.lease / 2)
            return fail("--kill-after: at most half of the --lease");
    }

    static constexpr std::int64_t most_readers = 1024; // the same as in durable_shared_mutex
    static constexpr std::int64_t most = (std::int64_t{1} << 53) - 1;

    std::span<char*> args_;
    options o_;
    std::string_view name_;                    // the current option's name
    std::optional<std::string_view> attached_; // the value attached to the option
    std::vector<std::string_view> operands_;
    std::vector<std::pair<std::string_view, std::string_view>> only_to_;
    std::string trouble_;
    int modes_ = 0, victims_ = 0;
    bool counts_ = false;
};

} // namespace lock_parts

#endif

#ifndef BIDE_TESTS_EXAMPLES_LOCK_OPTIONS_HPP
#define BIDE_TESTS_EXAMPLES_LOCK_OPTIONS_HPP

// What bide-lock is told on its command line, and what it answers with its exit status.

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
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

inline const char* const usage =
    R"(usage: bide-lock [options] NAME -- command [argument...]
       bide-lock [options] inspect NAME
       bide-lock [options] release --force FENCE | --all NAME
       bide-lock [options] repair --min-fence N NAME
Runs a command while it holds the lock NAME, on one machine or across many. Who comes first is
served first. The command finds BIDE_LOCK_NAME in its environment, BIDE_FENCE, a number larger than
that of every holder before, and BIDE_LANE, below N, which no other holder has.

Where the lock is (or in $BIDE_LOCK_SLOT, for what others should not see on a command line):
  --slot file:DIRECTORY       in DIRECTORY/NAME.bide, on a local file system; it has to be there
  --slot sqlite:FILE          in a table of that database
  --slot postgres:CONNINFO    in a table of that database: postgres:host=db dbname=app
  --slot etcd:URL             at the key bide-lock/NAME: etcd:http://host:2379
  --slot redis:HOST:PORT      at the key bide-lock/NAME; needs --relaxed; $REDISCLI_AUTH is the
                              password
  --relaxed                   a store is good enough that may forget who holds the lock

How to get it:
  -n, --nonblock              fail at once where it is not free, or others wait for it
  -w, --timeout TIME          fail where it was not to be had for so long
  -E, --conflict-exit-code N  the status of these failures (1)
  --permits N                 so many may hold it at once, and all have to say so (1)
  --weight N                  take so many of these permits (1)
  -s, --shared                hold it with others who say -s: 1 of 1024 permits
  -x, --exclusive             hold it without those who say -s: all 1024 permits
  --holder ID                 the name that others see (host:pid)

How to hold it:
  --lease TIME                after a crash, others go on when this is over (30s)
  --kill-after TIME           from SIGTERM to SIGKILL, for a command whose lock is lost (10s, but
                              at most a third of the lease)
  -v, --verbose               tell of what happens on stderr

How to look after it:
  inspect, --json             who holds it and who waits; as JSON
  release --force FENCE       take it away from this holder; its command is then terminated
  release --all               take it away from all
  repair --min-fence N        make a new record where it cannot be read; N is to be larger than
                              every BIDE_FENCE that was given out; with the lock's --permits,
                              1024 where it is one for -s and -x
  --by WHO, --reason TEXT     what the record keeps of who did this (user@host), and why

TIME is a number and one of ms, s, m, h, d: 500ms, 1.5h; without a unit, of seconds. A NAME has at
most 200 bytes, no slash and no control characters, and does not begin with a dot or a dash.

The lock is the command's until it ends: what it leaves behind in the background holds nothing. A
lock counts as lost as soon as it cannot be renewed in time for the command to be killed within the
lease; this covers all but a machine, or a bide-lock, that was stopped meanwhile, and for those
there is BIDE_FENCE. Where there is no terminal the command has a process group, all of which is
signalled. On a terminal it stays in the caller's, for Ctrl-C, Ctrl-Z and input from there to work,
and is signalled alone.

Status: the command's, or 128+n where signal n ended it, or bide-lock while it waited; and
    1  not to be had: --nonblock, --timeout, or too many wait; nothing to release
   64  wrong usage                         73  the slot cannot be created
   65  the record cannot be read           74  the slot cannot be read or written
   66  the slot cannot be opened           75  the lock was lost while the command ran
   69  the store does not answer           78  others use it with another --permits or clock
   71  the system does not let us         126  the command cannot be executed
                                          127  there is no such command
)";

// Where nobody reads stderr it is not said: there is a command to be ended in time.
inline void complain(const std::string& what) {
    pollfd room{STDERR_FILENO, POLLOUT, 0};
    int found = 0;
    while ((found = ::poll(&room, 1, 100)) < 0 && errno == EINTR) {
    }
    if (found != 0)
        std::fputs(("bide-lock: " + what + "\n").c_str(), stderr);
}

// Why there is nothing more to do.
struct failure {
    int status;
    std::string what; // empty: it was said already, or is not worth saying
};

struct options {
    using milliseconds = std::chrono::milliseconds;

    std::string_view action = "run"; // or inspect, release, repair
    std::string slot, name, holder, by, reason;
    std::int64_t permits = 1, weight = 1;
    milliseconds lease{30'000};
    std::optional<milliseconds> kill_after; // none: see grace()
    std::optional<milliseconds> timeout;    // none: for ever
    std::int64_t conflict_status = 1;
    std::int64_t fence = 0;     // release: this one; 0: all
    std::int64_t min_fence = 0; // repair
    bool relaxed = false, verbose = false, json = false, help = false;
    char** command = nullptr; // run: ends with a nullptr, as execvp() wants it

    milliseconds grace() const { // for a command whose lock is lost
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
    return std::chrono::milliseconds(static_cast<std::int64_t>(ms + 0.999)); // no less than asked
}

inline bool is_name(std::string_view name) { // which every store takes, the file system above all
    const auto is_bad = [](char c) {
        return c == '/' || static_cast<unsigned char>(c) < ' ' || c == 0x7f;
    };
    return !name.empty() && name.size() <= 200 && name[0] != '.' && name[0] != '-' &&
           std::none_of(name.begin(), name.end(), is_bad);
}

// Goes through the command line.
class parser {
public:
    explicit parser(std::span<char*> args) : args_(args) {}

    // None: it has complained.
    std::optional<options> parse() {
        if (const char* const slot = std::getenv("BIDE_LOCK_SLOT"))
            o_.slot = slot;
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
            o_.slot = text();
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
        else if (is("-s", "--shared", "run"))
            flag(), readers(1);
        else if (is("-x", "--exclusive", "run"))
            flag(), readers(most_readers);
        else if (is("", "--holder", "run"))
            o_.holder = text();
        else if (is("", "--lease", "run"))
            o_.lease = time(1);
        else if (is("", "--kill-after", "run"))
            o_.kill_after = time(0);
        else if (is("", "--json", "inspect"))
            o_.json = flag();
        else if (is("", "--force", "release"))
            o_.fence = number(1, most), ++victims_;
        else if (is("", "--all", "release"))
            flag(), ++victims_;
        else if (is("", "--min-fence", "repair"))
            o_.min_fence = number(1, most);
        else if (is("", "--by"))
            o_.by = text();
        else if (is("", "--reason"))
            o_.reason = text();
        else
            fail("there is no such option");
    }

    // Whether this is the option at hand; it may be one for a single action only.
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
        if (!runs && o_.action != "inspect" && o_.action != "release" && o_.action != "repair")
            return fail("nothing to do: NAME -- command; or inspect, release, repair NAME");
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
            return fail("where is the lock? --slot is needed");
        if (modes_ > 1 || (modes_ == 1 && counts_))
            return fail("--shared, --exclusive and --permits or --weight exclude each other");
        if (o_.weight > o_.permits)
            return fail("--weight: more than there are --permits");
        if (o_.action == "release" && victims_ != 1)
            return fail("either --force FENCE or --all");
        if (o_.action == "repair" && o_.min_fence == 0)
            return fail("--min-fence N is needed");
        if (o_.grace() > o_.lease / 2)
            return fail("--kill-after: at most half of the --lease");
    }

    static constexpr std::int64_t most_readers = 1024; // as durable_shared_mutex has it
    static constexpr std::int64_t most = (std::int64_t{1} << 53) - 1;

    std::span<char*> args_;
    options o_;
    std::string_view name_;                    // of the option at hand
    std::optional<std::string_view> attached_; // to it
    std::vector<std::string_view> operands_;
    std::vector<std::pair<std::string_view, std::string_view>> only_to_;
    std::string trouble_;
    int modes_ = 0, victims_ = 0;
    bool counts_ = false;
};

} // namespace lock_parts

#endif

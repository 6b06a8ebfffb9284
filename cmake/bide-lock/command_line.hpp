#ifndef BIDE_PROGRAMS_BIDE_LOCK_COMMAND_LINE_HPP
#define BIDE_PROGRAMS_BIDE_LOCK_COMMAND_LINE_HPP

#include "options.hpp"

#include <bide/durable/record_types.hpp>

namespace lock_parts {

// ---- Parses bide-lock's command line, by the table below.

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
    std::string text(std::size_t most) const {
        is_text(value_, "", most);
        return value_;
    }
    std::int64_t number(std::int64_t least, std::int64_t greatest) const {
        const auto value = parse_number(value_, least, greatest);
        if (!value)
            fail("needs a number from " + std::to_string(least) + " to " +
                 std::to_string(greatest));
        return *value;
    }
    options::milliseconds time(std::int64_t least) const {
        const auto value = parse_time(value_);
        if (!value)
            fail("needs a time, such as 500ms, 30s, 5m, 1.5h");
        if (value->count() < least)
            fail("needs a time of at least " + std::to_string(least) + "ms, not " + value_);
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
        const std::string name(pair.substr(0, equals));
        const std::string value(pair.substr(equals + 1));
        is_text(name, "a NAME of ", bide::durable::longest_label);
        is_text(value, "a VALUE of ", bide::durable::longest_label);
        for (const auto& other : o.labels)
            if (other.first == name)
                fail("there are two with the NAME " + name);
        if (o.labels.size() == bide::durable::most_labels)
            fail("needs at most " + std::to_string(bide::durable::most_labels) + " of them");
        o.labels.emplace_back(name, value);
    }
    void schema() { // as in postgres_slot_options::table
        o.schema = value_;
        if (o.schema.empty() ||
            o.schema.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789_") != std::string::npos)
            fail("needs a name of letters, digits and underscores");
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
    static constexpr std::int64_t least_lease_ms = 20;
    static constexpr std::int64_t most_fence = (std::int64_t{1} << 53) - 1;

private:
    [[noreturn]] void fail(const std::string& what) const {
        throw failure{EX_USAGE, shown((option_.empty() ? "" : option_ + ": ") + what) +
                                    "\nTry: bide-lock --help"};
    }

    void is_text(const std::string& text, const char* what, std::size_t most) const {
        if (text.size() > most)
            fail("needs " + std::string(what) + (*what == '\0' ? "a text of " : "") + "at most " +
                 std::to_string(most) + " bytes, not " + std::to_string(text.size()));
        if (json::parse(one_line(text)) != text)
            fail("needs text in UTF-8");
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
        else if (operands_.size() > 1)
            fail(std::string(first) +
                 ": not an action; a command stands behind --, or behind a "
                 "path: bide-lock ./" +
                 std::string(first) + " " + std::string(operands_[1]));
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

    void find_descriptor(); // in descriptor.hpp

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

// ---- The table of bide-lock's actions and options: the parser, --help, the man page and the completions
// of shells are made from it.

inline std::span<const action_row> actions() {
    static constexpr action_row all[] = {
        {nullptr, does::run, "[options] NAME -- command [argument...]"},
        {nullptr, does::run, "[options] PATH command [argument...]"},
        {"elect", does::elect, "[options] elect NAME -- command | elect --observe NAME"},
        {nullptr, does::keep, "[options] DESCRIPTOR | --unlock DESCRIPTOR"},
        {"inspect", does::inspect, "[options] inspect NAME"},
        {"list", does::list, "[options] list [PATTERN]"},
        {"watch", does::watch, "[options] watch NAME"},
        {"release", does::release, "[options] release --force FENCE | --all NAME"},
        {"resize", does::resize, "[options] resize NAME N"},
        {"repair", does::repair, "[options] repair [--min-fence N] NAME"},
        {"completion", does::completion, "completion bash | zsh | fish"},
    };
    return all;
}

inline constexpr row prose(const char* text) { return {"", nullptr, nullptr, 0, text, nullptr}; }
inline constexpr row term(const char* name, const char* text) {
    return {"", nullptr, name, 0, text, nullptr};
}

inline std::span<const row> rows() {
    using p = parser;
    static constexpr row table[] = {
        prose(
            R"(Runs a command while it holds the lock NAME, on one machine or across many. Waiters get the
lock in the order of their arrival. The command's environment has
)"),
        term("BIDE_LOCK_NAME", "the name"),
        term("BIDE_FENCE", "a number larger than that of every earlier holder"),
        term("BIDE_LANE", "a number below N that no other holder has (N: see --permits)"),
        term("BIDE_LOCK_FD", "the descriptor that holds the lock, if there is one"),
        term("BIDE_LOCK_HELD", "\"FENCE NAME\" of this lock and of the locks around it, the "
                               "outermost first, with slashes between them"),
        prose(
            R"(If the command runs another bide-lock for the same lock, that one waits like any other, and says
so on stderr unless it has --nonblock. If the command waits for it in turn, neither ends.

Where the lock is:
)"),
        term("PATH", "a NAME with a slash, such as /var/lib/app/nightly: the lock nightly of "
                     "--slot file:/var/lib/app, whatever $BIDE_LOCK_SLOT is. The file PATH itself "
                     "need not exist and is not touched"),
        {"", "slot", "SLOT", does::all, "one of these:", [](p& a) { a.slot(); }},
        term("  file:DIRECTORY", "in DIRECTORY/NAME.bide, on a local file system that survives a "
                                 "reboot; the directory must exist"),
        term("  sqlite:FILE", "in a table of that database"),
        term("  postgres:CONNINFO", "in a table of that database: postgres:host=db dbname=app, or "
                                    "postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE"),
        term("  [etcd:]URL[,URL...]",
             "at the key bide-lock/NAME: https://[USER:PASSWORD@]HOST[:PORT], or http://"),
        term("  redis:HOST:PORT", "at the key bide-lock/NAME; needs --relaxed. Or "
                                  "redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], or rediss:// for "
                                  "TLS. $REDISCLI_AUTH is the password if the slot has none"),
        {"", "slot-file", "FILE", does::all, "the slot is the first line of FILE",
         [](p& a) { a.slot_file(); }},
        term("$BIDE_LOCK_SLOT", "the slot, if neither option is given"),
        {"", "ca", "FILE", does::all, "the authorities for https:// and rediss://, in PEM",
         [](p& a) { a.o.ca_file = a.text(); }},
        {"", "cert", "FILE", does::all, "a certificate for them",
         [](p& a) { a.o.cert_file = a.text(); }},
        {"", "key", "FILE", does::all, "its key", [](p& a) { a.o.key_file = a.text(); }},
        {"", "schema", "NAME", does::all, "postgres: the schema of the table bide_lock",
         [](p& a) { a.schema(); }},
        {"", "relaxed", nullptr, does::all, "accept a store that may lose its record of holders",
         [](p& a) { a.o.relaxed = true; }},
        {"", "mode", "MODE", does::acquire | does::repair,
         "the mode of the files that bide-lock makes for file and sqlite, such as 0660; without "
         "it, only their owner can use a file lock",
         [](p& a) { a.mode(); }},
        {"", "owner", "USER[:GROUP]", does::acquire | does::repair,
         "the owner of these files, for root; :GROUP for the members of a group",
         [](p& a) { a.owner(); }},
        prose(R"(
Passwords: give them by --slot-file or $BIDE_LOCK_SLOT. A password on the command line can be seen
until bide-lock has overwritten it, which is the first thing it does. Messages show no password. A
$BIDE_LOCK_SLOT with a password, and the $REDISCLI_AUTH or $PGPASSWORD of such a slot, are not
passed to the command.

How to acquire the lock:
)"),
        {"n", "nonblock", nullptr, does::acquire,
         "fail at once if the lock is held or has waiters. A remote store has to answer within "
         "100 ms: use -w 1",
         [](p& a) { a.o.timeout.emplace(0); }},
        {"", "nb", nullptr, does::acquire, nullptr, [](p& a) { a.o.timeout.emplace(0); }},
        {"w", "timeout", "TIME", does::acquire,
         "fail if the lock was not acquired within this time. Without it, bide-lock waits for "
         "other holders without a limit, but only 10s for a store that fails",
         [](p& a) { a.o.timeout = a.time(0); }},
        {"", "wait", "TIME", does::acquire, nullptr, [](p& a) { a.o.timeout = a.time(0); }},
        {"E", "conflict-exit-code", "N", does::acquire,
         "the exit status if the lock was held by others (default: 1). A store that fails or does "
         "not answer has another one",
         [](p& a) { a.o.conflict_status = a.number(0, 255); }},
        {"s", "shared", nullptr, does::acquire | does::resize | does::repair,
         "share the lock with other holders that use -s: 1 of 1024 permits",
         [](p& a) { a.readers(1); }},
        {"xe", "exclusive", nullptr, does::acquire | does::resize | does::repair,
         "exclude the holders that use -s: all 1024 permits. Needed if other holders use -s",
         [](p& a) { a.readers(p::most_readers); }},
        {"", "permits", "N", does::acquire | does::resize | does::repair,
         "up to N holders at once (default: 1). If the lock is free, its number becomes N; "
         "otherwise a different N is an error. After resize, the number of that counts",
         [](p& a) { a.permits(a.number(1, 1 << 30)); }},
        {"", "weight", "N", does::acquire, "take N of these permits (default: 1)",
         [](p& a) { a.weight(a.number(1, 1 << 30)); }},
        {"", "at-least", "TIME", does::acquire,
         "keep others out for this time after the start, even if the command ends earlier: for a "
         "job that several machines start at about the same time",
         [](p& a) { a.o.at_least = a.time(0); }},
        {"", "holder", "ID", does::acquire, "the name that inspect shows (host:pid)",
         [](p& a) { a.o.holder = a.text(bide::durable::longest_name); }},
        {"", "note", "TEXT", does::acquire, "a text that inspect shows, of at most 256 bytes",
         [](p& a) { a.o.note = a.text(bide::durable::longest_note); }},
        {"", "label", "NAME=VALUE", does::acquire,
         "a value that inspect shows, of at most 64 bytes; up to 16 labels",
         [](p& a) { a.label(); }},
        prose(
            R"(If the lock is on a file system that is frozen (fsfreeze), bide-lock gives up in its time, but the
kernel keeps its process until the file system is thawed.

How to hold the lock:
)"),
        {"c", "command", "TEXT", does::run | does::elect, "the command, for $SHELL -c",
         [](p& a) { a.shell_command(); }},
        {"", "lease", "TIME", does::acquire,
         "hold the lock by a lease of this length (default: 30s, at least 20ms), also on file and "
         "sqlite",
         [](p& a) { a.o.lease = a.time(p::least_lease_ms), a.o.is_leased = true; }},
        {"", "kill-after", "TIME", does::run | does::elect,
         "from SIGTERM to SIGKILL, when the command must end (default: 10s, but at most a third of "
         "the lease)",
         [](p& a) { a.o.kill_after = a.time(0); }},
        {"o", "close", nullptr, does::run | does::elect,
         "bide-lock holds the lock until the command's first process has ended; the command does "
         "not inherit the descriptor",
         [](p& a) { a.o.closes = true; }},
        {"F", "no-fork", nullptr, does::run,
         "become the command (file and sqlite): the command holds the lock until all its processes "
         "have ended, and is not terminated if the lock is taken away",
         [](p& a) { a.o.forks = false; }},
        {"v", "verbose", nullptr, does::all, "report on stderr what happens",
         [](p& a) { a.o.verbose = true; }},
        {"", "json", nullptr, does::all,
         "print results as JSON. Messages on stderr are then lines with {\"message\":...}; the "
         "last one of a failure has {\"error\":...,\"code\":STATUS}",
         [](p& a) { a.o.json = true; }},
        {"h", "help", nullptr, ~0U, "print this text", [](p& a) { a.o.help = true; }},
        {"V", "version", nullptr, ~0U, "print the version", [](p& a) { a.o.version = true; }},
        prose(R"(
How to elect a leader:
)"),
        term("elect NAME -- command", "runs the command while this bide-lock is the leader. If "
                                      "leadership is lost, terminates the command and stands for "
                                      "election again. Ends when the command ends by itself"),
        {"", "observe", nullptr, does::elect,
         "print the leader's \"FENCE ID\", again at each change",
         [](p& a) { a.o.observes = true; }},
        prose(R"(
How to lock a descriptor of a shell (Linux):
  exec 9>> /var/lib/app/nightly.bide.lock
  bide-lock 9
The lock /var/lib/app/nightly stays held after bide-lock has ended, until every process has closed
descriptor 9. The descriptor must be open for writing on the lock's own .bide.lock file; bide-lock
takes no other file, so it never writes into a file of yours. --json prints the fence. A lock that
the descriptor has already stays as it is.
)"),
        {"u", "unlock", nullptr, does::keep, "unlock the descriptor now",
         [](p& a) { a.o.unlocks = true; }},
        prose(R"(
How to administer the lock:
)"),
        term("inspect NAME", "show holders and waiters"),
        term("list [PATTERN]", "show the locks of a slot (file, sqlite, postgres) whose names "
                               "match, one on a line: name, state, waiters, holders"),
        term("watch NAME", "show holders and waiters until interrupted: on a terminal the present "
                           "state, otherwise a line for each change"),
        {"", "force", "FENCE", does::release,
         "release: take the lock away from this holder. The next waiter gets it at once; the "
         "holder's command is terminated when its bide-lock notices, after a third of the lease "
         "(10s on file and sqlite) at most",
         [](p& a) { a.victim(a.number(1, p::most_fence)); }},
        {"", "all", nullptr, does::release, "release: take it away from all holders",
         [](p& a) { a.victim(0); }},
        term("resize NAME N", "change the number of permits (-s, -x: 1024), which all contenders "
                              "follow, whatever their "
                              "--permits; refused while holders have more"),
        term("repair NAME", "make a new record if the stored one cannot be read, or there is none, "
                            "with the lock's --permits. The new record has no holder: first make "
                            "sure that no command is running. On redis, etcd and postgres, a value "
                            "that is not a lock's at all has to be removed first, by other means"),
        {"", "min-fence", "N", does::repair,
         "repair: the least next BIDE_FENCE (default: from the clock)",
         [](p& a) { a.o.min_fence = a.number(1, p::most_fence - (std::int64_t{1} << 32)); }},
        {"", "by", "NAME", does::administer, "the user that the record keeps (default: user@host)",
         [](p& a) { a.o.by = a.text(); }},
        {"", "reason", "TEXT", does::administer, "the reason that the record keeps",
         [](p& a) { a.o.reason = a.text(); }},
        prose(R"(
TIME is a number and one of ms, s, m, h, d: 500ms, 1.5h; without a unit, of seconds. A NAME has at
most 200 bytes, no slash and no control characters, and does not begin with a dot or a dash.

What holds the lock:
)"),
        term("file, sqlite (on Linux)",
             "A descriptor that every process of the command inherits. The lock is held as long as "
             "one of these processes has it open: there is no lease that expires, even if "
             "bide-lock is killed. If the command ends and leaves processes in the background, "
             "bide-lock ends, and these processes still hold the lock. Programs that close their "
             "descriptors (sudo and most daemons) do not hold it. bide-lock holds it for them "
             "until the command's first process has ended."),
        term("postgres, etcd, redis, or --lease",
             "A lease, which bide-lock renews. If the command ends and leaves processes in the "
             "background, bide-lock waits for them and renews (-o: it does not wait). A signal "
             "ends that wait: the processes are terminated. A remote lease ends with the bide-lock "
             "that renewed it."),
        prose(R"(
What is terminated, and when (Linux with /proc):
)"),
        term("The lock was lost.",
             "Every process of the command gets SIGTERM, then SIGKILL after --kill-after, also "
             "those that called setsid or became daemons. bide-lock ends when none is left. It "
             "counts a lock as lost early enough for SIGKILL to come within the lease."),
        term("bide-lock is killed, or stopped for longer than its lease.",
             "The same, by a second process of bide-lock's, the keeper (\"bide-keeper\" for ps and "
             "pkill)."),
        term("The keeper is killed.", "The same, by bide-lock."),
        term("Both are killed at once (the whole control group, pkill -9 -f).",
             "Only the command's first process gets SIGTERM. The other processes hold the lock by "
             "the descriptor, unless they closed it (-o: they have none). A lease expires."),
        prose(
            R"(Processes of another user (by sudo, say) cannot be signalled. A machine that was suspended may
run for a moment after its lease: let the resource that the command writes to check BIDE_FENCE.
Signals that bide-lock gets (HUP, INT, QUIT, TERM) go to every process of the command. On a terminal
the command stays in the caller's process group, so Ctrl-C, Ctrl-Z and input work.

Exit status:
The command's, or 128+n if signal n ended it, or bide-lock while it waited; and
)"),
        term("1", "not acquired: with --nonblock or --timeout, as others hold the lock, or as too "
                  "many wait (see -E); nothing to release, resize or repair"),
        term("64", "wrong usage"),
        term("65", "the record cannot be read"),
        term("66", "the slot or the descriptor cannot be used"),
        term("69", "the store fails, or does not answer in time"),
        term("71", "a system call failed"),
        term("73", "the slot cannot be created"),
        term("74", "the slot cannot be read or written"),
        term("75", "the lock was lost while the command ran"),
        term("76", "the store speaks another protocol"),
        term("78", "it is held with another --permits or clock"),
        term("126", "the command cannot be executed"),
        term("127", "the command was not found"),
        prose(R"(
What differs from flock(1):
Waiters get the lock in the order of their arrival. -s excludes -x, but not a holder with neither:
use -x beside -s. The lock of PATH is in PATH.bide and PATH.bide.lock, not on PATH, so PATH may be a
directory. A lost lock ends the command. A store that fails ends the wait, with a status of its own.

Examples:
)"),
        term("bide-lock -n /var/lib/app/nightly ./reconcile",
             "runs it on this machine, unless it is running"),
        term("bide-lock --slot https://etcd:2379 -w 10m nightly -- ./reconcile",
             "the same across machines, after a wait of up to ten minutes"),
        term("bide-lock --slot https://etcd:2379 elect writer -- ./serve",
             "keeps one of several machines serving"),
        term("bide-lock --permits 4 /var/lib/app/jobs ./one-of-four",
             "lets up to four run at a time"),
        term("exec 9>> /var/lib/app/nightly.bide.lock; bide-lock 9",
             "locks in a script, until the script ends"),
        term("bide-lock --slot file:/var/lib/app inspect nightly", "shows who holds it"),
    };
    return table;
}

// ---- The help text and the completions of the shells, made from the table.

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

// dupes finds files with the same content, and shows what bide looks like at work: a pipeline.
//
//   walker -- found --> grouper -- jobs --> hashing tasks and threads
//                          ^                            |
//                          +----------- done -----------+
//
// The walker tells of each file that it sees. The second file of a size makes both of them
// candidates. A candidate's first job is to be hashed, whole: big files seldom share a size by
// chance, so reading only their beginnings first would save little. The second job, for files of
// one hash, is to be compared byte by byte. The hash sorts and the bytes decide: a collision costs
// time, and is never a wrong answer.
//
// Each stage owns its data and tells the next one what it found, so there is nothing to lock. What
// bide does here:
//   scheduler  runs the stages as tasks on a few workers, but for the walker, which blocks in the
//              file system, and for hashing threads. A task that computes gives way now and then,
//              so that the grouper gets its turn; --trace shows which task ran when
//   channels   three of limited length, so no stage runs far ahead of the next. When its last
//              sender has gone, a channel is closed, and so one stage after the other ends
//   close()    is all that Ctrl-C does: nothing more can be sent, what was sent still arrives
//   select     the grouper waits to send jobs and to receive outcomes at once; see grouper::run()
//   semaphore  `disk` has one permit for each file that may be open. Threads and tasks wait in one
//              fair queue; a comparison opens two files, so it asks for both permits at once (to
//              hold one while waiting for another is how programs deadlock)
#include <bide/channel/handles.hpp>
#include <bide/channel/select.hpp>
#include <bide/sched/chrome_trace.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using timer = std::chrono::steady_clock;

// ---- Files: how one is read, and hashed, and what its name looks like

using bytes = std::span<const unsigned char>;
using digest = std::array<std::uint64_t, 2>;
constexpr std::size_t block = 64 * 1024; // what is read at once

// MurmurHash3_x64_128 with seed 0 (Austin Appleby, public domain), fed in pieces. Fast and well
// mixed, not cryptographic. (A big-endian machine gets other values, which are as good.)
class murmur128 {
public:
    void update(bytes piece) { // all pieces but the last: a multiple of 16 bytes
        length_ += piece.size();
        for (; piece.size() >= 16; piece = piece.subspan(16)) {
            h1_ = (std::rotl(h1_ ^ low(piece.first(8)), 27) + h2_) * 5 + 0x52dce729;
            h2_ = (std::rotl(h2_ ^ high(piece.subspan(8, 8)), 31) + h1_) * 5 + 0x38495ab5;
        }
        h1_ ^= low(piece.first(std::min<std::size_t>(piece.size(), 8)));
        if (piece.size() > 8)
            h2_ ^= high(piece.subspan(8));
    }
    digest value() const {
        std::uint64_t a = h1_ ^ length_, b = h2_ ^ length_;
        a += b, b += a;
        a = mix(a), b = mix(b);
        a += b, b += a;
        return {a, b};
    }

private:
    static constexpr std::uint64_t c1 = 0x87c37b91114253d5, c2 = 0x4cf5ad432745937f;
    static std::uint64_t low(bytes b) { return std::rotl(word(b) * c1, 31) * c2; }
    static std::uint64_t high(bytes b) { return std::rotl(word(b) * c2, 33) * c1; }
    static std::uint64_t word(bytes b) { // of up to 8 bytes
        std::uint64_t w = 0;
        if (!b.empty())
            std::memcpy(&w, b.data(), b.size());
        return w;
    }
    static std::uint64_t mix(std::uint64_t k) {
        k = (k ^ (k >> 33)) * 0xff51afd7ed558ccd;
        k = (k ^ (k >> 33)) * 0xc4ceb9fe1a85ec53;
        return k ^ (k >> 33);
    }
    std::uint64_t h1_ = 0, h2_ = 0, length_ = 0;
};

std::string why() { return std::generic_category().message(errno); }

std::string printable(std::string_view name) { // one line, and nothing that a terminal obeys
    std::string out;
    for (const char c : name) {
        const auto octal = [c](int shift) { return static_cast<char>('0' + ((c >> shift) & 7)); };
        if (c == '\\')
            out += "\\\\";
        else if (c == '\n')
            out += "\\n";
        else if (static_cast<unsigned char>(c) < ' ' || c == 0x7f)
            out += {'\\', octal(6), octal(3), octal(0)};
        else
            out += c;
    }
    return out;
}

struct file {
    std::string path; // the name that it was found under first
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    digest hash{};                 // these two are the grouper's
    std::set<std::string> names{}; // hard links are one file; see sieve
};

// An open file, read block by block. Its maker holds a permit of `disk` for it.
class reader {
public:
    explicit reader(const file& f)
        : fd_(::open(f.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK)),
          size_(f.size), buffer_(std::min(block, static_cast<std::size_t>(size_))) {
        struct stat s{};
        if (fd_ < 0 || ::fstat(fd_, &s) != 0)
            trouble_ = why();
        else if (s.st_dev != f.device || s.st_ino != f.inode || s.st_size != f.size)
            trouble_ = "changed since it was found";
    }
    ~reader() {
        if (fd_ >= 0)
            ::close(fd_);
    }
    reader(const reader&) = delete;

    bytes next() { // full blocks, then what remains; empty at the end, and when there is trouble
        const auto want = std::min(block, static_cast<std::size_t>(size_ - at_));
        std::size_t got = 0;
        while (trouble_.empty() && got < want) {
            const ssize_t n = ::pread(fd_, buffer_.data() + got, want - got, at_);
            if (n > 0)
                got += static_cast<std::size_t>(n), at_ += n;
            else if (n == 0)
                trouble_ = "shrank while it was read";
            else if (errno != EINTR)
                trouble_ = why();
        }
        return trouble_.empty() ? bytes(buffer_.data(), got) : bytes();
    }
    const std::string& trouble() const { return trouble_; } // empty: none

private:
    const int fd_;
    const off_t size_;
    off_t at_ = 0;
    std::vector<unsigned char> buffer_;
    std::string trouble_;
};

// ---- The command line

const char* const usage =
    "usage: dupes [options] [directory...]\n"
    "Finds files with the same content (default: below /usr/include, else below .).\n"
    "  --workers N     threads that run tasks (default: one for each processor)\n"
    "  --coroutines N  hashing tasks (default: one for each processor)\n"
    "  --threads N     hashing threads beside them (default: 1)\n"
    "  --permits N     files open at once, 2 or more (default: one for each processor)\n"
    "  --stdin         also what is named on stdin, each name ended by a NUL (find -print0)\n"
    "  --summary       print only the summary\n"
    "  --select        print progress on stderr also where that is no terminal\n"
    "  --trace FILE    what each worker did, for ui.perfetto.dev\n"
    "A group lists its files (-) and, below a file, its other names (=), which waste nothing.\n"
    "Status: 0 done, even when single files could not be read; 2 bad usage, or a trace that "
    "cannot\n"
    "be written; 130 Ctrl-C.\n";

struct options {
    unsigned workers = 0; // as the scheduler thinks best
    unsigned coroutines = std::max(1U, std::thread::hardware_concurrency());
    unsigned threads = 1;
    unsigned permits = std::max(2U, std::thread::hardware_concurrency());
    const char* trace = nullptr;
    bool from_stdin = false, list = true, progress = false, help = false;
    std::vector<std::filesystem::path> roots;
};

std::optional<options> parse(std::span<char*> args) {
    options o;
    const auto operand = [&args]() -> const char* { // "": there is none
        if (args.size() < 2)
            return "";
        args = args.subspan(1);
        return args[0];
    };
    const auto number = [&](unsigned& value, unsigned least) {
        const std::string_view text = operand();
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        return error == std::errc{} && end == text.data() + text.size() && least <= value &&
               value <= 1000;
    };
    for (bool names_only = false; !args.empty(); args = args.subspan(1)) {
        const std::string_view arg = args[0];
        bool good = true;
        if (names_only || !arg.starts_with('-'))
            o.roots.emplace_back(arg);
        else if (arg == "--")
            names_only = true;
        else if (arg == "--workers")
            good = number(o.workers, 1);
        else if (arg == "--coroutines")
            good = number(o.coroutines, 0);
        else if (arg == "--threads")
            good = number(o.threads, 0);
        else if (arg == "--permits")
            good = number(o.permits, 2);
        else if (arg == "--stdin")
            o.from_stdin = true;
        else if (arg == "--summary")
            o.list = false;
        else if (arg == "--select")
            o.progress = true;
        else if (arg == "--trace")
            good = *(o.trace = operand()) != '\0';
        else if (arg == "--help")
            o.help = true;
        else
            good = false;
        if (!good) {
            std::fprintf(stderr, "dupes: %s: no such option, or a bad value for it\n", arg.data());
            return std::nullopt;
        }
    }
    if (o.threads + o.coroutines == 0)
        return std::nullopt;
    if (o.roots.empty() && !o.from_stdin)
        o.roots.emplace_back(std::filesystem::is_directory("/usr/include") ? "/usr/include" : ".");
    return o;
}

// ---- Messages

struct sighting { // of a file; or trouble with a path
    file seen;
    std::string trouble{};
};

struct job {
    file* subject = nullptr;
    const file* known = nullptr; // to compare with; nullptr: the subject is to be hashed
    std::size_t content = 0;     // which one `known` has; see grouper::place()
    std::ptrdiff_t opens() const { return known != nullptr ? 2 : 1; } // files at once
};

struct outcome {
    job of;
    digest hash{};                 // of a subject that was to be hashed
    bool same = false;             // as `known`
    const file* culprit = nullptr; // there was trouble with this one
    std::string trouble{};
};

// ---- The walker

struct walker {
    bide::sender<sighting> found;

    void tell(file seen, std::string trouble = {}) { // in vain after Ctrl-C; the loops look
        static_cast<void>(found.send({std::move(seen), std::move(trouble)}));
    }

    void walk(const std::filesystem::path& root) { // symbolic links are passed over
        std::vector<std::filesystem::path> rest{root};
        while (!rest.empty() && !found.is_closed()) {
            const auto path = std::move(rest.back());
            rest.pop_back();
            struct stat s{};
            std::error_code error;
            if (::lstat(path.c_str(), &s) != 0)
                tell({path}, why());
            else if (S_ISREG(s.st_mode))
                tell({path, s.st_dev, s.st_ino, s.st_size});
            else if (S_ISDIR(s.st_mode))
                for (std::filesystem::directory_iterator at(path, error), end; !error && at != end;
                     at.increment(error))
                    rest.push_back(at->path());
            else if (!S_ISLNK(s.st_mode))
                tell({path}, "not a regular file");
            if (error)
                tell({path}, error.message());
        }
    }

    void walk_stdin() { // names that end in NUL, as find -print0 writes them
        std::string name;
        std::array<char, 4096> buffer{};
        pollfd input{STDIN_FILENO, POLLIN, 0};
        while (!found.is_closed()) {
            if (::poll(&input, 1, 100) == 0)
                continue; // nothing yet: look whether to stop
            const ssize_t n = ::read(STDIN_FILENO, buffer.data(), buffer.size());
            if (n <= 0)
                break;
            for (const char c : std::span(buffer).first(static_cast<std::size_t>(n)))
                if (c != '\0')
                    name += c;
                else
                    walk(std::exchange(name, {}));
        }
    }
};

// ---- The hashers

struct hasher {
    bide::receiver<job> jobs; // closed: all are done, or Ctrl-C
    bide::sender<outcome> done;
    bide::semaphore& disk;
    std::atomic<std::uintmax_t>& read; // bytes
    std::size_t crew;                  // how many hashers there are

    // How many jobs to take at once. Several save wake-ups; too many leave nothing to the others.
    std::size_t share() const { return std::clamp<std::size_t>(jobs.size() / crew, 1, 16); }
};

// A job at work, a block at a time.
class shift {
public:
    shift(const hasher& by, const job& j) : by_(by), of_(j), subject_(*j.subject) {
        if (j.known != nullptr)
            known_.emplace(*j.known);
    }

    bool step() { // false: it is done, or Ctrl-C
        if (by_.jobs.is_closed())
            return false;
        const bytes x = subject_.next();
        const bytes y = known_ ? known_->next() : bytes();
        by_.read += x.size() + y.size();
        if (!known_)
            sum_.update(x);
        else
            same_ = std::ranges::equal(x, y);
        return !x.empty() && (!known_ || same_);
    }

    void finish(std::vector<outcome>& all) const {
        if (by_.jobs.is_closed())
            return; // it may have been cut short
        if (!subject_.trouble().empty())
            all.push_back({of_, {}, false, of_.subject, subject_.trouble()});
        else if (known_ && !known_->trouble().empty())
            all.push_back({of_, {}, false, of_.known, known_->trouble()});
        else
            all.push_back({of_, sum_.value(), same_});
    }

private:
    const hasher& by_;
    const job of_;
    reader subject_;
    std::optional<reader> known_;
    murmur128 sum_;
    bool same_ = false;
};

std::ptrdiff_t opens(const std::vector<job>& batch) { // one job after the other
    return std::ranges::max(batch, {}, &job::opens).opens();
}

// A thread and a task that do the same, in the same queues.
void hashing_thread(hasher my) {
    std::vector<outcome> outcomes;
    for (std::vector<job> batch; my.jobs.recv_n(batch, my.share()) != 0; batch.clear()) {
        bide::permit files(my.disk, opens(batch));
        for (const job& j : batch) {
            shift at(my, j);
            while (at.step()) {
            }
            at.finish(outcomes);
        }
        files.reset(); // first let others open files, then tell
        for (outcome& o : outcomes)
            if (!my.done.send(std::move(o)))
                return; // the reader is gone
        outcomes.clear();
    }
}

bide::task<> hashing_task(hasher my) {
    std::vector<outcome> outcomes;
    for (std::vector<job> batch; co_await my.jobs.async_recv_n(batch, my.share()) != 0;
         batch.clear()) {
        bide::permit files = co_await my.disk.async_acquire(opens(batch));
        for (const job& j : batch) {
            shift at(my, j);
            while (at.step())
                co_await bide::this_task::yield(); // others run on this worker, too
            at.finish(outcomes);
        }
        files.reset();
        for (outcome& o : outcomes)
            if (!co_await my.done.async_send_from(o))
                co_return;
        outcomes.clear();
    }
}

// ---- The grouper

const bool on_terminal = ::isatty(STDERR_FILENO) == 1;

bool interrupted() { // by Ctrl-C
    sigset_t pending;
    return ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGINT) == 1;
}

struct sieve {                                     // all files of one size
    std::map<std::pair<dev_t, ino_t>, file> files; // which stay where they are
    std::vector<file*> candidates;
    std::map<digest, std::vector<std::vector<file*>>> contents; // files of one hash, by content
};

struct grouper {
    bide::sender<job> jobs;
    bide::receiver<sighting> found;
    bide::receiver<outcome> done;
    const std::atomic<std::uintmax_t>& read;
    const bool progress;

    std::unordered_map<off_t, sieve> sizes{};
    std::deque<job> pending{};  // not yet sent
    std::size_t unfinished = 0; // jobs whose outcome is not known yet
    std::uintmax_t files = 0, bytes = 0, duplicates = 0, errors = 0;

    // Runs until all is done: true; or until Ctrl-C: false.
    //
    // Jobs and outcomes go round in a circle. Were both channels full, and the grouper waiting to
    // send a job while the hashers wait to send outcomes, they would wait for ever. So the grouper
    // does not wait for one thing: it sends or receives, whichever is possible first. It listens to
    // the walker only while it has nothing to send, so `pending` stays short, too.
    bide::task<bool> run() {
        bool walking = true, hashing = true, complete = true;
        for (auto tick = timer::now(); walking || hashing;) {
            const bool sending = !pending.empty(); // a case of nullptr never happens
            auto event = co_await bide::async_select(
                bide::on_send(jobs, sending ? &pending.front() : nullptr),
                bide::on_recv(walking && !sending ? &found : nullptr),
                bide::on_recv(hashing ? &done : nullptr), bide::on_timeout(tick));
            switch (event.index()) {
            case 0:
                if (event.get<0>())
                    pending.pop_front();
                else
                    pending.clear(); // closed by Ctrl-C
                break;
            case 1:
                if (auto& sight = event.get<1>())
                    add(*sight);
                else
                    walking = false; // the walker has gone
                break;
            case 2:
                if (auto& o = event.get<2>())
                    learn(*o);
                else
                    hashing = false; // so have the hashers
                break;
            }
            if (!walking && unfinished == 0)
                jobs.close();
            // A time-out happens only where nothing else can, so it alone does not keep time.
            if (const auto now = timer::now(); now >= tick) {
                tick = now + std::chrono::milliseconds(100);
                show_progress();
                if (interrupted() && jobs.close())
                    found.close(), complete = false;
            }
        }
        show_progress();
        if (on_terminal)
            std::fputs("\r\033[K", stderr);
        co_return complete;
    }

    void add(sighting& s) {
        if (!s.trouble.empty())
            return complain(s.seen, s.trouble);
        auto& same_size = sizes[s.seen.size];
        const auto [at, is_new] =
            same_size.files.try_emplace({s.seen.device, s.seen.inode}, s.seen);
        file& f = at->second;
        f.names.insert(std::move(s.seen.path));
        if (!is_new)
            return; // one more name of a file that is known
        files += 1, bytes += static_cast<std::uintmax_t>(f.size);
        auto& all = same_size.candidates; // with one that waits for a second
        all.push_back(&f);
        if (all.size() == 2)
            ask({all[0]});
        if (all.size() >= 2)
            ask({&f});
    }

    void learn(const outcome& o) {
        file& f = *o.of.subject;
        --unfinished;
        if (o.culprit != nullptr)
            complain(*o.culprit, o.trouble);
        if (o.culprit == &f)
            return;
        if (o.same) {
            sizes[f.size].contents[f.hash][o.of.content].push_back(&f);
            duplicates += 1;
        } else if (o.of.known != nullptr) { // one that cannot be read any more is like no other
            place(f, o.of.content + 1);
        } else {
            f.hash = o.hash;
            place(f, 0);
        }
    }

    // Has f compared with one file of each content that has its hash, from `content` on.
    void place(file& f, std::size_t content) {
        auto& contents = sizes[f.size].contents[f.hash];
        if (content == contents.size())
            contents.push_back({&f}); // the first file with these contents
        else
            ask({&f, contents[content].front(), content});
    }

    void ask(const job& j) { pending.push_back(j), ++unfinished; }

    void complain(const file& f, const std::string& what) {
        errors += 1;
        const auto line = "dupes: " + printable(f.path) + ": " + what + "\n";
        std::fputs(((on_terminal ? "\r\033[K" : "") + line).c_str(), stderr);
    }

    void show_progress() const {
        if (progress || on_terminal)
            std::fprintf(stderr, "%s%ju files, %.1f MB read, %ju duplicates%s",
                         on_terminal ? "\r" : "", files, static_cast<double>(read) / 1e6,
                         duplicates, on_terminal ? "\033[K" : "\n");
    }

    void report(bool list, bool complete, double seconds) {
        struct group {
            std::uintmax_t size, wasted;
            std::vector<file*> files;
        };
        const auto name = [](const file* f) -> const std::string& { return *f->names.begin(); };
        std::vector<group> groups;
        for (auto& [size, same_size] : sizes)
            for (auto& [hash, contents] : same_size.contents)
                for (auto& same : contents) {
                    if (same.size() < 2)
                        continue;
                    std::ranges::sort(same, {}, name);
                    const auto each = static_cast<std::uintmax_t>(size);
                    groups.push_back({each, each * (same.size() - 1), same});
                }
        std::ranges::sort(groups, [&](const group& a, const group& b) {
            return a.wasted != b.wasted ? a.wasted > b.wasted : name(a.files[0]) < name(b.files[0]);
        });
        std::uintmax_t wasted = 0;
        for (const group& g : groups) {
            wasted += g.wasted;
            if (!list)
                continue;
            std::printf("%zu files of %ju bytes, %ju wasted\n", g.files.size(), g.size, g.wasted);
            for (const file* f : g.files)
                for (const auto& n : f->names)
                    std::printf("  %c %s\n", n == name(f) ? '-' : '=', printable(n).c_str());
        }
        const double mb = static_cast<double>(read) / 1e6;
        if (!complete)
            std::printf("stopped early: this is what was found until then\n");
        std::printf("files       %ju\nbytes       %ju\nduplicates  %ju in %zu groups\n"
                    "wasted      %ju bytes\nerrors      %ju\n"
                    "time        %.3f s, read %.1f MB, %.1f MB/s\n",
                    files, bytes, duplicates, groups.size(), wasted, errors, seconds, mb,
                    mb / std::max(seconds, 1e-6));
    }
};

// ---- The program

// All stages but the grouper.
struct crew {
    std::vector<bide::join_handle<>> tasks;
    std::vector<std::jthread> threads;

    // Takes the channels' ends by value: they go with the stages, and none is left here.
    crew(bide::scheduler& pool, const options& o, walker first, const hasher each) {
        tasks.push_back(pool.spawn_blocking([&o, w = std::move(first)]() mutable {
            for (const auto& root : o.roots)
                w.walk(root / ""); // the slash follows a link
            if (o.from_stdin)
                w.walk_stdin();
        }));
        for (unsigned i = 0; i < o.coroutines; ++i)
            tasks.push_back(pool.spawn(hashing_task(each).named("hasher")));
        for (unsigned i = 0; i < o.threads; ++i)
            threads.emplace_back(hashing_thread, each);
    }
    void join() {
        for (auto& t : tasks)
            std::move(t).join();
        threads.clear();
    }
};

} // namespace

int main(int argc, char** argv) {
    const auto o = parse(std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
    if (!o || o->help)
        return std::fputs(usage, o ? stdout : stderr), o ? 0 : 2;
    for (const auto& root : o->roots) {
        std::error_code error;
        if (std::filesystem::is_directory(root, error))
            continue;
        const auto name = printable(root.native());
        std::fprintf(stderr, "dupes: %s: not a directory that can be read\n", name.c_str());
        return 2;
    }

    sigset_t interrupt; // stays pending until the grouper looks; the others inherit the mask
    ::sigemptyset(&interrupt);
    ::sigaddset(&interrupt, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &interrupt, nullptr);
    ::signal(SIGINT, SIG_DFL); // shells start background jobs deaf to it

    const auto begin = timer::now();
    bide::semaphore disk(o->permits);
    std::atomic<std::uintmax_t> read{0};
    auto [found_in, found_out] = bide::make_channel<sighting>(1024);
    auto [jobs_in, jobs_out] = bide::make_channel<job>(1024);
    auto [done_in, done_out] = bide::make_channel<outcome>(1024);
    bide::chrome_trace trace;
    bide::scheduler_options wanted;
    wanted.num_workers = o->workers;
    wanted.trace = o->trace != nullptr ? &trace : nullptr;
    bide::scheduler pool(wanted);

    grouper all{std::move(jobs_in), std::move(found_out), std::move(done_out), read, o->progress};
    crew others(pool, *o, {std::move(found_in)},
                {std::move(jobs_out), std::move(done_in), disk, read, o->threads + o->coroutines});
    const bool complete = pool.spawn(all.run().named("grouper")).join();
    others.join();
    pool.shutdown(); // the trace is complete
    const std::chrono::duration<double> seconds = timer::now() - begin;
    all.report(o->list, complete, seconds.count());
    if (o->trace != nullptr && !trace.write(o->trace))
        return std::fprintf(stderr, "dupes: %s: %s\n", o->trace, why().c_str()), 2;
    return complete ? 0 : 130;
}

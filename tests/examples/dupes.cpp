// dupes finds files with the same content, and shows what bide looks like at work.
//
//   walk -> files by size -> jobs -> hashing threads and coroutines -> groups -> report
//
// The second file of a size makes both of them candidates. A candidate's first job is to be hashed,
// whole: big files seldom share a size by chance, so reading only their beginnings first would save
// little. The second job, for files of one hash, is to be compared byte by byte. The hash sorts and
// the bytes decide: a collision costs time, and is never a wrong answer.
//
// What bide does here:
//   semaphore work      one permit for each queued job; closed when there will be no more
//   semaphore disk      one permit for each file that may be open. Threads and coroutines wait in
//                       one fair queue; a comparison opens two files, so it asks for both permits
//                       at once (to hold one while waiting for another is how programs deadlock)
//   shared_mutex        around the map of sizes: all look things up, few insert
//   synchronized_value  data that cannot be reached without its lock
//   stop tokens         Ctrl-C ends every wait, and the wait's result says so
#include <bide/sched/task.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <bide/sync/synchronized_value.hpp>

#include <algorithm>
#include <array>
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
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <span>
#include <stop_token>
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
        if (piece.size() > 8) h2_ ^= high(piece.subspan(8));
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
        if (!b.empty()) std::memcpy(&w, b.data(), b.size());
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
        if (c == '\\') out += "\\\\";
        else if (c == '\n') out += "\\n";
        else if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) out += {'\\', octal(6), octal(3), octal(0)};
        else out += c;
    }
    return out;
}

struct file {
    file(std::string name, const struct stat& s)
        : path(std::move(name)), device(s.st_dev), inode(s.st_ino), size(s.st_size) {}
    const std::string path; // the name that it was found under first
    const dev_t device;
    const ino_t inode;
    const off_t size;
    digest hash{};               // written by its hash job
    std::set<std::string> names; // hard links are one file; see sieve
};

// An open file, read block by block. Whoever makes one holds a permit of `disk` for it.
class reader {
public:
    explicit reader(const file& f)
        : fd_(::open(f.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK)),
          size_(f.size), buffer_(block) {
        struct stat s {};
        if (fd_ < 0 || ::fstat(fd_, &s) != 0) trouble_ = why();
        else if (s.st_dev != f.device || s.st_ino != f.inode || s.st_size != f.size)
            trouble_ = "changed since it was found";
    }
    ~reader() {
        if (fd_ >= 0) ::close(fd_);
    }
    reader(const reader&) = delete;

    bytes next() { // full blocks, then what remains; empty at the end, and when there is trouble
        const auto want = std::min(block, static_cast<std::size_t>(size_ - at_));
        std::size_t got = 0;
        while (trouble_.empty() && got < want) {
            const ssize_t n = ::pread(fd_, buffer_.data() + got, want - got, at_);
            if (n > 0) got += static_cast<std::size_t>(n), at_ += n;
            else if (n == 0) trouble_ = "shrank while it was read";
            else if (errno != EINTR) trouble_ = why();
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

enum class step { hash, compare };
struct job {
    step what;
    file* subject;
    std::ptrdiff_t opens() const { return what == step::compare ? 2 : 1; } // files at once
};

struct sieve { // all files of one size
    std::map<std::pair<dev_t, ino_t>, file> files;
    std::vector<file*> candidates;
    std::map<digest, std::vector<file*>> same_hash;
    std::map<digest, std::vector<std::vector<file*>>> same_bytes;
};

struct tally {
    std::uintmax_t files = 0, bytes = 0, read = 0, duplicates = 0, errors = 0;
};

const bool on_terminal = ::isatty(STDERR_FILENO) == 1;

struct search { // what all threads share
    explicit search(std::ptrdiff_t permits) : disk(permits) {}

    struct queue {
        std::deque<job> jobs;
        std::size_t unfinished = 1; // jobs queued or running, and the walk
    };
    using bucket = bide::synchronized_value<sieve>;

    bide::semaphore disk;
    bide::semaphore work{0};
    std::stop_source interrupted;
    const std::stop_token stop = interrupted.get_token();
    bide::synchronized_value<queue> jobs;
    bide::synchronized_value<tally> counts;
    bide::shared_mutex sizes_mutex;
    std::unordered_map<off_t, bucket> sizes; // an entry stays where it is

    bucket& of_size(off_t size) {
        {
            std::shared_lock looking(sizes_mutex);
            if (const auto at = sizes.find(size); at != sizes.end()) return at->second;
        }
        std::unique_lock inserting(sizes_mutex);
        return sizes.try_emplace(size).first->second; // or finds what somebody inserted meanwhile
    }

    // Releases with no lock held: whoever wakes up would only run into it.
    void post(const std::vector<job>& next) {
        jobs.with([&](queue& q) {
            q.unfinished += next.size();
            q.jobs.insert(q.jobs.end(), next.begin(), next.end());
        });
        work.release(static_cast<std::ptrdiff_t>(next.size()));
    }
    job take() { // after a permit of `work`, so there is one
        const auto q = jobs.lock();
        const job first = q->jobs.front();
        q->jobs.pop_front();
        return first;
    }
    void finish(const std::vector<job>& next) { // a job, or the walk; next: what follows from it
        if (stop.stop_requested()) return;      // it may have been cut short
        post(next);
        if (jobs.with([](queue& q) { return --q.unfinished == 0; })) work.close();
    }
    void complain(const std::filesystem::path& path, const std::string& what) {
        counts.lock()->errors += 1;
        const auto line = "dupes: " + printable(path.native()) + ": " + what + "\n";
        std::fputs(((on_terminal ? "\r\033[K" : "") + line).c_str(), stderr);
    }
};

// The first of a kind waits, the second one sends both on, and whoever comes later follows at once.
std::vector<job> join(std::vector<file*>& kind, file& f, step next) {
    kind.push_back(&f);
    if (kind.size() == 1) return {};
    if (kind.size() == 2) return {{next, kind[0]}, {next, kind[1]}};
    return {{next, &f}};
}

void add(search& all, const std::string& path, const struct stat& s) {
    std::vector<job> next;
    {
        const auto same_size = all.of_size(s.st_size).lock();
        const auto [at, is_new] = same_size->files.try_emplace({s.st_dev, s.st_ino}, path, s);
        at->second.names.insert(path);
        if (!is_new) return; // one more name of a file that is known
        next = join(same_size->candidates, at->second, step::hash);
    }
    const auto size = static_cast<std::uintmax_t>(s.st_size);
    all.counts.with([&](tally& t) { t.files += 1, t.bytes += size; });
    all.post(next);
}

void walk(search& all, const std::filesystem::path& root) { // symbolic links are passed over
    std::vector<std::filesystem::path> found{root};
    while (!found.empty() && !all.stop.stop_requested()) {
        const auto path = std::move(found.back());
        found.pop_back();
        struct stat s {};
        std::error_code error;
        if (::lstat(path.c_str(), &s) != 0) all.complain(path, why());
        else if (S_ISREG(s.st_mode)) add(all, path, s);
        else if (S_ISDIR(s.st_mode))
            for (std::filesystem::directory_iterator at(path, error), end; !error && at != end;
                 at.increment(error))
                found.push_back(at->path());
        else if (!S_ISLNK(s.st_mode)) all.complain(path, "not a regular file");
        if (error) all.complain(path, error.message());
    }
}

void walk_stdin(search& all) { // names that end in NUL, as find -print0 writes them
    std::string name;
    std::array<char, 4096> buffer{};
    pollfd input{STDIN_FILENO, POLLIN, 0};
    while (!all.stop.stop_requested()) {
        if (::poll(&input, 1, 100) == 0) continue; // nothing yet: look whether to stop
        const ssize_t n = ::read(STDIN_FILENO, buffer.data(), buffer.size());
        if (n <= 0) break;
        for (const char c : std::span(buffer).first(static_cast<std::size_t>(n)))
            if (c != '\0') name += c;
            else walk(all, std::exchange(name, {}));
    }
}

std::vector<job> hash(search& all, file& f) {
    murmur128 hasher;
    reader in(f);
    for (bytes piece; !(piece = in.next()).empty() && !all.stop.stop_requested();) {
        hasher.update(piece);
        all.counts.lock()->read += piece.size();
    }
    if (!in.trouble().empty()) return all.complain(f.path, in.trouble()), std::vector<job>{};
    f.hash = hasher.value();
    const auto same_size = all.of_size(f.size).lock();
    return join(same_size->same_hash[f.hash], f, step::compare);
}

// Nothing: f cannot be read, or Ctrl-C. A `known` that cannot be read any more is like no other.
std::optional<bool> same_bytes(search& all, const file& known, const file& f) {
    reader a(known), b(f);
    while (!all.stop.stop_requested()) {
        const bytes x = a.next(), y = b.next();
        all.counts.lock()->read += x.size() + y.size();
        if (!b.trouble().empty()) return all.complain(f.path, b.trouble()), std::nullopt;
        if (!a.trouble().empty()) return all.complain(known.path, a.trouble()), false;
        if (!std::ranges::equal(x, y)) return false;
        if (x.empty()) return true;
    }
    return std::nullopt;
}

// Compares f with one file of each content that has its hash, and puts it there or beside them.
void compare(search& all, file& f) {
    for (std::size_t i = 0;; ++i) {
        const file* known = nullptr;
        {
            const auto same_size = all.of_size(f.size).lock();
            auto& contents = same_size->same_bytes[f.hash];
            if (i == contents.size()) return contents.push_back({&f}); // nobody had this content
            known = contents[i].front();
        }
        const auto same = same_bytes(all, *known, f);
        if (!same) return;
        if (!*same) continue;
        all.of_size(f.size).lock()->same_bytes[f.hash][i].push_back(&f);
        all.counts.lock()->duplicates += 1;
        return;
    }
}

std::vector<job> run(search& all, const job& j) {
    if (j.what == step::hash) return hash(all, *j.subject);
    compare(all, *j.subject);
    return {};
}

// A thread and a coroutine that do the same, in the same two queues.
void hashing_thread(search& all) {
    while (!all.stop.stop_requested()) { // a free permit is granted, stop or no stop: so ask
        if (!all.work.acquire(all.stop)) return; // stopped, or closed: no more jobs
        const job j = all.take();
        if (!all.disk.acquire(all.stop, j.opens())) return;
        bide::permit files(all.disk, std::adopt_lock, j.opens());
        const auto next = run(all, j);
        files.reset(); // first let others open files, then tell of new jobs
        all.finish(next);
    }
}

bide::task<> hashing_coroutine(search& all) {
    while (!all.stop.stop_requested()) {
        auto queued = co_await all.work.async_acquire().with_stop(all.stop);
        if (!queued) co_return;
        queued->forget(); // it stood for the job, and is gone with it
        const job j = all.take();
        auto files = co_await all.disk.async_acquire(j.opens()).with_stop(all.stop);
        if (!files) co_return;
        const auto next = run(all, j);
        files->reset();
        all.finish(next);
    }
}

void show_progress(const tally& t) {
    std::fprintf(stderr, "\r%ju files, %.1f MB read, %ju duplicates\033[K", t.files,
                 static_cast<double>(t.read) / 1e6, t.duplicates);
}

void report(search& all, bool list, bool stopped, double seconds) { // when all others have ended
    struct group {
        std::uintmax_t size, wasted;
        std::vector<file*> files;
    };
    const auto name = [](const file* f) -> const std::string& { return *f->names.begin(); };
    std::vector<group> groups;
    for (auto& [size, same_size] : all.sizes)
        for (auto& [hash, contents] : same_size.lock()->same_bytes)
            for (auto& files : contents) {
                if (files.size() < 2) continue;
                std::ranges::sort(files, {}, name);
                const auto each = static_cast<std::uintmax_t>(size);
                groups.push_back({each, each * (files.size() - 1), files});
            }
    std::ranges::sort(groups, [&](const group& a, const group& b) {
        return a.wasted != b.wasted ? a.wasted > b.wasted : name(a.files[0]) < name(b.files[0]);
    });
    std::uintmax_t wasted = 0;
    for (const group& g : groups) {
        wasted += g.wasted;
        if (!list) continue;
        std::printf("%zu files of %ju bytes, %ju wasted\n", g.files.size(), g.size, g.wasted);
        for (const file* f : g.files)
            for (const auto& n : f->names)
                std::printf("  %c %s\n", n == name(f) ? '-' : '=', printable(n).c_str());
    }
    const tally t = *all.counts.lock();
    const double mb = static_cast<double>(t.read) / 1e6;
    if (stopped) std::printf("stopped early: this is what was found until then\n");
    std::printf("files       %ju\nbytes       %ju\nduplicates  %ju in %zu groups\n"
                "wasted      %ju bytes\nerrors      %ju\n"
                "time        %.3f s, read %.1f MB, %.1f MB/s\n",
                t.files, t.bytes, t.duplicates, groups.size(), wasted, t.errors, seconds, mb,
                mb / std::max(seconds, 1e-6));
}

const char* const usage =
    "usage: dupes [options] [directory...]\n"
    "Finds files with the same content (default: below /usr/include, else below .).\n"
    "  --threads N     hashing threads (default: one for each processor)\n"
    "  --coroutines N  hashing coroutines beside them (default: 2)\n"
    "  --permits N     files open at once, 2 or more (default: one for each processor)\n"
    "  --stdin         also what is named on stdin, each name ended by a NUL (find -print0)\n"
    "  --summary       print only the summary\n"
    "A group lists its files (-) and, below a file, its other names (=), which waste nothing.\n"
    "Status: 0 done, even when single files could not be read; 2 bad usage; 130 Ctrl-C.\n";

struct options {
    unsigned threads = std::max(1U, std::thread::hardware_concurrency());
    unsigned coroutines = 2;
    unsigned permits = std::max(2U, threads);
    bool from_stdin = false, list = true, help = false;
    std::vector<std::filesystem::path> roots;
};

std::optional<options> parse(std::span<char*> args) {
    options o;
    const auto number = [&](unsigned& value, unsigned least) {
        const std::string_view text = args.size() < 2 ? "" : args[1];
        args = args.subspan(args.size() < 2 ? 0 : 1);
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        return error == std::errc{} && end == text.data() + text.size() && least <= value &&
               value <= 1000;
    };
    for (bool names_only = false; !args.empty(); args = args.subspan(1)) {
        const std::string_view arg = args[0];
        bool good = true;
        if (names_only || !arg.starts_with('-')) o.roots.emplace_back(arg);
        else if (arg == "--") names_only = true;
        else if (arg == "--threads") good = number(o.threads, 0);
        else if (arg == "--coroutines") good = number(o.coroutines, 0);
        else if (arg == "--permits") good = number(o.permits, 2);
        else if (arg == "--stdin") o.from_stdin = true;
        else if (arg == "--summary") o.list = false;
        else if (arg == "--help") o.help = true;
        else good = false;
        if (!good) {
            std::fprintf(stderr, "dupes: %s: no such option, or a bad value for it\n", arg.data());
            return std::nullopt;
        }
    }
    if (o.threads + o.coroutines == 0) return std::nullopt;
    if (o.roots.empty() && !o.from_stdin)
        o.roots.emplace_back(std::filesystem::is_directory("/usr/include") ? "/usr/include" : ".");
    return o;
}

} // namespace

int main(int argc, char** argv) {
    const auto o = parse(std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
    if (!o || o->help) return std::fputs(usage, o ? stdout : stderr), o ? 0 : 2;
    for (const auto& root : o->roots) {
        std::error_code error;
        if (std::filesystem::is_directory(root, error)) continue;
        const auto name = printable(root.native());
        std::fprintf(stderr, "dupes: %s: not a directory that can be read\n", name.c_str());
        return 2;
    }

    sigset_t interrupt; // stays pending until this thread looks; the others inherit the mask
    ::sigemptyset(&interrupt);
    ::sigaddset(&interrupt, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &interrupt, nullptr);
    ::signal(SIGINT, SIG_DFL); // shells start background jobs deaf to it

    const auto start = std::chrono::steady_clock::now();
    search all(o->permits);
    bide::semaphore ended{0}; // one permit for each thread that has ended
    std::vector<std::jthread> crew;
    crew.emplace_back([&] {
        for (const auto& root : o->roots) walk(all, root / ""); // the slash follows a link
        if (o->from_stdin) walk_stdin(all);
        all.finish({});
        ended.release();
    });
    for (unsigned i = 0; i < o->threads; ++i)
        crew.emplace_back([&] { hashing_thread(all), ended.release(); });
    for (unsigned i = 0; i < o->coroutines; ++i)
        crew.emplace_back([&] { bide::sync_wait(hashing_coroutine(all)), ended.release(); });

    const auto everybody = static_cast<std::ptrdiff_t>(crew.size());
    do {
        if (::sigpending(&interrupt) == 0 && ::sigismember(&interrupt, SIGINT))
            all.interrupted.request_stop();
        if (on_terminal) show_progress(*all.counts.lock());
    } while (!ended.try_acquire_for(std::chrono::milliseconds(100), everybody));
    crew.clear(); // joins
    if (on_terminal) std::fputs("\r\033[K", stderr);

    const bool stopped = all.jobs.lock()->unfinished != 0;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    report(all, o->list, stopped, seconds.count());
    return stopped ? 130 : 0;
}

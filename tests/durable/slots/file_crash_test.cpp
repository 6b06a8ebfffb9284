#include <bide/durable/slots/file.hpp>

// The file slot on a simulated disk. Each sector of a write can be lost until it is synced. A
// process can be killed between any two of its steps.
#include <bide/durable/slots/impl/file.hpp>
#include <support/slot_results.hpp>
#include <support/stress.hpp>

#include <fcntl.h>
#include <sys/stat.h>

using namespace bide;
using bide::detail::file_page;
using test::is_long_run; // enumerates what short runs draw at random

namespace {

constexpr std::size_t sector = 512;
constexpr const char* data_path = "/d/slot";
constexpr const char* lock_path = "/d/slot.lock";
constexpr std::uint64_t jump = std::uint64_t{1}
                               << 20; // how many versions a slot skips after a loss

// ---- the disk

class disk {
public:
    struct piece {
        std::size_t at;
        std::string bytes;
    };
    struct node {
        std::string cached;          // what a read returns
        std::string durable;         // what survives a loss of power
        std::vector<piece> unsynced; // any subset of these may survive as well
    };
    static constexpr int directory = 1'000'000;

    // ---- faults

    int life = 1 << 30; // steps until the process is killed
    bool is_dead = false;
    bool lies = false; // syncs do nothing
    bool is_remote = false;
    int syncs_before_eio =
        -1; // the sync after these fails; the written data may be on the disk or not
    int writes_before_error = -1;
    int write_error = ENOSPC;
    std::size_t writes_before_failing = 0; // bytes that the failing write still writes
    std::uint32_t chance = 1;
    long pid = 1;
    bool is_locked = false;          // for a writer
    std::function<void()> meanwhile; // called in the middle of each write and sync
    std::int64_t slept = 0;
    std::int64_t free_at = 0; // until then another process has the lock
    bool is_claimed = false;  // by another process
    bool has_claim = false;
    int claims = 0;
    std::int64_t longest_rest_with_claim = 0;
    std::uint64_t clock = 1'000; // does not advance: versions must not depend on it

    void revive() {
        is_dead = false;
        is_locked = false;
        life = 1 << 30;
        ++pid;
    }

    // ---- the system calls of a slot

    int open_file(const std::string& path, int flags) {
        if (path == "/d/.") {
            return directory;
        }
        const auto there = names.find(path);
        if (there != names.end()) {
            if ((flags & O_EXCL) != 0) {
                return fails(EEXIST);
            }
            return there->second;
        }
        if ((flags & O_CREAT) == 0) {
            return fails(ENOENT);
        }
        if (!step()) {
            return -1;
        }
        nodes.emplace_back();
        return names[path] = static_cast<int>(nodes.size()) - 1;
    }

    ssize_t read_at(int fd, char* to, std::size_t size, std::uint64_t at) {
        const std::string& all = of(fd).cached;
        const std::size_t from = std::min<std::size_t>(at, all.size());
        return static_cast<ssize_t>(all.copy(to, size, from));
    }

    ssize_t write_at(int fd, const char* from, std::size_t size, std::uint64_t at) {
        const bool lives = step();
        if (!lives && !dies_now_) {
            return -1;
        }
        std::size_t fits = lives ? size : size / 2;
        if (writes_before_error == 0) {
            if (writes_before_failing == 0) {
                return fails(write_error);
            }
            fits = std::min(fits, writes_before_failing);
            writes_before_failing = 0;
        } else if (writes_before_error > 0) {
            --writes_before_error;
        }
        if (meanwhile) {
            put(of(fd).cached, at, std::string(from, fits / 2));
            meanwhile();
        }
        put(of(fd).cached, at, std::string(from, fits));
        for (std::size_t done = 0; done < fits;) {
            const std::size_t n = std::min(fits - done, sector - (at + done) % sector);
            of(fd).unsynced.push_back(
                {static_cast<std::size_t>(at) + done, std::string(from + done, n)});
            done += n;
        }
        return lives ? static_cast<ssize_t>(fits) : fails(EIO);
    }

    int sync(int fd) {
        if (!step()) {
            return -1;
        }
        if (meanwhile) {
            meanwhile();
        }
        if (syncs_before_eio == 0) {
            syncs_before_eio = -1;
            if (fd != directory) { // a part reaches the disk; the kernel does not retry
                test::jitter some(chance);
                for (const piece& p : of(fd).unsynced) {
                    if (some.below(2) == 0) {
                        put(of(fd).durable, p.at, p.bytes);
                    }
                }
                of(fd).unsynced.clear();
            }
            return fails(EIO);
        }
        if (syncs_before_eio > 0) {
            --syncs_before_eio;
        }
        if (!lies && fd == directory) {
            durable_names = names;
        } else if (!lies) {
            for (const piece& p : of(fd).unsynced) { // the kernel drops them from its cache
                put(of(fd).durable, p.at, p.bytes);
            }
            of(fd).unsynced.clear();
        }
        return 0;
    }

    int rename_file(const std::string& from, const std::string& to, bool is_exchange) {
        if (!step()) {
            return -1;
        }
        if (is_exchange) {
            std::swap(names.at(from), names.at(to));
            return 0;
        }
        names[to] = names.at(from);
        names.erase(from);
        return 0;
    }
    int remove_file(const std::string& path) {
        if (names.find(path) == names.end()) {
            return fails(ENOENT);
        }
        if (!step()) {
            return -1;
        }
        names.erase(path);
        return 0;
    }

    int look_at(const std::string& path, struct stat& facts) {
        const auto there = names.find(path);
        return there == names.end() ? fails(ENOENT) : look_at(there->second, facts);
    }
    int look_at(int fd, struct stat& facts) {
        facts = {};
        facts.st_mode = S_IFREG | 0600;
        facts.st_nlink = static_cast<nlink_t>(std::count_if(
            names.begin(), names.end(), [&](const auto& name) { return name.second == fd; }));
        facts.st_ino = static_cast<ino_t>(fd) + 1;
        facts.st_size = static_cast<off_t>(of(fd).cached.size());
        return 0;
    }
    void drop_cache(int fd) {
        if (!is_dead) {
            of(fd).cached = of(fd).durable;
            for (const piece& p : of(fd).unsynced) {
                put(of(fd).cached, p.at, p.bytes);
            }
        }
    }

    // ---- a loss of power

    node& data() { return of(names.at(data_path)); }
    bool has(const std::string& path) const { return names.count(path) != 0; }
    const std::string& bytes_of(const std::string& path) { return of(names.at(path)).cached; }
    void forget(const std::string& path) { names.erase(path); }
    bool is_lock(int fd) const {
        const auto there = names.find(lock_path);
        return there != names.end() && there->second == fd;
    }

    // Calls f(disk, state) for each state that a loss of power may leave now. If there are too many,
    // draws `most` of them at random. Returns the number of calls.
    template <class F> long each_loss(std::uint32_t seed, long most, F f) const {
        std::vector<int> files; // the files that the path may name afterwards
        for (const auto* const all : {&durable_names, &names}) {
            const auto there = all->find(data_path);
            files.push_back(there == all->end() ? -1 : there->second);
        }
        if (files[0] == files[1]) {
            files.pop_back();
        }
        long count = 0;
        test::jitter some(seed);
        for (const int file : files) {
            const std::size_t bits =
                file < 0 ? 0 : nodes[static_cast<std::size_t>(file)].unsynced.size();
            const bool all = bits <= (is_long_run() ? 16U : 10U);
            const long states = all ? 1L << bits : most;
            for (long state = 0; state < states; ++state) {
                disk left;
                if (file >= 0) {
                    left.add(data_path, nodes[static_cast<std::size_t>(file)],
                             [&](std::size_t bit) {
                                 return all ? (state >> bit & 1) != 0 : some.below(2) == 0;
                             });
                }
                const auto lock = names.find(lock_path);
                if (lock != names.end() && some.below(3) != 0) {
                    left.add(lock_path, nodes[static_cast<std::size_t>(lock->second)],
                             [&](std::size_t) { return some.below(2) == 0; });
                }
                f(left, state);
                ++count;
            }
        }
        return count;
    }

private:
    static void put(std::string& into, std::size_t at, const std::string& bytes) {
        if (into.size() < at + bytes.size()) {
            into.resize(at + bytes.size());
        }
        into.replace(at, bytes.size(), bytes);
    }

    template <class Kept> void add(const char* path, const node& from, Kept kept) {
        node to;
        to.durable = from.durable;
        for (std::size_t i = 0; i < from.unsynced.size(); ++i) {
            if (kept(i)) {
                put(to.durable, from.unsynced[i].at, from.unsynced[i].bytes);
            }
        }
        to.cached = to.durable;
        nodes.push_back(std::move(to));
        durable_names[path] = names[path] = static_cast<int>(nodes.size()) - 1;
    }

    int fails(int error) const {
        errno = error;
        return -1;
    }
    bool step() {
        dies_now_ = !is_dead && life-- == 0;
        is_dead = is_dead || dies_now_;
        if (is_dead) {
            errno = EIO;
        }
        return !is_dead;
    }
    node& of(int fd) { return nodes.at(static_cast<std::size_t>(fd)); }

    std::vector<node> nodes;
    std::map<std::string, int> names;
    std::map<std::string, int> durable_names;
    bool dies_now_ = false;
};

struct disk_io {
    disk* on = nullptr;

    int open_file(const char* path, int flags, unsigned = 0) { return on->open_file(path, flags); }
    void close_file(int) {}
    ssize_t read_at(int fd, char* to, std::size_t size, std::uint64_t at) {
        return on->read_at(fd, to, size, at);
    }
    ssize_t write_at(int fd, const char* from, std::size_t size, std::uint64_t at) {
        return on->write_at(fd, from, size, at);
    }
    int sync_data(int fd) { return on->sync(fd); }
    int sync_all(int fd) { return on->sync(fd); }
    int rename_file(const char* from, const char* to, bool is_exchange) {
        return on->rename_file(from, to, is_exchange);
    }
    int remove_file(const char* path) { return on->remove_file(path); }
    int look_at(const char* path, struct stat& facts) {
        return on->look_at(std::string(path), facts);
    }
    int look_at(int fd, struct stat& facts) { return on->look_at(fd, facts); }
    int try_lock(int fd, bool exclusive) {
        if (!on->is_lock(fd)) { // the lock of a writer on the value's file, which is taken second
            return 0;
        }
        errno = EWOULDBLOCK;
        const bool is_free = !on->is_locked && on->slept >= on->free_at;
        return is_free ? (on->is_locked = exclusive, 0) : -1;
    }
    void unlock(int fd) { on->is_locked = on->is_locked && !on->is_lock(fd); }
    int claim(int, bide::detail::byte_lock what) {
        using bide::detail::byte_lock;
        if (what == byte_lock::ask) {
            return on->is_claimed ? 1 : 0;
        }
        on->claims += what == byte_lock::set && !on->is_claimed ? 1 : 0;
        on->has_claim = what == byte_lock::set && !on->is_claimed;
        return what == byte_lock::set && on->is_claimed ? -1 : 0;
    }
    bool is_reliable(int) { return !on->is_remote; }
    int copy_owner_and_mode(int, const struct stat&) { return 0; }
    void drop_cache(int fd) { on->drop_cache(fd); }
    long process() { return on->pid; }
    std::int64_t steady_ns() { return on->slept; }
    std::uint64_t clock_ns() { return on->clock; }
    void sleep(std::int64_t ns) {
        on->slept += ns;
        if (on->has_claim) {
            on->longest_rest_with_claim = std::max(on->longest_rest_with_claim, ns);
        }
    }
};

using store = bide::detail::file_store<disk_io>;

file_slot_options pages_of(std::size_t size) {
    file_slot_options settings;
    settings.page_size = size;
    return settings;
}

store on(disk& d, const file_slot_options& settings = pages_of(4096)) {
    return store(data_path, settings, disk_io{&d});
}

// ---- what is stored, and what a load may return

// The value's number, and bytes that differ from every other value's.
std::string value_of(std::uint32_t serial, std::size_t size) {
    std::string value;
    value.reserve(size + 4);
    test::jitter bytes(serial + 1);
    while (value.size() < size) {
        const std::uint32_t word = value.empty() ? serial : bytes.below(0xffffffff);
        for (int i = 0; i < 4; ++i) {
            value.push_back(static_cast<char>(word >> (8 * i) & 0xff));
        }
    }
    value.resize(size);
    return value;
}

// Values are numbered from 1; 0 means no value.
class history {
public:
    struct entry {
        std::string value;
        bide::slot_version version = 0; // 0: not acknowledged
    };

    std::uint32_t next() const { return static_cast<std::uint32_t>(all.size()) + 1; }
    const std::string& begin(std::size_t size) {
        all.push_back({value_of(next(), size), 0});
        return all.back().value;
    }
    void acknowledge(bide::slot_version version) {
        all.back().version = version;
        least = static_cast<std::uint32_t>(all.size());
    }

    // Returns the number of the value that was read; -1: the read is wrong.
    long judge(const bide::result<bide::slot_snapshot, std::error_code>& read,
               bool has_mark = true) const {
        if (!read) {
            return lies && read.error() == durable_errc::corrupt_record ? 0 : -1;
        }
        // A crash loses no acknowledged value. If it lost the synced version, too, the slot cannot
        // tell.
        if (read->lost_acknowledged && !((lies || !has_mark) && read->fell_back)) {
            return -1;
        }
        if (read->version == 0) {
            return (least == 0 || lies) && read->value.empty() && !read->fell_back ? 0 : -1;
        }
        if (read->value.size() < 4) {
            return -1;
        }
        const auto serial = bide::detail::load_little<std::uint32_t>(read->value.data());
        if (serial == 0 || serial > all.size() || (serial < least && !lies)) {
            return -1;
        }
        const entry& meant = all[serial - 1];
        const bool is_whole =
            read->value == meant.value && (meant.version == 0 || meant.version == read->version);
        // fell_back is set only if a page was half written.
        const bool may_fall_back = lies || least < all.size();
        return is_whole && (!read->fell_back || may_fall_back) ? serial : -1;
    }

    std::vector<entry> all;
    std::uint32_t least = 0; // a load must return this value or a later one
    bool lies = false;
};

struct tally {
    long states = 0;
    long bad = 0;
    long fell_back = 0;
    long rotten_acknowledged = 0;
    long rotten_unknown = 0;
    std::string first_bad;

    void note(bool good, const std::string& what) {
        if (!good && bad++ == 0) {
            first_bad = what;
        }
    }
};

// Stores the next value. False: it was not stored.
bool put(store& s, history& h, std::size_t size) {
    const auto read = s.load();
    if (!read) {
        return false;
    }
    const bide::cas_result r = s.compare_exchange(read->version, h.begin(size));
    if (r.status == cas_status::stored) {
        h.acknowledge(r.version);
    }
    return r.status == cas_status::stored;
}

// A disk with a slot, in which these values are stored.
struct slot_on_disk {
    explicit slot_on_disk(std::initializer_list<std::size_t> sizes = {}) {
        for (const std::size_t size : sizes) {
            REQUIRE(put(s, h, size));
        }
    }

    // What a slot returns: the number of a stored value, or another value, and what it reports.
    std::string loads(store& from) const {
        const auto read = from.load();
        if (!read) {
            return read.error().message();
        }
        const auto is_it = [&](const history::entry& e) { return e.value == read->value; };
        const auto at = std::find_if(h.all.begin(), h.all.end(), is_it);
        std::string told = at == h.all.end() ? read->value : std::to_string(at - h.all.begin() + 1);
        told += at != h.all.end() && at->version != read->version ? ", another version" : "";
        told += read->fell_back ? ", fell back" : "";
        return told + (read->lost_acknowledged ? ", lost" : "");
    }
    std::string loads() { return loads(s); }
    std::string another_loads() {
        store another = on(d);
        return loads(another);
    }

    disk d;
    history h;
    store s = on(d);
};

// ---- damage on the disk

std::uint64_t mark_on(disk& d) {
    const std::string bytes = d.has(lock_path) ? d.bytes_of(lock_path) : std::string();
    return bytes.size() < 8 ? 0 : bide::detail::load_little<std::uint64_t>(bytes.data());
}

// The good page with the latest version, and how many of its bytes count; size 0: none.
struct newest_page {
    std::uint64_t version = 0;
    std::uint64_t other = 0; // the version of the other page, if that is good
    std::size_t at = 0;
    std::size_t size = 0;
};

newest_page newest_on(disk& d) {
    newest_page newest;
    if (!d.has(data_path)) {
        return newest;
    }
    const std::string& bytes = d.data().cached;
    const std::size_t half = bytes.size() / 2;
    for (const std::size_t at : {std::size_t{0}, half}) {
        if (half == 0) {
            break;
        }
        const file_page page = bide::detail::decode_header(bytes.data() + at);
        if (!page.is_plausible(half) ||
            bide::detail::page_sum(bytes.data() + at, page.length) != page.sum) {
            continue;
        }
        if (page.version > newest.version) {
            newest = {page.version, newest.version, at, file_page::header_size + page.length};
        } else {
            newest.other = page.version;
        }
    }
    return newest;
}

void flip(disk& d, std::size_t bit) {
    char& byte = d.data().cached[bit / 8];
    byte = static_cast<char>(byte ^ 1 << bit % 8);
}

// A bit of the newest page has flipped. Checks what the first slot returns, and the slot after it.
bool is_told_of_rot(disk d, const file_slot_options& settings, std::size_t bit) {
    const newest_page before = newest_on(d);
    const std::uint64_t mark = mark_on(d);
    flip(d, before.at * 8 + bit % (before.size * 8));
    d.clock += 10'000'000; // an unknown page may have had any version up to this time
    for (int reader = 0; reader < 2; ++reader) {
        const auto read = on(d, settings).load();
        if (before.other == 0) { // no page is left
            if (read || read.error().category() != bide::durable_category()) {
                return false;
            }
            continue;
        }
        if (!read || read->version != before.other || !read->fell_back ||
            read->lost_acknowledged != (mark == 0 || mark > before.other)) {
            return false;
        }
    }
    if (before.other == 0) {
        return true;
    }
    store s = on(d, settings);
    const bide::cas_result r = s.compare_exchange(before.other, "and on");
    const auto mine = s.load();
    const auto others = on(d, settings).load();
    return r.status == cas_status::stored && r.version > before.version && mine && others &&
           !mine->fell_back && !mine->lost_acknowledged && others->value == "and on" &&
           !others->fell_back && !others->lost_acknowledged;
}

// Loses power in every way. Each state can be loaded and changed further.
void lose_power(const disk& d, const history& h, const file_slot_options& settings, tally& t,
                const std::string& when, long most = 2'000, std::uint64_t clock = 1'000) {
    t.states +=
        d.each_loss(static_cast<std::uint32_t>(when.size()) + 7, most, [&](disk& left, long state) {
            left.clock = clock;
            disk rotten = left;
            store s = on(left, settings);
            const bool has_mark = mark_on(left) != 0;
            const auto read = s.load();
            const long found = h.judge(read, has_mark);
            if (found < 0) {
                t.note(false, when + ", state " + std::to_string(state));
            }
            t.fell_back += read && read->fell_back;
            if (newest_on(rotten).size != 0) {
                const bool acknowledged = mark_on(rotten) == newest_on(rotten).version;
                ++(acknowledged ? t.rotten_acknowledged : t.rotten_unknown);
                t.note(is_told_of_rot(rotten, settings, static_cast<std::size_t>(state * 7'919)),
                       when + ", rot in state " + std::to_string(state));
            }
            if (found >= 0 && read && state % 61 == 0) {
                const bide::cas_result r = s.compare_exchange(read->version, "and on");
                const auto after = on(left, settings).load();
                bool good = r.status == cas_status::stored && after && after->value == "and on" &&
                            !after->fell_back && after->version == r.version;
                for (const history::entry& e : h.all) {
                    good = good && (e.version == 0 || r.version > e.version);
                }
                t.note(good, when + ", going on from state " + std::to_string(state));
            }
        });
}

// Stores the values one after the other, and is killed after each possible number of steps.
void crash_everywhere(const file_slot_options& settings, const std::vector<std::size_t>& sizes,
                      tally& t, std::size_t then) {
    for (int life = 0;; ++life) {
        const std::string when = "killed after " + std::to_string(life);
        disk d;
        d.life = life;
        history h;
        {
            store s = on(d, settings);
            for (const std::size_t size : sizes) {
                if (!put(s, h, size)) {
                    break;
                }
            }
        }
        const bool was_killed = d.is_dead;
        lose_power(d, h, settings, t, when);

        // The system runs on, and another process uses the slot.
        d.revive();
        history seen = h;
        {
            store s = on(d, settings);
            const long found = seen.judge(s.load());
            t.note(found >= 0, when + ", next process");
            seen.least = found < 0 ? 0 : static_cast<std::uint32_t>(found);
        }
        lose_power(d, seen, settings, t, when + ", was read");
        for (int again = 0;; ++again) {
            disk second = d;
            second.life = again;
            history both = seen;
            store s = on(second, settings);
            put(s, both, then);
            const std::string where = when + ", and again after " + std::to_string(again);
            lose_power(second, both, settings, t, where, 100);
            if (!second.is_dead) {
                break;
            }
        }
        if (!was_killed) {
            return;
        }
    }
}

constexpr std::size_t whole(std::size_t page) { return page - file_page::header_size; }

} // namespace

TEST_CASE("crc32c: table and instruction agree, for one piece and for two") {
    using bide::detail::crc32c;
    REQUIRE(crc32c("123456789") == 0xe3069283u);
    const std::string bytes = value_of(1'000, 300);
    for (std::size_t from = 0; from < 20; ++from) {
        const std::string_view all = std::string_view(bytes).substr(from, 7 * from);
        const std::uint32_t sum = bide::detail::crc32c_by_table(all);
        REQUIRE(crc32c(all) == sum);
        REQUIRE(crc32c(all.substr(from), crc32c(all.substr(0, from))) == sum);
    }
}

TEST_CASE("file_slot: a page has the same bytes on every machine") {
    char bytes[36] = {};
    std::copy_n("four", 4, bytes + 32);
    bide::detail::encode_header(bytes, 0x00014000, 0x0102030405060708, 4);
    const std::string header(bytes, 28);
    const char expected[] = "bideslot\1\0\0\0\0\x40\1\0\x08\7\6\5\4\3\2\1\4\0\0";
    REQUIRE(header == std::string(expected, 28));
    REQUIRE(bide::detail::load_little<std::uint32_t>(bytes + 28) ==
            bide::detail::crc32c("four", bide::detail::crc32c({bytes, 28})));
    const file_page page = bide::detail::decode_header(bytes);
    REQUIRE(page.version == 0x0102030405060708);
    REQUIRE(page.is_plausible(0x14000));
    REQUIRE(!page.is_plausible(0x4000));
    REQUIRE(bide::detail::page_sum(bytes, page.length) == page.sum);
    bytes[35] ^= 1;
    REQUIRE(bide::detail::page_sum(bytes, page.length) != page.sum);
}

TEST_CASE("file_slot: a crash at any step leaves the old value or the new one",
          "[promise.file-slot-crash]") {
    tally t;
    // A new file, then changes of every sector, to shorter and longer values.
    crash_everywhere(pages_of(4096), {100, whole(4096), whole(4096), 1'000, whole(4096)}, t,
                     whole(4096));
    // A larger file replaces the first, and is changed.
    crash_everywhere(pages_of(4096), {100, 200, 5'000, 300}, t, 13'000);
    // One write of 14 sectors.
    for (const std::size_t before : {std::size_t{10}, std::size_t{14 * sector - 32}}) {
        disk d;
        history h;
        store s = on(d, pages_of(8192));
        REQUIRE((put(s, h, before) && put(s, h, before) && put(s, h, before)));
        disk at_the_sync = d;
        at_the_sync.life = 1; // killed between the write and the sync
        store there = on(at_the_sync, pages_of(8192));
        put(there, h, 14 * sector - 32);
        REQUIRE(at_the_sync.is_dead);
        lose_power(at_the_sync, h, pages_of(8192), t, "14 sectors");
    }
    INFO(t.first_bad);
    REQUIRE(t.bad == 0);
    REQUIRE(t.fell_back > 0);
    REQUIRE(t.states > (is_long_run() ? 45'000 : 10'000));
    REQUIRE(t.rotten_acknowledged > 1'000);
    REQUIRE(t.rotten_unknown > 1'000);
}

TEST_CASE("file_slot: if syncs do nothing, a load returns a whole value or none") {
    tally t;
    slot_on_disk one({10, 20});
    auto& [d, h, s] = one;
    h.lies = d.lies = true;
    const std::uint64_t later =
        d.clock + 1'000'000; // versions that were lost as a whole need a later clock
    REQUIRE(put(s, h, whole(4096)));
    REQUIRE(put(s, h, whole(4096)));
    lose_power(d, h, pages_of(4096), t, "two writes", 4'000, later); // 16 sectors
    REQUIRE(t.states == (is_long_run() ? 65'536 : 4'000));
    REQUIRE(put(s, h, 5'000)); // nothing of the new file is on the disk
    lose_power(d, h, pages_of(4096), t, "a new file", 3'000, later);
    INFO(t.first_bad);
    REQUIRE(t.bad == 0);
}

TEST_CASE("file_slot: no load returns a value before it is on the disk") {
    tally t;
    disk d;
    history h;
    store careless = on(d);
    store careful = on(d);
    for (const std::size_t size :
         std::vector<std::size_t>{100, 3'000, 2'000, 5'000, 3'000, 1'000}) {
        d.lies = true;
        REQUIRE(put(careless, h, size));
        d.lies = false;
        // The writer was killed before it wrote the synced version.
        const std::string none(8, '\0');
        d.write_at(d.open_file(lock_path, 0), none.data(), none.size(), 0);
        REQUIRE(careful.load().has_value());
        lose_power(d, h, pages_of(4096), t, "after " + std::to_string(size));
    }
    INFO(t.first_bad);
    REQUIRE(t.bad == 0);
}

TEST_CASE("file_slot: after a failed sync no load returns a value that a crash takes back") {
    long unsure = 0;
    long failed = 0;
    long kept = 0;
    tally t;
    for (std::uint32_t chance = 1; chance <= (is_long_run() ? 40U : 15U); ++chance) {
        for (int syncs = 0; syncs < 12; ++syncs) {
            disk d;
            d.chance = chance;
            d.syncs_before_eio = syncs;
            history h;
            store s = on(d);
            for (const std::size_t size :
                 std::vector<std::size_t>{100, 3'000, 2'000, 6'000, 3'000}) {
                const auto read = s.load();
                t.note(h.judge(read) >= 0, "load before");
                if (!read) {
                    continue;
                }
                h.least = static_cast<std::uint32_t>(h.judge(read));
                const bide::cas_result r = s.compare_exchange(read->version, h.begin(size));
                if (r.status == cas_status::stored) {
                    h.acknowledge(r.version);
                    continue;
                }
                t.note(r.error == std::errc::io_error, "the error is the sync's");
                unsure += r.status == cas_status::indeterminate;
                failed += r.status == cas_status::failed;
                if (r.status == cas_status::failed) {
                    h.all.back().value.clear(); // must not be returned
                }
                // This process and another one load the same value, and it survives a crash.
                const auto mine = s.load();
                const auto other = on(d).load();
                const long found = h.judge(mine);
                t.note(found >= 0 && h.judge(other) == found, "load after");
                kept += found == static_cast<long>(h.all.size());
                h.least = found < 0 ? 0 : static_cast<std::uint32_t>(found);
                lose_power(d, h, pages_of(4096), t, "after the error", 50);
            }
        }
    }
    INFO(t.first_bad);
    REQUIRE(t.bad == 0);
    REQUIRE(unsure > 0);
    REQUIRE(failed > 0);
    REQUIRE(kept > 0);
}

TEST_CASE(
    "file_slot: a reader that arrives during a change gets the value before it, and the first "
    "read of a slot waits for its end") {
    file_slot_options settings = pages_of(4096);
    settings.retry_time = std::chrono::milliseconds(50); // of the simulated clock
    disk d;
    history h;
    store s = on(d, settings);
    REQUIRE(put(s, h, 3'000));
    REQUIRE(put(s, h, 3'000));
    const auto before = s.load();
    store old = on(d, settings); // a slot that has loaded the value before
    REQUIRE(old.load()->version == before->version);
    int looks = 0;
    int waited = 0; // of those, by slots that had loaded nothing
    bool good = true;
    d.meanwhile = [&] {
        store fresh = on(d, settings);
        for (store* const reader : {&old, &fresh}) {
            const auto read = reader->load();
            ++looks;
            waited += reader == &fresh && !read && read.error() == std::errc::timed_out;
            // The new value may be returned once it is on the disk.
            const bool is_next =
                read && d.data().unsynced.empty() && read->value == h.all.back().value;
            good = good && (read ? (read->version == before->version || is_next) && !read->fell_back
                                 : reader == &fresh);
        }
    };
    const bide::cas_result made = s.compare_exchange(before->version, h.begin(3'500));
    d.meanwhile = nullptr;
    REQUIRE(made.status == cas_status::stored);
    REQUIRE(good);
    REQUIRE(looks == 6);
    REQUIRE(waited == 3); // during both writes and the sync
    REQUIRE(old.load()->version == made.version);
}

TEST_CASE(
    "file_slot: a write that the disk refuses changes nothing; a half write is not returned") {
    for (const std::size_t part :
         {std::size_t{0}, std::size_t{1}, std::size_t{700}, std::size_t{2'999}}) {
        slot_on_disk one({1'000, 3'000});
        auto& [d, h, s] = one;
        const bide::slot_version before = h.all[1].version;
        d.writes_before_error = 0;
        d.writes_before_failing = part;
        const bide::cas_result r = s.compare_exchange(before, h.begin(3'000));
        const bool is_half = part > 8; // all pages begin with the same bytes
        REQUIRE(r.status == (is_half ? cas_status::indeterminate : cas_status::failed));
        REQUIRE(r.error == std::errc::no_space_on_device);
        d.writes_before_error = -1;
        REQUIRE(one.loads() == (is_half ? "2, fell back" : "2"));
        const auto healed = test::stored(s, before, "whole");
        REQUIRE(healed.version >= before + (is_half ? jump : 1));
        REQUIRE(one.loads() == "whole");
    }
}

TEST_CASE("file_slot: a file that cannot be made or renamed changes nothing") {
    for (int writes = 0; writes < 3; ++writes) {
        slot_on_disk one;
        auto& [d, h, s] = one;
        d.writes_before_error = writes;
        REQUIRE(test::fails(s.compare_exchange(0, "first"), std::errc::no_space_on_device));
        d.writes_before_error = -1;
        REQUIRE(s.load()->version == 0);
        REQUIRE(put(s, h, 100));
        if (writes == 2) {
            break; // renaming needs no space for the synced version
        }
        d.writes_before_error = writes;
        const bide::cas_result moved =
            s.compare_exchange(h.all[0].version, std::string(5'000, 'x'));
        REQUIRE(moved.status == cas_status::failed);
        d.writes_before_error = -1;
        REQUIRE(one.loads() == "1");
        REQUIRE(put(s, h, 5'000));
    }
}

TEST_CASE("file_slot: damaged bytes are never returned as a value", "[promise.file-slot-crash]") {
    test::jitter chance(11);
    slot_on_disk one({900, 2'000, 1'500});
    auto& [d, h, s] = one;
    const std::string clean = d.data().cached;
    long intact = 0;
    long fell_back = 0;
    long corrupt = 0;
    long wrong = 0;
    for (int round = 0; round < 20'000; ++round) {
        std::string& bytes = d.data().cached;
        bytes = clean;
        const std::uint32_t faults = 1 + chance.below(3);
        for (std::uint32_t i = 0; i < faults; ++i) {
            const std::uint32_t at = chance.below(static_cast<std::uint32_t>(bytes.size()));
            switch (chance.below(4)) {
            case 0: bytes[at] = static_cast<char>(bytes[at] ^ 1 << chance.below(8)); break;
            case 1:
                bytes[at % 32 + at / 4096 * 4096] ^= static_cast<char>(1 + chance.below(255));
                break;
            case 2: bytes.replace(at / sector * sector, sector, sector, '\0'); break;
            case 3: bytes.replace(at / 4096 * 4096, 4096, clean, chance.below(4096), 4096); break;
            }
        }
        const auto read = on(d).load();
        if (!read) {
            corrupt += read.error() == durable_errc::corrupt_record ||
                       read.error() == durable_errc::unsupported_record_version;
            wrong += !(read.error().category() == bide::durable_category());
            const bide::cas_result r = s.compare_exchange(0, "x");
            wrong += r.status != cas_status::failed;
        } else if (read->version == h.all[2].version) {
            wrong += read->value != h.all[2].value;
            ++intact;
        } else {
            wrong += read->value != h.all[1].value || read->version != h.all[1].version ||
                     !read->fell_back;
            ++fell_back;
        }
    }
    REQUIRE(wrong == 0);
    REQUIRE(intact > 0);
    REQUIRE(fell_back > 0);
    REQUIRE(corrupt > 0);
}

TEST_CASE("file_slot: each damaged bit in an acknowledged page is reported as a loss",
          "[promise.file-slot-damage]") {
    long bits = 0;
    for (const std::size_t last :
         {std::size_t{200}, std::size_t{5'000}}) { // the second size needs a larger file
        slot_on_disk one({90, 100, last});
        auto& [d, h, s] = one;
        const newest_page newest = newest_on(d);
        REQUIRE(newest.version == h.all[2].version);
        REQUIRE(newest.other == h.all[1].version);
        long silent = 0;
        for (std::size_t bit = 0; bit < newest.size * 8; bit += last > 1'000 ? 13 : 1) {
            silent += !is_told_of_rot(d, pages_of(4096), bit);
            ++bits;
        }
        REQUIRE(silent == 0);

        // Without a synced version, a crash may have been the cause, or not: it counts as a loss.
        disk unmarked = d;
        unmarked.forget(lock_path);
        REQUIRE(is_told_of_rot(unmarked, pages_of(4096), 300));
        flip(unmarked, newest.at * 8 + 300);
        for (int reader = 0; reader < 2; ++reader) {
            store each = on(unmarked);
            REQUIRE(one.loads(each) == "2, fell back, lost");
        }

        // Damage in the page that does not count loses nothing.
        flip(d, (newest.at == 0 ? d.data().cached.size() / 2 : 0) * 8 + 300);
        REQUIRE(one.another_loads() == "3, fell back");
    }
    REQUIRE(bits > 4'000);
}

TEST_CASE("file_slot: an older copy of the file is reported as a loss",
          "[promise.file-slot-damage]") {
    slot_on_disk one({100, 100});
    auto& [d, h, s] = one;
    const std::string copy = d.data().cached;
    REQUIRE(put(s, h, 100));
    REQUIRE(put(s, h, 100));
    d.data().cached = copy;
    store other = on(d);
    for (store* const reader : {&s, &other, &other, &s}) {
        REQUIRE(one.loads(*reader) == "2, fell back, lost");
    }
    const auto r = test::stored(other, h.all[1].version, "and on");
    REQUIRE(r.version > h.all[3].version);
    REQUIRE(one.loads() == "and on");
}

TEST_CASE("file_slot: a change whose synced version cannot be written is not acknowledged") {
    slot_on_disk one({100, 100});
    auto& [d, h, s] = one;
    store reader = on(d);
    REQUIRE(one.loads(reader) == "2");
    d.writes_before_error = 1; // the page's
    const bide::cas_result r = s.compare_exchange(h.all[1].version, "three");
    d.writes_before_error = -1;
    REQUIRE(r.status == cas_status::indeterminate);
    REQUIRE(one.loads(reader) == "2");
    REQUIRE(s.load()->value == "three"); // from here on, all readers agree
    REQUIRE(reader.load()->value == "three");
}

TEST_CASE("file_slot: an earlier synced version, as a crash may bring it back, is corrected") {
    slot_on_disk one({100, 100});
    auto& [d, h, s] = one;
    std::string earlier(8, '\0');
    bide::detail::store_little(earlier.data(), h.all[0].version);
    for (const bool is_fresh : {false, true}) {
        d.write_at(d.open_file(lock_path, 0), earlier.data(), earlier.size(), 0);
        REQUIRE((is_fresh ? one.another_loads() : one.loads()) == "2");
        REQUIRE(mark_on(d) == h.all[1].version);
    }
}

TEST_CASE("file_slot: an invalid synced version is ignored, and a deleted file is no loss") {
    slot_on_disk one({100, 100});
    auto& [d, h, s] = one;
    disk_io io{&d};
    const int lock = io.open_file(lock_path, O_RDWR);
    REQUIRE(io.write_at(lock, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, 0) == 8);
    REQUIRE(one.another_loads() == "2");
    REQUIRE(mark_on(d) == h.all[1].version);

    // Versions do not repeat for a slot that never saw the file, though the clock stands still.
    d.forget(data_path);
    store fresh = on(d);
    const auto absent = fresh.load();
    REQUIRE(absent->version == 0);
    REQUIRE(!absent->lost_acknowledged);
    for (int life = 0;; ++life) {
        disk dying = d;
        dying.life = life;
        history none;
        store maker = on(dying);
        const bool is_made = put(maker, none, 100);
        dying.revive();
        const auto after = on(dying).load();
        REQUIRE(after.has_value());
        REQUIRE(!after->lost_acknowledged);
        REQUIRE((after->version == 0 || after->version > h.all[1].version));
        if (is_made) {
            break;
        }
    }
}

TEST_CASE("file_slot: a repair keeps the damaged file aside and repeats no version") {
    for (const int how : {0, 1, 2, 3, 4}) {
        CAPTURE(how);
        slot_on_disk one;
        auto& [d, h, s] = one;
        d.clock = 10'000'000;
        REQUIRE(put(s, h, 100));
        REQUIRE(put(s, h, 100));
        REQUIRE(put(s, h, 5'000)); // a new file with larger pages
        const auto intact = s.replace_damaged("no");
        REQUIRE(intact.status == cas_status::conflict);
        REQUIRE(intact.current->version == h.all[2].version);
        std::string& bytes = d.data().cached;
        switch (how) {
        case 0: // no plausible versions
            bytes[16] ^= 64;
            bytes[bytes.size() / 2 + 16] ^= 64;
            break;
        case 1:
            bytes[40] ^= 1;
            bytes[bytes.size() / 2 + 40] ^= 1;
            break;
        case 2: bytes.resize(4'097); break;
        case 3: bytes.clear(); break;
        case 4: bytes.assign(bytes.size(), '\0'); break;
        }
        const std::string damaged = bytes;
        d.clock = 1'000; // the clock was set back; the synced version is later
        store by = on(d);
        REQUIRE(by.load().error() == durable_errc::corrupt_record);
        REQUIRE(by.compare_exchange(0, "no").status == cas_status::failed);
        const bide::cas_result r = by.replace_damaged("repaired");
        REQUIRE(r.status == cas_status::stored);
        REQUIRE(r.version > h.all[2].version);
        REQUIRE(d.bytes_of("/d/slot.damaged") == damaged);
        REQUIRE(!d.has("/d/slot.new"));
        for (store* const reader : {&s, &by}) {
            REQUIRE(one.loads(*reader) == "repaired");
            REQUIRE(reader->load()->version == r.version);
        }
        REQUIRE(s.replace_damaged("again").status == cas_status::conflict);
        REQUIRE(put(s, h, 300));
        REQUIRE(h.all[3].version > r.version);
    }
    disk none;
    const bide::cas_result absent = on(none).replace_damaged("no");
    REQUIRE(absent.status == cas_status::conflict);
    REQUIRE(absent.current->version == 0);
    REQUIRE(!none.has(data_path));
}

TEST_CASE("file_slot: a crash at any step of a repair leaves the damaged file or the repaired one",
          "[promise.file-slot-damage]") {
    long states = 0;
    long damaged = 0;
    long repaired = 0;
    long wrong = 0;
    for (int life = 0;; ++life) {
        slot_on_disk one({100, 100});
        disk& d = one.d;
        for (const std::size_t at : {std::size_t{40}, std::size_t{4'136}}) {
            d.data().cached[at] ^= 1;
            d.data().durable[at] ^= 1;
        }
        d.life = life;
        const bool is_done = on(d).replace_damaged("repaired").status == cas_status::stored;
        const bool was_killed = d.is_dead;
        const auto judge = [&](disk& left) {
            const auto read = on(left).load();
            ++states;
            if (!read) {
                ++damaged;
                wrong += is_done || read.error() != durable_errc::corrupt_record;
            } else {
                ++repaired;
                wrong += read->value != "repaired" || read->fell_back || read->lost_acknowledged ||
                         read->version <= one.h.all[1].version;
                return;
            }
            // The next repair succeeds.
            const bide::cas_result r = on(left).replace_damaged("repaired");
            const auto after = on(left).load();
            wrong += r.status != cas_status::stored || !after || after->value != "repaired" ||
                     after->version <= one.h.all[1].version || left.has("/d/slot.new");
        };
        d.each_loss(static_cast<std::uint32_t>(life), 300, [&](disk& left, long) {
            left.clock = 1'000 + 100;
            judge(left);
        });
        d.revive();
        judge(d);
        if (!was_killed) {
            REQUIRE(is_done);
            break;
        }
    }
    CAPTURE(states, damaged, repaired);
    CHECK(wrong == 0);
    CHECK(damaged > 0);
    CHECK(repaired > 0);
}

TEST_CASE("file_slot: a file of zeros, of a wrong size or of a later format is not absent") {
    slot_on_disk one({100, 100});
    disk& d = one.d;
    store& s = one.s;
    const std::string clean = d.data().cached;
    const auto says = [&](std::string bytes) {
        d.data().cached = std::move(bytes);
        const bide::cas_result r = s.compare_exchange(0, "x");
        REQUIRE(r.status == cas_status::failed);
        const auto read = on(d).load();
        REQUIRE(!read);
        REQUIRE(r.error == read.error());
        return read.error();
    };
    REQUIRE(says(std::string(8192, '\0')) == durable_errc::corrupt_record);
    REQUIRE(says("") == durable_errc::corrupt_record);
    REQUIRE(says(clean.substr(0, 4096)) == durable_errc::corrupt_record);
    REQUIRE(says(clean.substr(0, 8191)) == durable_errc::corrupt_record);
    REQUIRE(says(clean + clean) == durable_errc::corrupt_record);
    std::string later = clean;
    later[8] = later[4096 + 8] = 2;
    REQUIRE(says(later) == durable_errc::unsupported_record_version);
    d.data().cached = clean;
    REQUIRE(one.loads() == "2");

    // A new larger file has the value before in its other page.
    REQUIRE(put(s, one.h, 6'000));
    d.data().cached[40] ^= 1;
    REQUIRE(one.another_loads() == "2, fell back, lost");

    // In a first file the other page is empty; fell_back is not set.
    disk fresh;
    store first = on(fresh);
    REQUIRE(first.compare_exchange(0, "first").status == cas_status::stored);
    REQUIRE(!on(fresh).load()->fell_back);
    fresh.data().cached[40] ^= 1;
    fresh.data().cached[33] ^= 1;
    REQUIRE(on(fresh).load().error() == durable_errc::corrupt_record);
}

TEST_CASE(
    "file_slot: a waiter claims the lock after a long wait, polls often, and drops the claim") {
    constexpr std::int64_t ms = 1'000'000;
    slot_on_disk one({100});
    auto& [d, h, s] = one;
    d.free_at = d.slept + 10 * ms;
    REQUIRE(put(s, h, 100));
    REQUIRE(d.claims == 0);
    d.free_at = d.slept + 500 * ms;
    REQUIRE(put(s, h, 100));
    REQUIRE(d.claims == 1);
    REQUIRE(!d.has_claim);
    REQUIRE(d.slept < d.free_at + ms / 10);
    REQUIRE(d.longest_rest_with_claim > 0);
    REQUIRE(d.longest_rest_with_claim < ms / 10);
    d.free_at = d.slept + 3'600'000 * ms;
    REQUIRE(s.compare_exchange(0, "x").error == std::errc::timed_out);
    REQUIRE(d.claims == 2);
    REQUIRE(!d.has_claim);
}

TEST_CASE(
    "file_slot: a newcomer lets the claimant go first, and does not wait for the claim to end") {
    constexpr std::int64_t ms = 1'000'000;
    disk d;
    d.is_claimed = true;
    store s = on(d);
    REQUIRE(s.compare_exchange(0, "x").status == cas_status::stored);
    REQUIRE(d.slept > 0);
    REQUIRE(d.slept < ms);
    d.free_at = d.slept + 200 * ms;
    REQUIRE(s.compare_exchange(0, "x").status == cas_status::conflict);
    REQUIRE(d.claims == 0);
}

TEST_CASE("file_slot: network filesystems are refused") {
    disk d;
    d.is_remote = true;
    REQUIRE(on(d).load().error() == durable_errc::unsupported_filesystem);
    REQUIRE(on(d).compare_exchange(0, "x").error == durable_errc::unsupported_filesystem);
}

TEST_CASE("file_slot: a new version is later than any that may have been lost") {
    slot_on_disk one({100, 100});
    auto& [d, h, s] = one;
    REQUIRE(h.all[0].version == 1'000); // the clock
    REQUIRE(h.all[1].version == 1'001);
    d.clock = 500; // the clock was set back
    REQUIRE(test::stored(s, 1'001, "x").version == 1'002);
    d.clock = 5'000;
    REQUIRE(test::stored(s, 1'002, "x").version == 5'000);
    d.clock = 1'000;
    const std::string copy = d.data().cached;
    REQUIRE(test::stored(s, 5'000, "x").version == 5'001);
    d.data().cached = copy;
    const auto after_loss = [&](std::uint64_t mark, std::uint64_t claimed) {
        disk damaged = d;
        char bytes[8];
        bide::detail::store_little(bytes, mark);
        damaged.write_at(damaged.open_file(lock_path, 0), bytes, 8, 0);
        const std::size_t other = newest_on(damaged).at == 0 ? copy.size() / 2 : 0;
        if (claimed != 0) { // the page before has a wrong checksum now
            bide::detail::store_little(damaged.data().cached.data() + other + 16, claimed);
        }
        store by = on(damaged);
        return test::stored(by, 5'000, "y").version;
    };
    REQUIRE(after_loss(5'000, 0) == 5'001);
    REQUIRE(after_loss(7'000, 0) == 7'000 + jump); // a version that was stored and lost
    REQUIRE(after_loss(5'000, 6'000) == 6'000 + jump);
    REQUIRE(after_loss(5'000, ~std::uint64_t{0}) == 5'000 + jump);
    REQUIRE(after_loss(5'000, 3'000) == 5'000 + jump);
    d.clock = 1u << 30;
    REQUIRE(after_loss(5'000, 9'000) == 1u << 30);
}

#ifndef BIDE_TESTS_SUPPORT_SLOT_CONFORMANCE_HPP
#define BIDE_TESTS_SUPPORT_SLOT_CONFORMANCE_HPP

// The contract of slots (durable/slot.hpp), tested on a store that works. The suite needs a class
// for the store:
//
//   using slot = bide::file_slot;
//   slot open();                        makes a slot object for the current place
//   void fresh();                       moves to another place, where nothing is stored
//   static constexpr std::size_t limit; the largest value that the slot accepts
//   static constexpr bool processes;    forked processes may open() the same place
//   void erase();                       optional: deletes the value without using a slot
//   static constexpr int scale;         optional: divides the work, for slow stores
//
// The suite collects faults; check_slot() asserts that there are none.

#include <bide/durable/errors.hpp>
#include <bide/durable/slot.hpp>
#include <support/children.hpp>
#include <support/jitter.hpp>
#include <support/slot_offers.hpp>
#include <support/test.hpp>

#if BIDE_TESTS_CAN_FORK
#include <dirent.h>
#include <fcntl.h>
#endif
#if defined(__linux__)
#include <sys/inotify.h>
#endif

namespace test {

template <class Store> class slot_suite {
public:
    using slot = typename Store::slot;
    static_assert(bide::any_slot<slot>);

    // Members have four times `wait` to end.
    explicit slot_suite(Store& store, std::chrono::milliseconds wait = std::chrono::seconds(10))
        : store_(store), wait_(wait) {}

    void all() {
        absent();
        exchanges();
        reopened();
        moved();
        bytes();
        sizes();
        too_large();
        versions();
        created_once();
        torn();
        increments();
        if constexpr (locked_slot<slot>) {
            locked();
        }
        if constexpr (clocked_slot<slot>) {
            clocked();
        }
#if BIDE_TESTS_CAN_FORK
        if constexpr (present_slot<slot>) {
            present();
        }
        if constexpr (Store::processes) {
            forked();
            killed();
        }
        keeps_no_files();
#endif
    }

    // The faults so far, one sentence each.
    const std::vector<std::string>& faults() const noexcept { return faults_; }

private:
    using clock = std::chrono::steady_clock;
    using status = bide::cas_status;
    using version = bide::slot_version;

    enum class crew { threads, processes };

    static constexpr int members = 4;

    static constexpr int times(int n) {
        if constexpr (requires { Store::scale; }) {
            return std::max(n / Store::scale, 3);
        } else {
            return n;
        }
    }

    void begin(std::string_view part) {
        part_ = part;
        found_ = faults_.size();
        store_.fresh();
    }

    bool expect(bool is_so, const std::string& what) {
        const std::string fault = part_ + ": " + what;
        if (!is_so && std::find(faults_.begin(), faults_.end(), fault) == faults_.end()) {
            faults_.push_back(fault);
        }
        return is_so;
    }

    bool is_well() const { return faults_.size() == found_; } // true: no fault in this part so far

    // Lines with a leading '!' are faults.
    void expect_none(const std::vector<std::string>& reports) {
        for (const std::string& report : reports) {
            std::istringstream lines(report);
            for (std::string line; std::getline(lines, line);) {
                expect(line.empty() || line[0] != '!', line);
            }
        }
    }

    static const char* name(status s) {
        switch (s) {
        case status::stored: return "stored";
        case status::conflict: return "conflict";
        case status::failed: return "failed";
        case status::indeterminate: return "indeterminate";
        }
        return "?";
    }

    static std::string told(const bide::cas_result& r) {
        return std::string(name(r.status)) + (r.error ? " (" + r.error.message() + ")" : "");
    }

    clock::time_point soon() const { return clock::now() + 4 * wait_; }

    bide::slot_snapshot load(slot& s) {
        auto read = s.load();
        if (!expect(read.has_value(), "load() fails: " + (read ? "" : read.error().message()))) {
            return {};
        }
        expect(!read->fell_back, "load() sets fell_back, but nothing was lost");
        expect(read->version != 0 || read->value.empty(), "a value without a version");
        return std::move(*read);
    }

    void expect_there(slot& s, version v, std::string_view value, const std::string& when) {
        const bide::slot_snapshot there = load(s);
        expect(there.version == v, "load() returns another version, " + when);
        expect(there.value == value, "load() returns another value, " + when);
    }

    // Returns the new version; 0 if the value was not stored.
    version store_to(slot& s, version v, std::string_view value, const std::string& when) {
        const bide::cas_result r = s.compare_exchange(v, value);
        if (!expect(r.status == status::stored, told(r) + ", " + when)) {
            return 0;
        }
        expect(!r.error, "an error with `stored`, " + when);
        expect(r.version != 0 && r.version != v, "`stored` with no version of its own, " + when);
        expect_there(s, r.version, value, when);
        return r.version;
    }

    void expect_conflict(slot& s, version v, std::string_view value, const std::string& when) {
        const bide::slot_snapshot before = load(s);
        const bide::cas_result r = s.compare_exchange(v, value);
        expect(r.status == status::conflict, told(r) + " instead of conflict, " + when);
        if (r.current) {
            expect(r.current->version == before.version && r.current->value == before.value,
                   "the conflict's `current` is not what is there, " + when);
            expect(!r.current->fell_back, "the conflict's `current` fell back, " + when);
        }
        expect_there(s, before.version, before.value, "after a conflict, " + when);
    }

public:
    // ---- the parts, which may be called alone: one slot object

    void absent() {
        begin("absent");
        slot s = store_.open();
        expect_there(s, 0, "", "nothing was ever stored");
        expect_conflict(s, 1, "x", "version 1 of nothing");
        expect_conflict(s, 0x123456789, "x", "some version of nothing");
        slot other = store_.open();
        expect_there(other, 0, "", "nothing was stored yet, another object");
        if (const version v = store_to(other, 0, "first", "the first value")) {
            expect_there(s, v, "first", "the first value, another object");
        }
    }

    void exchanges() {
        begin("exchanges");
        slot one = store_.open();
        slot two = store_.open();
        const version v1 = store_to(one, 0, "a", "the first value");
        expect_conflict(two, 0, "b", "the value is there");
        expect_conflict(two, 0, "a", "the same value is there");
        const version v2 = store_to(two, v1, "b", "by another object");
        expect_conflict(one, v1, "c", "the version is an older one");
        expect_conflict(one, v1, "b", "the version is an older one, the value the same");
        const version v3 = store_to(one, v2, "b", "the same value again");
        expect_conflict(two, v2, "b", "the version is an older one of the same value");
        const version v4 = store_to(two, v3, "a", "the first value again");
        expect_conflict(one, v1, "x", "the version is another one of the same value");
        expect_conflict(one, v4 + 1, "x", "a version that is not there yet");
        expect_conflict(one, v4 + (version(1) << 32), "x",
                        "a version that differs in its upper half");
        store_to(one, store_to(two, v4, "", "no bytes"), "full", "after no bytes");
    }

    void reopened() {
        begin("reopened");
        version v = 0;
        for (int i = 0; i < 3; ++i) {
            slot s = store_.open();
            const std::string value = "kept " + std::to_string(i);
            v = store_to(s, v, value, "by a new object");
            slot next = store_.open();
            expect_there(next, v, value, "by an object that was made after");
        }
        slot last = store_.open();
        expect_there(last, v, "kept 2", "after all others are gone");
    }

    void moved() {
        begin("moved");
        slot first = store_.open();
        const version v1 = store_to(first, 0, "a", "before it moves");
        slot second = std::move(first);
        const version v2 = store_to(second, v1, "b", "after it moved");
        slot third = store_.open();
        expect_there(third, v2, "b", "the other object");
        third = std::move(second);
        const version v3 = store_to(third, v2, "c", "after it moved into a used one");
        second = store_.open();
        store_to(second, v3, "d", "assigned anew");
    }

private:
    static std::string some_bytes(std::size_t size, std::uint32_t seed) {
        jitter chance(seed);
        std::string bytes;
        bytes.reserve(size);
        while (bytes.size() < std::min<std::size_t>(size, 4099)) {
            bytes.push_back(static_cast<char>(chance.below(256)));
        }
        const std::string block = bytes;
        while (bytes.size() < size) {
            bytes.append(block, 0, size - bytes.size());
        }
        return bytes;
    }

public:
    void bytes() {
        begin("bytes");
        std::string all;
        for (int i = 0; i < 256; ++i) {
            all.push_back(static_cast<char>(i));
        }
        using namespace std::string_literals;
        version v = 0;
        slot s = store_.open();
        slot other = store_.open();
        for (const std::string& value :
             {all, "\0"s, "\0\0in\0side\0"s, "'; drop table locks; --"s, "%s %n \\x41 $1 ? :a"s,
              "\r\n"s, " "s, "\xff\xfe"s, "{\"v\":1,\"text\":\"\\u0000\"}"s}) {
            if (value.size() <= Store::limit) {
                v = store_to(s, v, value, "bytes of all kinds");
                expect_there(other, v, value, "bytes of all kinds, another object");
            }
        }
    }

    void sizes() {
        begin("sizes");
        version v = 0;
        slot s = store_.open();
        slot other = store_.open();
        std::vector<std::size_t> all{0, 1};
        for (const std::size_t edge : {512u, 4096u, 8192u, 16384u, 65536u}) {
            all.insert(all.end(), {edge - 1, edge, edge + 1});
        }
        all.insert(all.end(), {Store::limit, 3, Store::limit - 1, 0, 600});
        for (const std::size_t size : all) {
            if (size <= Store::limit) {
                const std::string value = some_bytes(size, static_cast<std::uint32_t>(size) + 1);
                v = store_to(s, v, value, std::to_string(size) + " bytes");
                expect_there(other, v, value, std::to_string(size) + " bytes, another object");
            }
        }
    }

    void too_large() {
        begin("too large");
        const std::string large = some_bytes(Store::limit + 1, 7);
        slot s = store_.open();
        const auto refuse = [&](version v, std::string_view value) {
            const bide::cas_result r = s.compare_exchange(v, large);
            expect(r.status == status::failed, told(r) + " instead of failed");
            expect(r.error == bide::durable_errc::too_large, told(r) + ": not too_large");
            expect_there(s, v, value, "after one that was too large");
        };
        refuse(0, "");
        refuse(store_to(s, 0, "small", "after one that was too large"), "small");
    }

    void versions() {
        begin("versions");
        std::set<version> seen{0};
        std::vector<version> lately{0};
        version v = 0;
        slot one = store_.open();
        slot two = store_.open();
        const auto next = [&](slot& s, const std::string& value) {
            v = store_to(s, v, value, "one of many");
            expect(seen.insert(v).second, "a version was there before");
            lately.push_back(v);
        };
        for (int i = 0; i < times(50); ++i) {
            next(i % 2 ? one : two, i % 3 ? "x" : "y");
        }
        if constexpr (requires { store_.erase(); }) {
            for (int i = 0; i < times(12); ++i) {
                store_.erase();
                const std::vector<version> erased = std::exchange(lately, {0});
                v = load(one).version;
                expect(v == 0 || !seen.contains(v), "an old version of what was deleted");
                next(one, "x");
                expect_there(two, v, "x", "made again by another object");
                slot three = store_.open();
                expect_there(three, v, "x", "made again before the object was");
                for (const version old : erased) {
                    expect_conflict(two, old, "x", "a version of what was deleted");
                }
                next(two, "y");
                next(one, "x");
                if (i % 2) {
                    next(three, "x");
                }
            }
        }
    }

private:
    // Runs work(i, slot) for each member i, with a slot object of its own. Returns their reports.
    template <class Work> std::vector<std::string> at_once(crew how, int n, Work work) {
        if (how == crew::threads) {
            std::vector<slot> slots;
            for (int i = 0; i < n; ++i) {
                slots.push_back(store_.open());
            }
            std::vector<std::string> reports(static_cast<std::size_t>(n));
            run_threads(
                n,
                [&](int i) {
                    const auto at = static_cast<std::size_t>(i);
                    reports[at] = work(i, slots[at]);
                },
                std::chrono::seconds(90));
            return reports;
        }
#if BIDE_TESTS_CAN_FORK
        children all(n, [&](int i, auto gate) {
            std::string said;
            {
                slot s = store_.open();
                gate();
                said = work(i, s);
            }
            return said;
        });
        return all.reports();
#else
        return {};
#endif
    }

    static std::vector<crew> crews() {
        if (Store::processes && BIDE_TESTS_CAN_FORK) {
            return {crew::threads, crew::processes};
        }
        return {crew::threads};
    }

public:
    void created_once() {
        for (const crew how : crews()) {
            for (int round = 0; round < times(6); ++round) {
                begin(how == crew::threads ? "created once, threads" : "created once, processes");
                const auto reports = at_once(how, members, [](int i, slot& s) {
                    const bide::cas_result r = s.compare_exchange(0, "by " + std::to_string(i));
                    switch (r.status) {
                    case status::stored: return "stored " + std::to_string(r.version);
                    case status::conflict: return std::string("conflict");
                    default: return "! " + told(r);
                    }
                });
                expect_none(reports);
                slot s = store_.open();
                const bide::slot_snapshot there = load(s);
                int stored = 0;
                for (std::size_t i = 0; i < reports.size(); ++i) {
                    const auto at = reports[i].find("stored ");
                    if (at != std::string::npos) {
                        ++stored;
                        expect(there.value == "by " + std::to_string(i),
                               "another's value is there");
                        expect(std::to_string(there.version) == reports[i].substr(at + 7),
                               "another's version is there");
                    }
                }
                expect(stored == 1, std::to_string(stored) + " of them made the value");
            }
        }
    }

private:
    // Increments the stored number. Returns what went wrong.
    template <class Exchange>
    static std::string add_one(slot& s, clock::time_point end, Exchange exchange) {
        std::optional<bide::slot_snapshot> there;
        for (int tries = 0; tries == 0 || clock::now() < end; ++tries) {
            if (!there || tries % 4 == 3) {
                auto read = s.load();
                if (!read) {
                    return "! load() fails: " + read.error().message() + "\n";
                }
                there = std::move(*read);
            }
            bide::cas_result r = exchange(s, *there, add_one_to(*there));
            if (r.status == status::stored) {
                return "";
            }
            if (r.status != status::conflict) {
                return "! " + told(r) + "\n";
            }
            there = std::move(r.current);
            std::this_thread::yield();
        }
        return "! others kept writing first\n";
    }

    static std::string add_one_to(const bide::slot_snapshot& there) {
        return std::to_string(number(there) + 1);
    }
    static long number(const bide::slot_snapshot& there) {
        return std::strtol(there.value.c_str(), nullptr, 10);
    }

    std::string add_ones(slot& s, int n) const {
        std::string said;
        const auto end = soon();
        for (int i = 0; i < n && said.size() < 1000; ++i) {
            said += add_one(
                s, end, [](slot& to, const bide::slot_snapshot& there, const std::string& value) {
                    return to.compare_exchange(there.version, value);
                });
        }
        return said;
    }

    void expect_number(long n) {
        slot s = store_.open();
        const long there = number(load(s));
        expect(there == n,
               std::to_string(there) + " instead of " + std::to_string(n) + " increments");
    }

public:
    void increments() {
        const int each = times(50);
        for (const crew how : crews()) {
            begin(how == crew::threads ? "increments, threads" : "increments, processes");
            expect_none(at_once(how, members, [&](int, slot& s) { return add_ones(s, each); }));
            expect_number(long(members) * each);
        }
    }

private:
    static std::uint64_t sum(std::string_view bytes) {
        std::uint64_t h = 14695981039346656037u;
        for (const char c : bytes) {
            h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
        }
        return h;
    }

    // "serial after sum|bytes": the serial number of the store, the version that it replaced, and a
    // check of the bytes.
    struct told_value {
        std::uint64_t serial = 0;
        version after = 0;
        bool is_whole = true;
    };

    static std::string tell(std::uint64_t serial, version after) {
        const std::string bytes = some_bytes(std::min<std::size_t>((serial * 397) % 1500, room),
                                             static_cast<std::uint32_t>(serial + after) | 1);
        return std::to_string(serial) + ' ' + std::to_string(after) + ' ' +
               std::to_string(sum(bytes)) + '|' + bytes;
    }
    static constexpr std::size_t room = Store::limit > 100 ? Store::limit - 100 : 0;

    static told_value parse(const bide::slot_snapshot& there) {
        told_value told;
        if (there.version == 0) {
            return told;
        }
        char* at = nullptr;
        told.serial = std::strtoull(there.value.c_str(), &at, 10);
        told.after = std::strtoull(at, &at, 10);
        const std::uint64_t check = std::strtoull(at, &at, 10);
        const auto used = static_cast<std::size_t>(at - there.value.c_str()) + 1;
        told.is_whole = used <= there.value.size() && *at == '|' &&
                        sum(std::string_view(there.value).substr(used)) == check;
        return told;
    }

    struct board {
        std::atomic<int> writing{0};
    };
#if BIDE_TESTS_CAN_FORK
    using shared_board = shared_with_children<board>;
#else
    struct shared_board {
        board* operator->() noexcept { return &it; }
        board& operator*() noexcept { return it; }
        board it;
    };
#endif

    // The values that were read: version and checksum.
    using sights = std::set<std::pair<version, std::uint64_t>>;

    static std::string see(const bide::slot_snapshot& there, sights& seen) {
        seen.insert({there.version, sum(there.value)});
        return parse(there).is_whole ? "" : "! a value that nobody stored\n";
    }

    // Stores n times, and reports each: "S version after serial sum".
    std::string write_many(slot& s, int n, sights& seen) const {
        std::ostringstream said;
        const auto end = soon();
        for (int tries = 0; n > 0 && (tries == 0 || clock::now() < end); ++tries) {
            const auto there = s.load();
            if (!there) {
                return said.str() + "! load() fails: " + there.error().message() + "\n";
            }
            said << see(*there, seen);
            const std::uint64_t serial = parse(*there).serial + 1;
            const std::string value = tell(serial, there->version);
            const bide::cas_result r = s.compare_exchange(there->version, value);
            if (r.status == status::stored) {
                said << "S " << r.version << ' ' << there->version << ' ' << serial << ' '
                     << sum(value) << '\n';
                --n;
            } else if (r.status != status::conflict) {
                return said.str() + "! " + told(r) + "\n";
            } else {
                if (r.current) {
                    said << see(*r.current, seen);
                }
                std::this_thread::yield();
            }
        }
        return said.str() + (n > 0 ? "! others kept writing first\n" : "");
    }

    std::string read_many(slot& s, board& b, sights& seen) const {
        std::string said;
        std::uint64_t last = 0;
        const auto end = soon();
        while (b.writing.load() > 0 && clock::now() < end) {
            const auto there = s.load();
            if (!there) {
                return said + "! load() fails: " + there.error().message() + "\n";
            }
            said += see(*there, seen);
            const std::uint64_t serial = parse(*there).serial;
            said += serial < last || there->fell_back ? "! a value from before\n" : "";
            last = serial;
            if (said.size() > 1000) {
                break;
            }
        }
        return said;
    }

public:
    void torn() {
        constexpr int writers = 3;
        const int each = times(80);
        for (const crew how : crews()) {
            begin(how == crew::threads ? "one read, threads" : "one read, processes");
            shared_board b;
            b->writing = writers;
            const auto reports = at_once(how, writers + 1, [&](int i, slot& s) {
                sights seen;
                std::string said;
                if (i < writers) {
                    said = write_many(s, each, seen);
                    --b->writing;
                } else {
                    said = read_many(s, *b, seen);
                }
                for (const auto& [v, value] : seen) {
                    said += "O " + std::to_string(v) + ' ' + std::to_string(value) + '\n';
                }
                return said;
            });
            expect_none(reports);
            judge(reports, std::uint64_t(writers) * static_cast<std::uint64_t>(each));
        }
    }

private:
    struct written {
        version after = 0;
        std::uint64_t serial = 0;
        std::uint64_t value = sum("");
    };

    void judge(const std::vector<std::string>& reports, std::uint64_t total) {
        std::map<version, written> all{{0, written{}}};
        std::set<version> replaced;
        sights seen;
        for (const std::string& report : reports) {
            std::istringstream lines(report);
            for (std::string line; std::getline(lines, line);) {
                std::istringstream words(line.size() > 2 ? line.substr(2) : "");
                version v = 0;
                written w;
                if (line.starts_with("S ") && words >> v >> w.after >> w.serial >> w.value) {
                    expect(all.insert({v, w}).second, "a version was given to two values");
                    expect(replaced.insert(w.after).second, "a version was replaced twice");
                } else if (line.starts_with("O ") && words >> v >> w.value) {
                    seen.insert({v, w.value});
                }
            }
        }
        for (const auto& [v, w] : all) {
            const auto before = all.find(w.after);
            expect(before != all.end() && (v == 0 || before->second.serial + 1 == w.serial),
                   "a value was computed from another one than it replaced");
        }
        for (const auto& [v, value] : seen) {
            const auto as_written = all.find(v);
            expect(as_written != all.end() && as_written->second.value == value,
                   "a version was read with the value of another");
        }
        slot s = store_.open();
        const std::uint64_t last = parse(load(s)).serial;
        expect(last == total, std::to_string(last) + " of " + std::to_string(total) +
                                  " stores are in the last value");
    }

public:
    // Templates, so that they are compiled only for slots that have the operation.

    template <class S = slot> void locked() {
        begin("locked");
        S s = store_.open();
        S other = store_.open();
        const bide::slot_update leave = [](const bide::slot_snapshot&) { return std::nullopt; };
        bide::cas_result r = s.update_locked(leave);
        expect(r.status == status::stored && r.version == 0, told(r) + ": leaving what is absent");
        expect_there(other, 0, "", "an update stored nothing");
        r = s.update_locked([&](const bide::slot_snapshot& there) {
            expect(there.version == 0 && there.value.empty(), "an update of nothing saw something");
            return std::string("1");
        });
        expect(r.status == status::stored && r.version != 0, told(r) + ": making it");
        expect_there(other, r.version, "1", "an update stored");
        const version v1 = r.version;
        r = other.update_locked(leave);
        expect(r.status == status::stored && r.version == v1, told(r) + ": leaving what is there");
        expect_there(s, v1, "1", "an update stored nothing");
        r = other.update_locked([&](const bide::slot_snapshot& there) {
            expect(there.version == v1 && there.value == "1", "an update saw something else");
            return std::string("2");
        });
        expect(r.status == status::stored && r.version != v1, told(r) + ": changing it");
        expect_there(s, r.version, "2", "an update stored");
        expect_conflict(s, v1, "x", "an update came first");
        const version v2 = r.version;
        r = s.update_locked(
            [](const bide::slot_snapshot&) { return some_bytes(Store::limit + 1, 3); });
        expect(r.status == status::failed && r.error == bide::durable_errc::too_large,
               told(r) + " instead of too_large");
        expect_there(s, v2, "2", "an update was too large");
        bool is_thrown = false;
        try {
            s.update_locked(
                [](const bide::slot_snapshot&) -> std::optional<std::string> { throw 1; });
        } catch (int) {
            is_thrown = true;
        }
        expect(is_thrown, "the exception of an update does not leave it");
        expect_there(other, v2, "2", "an update threw");
        store_to(other, v2, "3", "after updates");

        const int each = times(50);
        for (const crew how : crews()) {
            begin(how == crew::threads ? "locked, threads" : "locked, processes");
            expect_none(at_once(how, members, [&](int i, S& mine) {
                return i == 0 ? add_ones(mine, each) : add_ones_locked(mine, each);
            }));
            expect_number(long(members) * each);
        }
    }

private:
    template <class S> static std::string add_ones_locked(S& s, int n) {
        std::string said;
        for (int i = 0; i < n; ++i) {
            const bide::cas_result r = s.update_locked(add_one_to);
            if (r.status != status::stored) {
                said += "! " + told(r) + "\n";
            }
        }
        return said;
    }

public:
    template <class S = slot> void clocked() {
        begin("clocked");
        S s = store_.open();
        version v = 0;
        std::int64_t last = 1'500'000'000'000;
        for (int i = 0; i < 6; ++i) {
            const bide::slot_snapshot there = load(s);
            if (expect(there.server_ms.has_value(), "load() does not return the store's clock")) {
                expect(*there.server_ms >= last,
                       i == 0 ? "the store's clock is not in milliseconds since 1970"
                              : "the store's clock went back");
                last = *there.server_ms;
            }
            v = store_to(s, v, "x", "on the store's clock");
        }
    }

#if BIDE_TESTS_CAN_FORK
    // A slot object that was made and used before the fork.
    void forked() {
        const int each = times(20);
        begin("forked");
        std::optional<slot> s(store_.open());
        store_to(*s, 0, "0", "before the fork");
        for (const bool is_used : {true, false}) {
            {
                children child(1, [&](int, auto gate) {
                    gate();
                    const std::string said = is_used ? add_ones(*s, each) : "";
                    s.reset();
                    return said;
                });
                child.go();
                expect_none({add_ones(*s, each)});
                expect_none(child.reports());
            }
            expect_none({add_ones(*s, each)});
        }
        expect_number(5L * each);

        begin("forked, and opened by the child alone");
        children child(1, [&](int, auto) {
            slot mine = store_.open();
            return add_ones(mine, 1);
        });
        expect_none(child.reports());
        expect_number(1);
    }

    // A writer that is killed at any moment leaves what it acknowledged, or one change more.
    void killed() {
        begin("killed");
        shared_with_children<std::atomic<long>> acknowledged;
        for (int round = 0; round < times(80) && is_well(); ++round) {
            const long before = *acknowledged;
            const pid_t writer = ::fork();
            if (writer == 0) {
                ::alarm(children::longest_life);
                write_for_ever(*acknowledged);
                ::_exit(1);
            }
            const auto end = soon();
            while (*acknowledged <= before + round % 5 && clock::now() < end) {
                std::this_thread::yield();
            }
            expect(*acknowledged > before + round % 5, "a writer stores nothing");
            ::kill(writer, SIGKILL);
            int ended = 0;
            ::waitpid(writer, &ended, 0);
            expect(WIFSIGNALED(ended), "a writer fails");
            slot s = store_.open();
            const bide::slot_snapshot there = load(s);
            const long found = number(there);
            expect(there.value == padded(found), "a value that nobody stored");
            expect(found == *acknowledged || found == *acknowledged + 1,
                   "not what was acknowledged, nor the next");
            *acknowledged = found; // also if that was not acknowledged
        }
    }

private:
    static std::string padded(long n) {
        return std::to_string(n) +
               std::string(static_cast<std::size_t>(n * 397) % std::min<std::size_t>(room, 3900),
                           ' ');
    }

    void write_for_ever(std::atomic<long>& acknowledged) {
        slot s = store_.open();
        for (;;) {
            const auto there = s.load();
            if (!there) {
                return;
            }
            const long next = number(*there) + 1;
            const bide::cas_result r = s.compare_exchange(there->version, padded(next));
            if (r.status == status::stored) {
                acknowledged = next;
            } else if (r.status != status::conflict) {
                return;
            }
        }
    }

public:
    // The mark of a process that runs.
    template <class S = slot> void present() {
        begin("present");
        S s = store_.open();
        S other = store_.open();
        auto mine = s.be_present(); // before there is a value
        auto another = other.be_present();
        if (!expect(mine && another, "be_present() fails")) {
            return;
        }
        const std::int64_t mark = (*mine)->mark();
        expect(mark >= 1 && mark < std::int64_t{1} << 53, "a mark out of range");
        expect(mark != (*another)->mark(), "two have one mark");
        expect(::fcntl((*mine)->fd(), F_GETFD) == FD_CLOEXEC, "a descriptor that programs inherit");
        const auto expect_present = [&](bide::presence is, const std::string& when) {
            for (S* const of : {&s, &other}) {
                expect(of->is_present(mark) == is, "another presence, " + when);
            }
        };
        expect_present(bide::presence::yes, "at once");
        store_to(s, 0, "x", "beside a mark");
        {
            S third = store_.open(); // opens and closes the files
            expect(load(third).value == "x", "another value beside a mark");
        }
        s.update_locked([&](const bide::slot_snapshot&) { // while the store is locked
            expect(s.is_present(mark) == bide::presence::yes, "no presence inside an update");
            expect(s.be_present().has_value(), "be_present() fails inside an update");
            return std::nullopt;
        });
        {
            // The child uses its copies in every allowed way, and ends.
            children child(1, [&](int, auto) {
                S theirs = store_.open();
                const bool is_seen = theirs.is_present(mark) == bide::presence::yes;
                const auto own = s.be_present();
                mine->reset();
                return std::string(is_seen && own && (*own)->mark() != mark &&
                                           s.is_present(mark) == bide::presence::yes
                                       ? ""
                                       : "! a child does not see its parent's mark");
            });
            expect_none(child.reports());
        }
        expect_present(bide::presence::yes, "after a child has ended");
        shared_with_children<std::atomic<bool>> may_end;
        children heir(1, [&](int, auto) {
            return std::string(eventually([&] { return may_end->load(); }) ? "" : "! late");
        });
        mine->reset();
        expect_present(bide::presence::yes, "while a child has it open");
        *may_end = true;
        expect_none(heir.reports());
        expect_present(bide::presence::no, "after all have closed it");
        expect(s.is_present((*another)->mark()) == bide::presence::yes, "another's mark is gone");
#if defined(__linux__)
        const int events = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
        const auto is_told = [events] {
            char some[4096];
            return ::read(events, some, sizeof some) > 0;
        };
        expect(s.watch(events) && load(s).value == "x" && !is_told(), "a watch reports a load");
        store_to(other, load(s).version, "y", "beside a watch");
        expect(is_told() && !is_told(), "a watch does not report a change");
        another->reset();
        expect(is_told(), "a watch does not report the end of a mark");
        ::close(events);
#endif
    }

private:
    static int open_files() {
        int n = 0;
        if (DIR* const all = ::opendir("/proc/self/fd")) {
            while (::readdir(all)) {
                ++n;
            }
            ::closedir(all);
        }
        return n;
    }

public:
    void keeps_no_files() {
        begin("files");
        const auto use = [&] {
            slot s = store_.open();
            store_to(s, load(s).version, "x", "once more");
            static_cast<void>(s.compare_exchange(0, "y"));
            const slot moved_to [[maybe_unused]] = std::move(s);
        };
        use();
        use();
        const int before = open_files();
        for (int i = 0; i < 4; ++i) {
            use();
        }
        expect(open_files() <= before, "files are left open");
    }
#endif

private:
    Store& store_;
    const std::chrono::milliseconds wait_;
    std::string part_;
    std::size_t found_ = 0; // faults before this part
    std::vector<std::string> faults_;
};

template <class Store> void check_slot(Store& store) {
    slot_suite<Store> suite(store);
    suite.all();
    for (const std::string& fault : suite.faults()) {
        UNSCOPED_INFO(fault);
    }
    REQUIRE(suite.faults().empty());
}

#if BIDE_TESTS_CAN_FORK

// Checks that no process starves among n that increment the number again at once. Measured in counts, not
// in time: after `most` changes in total, each process has stored `each` times. open() makes a slot, and
// increment(slot) returns the error, or none.
template <class Open, class Increment>
void check_nobody_starves(int n, long each, long most, Open open, Increment increment) {
    struct counts {
        std::atomic<long> all{0};
        std::atomic<int> through{0};
    };
    shared_with_children<counts> shared;
    children crowd(n, [&](int, auto gate) {
        auto slot = open();
        if (const auto there = slot.load(); !there) {
            return "! " + there.error().message();
        }
        gate();
        long mine = 0;
        while (shared->through.load() < n && shared->all.load() < most) {
            if (const std::error_code error = increment(slot)) {
                return "! " + error.message();
            }
            ++shared->all;
            shared->through += ++mine == each ? 1 : 0;
        }
        return std::to_string(mine);
    });
    crowd.go();
    long sum = 0;
    for (const std::string& report : crowd.reports()) {
        INFO(report);
        CHECK(std::atol(report.c_str()) >= each);
        sum += std::atol(report.c_str());
    }
    CHECK(open().load()->value == std::to_string(sum));
}

// Checks that of n processes that repair a damaged value at once one succeeds.
template <class Open> void check_one_repairs(int n, Open open) {
    children crowd(n, [&](int, auto gate) {
        auto slot = open();
        gate();
        const bide::cas_result r = slot.replace_damaged("repaired");
        return std::string(r.status == bide::cas_status::stored     ? "stored"
                           : r.status == bide::cas_status::conflict ? "conflict"
                                                                    : "! " + r.error.message());
    });
    const auto reports = crowd.reports();
    CHECK(std::count(reports.begin(), reports.end(), "stored") == 1);
    CHECK(std::count(reports.begin(), reports.end(), "conflict") == n - 1);
    CHECK(open().load()->value == "repaired");
}

#endif

} // namespace test

#endif

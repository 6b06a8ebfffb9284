#include <bide/sched/chrome_trace.hpp>
#include <support/alloc.hpp>
#include <support/catch.hpp>
#include <support/gate.hpp>

#include <atomic>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What a chrome_trace writes of its events. That a scheduler reports the right events is tested in
// trace_test.cpp.

using bide::chrome_trace;

namespace {

// ---- JSON (RFC 8259), strictly

struct json {
    std::string text; // a string is decoded, a number is as written
    std::vector<json> items;
    std::map<std::string, json> members;

    const json& operator[](const std::string& key) const {
        static const json none;
        const auto found = members.find(key);
        return found != members.end() ? found->second : none;
    }
    double number() const { return std::strtod(text.c_str(), nullptr); }
};

class parser {
public:
    explicit parser(std::string_view text) : rest_(text) {}

    bool document(json& out) { return value(out) && (blank(), rest_.empty()); }

private:
    void blank() {
        while (!rest_.empty() && std::string_view(" \t\n\r").find(rest_[0]) != rest_.npos) {
            rest_.remove_prefix(1);
        }
    }
    bool take(char c) {
        blank();
        if (rest_.empty() || rest_[0] != c) {
            return false;
        }
        rest_.remove_prefix(1);
        return true;
    }

    bool value(json& out) {
        if (take('{')) {
            return take('}') || members(out);
        }
        if (take('[')) {
            return take(']') || items(out);
        }
        return take('"') ? string(out.text) : number(out.text);
    }
    bool members(json& out) {
        do {
            std::string key;
            json member;
            if (!take('"') || !string(key) || !take(':') || !value(member) ||
                !out.members.emplace(std::move(key), std::move(member)).second) {
                return false;
            }
        } while (take(','));
        return take('}');
    }
    bool items(json& out) {
        do {
            if (!value(out.items.emplace_back())) {
                return false;
            }
        } while (take(','));
        return take(']');
    }
    bool number(std::string& out) {
        const auto digits = [this, &out] {
            const std::size_t before = out.size();
            while (!rest_.empty() && std::isdigit(static_cast<unsigned char>(rest_[0])) != 0) {
                out += rest_[0];
                rest_.remove_prefix(1);
            }
            return out.size() - before;
        };
        const std::size_t whole = digits();
        if (whole == 0 || (whole > 1 && out[0] == '0')) {
            return false;
        }
        if (!rest_.empty() && rest_[0] == '.') {
            out += '.';
            rest_.remove_prefix(1);
            return digits() != 0;
        }
        return true;
    }
    // After the first quote; UTF-8 is checked elsewhere.
    bool string(std::string& out) {
        while (!rest_.empty()) {
            const char c = rest_[0];
            rest_.remove_prefix(1);
            if (c == '"') {
                return true;
            }
            if (static_cast<unsigned char>(c) < ' ' || (c == '\\' && !escape(out))) {
                return false;
            }
            if (c != '\\') {
                out += c;
            }
        }
        return false;
    }
    bool escape(std::string& out) {
        if (rest_.size() >= 5 && rest_[0] == 'u') {
            const auto code = std::strtoul(std::string(rest_.substr(1, 4)).c_str(), nullptr, 16);
            rest_.remove_prefix(5);
            out += code == 0xfffd ? std::string("\xef\xbf\xbd")
                                  : std::string(1, static_cast<char>(code));
            return code == 0xfffd || code < 0x80;
        }
        const char c = rest_.empty() ? 'x' : rest_[0];
        out += c;
        rest_.remove_prefix(rest_.empty() ? 0 : 1);
        return c == '"' || c == '\\';
    }

    std::string_view rest_;
};

struct written {
    bool good = false; // the trace was written and is JSON
    std::vector<json> names, orders, events;
    double dropped = -1;

    std::string name_of(const std::string& tid) const {
        for (const json& row : names) {
            if (row["tid"].text == tid) {
                return row["args"]["name"].text;
            }
        }
        return "no such row";
    }
};

written parse(const std::string& text) {
    written out;
    json all;
    out.good = parser(text).document(all) && all["displayTimeUnit"].text == "ns";
    for (const json& e : all["traceEvents"].items) {
        const std::string kind = e["ph"].text;
        const std::string name = e["name"].text;
        (kind != "M" ? out.events : name == "thread_name" ? out.names : out.orders).push_back(e);
        out.good = out.good && e["pid"].text == "1" && !e["tid"].text.empty();
    }
    const json& dropped = all["otherData"]["dropped"];
    out.dropped = dropped.text.empty() ? -1 : dropped.number();
    return out;
}

std::string read_all(std::FILE* from) {
    std::string text;
    std::rewind(from);
    for (int c = std::fgetc(from); c != EOF; c = std::fgetc(from)) {
        text += static_cast<char>(c);
    }
    return text;
}

written write(chrome_trace& t) {
    std::FILE* const to = std::tmpfile();
    if (to == nullptr) {
        return {};
    }
    const bool done = t.write(to);
    written out = parse(read_all(to));
    out.good = out.good && done;
    std::fclose(to);
    return out;
}

} // namespace

TEST_CASE("chrome_trace: writes JSON with any task names") {
    const std::string bad = "\xef\xbf\xbd"; // U+FFFD
    const std::pair<const char*, std::string> names[] = {
        {"plain", "plain"},
        {"quo\"te", "quo\"te"},
        {"back\\slash\\", "back\\slash\\"},
        {"new\nline\ttab\x01\x1f\x7f", "new\nline\ttab\x01\x1f\x7f"},
        {"sm\xc3\xb6r \xe6\x97\xa5 \xf0\x9f\x98\x80", "sm\xc3\xb6r \xe6\x97\xa5 \xf0\x9f\x98\x80"},
        {"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\xe0\xa0\x80",
         "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\xe0\xa0\x80"},
        {"\xff", bad},
        {"a\x80z", "a" + bad + "z"},
        {"\xc0\xaf", bad + bad},
        {"\xe0\x9f\xbf", bad + bad + bad},
        {"\xed\xa0\x80", bad + bad + bad},
        {"\xf0\x8f\xbf\xbf", bad + bad + bad + bad},
        {"\xf4\x90\x80\x80", bad + bad + bad + bad},
        {"cut \xe6\x97", "cut " + bad + bad},
        {"cut \xc3", "cut " + bad},
        {"\xc3\"", bad + "\""},
        {"", ""},
        {nullptr, "unnamed"},
    };
    chrome_trace t;
    for (const auto& [name, read] : names) {
        t.ran(0, name, {}, 1, 2);
    }
    const written all = write(t);
    REQUIRE(all.good);
    REQUIRE(all.events.size() == std::size(names));
    for (std::size_t i = 0; i < std::size(names); ++i) {
        CHECK(all.events[i]["name"].text == names[i].second);
    }
}

TEST_CASE("chrome_trace: the tag of a task is an argument of its runs") {
    chrome_trace t;
    t.ran(0, "a", bide::task_tag("plain"), 1, 2);
    t.ran(0, "b", bide::task_tag("a \"b\", \\"), 2, 3);
    t.ran(0, "c", {}, 3, 4);
    const written all = write(t);
    REQUIRE(all.good);
    REQUIRE(all.events.size() == 3);
    CHECK(all.events[0]["args"]["tag"].text == "plain");
    CHECK(all.events[0]["cat"].text == "run");
    CHECK(all.events[1]["args"]["tag"].text == "a \"b\", \\");
    CHECK(all.events[2]["args"].members.empty());
}

TEST_CASE("chrome_trace: an empty trace is JSON, too") {
    chrome_trace t;
    const written none = write(t);
    CHECK(none.good);
    CHECK(none.events.empty());
    CHECK(none.names.empty());
    CHECK(none.dropped == 0);
}

TEST_CASE("chrome_trace: each event has a kind, a worker, a time and a length, in microseconds") {
    chrome_trace t;
    const std::int64_t start = bide::native_platform::now() + 1'000'000;
    t.ran(0, "task", {}, start, start + 1);
    t.parked(0, start + 1'000, start + 3'456'789);
    t.stole(70, 3, start + 2'000'001);
    const written all = write(t);
    REQUIRE(all.good);
    REQUIRE(all.events.size() == 3);
    const json& run = all.events[0];
    const json& park = all.events[1];
    const json& theft = all.events[2];
    CHECK(run["ph"].text == "X");
    CHECK(run["name"].text == "task");
    CHECK(run["tid"].text == "0");
    CHECK(run["dur"].text == "0.001");
    CHECK(run["ts"].number() >= 1'000);
    CHECK(run["ts"].number() < 60e6);
    CHECK(park["ph"].text == "X");
    CHECK(park["name"].text == "parked");
    CHECK(park["tid"].text == "0");
    CHECK(park["dur"].text == "3455.789");
    CHECK(theft["ph"].text == "i");
    CHECK(theft["s"].text == "t");
    CHECK(theft["name"].text == "stole");
    CHECK(theft["tid"].text == "70");
    CHECK(theft["args"]["count"].text == "3");
    const auto thousandth = [](const json& at) { return static_cast<long>(at.number() * 1'000); };
    CHECK(std::abs(thousandth(park["ts"]) - thousandth(run["ts"]) - 1'000) <= 1);
    CHECK(std::abs(thousandth(theft["ts"]) - thousandth(run["ts"]) - 2'000'001) <= 1);
    CHECK(all.names.size() == 2);
    CHECK(all.orders.size() == 2);
    CHECK(all.name_of("0") == "worker 0");
    CHECK(all.name_of("70") == "worker 70");
}

TEST_CASE("chrome_trace: events that overlap have rows of their own, below their worker's") {
    chrome_trace t;
    const std::int64_t now = bide::native_platform::now() + 1'000'000;
    t.ran(1, "first", {}, now, now + 10);
    t.ran(1, "second", {}, now + 10, now + 30);
    t.ran(1, "blocked", {}, now + 5, now + 40); // recorded last, because it ended last
    t.ran(1, "blocked, too", {}, now + 7, now + 50);
    t.ran(1, "third", {}, now + 30, now + 60);
    t.ran(1, "blocked again", {}, now + 45, now + 70);
    t.ran(2, "elsewhere", {}, now, now + 100);
    const written all = write(t);
    REQUIRE(all.good);
    std::map<std::string, std::set<std::string>> rows;
    for (const json& e : all.events) {
        rows[e["tid"].text].insert(e["name"].text);
    }
    REQUIRE(rows.size() == 4);
    CHECK(rows["1"] == std::set<std::string>{"first", "second", "third"});
    CHECK(rows["2"] == std::set<std::string>{"elsewhere"});
    rows.erase("1");
    rows.erase("2");
    for (const auto& [tid, names] : rows) {
        CHECK(all.name_of(tid) == "worker 1, blocked");
        CHECK((names == std::set<std::string>{"blocked", "blocked again"} ||
               names == std::set<std::string>{"blocked, too"}));
    }
    std::map<double, std::string> order;
    for (const json& row : all.orders) {
        order[row["args"]["sort_index"].number()] = all.name_of(row["tid"].text);
    }
    std::string sorted;
    for (const auto& [place, name] : order) {
        sorted += name + "; ";
    }
    CHECK(sorted == "worker 1; worker 1, blocked; worker 1, blocked; worker 2; ");
}

TEST_CASE("chrome_trace: keeps any number of events that overlap") {
    chrome_trace t;
    const std::int64_t now = bide::native_platform::now();
    for (int i = 0; i < 100; ++i) {
        t.ran(0, "blocked", {}, now, now + 100 + i);
    }
    const written all = write(t);
    CHECK(all.good);
    CHECK(all.events.size() == 100);
    CHECK(all.names.size() == 14); // the largest number of rows
}

TEST_CASE("chrome_trace: keeps a worker's first events, and counts the rest") {
    const std::size_t most = GENERATE(0u, 1u, 254u, 255u, 256u, 700u);
    constexpr std::size_t told = 600;
    chrome_trace t("", most);
    const std::int64_t now = bide::native_platform::now() + 1'000'000;
    for (std::size_t i = 0; i < told; ++i) {
        const auto at = now + static_cast<std::int64_t>(i);
        t.ran(0, "a", {}, at, at + 1);
        t.parked(65, at, at + 1);
    }
    t.stole(2, 1, now);
    const std::size_t kept = most < told ? most : told;
    const std::size_t theft = most != 0 ? 1 : 0;
    const auto lost = 2 * (told - kept) + 1 - theft;
    const written all = write(t);
    REQUIRE(all.good);
    CHECK(all.events.size() == 2 * kept + theft);
    CHECK(t.dropped() == lost);
    CHECK(all.dropped == static_cast<double>(lost));
    std::map<std::string, double> last; // of each row; events stand in the order of the row
    bool ordered = true;
    for (const json& e : all.events) {
        ordered = ordered && e["ts"].number() > last[e["tid"].text];
        last[e["tid"].text] = e["ts"].number();
    }
    CHECK(ordered);
}

TEST_CASE("chrome_trace: the destructor writes to the path if there is one") {
    const auto directory = std::filesystem::temp_directory_path();
    const auto file =
        directory / ("bide-chrome-trace-" + std::to_string(bide::native_platform::now()) + ".json");
    {
        chrome_trace t(file.string());
        t.ran(0, "a", {}, 1, 2);
        CHECK(!std::filesystem::exists(file));
    }
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> from(
        std::fopen(file.string().c_str(), "r"), &std::fclose);
    REQUIRE(from != nullptr);
    const written all = parse(read_all(from.get()));
    std::filesystem::remove(file);
    CHECK(all.good);
    CHECK(all.events.size() == 1);
}

TEST_CASE("chrome_trace: write() returns whether it could write") {
    chrome_trace t;
    t.ran(0, "a", {}, 1, 2);
    CHECK(!t.write("no-such-directory/trace.json"));
    if (std::FILE* const full = std::fopen("/dev/full", "w")) {
        CHECK(!t.write(full));
        std::fclose(full);
        CHECK(!t.write("/dev/full"));
    }
    CHECK(write(t).good);
}

TEST_CASE("chrome_trace: may be written while workers record events") {
    constexpr int each = 3'000;
    const test::watchdog guard;
    chrome_trace t;
    std::atomic<int> left{4};
    test::team workers(4, [&](int i) {
        for (int n = 0; n < each; ++n) {
            const std::int64_t now = bide::native_platform::now();
            t.ran(static_cast<unsigned>(i / 2), "a", {}, now, now + 1); // two for each
        }
        --left;
    });
    bool good = true;
    std::size_t before = 0;
    do {
        const written some = write(t);
        good = good && some.good && some.events.size() >= before && some.dropped == 0;
        before = some.events.size();
    } while (left != 0);
    workers.join();
    CHECK(good);
    CHECK(write(t).events.size() == 4 * each);
}

TEST_CASE("chrome_trace: without memory it drops events, and counts them") {
    if (!test::counts_allocations()) {
        return;
    }
    chrome_trace t;
    {
        const test::out_of_memory none;
        t.ran(0, "a", {}, 1, 2); // no memory for its worker
    }
    CHECK(t.dropped() == 1);
    t.ran(0, "a", {}, 1, 2);
    {
        const test::out_of_memory none;
        t.ran(1, "a", {}, 1, 2); // no memory for its events
        t.ran(1'000, "a", {}, 1, 2);
        t.ran(0, "b", {}, 1, 2); // there was memory
    }
    t.ran(1, "c", {}, 1, 2);
    const written all = write(t);
    CHECK(all.good);
    CHECK(all.events.size() == 3);
    CHECK(all.dropped == 3);
}

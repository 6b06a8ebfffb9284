#include <bide/sched/chrome_trace.hpp>
#include <bide/sync/event.hpp>

#include <support/sched.hpp>

// What a chrome_trace writes of its events. That a scheduler reports the right events is tested in
// trace_test.cpp.

using namespace bide;

namespace {

using lines = std::vector<std::string>;

// What was written, line by line, without the commas between the lines, in which "ts":T stands for the
// time of an event. So a test sees the whole text, and that it is JSON.
struct written {
    bool good = false; // it was written, and has the frame of a trace
    lines rows;        // pairs of lines that name a row and give its place
    lines events;
    std::vector<std::int64_t> times; // of the events, in nanoseconds
    std::string dropped;

    std::string row_of(std::size_t event) const {
        const std::size_t at = events[event].find("\"tid\":");
        return events[event].substr(at, events[event].find(',', at) - at);
    }
};

// Removes the text from the front. False: it does not begin so.
bool take(std::string& line, const std::string& text) {
    const bool there = line.compare(0, text.size(), text) == 0;
    line.erase(0, there ? text.size() : 0);
    return there;
}

written parse(std::string text) {
    written out;
    out.good = take(text, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    lines all;
    while (!text.empty()) {
        all.push_back(text.substr(0, text.find('\n')));
        text.erase(0, all.back().size() + 1);
    }
    std::string last = all.empty() ? "" : all.back();
    out.good = out.good && !all.empty() && take(last, "],\"otherData\":{\"dropped\":");
    out.dropped = last.substr(0, last.find("}}"));
    for (std::size_t i = 0; i + 1 < all.size(); ++i) {
        std::string& line = all[i];
        if (i + 2 < all.size()) {
            out.good = out.good && line.back() == ',';
            line.pop_back();
        }
        if (line.find("\"ph\":\"M\"") != line.npos) {
            out.rows.push_back(line);
        } else if (const std::size_t at = line.find("\"ts\":"); at != line.npos) {
            const std::size_t end = line.find_first_not_of("0123456789.", at + 5);
            std::string time = line.substr(at + 5, end - at - 5);
            time.erase(time.size() - 4, 1); // the point before the nanoseconds
            out.times.push_back(std::atoll(time.c_str()));
            out.events.push_back(line.replace(at + 5, end - at - 5, "T"));
        } else {
            out.good = false;
        }
    }
    return out;
}

written write(chrome_trace& t) {
    bool done = false;
    written out = parse(test::written_by([&](std::FILE* to) { done = t.write(to); }));
    out.good = out.good && done;
    return out;
}

std::string run_named(const std::string& name) {
    return "{\"ph\":\"X\",\"pid\":1,\"tid\":0,\"name\":\"" + name +
           "\",\"cat\":\"run\",\"ts\":T,\"dur\":0.001}";
}

} // namespace

TEST_CASE("chrome_trace: writes JSON with any task names") {
    const std::string bad = "\\ufffd";
    const std::pair<const char*, std::string> names[] = {
        {"plain", "plain"},
        {"quo\"te", "quo\\\"te"},
        {"back\\slash\\", "back\\\\slash\\\\"},
        {"new\nline\ttab\x01\x1f\x7f", "new\\u000aline\\u0009tab\\u0001\\u001f\\u007f"},
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
        {"\xc3\"", bad + "\\\""},
        {"", ""},
        {nullptr, "unnamed"},
    };
    chrome_trace t;
    lines expected;
    std::int64_t now = 0;
    for (const auto& [name, json] : names) {
        t.ran(0, name, {}, now, now + 1);
        ++now;
        expected.push_back(run_named(json));
    }
    const written all = write(t);
    CHECK(all.good);
    CHECK(all.events == expected);
}

TEST_CASE("chrome_trace: each event has a kind, a worker, a time and a length, in microseconds") {
    chrome_trace t;
    const written none = write(t);
    CHECK(none.good);
    CHECK(none.events.empty());
    CHECK(none.rows.empty());
    CHECK(none.dropped == "0");
    const std::int64_t start = native_platform::now() + 1'000'000;
    t.ran(0, "task", {}, start, start + 1);
    t.ran(0, "b", task_tag("a \"b\", \\"), start + 2, start + 3);
    t.parked(0, start + 1'000, start + 3'456'789);
    t.stole(70, 3, start + 2'000'001);
    const written all = write(t);
    CHECK(all.good);
    CHECK(all.events ==
          lines{run_named("task"),
                "{\"ph\":\"X\",\"pid\":1,\"tid\":0,\"name\":\"b\",\"cat\":\"run\","
                "\"args\":{\"tag\":\"a \\\"b\\\", \\\\\"},\"ts\":T,\"dur\":0.001}",
                "{\"ph\":\"X\",\"pid\":1,\"tid\":0,\"name\":\"parked\",\"cat\":\"park\","
                "\"ts\":T,\"dur\":3455.789}",
                "{\"ph\":\"i\",\"pid\":1,\"tid\":70,\"name\":\"stole\",\"cat\":\"steal\","
                "\"s\":\"t\",\"args\":{\"count\":3},\"ts\":T}"});
    REQUIRE(all.times.size() == 4);
    CHECK(all.times[0] >= 1'000'000);
    CHECK(all.times[0] < 60'000'000'000);
    CHECK(all.times[2] - all.times[0] == 1'000);
    CHECK(all.times[3] - all.times[0] == 2'000'001);
    const auto row = [](const char* tid, const char* worker, const char* place) {
        const std::string begin = std::string("{\"ph\":\"M\",\"pid\":1,\"tid\":") + tid;
        return lines{
            begin + ",\"name\":\"thread_name\",\"args\":{\"name\":\"worker " + worker + "\"}}",
            begin + ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":" + place + "}}"};
    };
    REQUIRE(all.rows.size() == 4);
    CHECK(lines(all.rows.begin(), all.rows.begin() + 2) == row("0", "0", "0"));
    CHECK(lines(all.rows.begin() + 2, all.rows.end()) == row("70", "70", "980"));
}

TEST_CASE("chrome_trace: events that overlap have rows of their own, below their worker's") {
    chrome_trace t;
    const std::int64_t now = native_platform::now() + 1'000'000;
    t.ran(1, "first", {}, now, now + 10);
    t.ran(1, "second", {}, now + 10, now + 30);
    t.ran(1, "blocked", {}, now + 5, now + 40); // recorded last, because it ended last
    t.ran(1, "blocked, too", {}, now + 7, now + 50);
    t.ran(1, "third", {}, now + 30, now + 60);
    t.ran(1, "blocked again", {}, now + 45, now + 70);
    t.ran(2, "elsewhere", {}, now, now + 100);
    const written all = write(t);
    CHECK(all.good);
    REQUIRE(all.events.size() == 7);
    std::map<std::string, std::set<std::size_t>> rows;
    for (std::size_t i = 0; i < all.events.size(); ++i) {
        rows[all.row_of(i)].insert(i);
    }
    std::set<std::set<std::size_t>> apart;
    for (const auto& [row, events] : rows) {
        apart.insert(events);
    }
    CHECK(apart == std::set<std::set<std::size_t>>{{0, 1, 4}, {2, 5}, {3}, {6}});
    std::map<int, std::string> order;
    for (std::size_t i = 0; i + 1 < all.rows.size(); i += 2) {
        const std::string& name = all.rows[i];
        const std::string& place = all.rows[i + 1];
        const std::size_t at = name.find("worker ");
        order[std::atoi(place.c_str() + place.rfind(':') + 1)] =
            name.substr(at, name.rfind('"') - at);
    }
    std::string sorted;
    for (const auto& [place, name] : order) {
        sorted += name + "; ";
    }
    CHECK(sorted == "worker 1; worker 1, blocked; worker 1, blocked; worker 2; ");
    for (int i = 0; i < 100; ++i) {
        t.ran(3, "blocked", {}, now, now + 100 + i);
    }
    const written more = write(t);
    CHECK(more.events.size() == 107);
    CHECK(more.rows.size() == 2 * (4 + 14)); // the largest number of rows
}

TEST_CASE("chrome_trace: keeps a worker's first events, and counts the rest") {
    const std::size_t most = GENERATE(0u, 1u, 254u, 255u, 256u, 700u);
    constexpr std::size_t told = 600;
    chrome_trace t("", most);
    const std::int64_t now = native_platform::now() + 1'000'000;
    for (std::size_t i = 0; i < told; ++i) {
        const auto at = now + static_cast<std::int64_t>(i);
        t.ran(0, "a", {}, at, at + 1);
        t.parked(65, at, at + 1);
    }
    t.stole(2, 1, now);
    const std::size_t kept = std::min(most, told);
    const std::size_t theft = most != 0 ? 1 : 0;
    const auto lost = 2 * (told - kept) + 1 - theft;
    const written all = write(t);
    CHECK(all.good);
    REQUIRE(all.events.size() == 2 * kept + theft);
    CHECK(t.dropped() == lost);
    CHECK(all.dropped == std::to_string(lost));
    std::map<std::string, std::int64_t> last; // of each row; events stand in the order of the row
    bool ordered = true;
    for (std::size_t i = 0; i < all.events.size(); ++i) {
        std::int64_t& before = last[all.row_of(i)];
        ordered = ordered && all.times[i] > before;
        before = all.times[i];
    }
    CHECK(ordered);
}

TEST_CASE("chrome_trace: the destructor writes to the path if there is one") {
    const auto directory = std::filesystem::temp_directory_path();
    const auto file =
        directory / ("bide-chrome-trace-" + std::to_string(native_platform::now()) + ".json");
    {
        chrome_trace t(file.string());
        t.ran(0, "a", {}, 1, 2);
        CHECK(!std::filesystem::exists(file));
    }
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> from(
        std::fopen(file.string().c_str(), "r"), &std::fclose);
    REQUIRE(from != nullptr);
    const written all = parse(test::read_all(from.get()));
    std::filesystem::remove(file);
    CHECK(all.good);
    CHECK(all.events == lines{run_named("a")});
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
    chrome_trace t;
    std::atomic<int> left{4};
    test::team workers(4, [&](int i) {
        for (int n = 0; n < each; ++n) {
            const std::int64_t now = native_platform::now();
            t.ran(static_cast<unsigned>(i / 2), "a", {}, now, now + 1); // two for each
        }
        --left;
    });
    bool good = true;
    std::size_t before = 0;
    do {
        const written some = write(t);
        good = good && some.good && some.events.size() >= before && some.dropped == "0";
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
    CHECK(all.dropped == "3");
}

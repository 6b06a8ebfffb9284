// An outside judge: the outcomes of small programs as herd7 computed them from the text of C++20, stored in
// judge/ by judge/judge.py. The programs are the classic litmus tests (litmus.txt), the protocols of the library,
// each reduced to the steps in which threads meet (cores.txt), and random ones (random.txt, circles.txt).

#include <model/program.hpp>
#include <support/test.hpp>

namespace {

using model::failure;
using method = model::options::method;

constexpr std::string_view between = " = "; // the parts of a line

std::vector<std::string> split(std::string_view text, std::string_view at) {
    std::vector<std::string> out;
    for (;;) {
        const std::size_t end = text.find(at);
        out.emplace_back(text.substr(0, end));
        if (end == std::string_view::npos) {
            return out;
        }
        text.remove_prefix(end + at.size());
    }
}

struct row {
    std::string name;
    std::string program;
    std::string must; // what must hold of the outcomes, if it is said
    std::string outcomes;
};

// The programs of a file in judge/.
std::vector<row> read(const std::string& group) {
    std::ifstream in(BIDE_MODEL_JUDGE + group + ".txt");
    std::vector<row> out;
    for (std::string line; std::getline(in, line);) {
        const auto parts = split(line, between);
        if (line[0] != '#' && parts.size() >= 3) {
            out.push_back({parts[0], parts[1], parts.size() == 4 ? parts[2] : "", parts.back()});
        }
    }
    return out;
}

// All outcomes, or the failure if there is one.
std::string explore(const std::string& text, method how = method::exhaustive) {
    const model::program p = model::to_program(text);
    const auto verdict = model::explore({.how = how}, [&] { model::run(p); });
    if (verdict.what == failure::race) {
        return "race";
    }
    if (verdict.what != failure::none) {
        return verdict.message;
    }
    const auto body = [&] { model::record(model::to_text(p, model::run(p))); };
    return model::outcomes({.how = how}, body);
}

// More are some seconds each.
constexpr std::size_t most_operations_enumerated = 7;

bool is_small(const std::string& text) {
    std::size_t operations = 0;
    for (const auto& thread : model::to_program(text).threads) {
        operations += thread.size();
    }
    return operations <= most_operations_enumerated;
}

void compare(const row& r, method how = method::exhaustive) {
    INFO(r.name << ": " << r.program);
    CHECK(explore(r.program, how) == r.outcomes);
}

// Compares all of a group, or the first ones that BIDE_MODEL_PROGRAMS in the environment allows. Returns how
// many there are.
std::size_t compare_random(const std::string& group) {
    auto rows = read(group);
    const std::size_t all = rows.size();
    if (const char* const most = std::getenv("BIDE_MODEL_PROGRAMS")) {
        rows.resize(std::min<std::size_t>(all, std::strtoull(most, nullptr, 10)));
    }
    for (const row& r : rows) {
        compare(r);
    }
    return all;
}

bool matches(std::string_view outcome, std::string_view pattern) {
    return std::equal(outcome.begin(), outcome.end(), pattern.begin(), pattern.end(),
                      [](char o, char p) { return o == p || p == '.'; });
}

// Whether one of the outcomes matches one of the patterns.
bool has(std::string_view outcomes, std::string_view patterns) {
    for (const std::string& o : split(outcomes, " ")) {
        for (const std::string& p : split(patterns, " ")) {
            if (matches(o, p)) {
                return true;
            }
        }
    }
    return false;
}

} // namespace

TEST_CASE("judge: the litmus tests have the outcomes that herd7 computes") {
    const auto rows = read("litmus");
    REQUIRE(rows.size() >= 100);
    for (const row& r : rows) {
        compare(r);
        if (is_small(r.program)) {
            compare(r, method::enumerate);
        }
    }
}

TEST_CASE("judge: the cores of the protocols have the outcomes that herd7 computes, and these are "
          "what they are for") {
    const auto rows = read("cores");
    REQUIRE(rows.size() >= 50);
    for (const row& r : rows) {
        compare(r);
        INFO(r.name << ": " << r.program << ": " << r.must);
        const std::string_view must = r.must;
        if (must.starts_with("never ")) {
            CHECK(r.outcomes != "race");
            CHECK_FALSE(has(r.outcomes, must.substr(6)));
        } else if (must.starts_with("may ")) {
            CHECK(has(r.outcomes, must.substr(4)));
        } else {
            CHECK((must == "race" || must == "no race"));
            CHECK((r.outcomes == "race") == (must == "race"));
        }
    }
}

TEST_CASE("judge: random programs have the outcomes that herd7 computes") {
    REQUIRE(compare_random("random") >= 90);
    REQUIRE(compare_random("circles") >= 500);
}

TEST_CASE("judge: every schedule of the small ones has them, too", "[.long]") {
    std::size_t compared = 0;
    for (const char* const group : {"litmus", "cores", "random", "circles"}) {
        for (const row& r : read(group)) {
            if (is_small(r.program) || r.name.starts_with("two readers")) {
                compare(r, method::enumerate);
                ++compared;
            }
        }
    }
    REQUIRE(compared >= 500);
}

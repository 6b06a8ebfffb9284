#include <bide/durable/errors.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_json.hpp>

#include <support/jitter.hpp>
#include <support/test.hpp>

#include <nlohmann/json.hpp>

using namespace bide::durable;
using namespace bide;

namespace {

using json = nlohmann::json;

record example() {
    record r;
    r.permits = 3;
    r.clock = lock_clock::boottime;
    r.fence = 42;
    holder h;
    h.holder_id = "billing-7";
    h.nonce = "9f";
    h.fence = 41;
    h.lease_ms = 30'000;
    h.expires_at = 1'717'000'030'000;
    h.renewals = 4;
    h.from = {"h1", "b1", 812, 99'123, 4'026'531'836};
    h.observed = {{"b2", 4, 1'200'500}, {"b3", 4, 70}};
    r.holders.push_back(h);
    waiter w;
    w.holder_id = "billing-9";
    w.nonce = "a1";
    w.ttl_ms = 30'000;
    w.expires_at = 1'717'000'030'000;
    w.from.host = "h2";
    w.from.boot = "b2";
    w.observed = {{"b1", 0, 1'200'600}};
    r.waiters.push_back(w);
    r.admin = admin_note{1'717'000'000'000, "ops", "force_release 40"};
    return r;
}

// As it is written: in the order in which the fields are listed.
constexpr std::string_view example_text =
    R"({"v":1,"permits":3,"clock":"boottime","fence":42,)"
    R"("holders":[{"holderId":"billing-7","nonce":"9f","weight":1,"host":"h1","boot":"b1",)"
    R"("pid":812,"start":99123,"space":4026531836,)"
    R"("observed":[{"boot":"b2","moves":4,"since":1200500},{"boot":"b3","moves":4,"since":70}],)"
    R"("fence":41,"lane":0,"leaseMs":30000,"leaseExpiresAt":1717000030000,"renewals":4}],)"
    R"("waiters":[{"holderId":"billing-9","nonce":"a1","weight":1,"host":"h2","boot":"b2",)"
    R"("observed":[{"boot":"b1","moves":0,"since":1200600}],"ttlMs":30000,)"
    R"("expiresAt":1717000030000,"refreshes":0}],)"
    R"("admin":{"at":1717000000000,"by":"ops","what":"force_release 40"}})";

json example_json() { return json::parse(example_text); }

std::error_code error_of(std::string_view text) {
    const auto out = decode(text);
    return out ? std::error_code() : out.error();
}
bool is_corrupt(std::string_view text) { return error_of(text) == durable_errc::corrupt_record; }
bool is_corrupt_object(const json& object) { return is_corrupt(object.dump()); }
// One value, as an assertion would print a range by its elements.
bool same(const json& a, const json& b) { return a == b; }

// A record that can be read can be written and read again, and is the same.
bool comes_back(const record& r) {
    const auto again = decode(encode(r));
    return again && *again == r;
}

// Random numbers, with the seed of the run or of one case.
class dice : public test::jitter {
public:
    using test::jitter::jitter;

    std::int64_t number(std::int64_t least, std::int64_t most) {
        const auto wide = std::uint64_t{below(1u << 30)} << 30 | below(1u << 30);
        switch (below(8)) {
        case 0: return least;
        case 1: return most;
        default:
            return least +
                   static_cast<std::int64_t>(wide % (static_cast<std::uint64_t>(most - least) + 1));
        }
    }
    std::string text(std::size_t most) {
        static constexpr std::string_view letters = "aZ0 \"\\/\n\x01\x7f{}[]:,";
        static constexpr std::string_view longer[] = {"\xc3\xa9", "\xe2\x82\xac",
                                                      "\xf0\x9f\x94\x92", "null"};
        std::string made;
        for (std::uint32_t n = below(12); n != 0; --n) {
            const std::uint32_t at = below(static_cast<std::uint32_t>(letters.size()) + 4);
            const std::string_view next =
                at < letters.size() ? letters.substr(at, 1) : longer[at - letters.size()];
            if (made.size() + next.size() <= most) {
                made += next;
            }
        }
        return made;
    }
    origin place() {
        origin from;
        from.host = below(2) == 0 ? "" : text(longest_name);
        from.boot = below(2) == 0 ? "" : text(longest_name);
        if (below(2) == 0) {
            from.pid = number(1, largest_number);
            from.start = number(0, largest_number);
            from.space = number(0, largest_number);
            from.mark = number(0, largest_number);
        }
        return from;
    }
    std::vector<stored_observation> observations() {
        std::vector<stored_observation> some;
        for (std::uint32_t n = below(3) == 0 ? below(6) : 0; n != 0; --n) {
            some.push_back({"b" + text(100), number(0, largest_number), number(0, largest_number),
                            unknown(below(3) == 0)});
        }
        return some;
    }
    description about() {
        description some;
        some.note = below(3) == 0 ? text(longest_note) : "";
        for (std::uint32_t n = below(3) == 0 ? below(most_labels + 1) : 0; n != 0; --n) {
            some.labels.insert(some.labels.begin(), {std::string(1, static_cast<char>('a' + n)) +
                                                         text(longest_label - 1),
                                                     text(longest_label)});
        }
        return some;
    }
    std::string unknown(bool wanted) {
        if (!wanted) {
            return {};
        }
        json some;
        some["x-" + text(20)] = {{"list", {1, -2, 3.5, nullptr, true, text(9)}}};
        some["remark"] = text(40);
        return some.dump();
    }
};

record random_record(dice& any) {
    record r;
    r.permits = any.number(1, largest_permits);
    r.clock = static_cast<lock_clock>(any.below(4));
    const auto holders = static_cast<std::int64_t>(any.below(5));
    r.fence = any.number(holders + 1, largest_number);
    for (std::int64_t i = 0; i < holders; ++i) {
        holder h;
        h.holder_id = "h" + any.text(100);
        h.nonce = std::to_string(i) + any.text(100);
        h.fence = r.fence - holders + i;
        h.lane = i;
        h.weight = any.number(1, largest_permits);
        h.lease_ms = any.number(1, largest_duration);
        h.expires_at = any.number(0, largest_number);
        h.renewals = any.number(0, largest_number);
        h.from = any.place();
        h.observed = any.observations();
        h.about = any.about();
        h.held_until = any.below(3) == 0 ? any.number(1, largest_number) : 0;
        h.held_boot = h.held_until != 0 ? any.text(longest_name) : "";
        h.extra = any.unknown(any.below(3) == 0);
        r.holders.push_back(h);
    }
    for (std::uint32_t i = any.below(6); i != 0; --i) {
        waiter w;
        w.holder_id = "w" + any.text(100);
        w.nonce = "w" + std::to_string(i) + any.text(100);
        w.weight = any.number(1, largest_permits);
        w.ttl_ms = any.number(1, largest_duration);
        w.expires_at = any.number(0, largest_number);
        w.refreshes = any.number(0, largest_number);
        w.from = any.place();
        w.observed = any.observations();
        w.about = any.about();
        w.extra = any.unknown(any.below(3) == 0);
        r.waiters.push_back(w);
    }
    if (any.below(2) == 0) {
        r.admin = admin_note{any.number(0, largest_number), any.text(50), any.text(5000)};
    }
    r.extra = any.unknown(any.below(3) == 0);
    return r;
}

// Whether the JSON library refuses the text only for a number that no double holds.
bool has_too_great_a_number(const std::string& text) {
    try {
        return json::parse(text).is_discarded();
    } catch (const json::out_of_range&) {
        return true;
    } catch (const json::exception&) {
        return false;
    }
}

struct nobody_expires {
    bool expired(const holder&) const { return false; }
    bool expired(const waiter&, bool) const { return false; }
};

// The properties that the rules rely on.
bool is_sound(const record& r) {
    bool good =
        r.permits >= 1 && r.permits <= largest_permits && r.fence >= 1 && r.fence <= largest_number;
    std::set<std::string> nonces;
    std::set<std::int64_t> fences;
    std::set<std::int64_t> lanes;
    for (const holder& h : r.holders) {
        good = good && !h.nonce.empty() && !h.holder_id.empty() && h.fence >= 1 &&
               h.fence < r.fence && h.weight >= 1 && h.lane >= 0 && h.lease_ms >= 1 &&
               h.expires_at >= 0 && nonces.insert(h.nonce).second &&
               fences.insert(h.fence).second && lanes.insert(h.lane).second;
    }
    for (const waiter& w : r.waiters) {
        good = good && !w.nonce.empty() && !w.holder_id.empty() && w.weight >= 1 && w.ttl_ms >= 1 &&
               nonces.insert(w.nonce).second;
    }
    return good;
}

// A grant with a minimum hold time and a description, in a record of its own.
record described_example() {
    record r;
    r.fence = 8;
    holder h;
    h.holder_id = "billing-7";
    h.nonce = "9f";
    h.fence = 7;
    h.lease_ms = 60'000;
    h.expires_at = 1'060'000;
    h.held_until = 1'060'000;
    h.held_boot = "b1";
    h.about = {"nightly \xe2\x82\xac", {{"job", "billing"}, {"team", ""}}};
    r.holders.push_back(h);
    waiter w;
    w.holder_id = "billing-9";
    w.nonce = "a1";
    w.ttl_ms = 30'000;
    w.expires_at = 1'030'000;
    w.about.labels = {{"job", "report"}};
    r.waiters.push_back(w);
    return r;
}

constexpr std::string_view described_text =
    R"({"v":1,"permits":1,"clock":"caller","fence":8,"holders":[{"holderId":"billing-7",)"
    "\"nonce\":\"9f\",\"weight\":1,\"note\":\"nightly \xe2\x82\xac\","
    R"("labels":{"job":"billing","team":""},"fence":7,"lane":0,"leaseMs":60000,)"
    R"("leaseExpiresAt":1060000,"renewals":0,"heldUntil":1060000,"heldBoot":"b1"}],)"
    R"("waiters":[{"holderId":"billing-9","nonce":"a1","weight":1,"labels":{"job":"report"},)"
    R"("ttlMs":30000,"expiresAt":1030000,"refreshes":0}]})";

enum class kind { number, name, list };

// A field of the example; `is_required`: the record is corrupt without it.
struct field {
    std::string where;
    kind is;
    bool is_required;
    std::int64_t least = 0; // of a number
    std::int64_t most = largest_number;
};

std::vector<field> fields() {
    std::vector<field> all = {{"/permits", kind::number, true, 1, largest_permits},
                              {"/fence", kind::number, true, 42},
                              {"/clock", kind::name, true},
                              {"/holders", kind::list, true},
                              {"/waiters", kind::list, true},
                              {"/holders/0/fence", kind::number, true, 1, 41},
                              {"/holders/0/lane", kind::number, true, 0, largest_permits},
                              {"/holders/0/leaseMs", kind::number, true, 1, largest_duration},
                              {"/holders/0/leaseExpiresAt", kind::number, true},
                              {"/holders/0/renewals", kind::number, true},
                              {"/waiters/0/ttlMs", kind::number, true, 1, largest_duration},
                              {"/waiters/0/expiresAt", kind::number, true},
                              {"/waiters/0/refreshes", kind::number, true}};
    for (const std::string in : {"/holders/0/", "/waiters/0/"}) {
        const field of_both[] = {{in + "holderId", kind::name, true},
                                 {in + "nonce", kind::name, true},
                                 {in + "weight", kind::number, true, 1, largest_permits},
                                 {in + "host", kind::name, false},
                                 {in + "boot", kind::name, false},
                                 {in + "observed", kind::list, false},
                                 {in + "observed/0/boot", kind::name, true},
                                 {in + "observed/0/moves", kind::number, true},
                                 {in + "observed/0/since", kind::number, true}};
        all.insert(all.end(), std::begin(of_both), std::end(of_both));
    }
    return all;
}

// What is no number, no name, or no list of objects with the right fields.
std::vector<json> not_of(const field& f) {
    std::vector<json> wrong = {nullptr, true, json::object()};
    if (f.is != kind::list) {
        wrong.insert(wrong.end(), {json::array(), json(1.5)});
    }
    if (f.is == kind::number) {
        wrong.insert(wrong.end(), {json("1"), json(1.0), json(-1), json(9'007'199'254'740'992),
                                   json(18'446'744'073'709'551'615u), json(-9'007'199'254'740'992),
                                   json(1e300)});
    } else {
        wrong.push_back(1);
    }
    if (f.is == kind::name) {
        wrong.push_back(std::string(longest_name + 1, 'x'));
    }
    if (f.is == kind::list) {
        for (const json& one : {json(1), json(nullptr), json::array(), json("x"), json::object()}) {
            wrong.push_back(json::array({one, one}));
        }
    }
    if (f.is_required || f.is == kind::list) {
        wrong.push_back("");
    }
    return wrong;
}

} // namespace

TEST_CASE("record_json: a record is written in, and read from, these bytes") {
    REQUIRE(encode(example()) == example_text);
    const auto r = decode(example_text);
    REQUIRE(r);
    REQUIRE(*r == example());
}

TEST_CASE("record_json: descriptions and minimum hold times are stored in these bytes") {
    REQUIRE(encode(described_example()) == described_text);
    const auto r = decode(described_text);
    REQUIRE(r);
    REQUIRE(*r == described_example());
}

TEST_CASE("record_json: labels are read in the order of their keys, which may be any text") {
    record r = described_example();
    r.holders[0].about.labels = {{"z", "1"}, {"a\"b", "2"}};
    const auto again = decode(encode(r));
    REQUIRE(again);
    REQUIRE(again->holders[0].about.labels == std::vector<label>{{"a\"b", "2"}, {"z", "1"}});
}

TEST_CASE("record_json: a description beyond its limits makes the record corrupt") {
    const auto with = [](const char* where, const json& value) {
        json object = json::parse(described_text);
        object[json::json_pointer(where)] = value;
        return object;
    };
    const auto labels = [](std::size_t count) {
        json some = json::object();
        while (some.size() < count) {
            some["key " + std::to_string(some.size())] = "value";
        }
        return some;
    };
    for (const std::string entry : {"/holders/0", "/waiters/0"}) {
        const std::string note = entry + "/note";
        const std::string all = entry + "/labels";
        for (const json& bad : {json(nullptr), json(1), json(std::string(257, 'x'))}) {
            REQUIRE(is_corrupt_object(with(note.c_str(), bad)));
        }
        REQUIRE(decode(with(note.c_str(), std::string(256, 'x')).dump()));
        for (const json& bad :
             {json(nullptr), json("a=b"), json::array(), labels(17), json{{"", "x"}},
              json{{std::string(65, 'k'), "x"}}, json{{"k", std::string(65, 'x')}}, json{{"k", 1}},
              json{{"k", nullptr}}}) {
            INFO(bad.dump());
            REQUIRE(is_corrupt_object(with(all.c_str(), bad)));
        }
        REQUIRE(decode(with(all.c_str(), labels(16)).dump()));
        REQUIRE(decode(with(all.c_str(), json::object()).dump()));
        REQUIRE(decode(
            with(all.c_str(), {{std::string(64, 'k'), std::string(64, 'x')}, {"e", ""}}).dump()));
    }
    for (const json& bad :
         {json(nullptr), json("1"), json(0), json(-1), json(1.0), json(9'007'199'254'740'992)}) {
        REQUIRE(is_corrupt_object(with("/holders/0/heldUntil", bad)));
    }
    REQUIRE(is_corrupt_object(with("/holders/0/heldBoot", std::string(longest_name + 1, 'x'))));
}

TEST_CASE("record_json: an earlier version keeps the new fields, and reads a resting entry") {
    // It sees a holder with a lease, of a nonce that no ticket has.
    record r = described_example();
    REQUIRE(release(r, "9f", 7, 1'000'000, {"h1", "b1", 812, 99'123, 4'026'531'836, 71}) ==
            release_status::released);
    REQUIRE(encode(r).substr(0, encode(r).find(R"(,"waiters")")) ==
            R"({"v":1,"permits":1,"clock":"caller","fence":8,"holders":[{"holderId":"billing-7",)"
            R"("nonce":"rest-7","weight":1,"boot":"b1",)"
            "\"note\":\"nightly \xe2\x82\xac\","
            R"("labels":{"job":"billing","team":""},"fence":7,"lane":0,"leaseMs":60000,)"
            R"("leaseExpiresAt":1060000,"renewals":1,"heldUntil":1060000}])");
}

TEST_CASE("record_json: each clock has a name of its own") {
    const std::pair<lock_clock, std::string> names[] = {{lock_clock::caller, "caller"},
                                                        {lock_clock::boottime, "boottime"},
                                                        {lock_clock::server, "server"},
                                                        {lock_clock::observed, "observed"}};
    for (const auto& [clock, name] : names) {
        record r = example();
        r.clock = clock;
        REQUIRE(same(json::parse(encode(r))["clock"], name));
        REQUIRE(comes_back(r));
    }
}

TEST_CASE("record_json: neither the order of the fields nor white space matters") {
    const auto r = decode(R"(
        { "waiters" : [ ] ,
          "v" : 1, "permits":3,"holders":[{"nonce":"n","holderId":"\u0068\u00e9",
            "weight":1,"lane":2,"fence":7,"leaseExpiresAt":5,"leaseMs":6,"renewals":0}],
          "fence":8, "clock":"server" }
    )");
    REQUIRE(r);
    REQUIRE(r->holders.size() == 1);
    REQUIRE(r->holders[0].holder_id == "h\xc3\xa9");
    REQUIRE(r->holders[0].from == origin{});
    REQUIRE_FALSE(r->admin);
}

TEST_CASE("record_json: an administrator's number of permits is stored") {
    record r = example();
    REQUIRE(resize(r, 5, {}));
    const std::string text = encode(r);
    REQUIRE(text.starts_with(R"({"v":1,"permits":5,"resized":true,"clock":)"));
    REQUIRE(decode(text)->resized);
    json object = example_json();
    for (const json& bad : {json(1), json("true"), json(nullptr)}) {
        object["resized"] = bad;
        REQUIRE(is_corrupt_object(object));
    }
    object["resized"] = false;
    REQUIRE_FALSE(decode(object.dump())->resized);
}

TEST_CASE("record_json: text is escaped and read as the JSON library does") {
    record r = example();
    for (const std::string_view text :
         {std::string_view("caf\xc3\xa9"), std::string_view("a\"b\\c/d"),
          std::string_view("\t\n\r\b\f\x01\x1f\x7f"), std::string_view("a\0b", 3),
          std::string_view("\xf0\x9f\x94\x92")}) {
        r.holders[0].holder_id = text;
        REQUIRE(comes_back(r));
        REQUIRE(json::parse(encode(r))["holders"][0]["holderId"].get<std::string>() == text);
        for (const bool is_ascii : {false, true}) {
            const auto again = decode(json::parse(encode(r)).dump(-1, ' ', is_ascii));
            REQUIRE(again);
            REQUIRE(*again == r);
        }
    }
    std::string text(example_text);
    for (const char* const bad :
         {"\\u12", "\\x", "\\", "\\ud800\\u0041", "\\udc00", "\n", "\\u 123"}) {
        std::string damaged = text;
        damaged.replace(damaged.find("billing-7"), 9, bad);
        INFO(damaged);
        REQUIRE(is_corrupt(damaged));
    }
}

TEST_CASE("record_json: any record comes back as it was") {
    const std::uint32_t seed = test::run_seed();
    INFO("seed " << seed);
    dice any(seed);
    for (int i = 0; i < 300; ++i) {
        const record r = random_record(any);
        const std::string text = encode(r);
        const auto again = decode(text);
        INFO(text);
        REQUIRE(again);
        REQUIRE(*again == r);
        REQUIRE(encode(*again) == text);
    }
}

TEST_CASE("record_json: what the rules make of a record can be read again") {
    const std::uint32_t seed = test::run_seed();
    INFO("seed " << seed);
    dice any(seed);
    for (int i = 0; i < 300; ++i) {
        record r = random_record(any);
        terms t{.permits = r.permits,
                .clock = r.clock,
                .lease_ms = any.number(1, largest_duration),
                .at_least_ms = any.number(0, largest_duration),
                .waiter_ttl_ms = any.number(1, largest_duration)};
        const std::int64_t now = any.number(0, largest_time);
        const contender self{"s" + any.text(100), "s" + any.text(100), any.number(1, r.permits),
                             any.place(), any.about()};
        acquire(r, self, t, now, nobody_expires{});
        for (const waiter& w : std::vector<waiter>(r.waiters)) {
            acquire(r, {w.holder_id, w.nonce, w.weight, w.from, w.about}, t, now, nobody_expires{});
        }
        for (const holder& h : std::vector<holder>(r.holders)) {
            renew(r, h.nonce, h.fence, t, now, nobody_expires{}, any.place());
            if (any.below(2) == 0) {
                release(r, h.nonce, h.fence, any.number(-largest_number, largest_number),
                        any.place());
            }
        }
        INFO(encode(r));
        REQUIRE(comes_back(r));
    }
}

TEST_CASE("record_json: an admin's note may be of any length") {
    record r = example();
    r.admin->what = std::string(200'000, 'x');
    r.admin->by = std::string(1000, 'y');
    REQUIRE(comes_back(r));
}

TEST_CASE("record_json: unknown fields outlive a change of the record, at every level") {
    json object = example_json();
    const json unknown = {{"deep", {1, {{"er", nullptr}}}}, {"n", 1.5}, {"s", "\xc3\xa9\n"}};
    object["x"] = unknown;
    object["holders"][0]["x"] = unknown;
    object["waiters"][0]["x"] = unknown;
    object["waiters"][0]["observed"][0]["x"] = unknown;
    object["admin"]["x"] = unknown;
    object["y"] = 18'446'744'073'709'551'615u;

    auto r = decode(object.dump());
    REQUIRE(r);
    terms t{.permits = 3, .clock = lock_clock::boottime};
    const std::int64_t now = 1'717'000'029'000;
    REQUIRE_FALSE(renew(*r, "9f", 41, t, now, nobody_expires{}, {}));
    REQUIRE(acquire(*r, {"c", "c", 3, {}, {}}, t, now, nobody_expires{}).status ==
            acquire_status::waiting);

    json after = json::parse(encode(*r));
    REQUIRE(same(after["x"], unknown));
    REQUIRE(same(after["holders"][0]["x"], unknown));
    REQUIRE(same(after["holders"][0]["renewals"], 5));
    REQUIRE(same(after["waiters"][0]["x"], unknown));
    REQUIRE(same(after["waiters"][0]["observed"][0]["x"], unknown));
    REQUIRE_FALSE(after["waiters"][1].contains("x"));
    REQUIRE(same(after["admin"]["x"], unknown));
    // Compared as text: compared as numbers, -1 would be equal, too.
    REQUIRE(after["y"].dump() == "18446744073709551615");
}

TEST_CASE("record_json: unknown fields are written behind the known ones, as they were read") {
    const auto r = decode(R"({ "A" : 1, "clock":"caller", "d\"":[ ], "v":1,"zz":null,"permits":1,)"
                          R"("\u00e9":"\n", "waiters":[], "holders":[],"fence":1 })");
    REQUIRE(r);
    REQUIRE(encode(*r) ==
            R"({"v":1,"permits":1,"clock":"caller","fence":1,"holders":[],"waiters":[],"A" : 1,)"
            R"("d\"":[ ],"zz":null,"\u00e9":"\n"})");
    record bare = fresh_record(terms{});
    bare.extra = "{}";
    REQUIRE(encode(bare) == encode(fresh_record(terms{})));
}

TEST_CASE("record_json: a later format is refused") {
    for (const char* const v : {"2", "0", "-1", "9007199254740992", "18446744073709551615"}) {
        const std::string v_only = std::string("{\"v\":") + v + "}";
        REQUIRE(error_of(v_only) == durable_errc::unsupported_record_version);
        json object = example_json();
        object["v"] = json::parse(v);
        REQUIRE(error_of(object.dump()) == durable_errc::unsupported_record_version);
    }
    // Whatever else the text is, as long as it is JSON.
    std::string other = R"({"clock":{"v":1},"fence":[[{"a":"b"}],1],"holders":{"x":[]},"admin":7,)"
                        R"("waiters":[5,[{}],{"nonce":{}},{}],"permits":"3","v":2})";
    REQUIRE(error_of(other) == durable_errc::unsupported_record_version);
    REQUIRE(is_corrupt(other + "}"));
    other.replace(other.rfind('2'), 1, "1");
    REQUIRE(is_corrupt(other));
    for (const char* const v :
         {"1.0", "\"1\"", "null", "true", "[1]", "{}", "1e0", "18446744073709551617"}) {
        json object = example_json();
        object["v"] = json::parse(v);
        INFO(v);
        REQUIRE(is_corrupt_object(object));
    }
}

TEST_CASE("record_json: a text that is no object is corrupt, and so is an empty text") {
    for (const char* const text :
         {"", " ", "null", "0", "1", "[]", "{}", "\"\"", "true", "{\"v\":1}", "nonsense", "{", "}",
          "[{}]", "\xff\xfe", "\xef\xbb\xbf"}) {
        INFO(text);
        REQUIRE(is_corrupt(text));
    }
    REQUIRE(is_corrupt(std::string_view()));
    REQUIRE(is_corrupt(std::string(4096, '\0')));
    REQUIRE(is_corrupt(std::string(example_text) + '\0'));
    REQUIRE(is_corrupt(std::string(example_text) + '\0' + std::string(example_text)));
    REQUIRE(is_corrupt(std::string(example_text) + "{}"));
    REQUIRE(is_corrupt(std::string(example_text) + std::string(example_text)));
}

TEST_CASE("record_json: a text that was cut off anywhere is corrupt") {
    for (std::size_t n = 0; n < example_text.size(); ++n) {
        REQUIRE(is_corrupt(example_text.substr(0, n)));
        REQUIRE(is_corrupt(example_text.substr(n + 1)));
    }
}

TEST_CASE(
    "record_json: a field of another type, or a required one that is absent, makes the record "
    "corrupt") {
    for (const field& f : fields()) {
        INFO(f.where);
        const json::json_pointer at(f.where);
        json without = example_json();
        without.at(at.parent_pointer()).erase(at.back());
        REQUIRE(decode(without.dump()).has_value() == !f.is_required);
        for (const json& value : not_of(f)) {
            json object = example_json();
            object.at(at) = value;
            INFO(value.dump());
            REQUIRE(is_corrupt_object(object));
        }
    }
    for (const json& value :
         {json(nullptr), json(1), json("x"), json(json::array()),
          json({{"at", 1}, {"by", 2}, {"what", ""}}), json({{"at", "1"}, {"by", ""}, {"what", ""}}),
          json({{"by", ""}, {"what", ""}})}) {
        json object = example_json();
        object["admin"] = value;
        INFO(value.dump());
        REQUIRE(is_corrupt_object(object));
    }
    json object = example_json();
    object.erase("admin");
    object["holders"][0].erase("observed");
    object["waiters"][0]["observed"] = json::array();
    const auto r = decode(object.dump());
    REQUIRE(r);
    REQUIRE_FALSE(r->admin);
    object["waiters"][0].erase("observed"); // not written where there is none
    REQUIRE(same(json::parse(encode(*r)), object));
}

TEST_CASE("record_json: numbers are accepted up to their limits, and no further") {
    std::vector<field> numbers = fields();
    for (const std::string in : {"/holders/0/", "/waiters/0/"}) { // these may be absent together
        numbers.push_back({in + "mark", kind::number, false, 1});
        if (in == "/holders/0/") {
            numbers.push_back({in + "pid", kind::number, false, 1});
            numbers.push_back({in + "start", kind::number, false});
            numbers.push_back({in + "space", kind::number, false});
        }
    }
    for (const field& f : numbers) {
        if (f.is != kind::number) {
            continue;
        }
        INFO(f.where);
        json object = example_json();
        json& value = object[json::json_pointer(f.where)];
        for (const std::int64_t good : {f.least, f.most}) {
            value = good;
            const auto r = decode(object.dump());
            REQUIRE(r);
            REQUIRE(same(json::parse(encode(*r)), object));
        }
        for (const std::int64_t bad : {f.least - 1, f.most + 1}) {
            value = bad;
            REQUIRE(is_corrupt_object(object));
        }
        for (const json& bad : not_of(f)) {
            value = bad;
            REQUIRE(is_corrupt_object(object));
        }
    }
    REQUIRE(largest_number == 9'007'199'254'740'991);
}

TEST_CASE("record_json: two entries with one nonce, token or lane are corrupt") {
    json object = example_json();
    object["fence"] = 50;
    json second = object["holders"][0];
    second["nonce"] = "other";
    second["fence"] = 45;
    second["lane"] = 1;
    object["holders"].push_back(second);
    json third = object["waiters"][0];
    third["nonce"] = "third";
    object["waiters"].push_back(third);
    REQUIRE(decode(object.dump()));

    const auto with = [&](const char* where, const json& value) {
        json changed = object;
        changed.at(json::json_pointer(where)) = value;
        return changed;
    };
    REQUIRE(is_corrupt_object(with("/holders/1/nonce", "9f")));
    REQUIRE(is_corrupt_object(with("/holders/1/fence", 41)));
    REQUIRE(is_corrupt_object(with("/holders/1/lane", 0)));
    REQUIRE(is_corrupt_object(with("/waiters/0/nonce", "third")));
    REQUIRE(is_corrupt_object(with("/waiters/0/nonce", "9f")));
    REQUIRE(decode(with("/holders/1/holderId", "billing-9").dump())); // only a name
}

TEST_CASE("record_json: two fields of one name in one object are corrupt, wherever it is") {
    json object = example_json();
    object["x"] = {{"y", {1, {{"z", 2}}}}};
    object["holders"][0]["x"] = 1;
    object["waiters"][0]["x"] = 1;
    object["admin"]["x"] = 1;
    object["holders"][0]["observed"][0]["x"] = 1;
    const auto expect_corrupt = [](const json& whole, const char* where) {
        const std::string text = whole.dump();
        const json& in = whole.at(json::json_pointer(where));
        const std::string once = in.dump();
        for (const auto& item : in.items()) {
            for (const std::string& value : {item.value().dump(), std::string("null")}) {
                std::string twice = once;
                twice.insert(once.size() - 1, ",\"" + item.key() + "\":" + value);
                std::string damaged = text;
                damaged.replace(text.find(once), once.size(), twice);
                INFO(damaged);
                REQUIRE(json::accept(damaged));
                REQUIRE(is_corrupt(damaged));
            }
        }
    };
    REQUIRE(decode(object.dump()));
    for (const char* const where :
         {"", "/holders/0", "/holders/0/observed/0", "/holders/0/observed/1", "/waiters/0",
          "/waiters/0/observed/0", "/admin", "/x", "/x/y/1"}) {
        expect_corrupt(object, where);
    }
    // Its version is not trusted either.
    object["v"] = 2;
    REQUIRE(error_of(object.dump()) == durable_errc::unsupported_record_version);
    expect_corrupt(object, "");
}

TEST_CASE("record_json: an unknown clock is corrupt") {
    for (const char* const name : {"Caller", "callerr", "monotonic", " server"}) {
        json object = example_json();
        object["clock"] = name;
        REQUIRE(is_corrupt_object(object));
    }
}

TEST_CASE("record_json: text that is not UTF-8 is corrupt, and is never written") {
    for (const std::string_view bad :
         {"\xff", "\xc3\x28", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80", "\xe2\x82"}) {
        std::string text(example_text);
        text.replace(text.find("billing-7"), 9, bad);
        REQUIRE(is_corrupt(text));
        text = example_text;
        text.insert(1, "\"" + std::string(bad) + "\":1,");
        REQUIRE(is_corrupt(text));

        record r = example();
        r.admin->what = bad;
        REQUIRE(decode(encode(r)));
    }
    std::string text(example_text);
    text.replace(text.find("billing-7"), 9, "\\ud800");
    REQUIRE(is_corrupt(text));
}

TEST_CASE("record_json: deep nesting is read or refused, and does not crash") {
    for (const std::size_t depth :
         {std::size_t{20}, std::size_t{1000}, std::size_t{100'000}, std::size_t{1'000'000}}) {
        const std::string opened(depth, '[');
        const std::string closed = opened + std::string(depth, ']');
        std::string objects;
        for (std::size_t i = 0; i < depth; ++i) {
            objects += "{\"a\":";
        }
        REQUIRE(is_corrupt(opened));
        REQUIRE(is_corrupt(closed));
        REQUIRE(is_corrupt(objects));
        // In an unknown field, which would have to be kept.
        for (const std::string& value : {closed, objects + "1" + std::string(depth, '}')}) {
            for (const char* const before : {"\"v\"", "\"lane\"", "\"at\"", "\"ttlMs\""}) {
                std::string text(example_text);
                text.insert(text.find(before), "\"x\":" + value + ",");
                const auto r = decode(text);
                REQUIRE(r.has_value() == (depth == 20));
                if (r) {
                    REQUIRE(same(json::parse(encode(*r)), json::parse(text)));
                }
            }
        }
    }
    // The record itself is one level.
    for (const std::size_t depth : {std::size_t{63}, std::size_t{64}}) {
        std::string text(example_text);
        text.insert(1, "\"x\":" + std::string(depth, '[') + std::string(depth, ']') + ",");
        REQUIRE(decode(text).has_value() == (depth == 63));
    }
    // Brackets in a text do not count.
    json object = example_json();
    object["x"] = std::string(10'000, '[') + "\\\"" + std::string(10'000, '{');
    const auto r = decode(object.dump());
    REQUIRE(r);
    REQUIRE(same(json::parse(encode(*r)), object));
}

TEST_CASE("record_json: a record with 20,000 waiters can be read") {
    std::string text = R"({"v":1,"permits":1,"clock":"caller","fence":1,"holders":[],"waiters":[)";
    for (int i = 0; i < 20'000; ++i) {
        text += (i == 0 ? R"({"holderId":"w","nonce":")" : R"(,{"holderId":"w","nonce":")") +
                std::to_string(i) + R"(","weight":1,"ttlMs":1,"expiresAt":0,"refreshes":0})";
    }
    text += "]}";
    const auto r = decode(text);
    REQUIRE(r);
    REQUIRE(r->waiters.size() == 20'000);
    REQUIRE(r->waiters[19'999].nonce == "19999");
}

TEST_CASE("record_json: any damage is an error or a record that the rules can work with",
          "[promise.durable-unreadable]") {
    const std::uint32_t seed = test::run_seed();
    INFO("seed " << seed);
    dice any(seed);
    std::size_t readable = 0;
    std::string text;
    for (int i = 0; i < 20'000; ++i) {
        if (i % 50 == 0) {
            text = i % 100 == 0 ? std::string(example_text) : encode(random_record(any));
        }
        std::string damaged = text;
        const auto at = [&] { return any.below(static_cast<std::uint32_t>(damaged.size())); };
        for (std::uint32_t n = 1 + any.below(3); n != 0; --n) {
            switch (any.below(6)) {
            case 0: {
                char& c = damaged[at()];
                c = static_cast<char>(static_cast<unsigned char>(c) ^ (1u << any.below(8)));
                break;
            }
            case 1: damaged[at()] = static_cast<char>(any.below(256)); break;
            case 2: damaged[at()] = "0123456789-.e\"{}[],:ntf\\"[any.below(24)]; break;
            case 3: damaged.erase(at(), 1 + any.below(4)); break;
            case 4: damaged.insert(at(), 1, "0123456789-.e\"{}[],:ntf\\"[any.below(24)]); break;
            default: {
                const auto from = at();
                damaged.replace(from, any.below(64), any.below(64), '\0');
            }
            }
            if (damaged.empty()) {
                damaged = "{";
            }
        }
        const auto r = decode(damaged);
        const bool good = r ? is_sound(*r) && comes_back(*r)
                            : r.error() == durable_errc::corrupt_record ||
                                  r.error() == durable_errc::unsupported_record_version;
        // As a general JSON library sees it. Its tree has the fields in another order, and it cannot hold
        // each number that may stand in an unknown field.
        const auto seen_alike = [&] {
            const auto tree = json::parse(damaged, nullptr, false);
            if (tree.is_discarded()) {
                return has_too_great_a_number(damaged);
            }
            const auto by_library = decode(tree.dump());
            return by_library && json::parse(encode(*by_library)) == json::parse(encode(*r));
        };
        const bool is_same = !r || seen_alike();
        if (!good || !is_same) {
            INFO(damaged);
            FAIL("case " << i);
        }
        readable += r ? 1 : 0;
    }
    CHECK(readable > 20'000 / 50); // a name with another letter is valid
    CHECK(readable < 20'000 / 2);
}

#include <bide/durable/fence_gate.hpp>

#include <support/test.hpp>

TEST_CASE("fence_gate: admits a token unless it has seen a larger one") {
    bide::fence_gate gate;
    REQUIRE(gate.highest() == 0);
    REQUIRE(gate.admit(3));
    REQUIRE(gate.admit(3)); // the same holder comes again
    REQUIRE_FALSE(gate.admit(2));
    REQUIRE(gate.admit(7));
    REQUIRE_FALSE(gate.admit(3));
    REQUIRE(gate.highest() == 7);
}

TEST_CASE("fence_gate: a word of zero bytes is a gate that has admitted no token") {
    alignas(bide::fence_gate) unsigned char bytes[sizeof(bide::fence_gate)];
    std::memset(bytes, 0, sizeof bytes);
    auto& gate = *reinterpret_cast<bide::fence_gate*>(bytes);
    REQUIRE(gate.highest() == 0);
    REQUIRE(gate.admit(1));
    REQUIRE(gate.highest() == 1);
}

TEST_CASE("fence_gate: among threads no token is admitted after a larger one") {
    constexpr int threads = 4;
    constexpr std::int64_t tokens = 20'000;
    bide::fence_gate gate;
    std::array<bool, threads> right{};
    test::team team(threads, [&](int me) {
        bool ok = true;
        for (std::int64_t token = me + 1; token <= tokens; token += threads) {
            const std::int64_t before = gate.highest();
            const bool in = gate.admit(token);
            ok = ok && (in ? before <= token : gate.highest() > token);
            ok = ok && gate.highest() >= token;
        }
        right[static_cast<std::size_t>(me)] = ok;
    });
    team.join();
    for (const bool ok : right) {
        REQUIRE(ok);
    }
    REQUIRE(gate.highest() == tokens);
}

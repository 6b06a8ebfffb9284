// The classic litmus tests, each with the exact set of outcomes that C++20 allows ([intro.races],
// [atomics.order] as of P0668), but for load buffering. How programs and outcomes are written:
// program.hpp.

#include <model/check.hpp>
#include <model/program.hpp>
#include <support/test.hpp>

namespace {

using model::failure;
using method = model::options::method;

struct row {
    std::string_view name;
    std::string_view program;
    std::string_view outcomes; // all of them
};

// x = 1; look at y || y = 1; look at x. Both see 0 unless the order S says otherwise, or the two
// change one word, of which one must see the other's value.
constexpr row store_buffering[] = {
    {"relaxed", "x=1 y | y=1 x", "0/0 0/1 1/0 1/1"},
    {"release and acquire", "x.rel=1 y.acq | y.rel=1 x.acq", "0/0 0/1 1/0 1/1"},
    {"seq_cst", "x.sc=1 y.sc | y.sc=1 x.sc", "0/1 1/0 1/1"},
    {"seq_cst on one of the variables", "x.sc=1 y.acq | y.rel=1 x.sc", "0/0 0/1 1/0 1/1"},
    {"seq_cst on the stores", "x.sc=1 y.acq | y.sc=1 x.acq", "0/0 0/1 1/0 1/1"},
    {"seq_cst on the loads", "x.rel=1 y.sc | y.rel=1 x.sc", "0/0 0/1 1/0 1/1"},
    {"seq_cst in one thread", "x.sc=1 y.sc | y.rel=1 x.acq", "0/0 0/1 1/0 1/1"},
    {"seq_cst fences", "x=1 fence.sc y | y=1 fence.sc x", "0/1 1/0 1/1"},
    {"a seq_cst fence in one thread", "x=1 fence.sc y | y=1 x", "0/0 0/1 1/0 1/1"},
    {"a seq_cst fence in one, acq_rel in the other", "x=1 fence.sc y | y=1 fence.ar x",
     "0/0 0/1 1/0 1/1"},
    {"a seq_cst fence, seq_cst accesses", "x=1 fence.sc y | y.sc=1 x.sc", "0/1 1/0 1/1"},
    {"a seq_cst fence, a seq_cst store", "x=1 fence.sc y | y.sc=1 x", "0/0 0/1 1/0 1/1"},
    {"a seq_cst fence, a seq_cst load", "x=1 fence.sc y | y=1 x.sc", "0/0 0/1 1/0 1/1"},
    {"read-modify-writes as stores, acq_rel", "x.ar<>1 y.acq | y.ar<>1 x.acq",
     "00/00 00/01 01/00 01/01"},
    {"read-modify-writes as stores, seq_cst", "x.sc<>1 y.sc | y.sc<>1 x.sc", "00/01 01/00 01/01"},
    {"read-modify-writes as loads, acq_rel", "x=1 y.ar+=0 | y.ar+=1 x", "0/01 1/00 1/01"},
    {"a shared dummy, acq_rel", "x=1 z.ar+=0 y | y=1 z.ar+=0 x", "00/01 01/00 01/01"},
    {"a shared dummy, relaxed", "x=1 z+=0 y | y=1 z+=0 x", "00/00 00/01 01/00 01/01"},
    {"a shared dummy, release and acquire apart", "x=1 z.rel+=0 y | y=1 z.acq+=0 x",
     "00/00 00/01 01/00 01/01"},
    {"a dummy each, seq_cst", "x=1 w.sc+=0 y | y=1 z.sc+=0 x", "00/00 00/01 01/00 01/01"},
    {"failed compare-exchanges, seq_cst", "x.sc=1 y.sc.sc?2:3 | y.sc=1 x.sc.sc?2:3", "0/1 1/0 1/1"},
    {"failed compare-exchanges, seq_cst but for that", "x.sc=1 y.sc.acq?2:3 | y.sc=1 x.sc.acq?2:3",
     "0/0 0/1 1/0 1/1"},
};

// x = 1; y = 1 || look at y, then at x. 10 is a flag without its message.
constexpr row message_passing[] = {
    {"relaxed", "x=1 y=1 | y x", "00 01 10 11"},
    {"release and acquire", "x=1 y.rel=1 | y.acq x", "00 01 11"},
    {"release without acquire", "x=1 y.rel=1 | y x", "00 01 10 11"},
    {"acquire without release", "x=1 y=1 | y.acq x", "00 01 10 11"},
    {"release fence, acquire fence", "x=1 fence.rel y=1 | y fence.acq x", "00 01 11"},
    {"release fence, acquire", "x=1 fence.rel y=1 | y.acq x", "00 01 11"},
    {"release, acquire fence", "x=1 y.rel=1 | y fence.acq x", "00 01 11"},
    {"acq_rel fences", "x=1 fence.ar y=1 | y fence.ar x", "00 01 11"},
    {"seq_cst fences", "x=1 fence.sc y=1 | y fence.sc x", "00 01 11"},
    {"acquire fence, release fence", "x=1 fence.acq y=1 | y fence.rel x", "00 01 10 11"},
    {"a release fence that is too late", "x=1 y=1 fence.rel | y.acq x", "00 01 10 11"},
    {"an acquire fence that is too early", "x=1 y.rel=1 | fence.acq y x", "00 01 10 11"},
    {"consume is acquire here", "x=1 y.rel=1 | y.con x", "00 01 11"},
    {"awaited", "x=1 y.rel=1 | y.acq@1 x", "11"},
    {"awaited, relaxed", "x=1 y=1 | y@1 x", "10 11"},
    {"a stale value for a failing compare-exchange", "x=1 y=1 | y x?1:2", "00 01 10 11"},
    {"a read-modify-write before the store", "x=1 y=1 | y x+=0", "00 01 10 11"},
};

// y is a flag for x again, and another thread writes y, too.
constexpr row release_sequences[] = {
    {"a relaxed one, another thread", "x=1 y.rel=2 | y+=1 | y.acq x",
     "0/00 0/01 0/10 0/11 0/21 2/00 2/01 2/21 2/31"},
    {"a relaxed exchange, another thread", "x=1 y.rel=1 | y<>2 | y.acq x",
     "0/00 0/01 0/11 0/20 0/21 1/00 1/01 1/11 1/21"},
    {"a relaxed compare-exchange, another thread", "x=1 y.rel=1 | y?1:2 | y.acq x",
     "0/00 0/01 0/11 1/00 1/01 1/11 1/21"},
    {"headed by a fence", "x=1 fence.rel y=2 | y+=1 | y.acq x",
     "0/00 0/01 0/10 0/11 0/21 2/00 2/01 2/21 2/31"},
    {"ended by a fence", "x=1 y.rel=2 | y+=1 | y fence.acq x",
     "0/00 0/01 0/10 0/11 0/21 2/00 2/01 2/21 2/31"},
    {"a relaxed one, the same thread", "x=1 y.rel=1 y+=1 | y.acq x", "1/00 1/01 1/11 1/21"},
    {"a relaxed store, the same thread", "x=1 y.rel=1 y=2 | y.acq x", "00 01 11 20 21"},
    {"a relaxed store, another thread", "x=1 y.rel=1 | y=2 | y.acq x", "00 01 11 20 21"},
    {"a store behind an acquire, another thread", "x=1 y.rel=2 | y.acq y=1 | y.acq x",
     "0/00 0/01 0/10 0/11 0/21 2/00 2/01 2/10 2/11 2/21"},
    {"two of them, in one", "x=1 y.rel+=1 | z=1 y.rel+=1 | y.acq x z",
     "0/1/000 0/1/001 0/1/010 0/1/011 0/1/110 0/1/111 0/1/211 1/0/000 1/0/001 1/0/010 1/0/011 "
     "1/0/101 1/0/111 1/0/211"},
};

constexpr row compare_exchanges[] = {
    {"success, acquire", "x=1 y.rel=1 | y.acq.rlx?1:2 x", "00 01 11"},
    {"success, relaxed", "x=1 y.rel=1 | y.rlx.acq?1:2 x", "00 01 10 11"},
    {"failure, acquire", "x=1 y.rel=1 | y.rlx.acq?2:3 x", "00 01 11"},
    {"failure, relaxed", "x=1 y.rel=1 | y.acq.rlx?2:3 x", "00 01 10 11"},
    {"one of two succeeds", "x?0:1 | x?0:2 || x", "0/1/1 2/0/2"},
    {"one that fails does not release", "x=1 y.ar?1:2 | y.acq x | y=1",
     "0/00 0/01 0/10 0/11 1/00 1/01 1/10 1/11 1/21"},
};

constexpr row atomicity[] = {
    {"fetch_add, two", "x+=1 | x+=1 || x", "0/1/2 1/0/2"},
    {"fetch_add, three", "x+=1 | x+=1 | x+=1 || x",
     "0/1/2/3 0/2/1/3 1/0/2/3 1/2/0/3 2/0/1/3 2/1/0/3"},
    {"exchange, two", "x<>1 | x<>2 || x", "0/1/2 2/0/1"},
    {"exchange, two each", "x<>1 x<>2 | x<>3 x<>4 || x",
     "01/23/4 03/12/4 04/13/2 31/02/4 34/01/2 41/03/2"},
    {"a store comes between two, never within one", "x+=1 | x=5 || x", "0/5 5/6"},
    {"a store is never put into a sequence of them", "x+=1 x+=1 | x=5 || x", "01/5 05/6 56/7"},
};

constexpr row coherence[] = {
    {"reads do not go back", "x=1 | x x", "00 01 11"},
    {"reads do not go back, two stores of one thread", "x=1 x=2 | x x", "00 01 02 11 12 22"},
    {"reads do not go back, two stores of two threads", "x=1 | x=2 | x x || x",
     "00/1 00/2 01/1 01/2 02/1 02/2 11/1 11/2 12/2 21/1 22/1 22/2"},
    {"a read after a write", "x=1 x | x=2 || x", "1/1 1/2 2/2"},
    {"a write after a read", "x x=1 | x=2 || x", "0/1 0/2 2/1"},
    {"a read before a write", "x x=1 || x", "0/1"},
    {"writes of one thread", "x=1 x=2 || x", "2"},
    {"writes of two threads", "x=1 | x=2 || x", "1 2"},
    {"reads of two threads, ordered by another object", "x=1 x=2 | x y.rel=1 | y.acq x",
     "0/00 0/01 0/02 0/10 0/11 0/12 1/00 1/01 1/02 1/11 1/12 2/00 2/01 2/02 2/12"},
    {"a write, ordered behind a read", "x y.rel=1 | y.acq x=1 | x=2 || x",
     "0/0/1 0/0/2 0/1/1 0/1/2 1/0/1 1/0/2 2/0/1 2/0/2 2/1/1"},
};

// 2+2W: 11 is each thread's first store behind the other's second. R and S: one store of each is to
// the same object, and comes the wrong way round.
constexpr row store_orders[] = {
    {"2+2W, relaxed", "x=1 y=2 | y=1 x=2 || x y", "11 12 21 22"},
    {"2+2W, release", "x.rel=1 y.rel=2 | y.rel=1 x.rel=2 || x y", "11 12 21 22"},
    {"2+2W, seq_cst", "x.sc=1 y.sc=2 | y.sc=1 x.sc=2 || x y", "12 21 22"},
    {"2+2W, seq_cst in one thread", "x.sc=1 y.sc=2 | y.rel=1 x.rel=2 || x y", "11 12 21 22"},
    {"2+2W, seq_cst fences", "x=1 fence.sc y=2 | y=1 fence.sc x=2 || x y", "12 21 22"},
    {"2+2W, a seq_cst fence in one thread", "x=1 fence.sc y=2 | y=1 x=2 || x y", "11 12 21 22"},
    {"R, relaxed", "x=1 y=1 | y=2 x || y", "0/1 0/2 1/1 1/2"},
    {"R, release and acquire", "x.rel=1 y.rel=1 | y.rel=2 x.acq || y", "0/1 0/2 1/1 1/2"},
    {"R, seq_cst", "x.sc=1 y.sc=1 | y.sc=2 x.sc || y", "0/1 1/1 1/2"},
    {"R, seq_cst fences", "x=1 fence.sc y=1 | y=2 fence.sc x || y", "0/1 1/1 1/2"},
    {"S, relaxed", "x=2 y=1 | y x=1 || x", "0/1 0/2 1/1 1/2"},
    {"S, release and acquire", "x=2 y.rel=1 | y.acq x=1 || x", "0/1 0/2 1/1"},
    {"S, seq_cst fences", "x=2 fence.sc y=1 | y fence.sc x=1 || x", "0/1 0/2 1/1"},
    {"S, seq_cst on one of the variables", "x.sc=2 y=1 | y x.sc=1 || x", "0/1 0/2 1/1 1/2"},
};

// C++20 allows 1/1 for relaxed operations; this checker, as others, leaves it out.
constexpr row load_buffering[] = {
    {"relaxed", "x y=1 | y x=1", "0/0 0/1 1/0"},
    {"three threads", "x y=1 | y z=1 | z x=1", "0/0/0 0/0/1 0/1/0 0/1/1 1/0/0 1/0/1 1/1/0"},
    {"read-modify-writes", "x y<>1 | y x<>1", "00/00 00/10 10/00"},
};

constexpr row three_threads[] = {
    {"WRC, relaxed", "x=1 | x y=1 | y x", "0/00 0/01 0/10 0/11 1/00 1/01 1/10 1/11"},
    {"WRC, release and acquire", "x=1 | x y.rel=1 | y.acq x", "0/00 0/01 0/10 0/11 1/00 1/01 1/11"},
    {"WRC, the second step relaxed", "x.rel=1 | x.acq y=1 | y x",
     "0/00 0/01 0/10 0/11 1/00 1/01 1/10 1/11"},
    {"WWC, relaxed", "x=2 | x y=1 | y x=1 || x",
     "0/0/1 0/0/2 0/1/1 0/1/2 1/0/1 1/0/2 2/0/1 2/0/2 2/1/1 2/1/2"},
    {"WWC, release and acquire", "x=2 | x y.rel=1 | y.acq x=1 || x",
     "0/0/1 0/0/2 0/1/1 0/1/2 1/0/1 1/0/2 2/0/1 2/0/2 2/1/1"},
    {"ISA2, release and acquire", "x=1 y.rel=1 | y.acq z.rel=1 | z.acq x",
     "0/00 0/01 0/10 0/11 1/00 1/01 1/11"},
    {"ISA2, the middle relaxed", "x=1 y.rel=1 | y z=1 | z.acq x",
     "0/00 0/01 0/10 0/11 1/00 1/01 1/10 1/11"},
    {"ISA2, fences in the middle", "x=1 y.rel=1 | y fence.ar z=1 | z.acq x",
     "0/00 0/01 0/10 0/11 1/00 1/01 1/11"},
    {"RWC, release and acquire", "x.rel=1 | x.acq y.acq | y.rel=1 x.acq",
     "00/0 00/1 01/0 01/1 10/0 10/1 11/0 11/1"},
    {"RWC, seq_cst", "x.sc=1 | x.sc y.sc | y.sc=1 x.sc", "00/0 00/1 01/0 01/1 10/1 11/0 11/1"},
    {"RWC, seq_cst fences", "x=1 | x fence.sc y | y=1 fence.sc x",
     "00/0 00/1 01/0 01/1 10/1 11/0 11/1"},
    {"RWC, a seq_cst fence in the reader", "x=1 | x fence.sc y | y=1 x",
     "00/0 00/1 01/0 01/1 10/0 10/1 11/0 11/1"},
    {"W+RWC, release and acquire", "x=1 y.rel=1 | y.acq z.acq | z.rel=1 x.acq",
     "00/0 00/1 01/0 01/1 10/0 10/1 11/0 11/1"},
    {"W+RWC, seq_cst fences", "x=1 y.rel=1 | y.acq fence.sc z | z=1 fence.sc x",
     "00/0 00/1 01/0 01/1 10/1 11/0 11/1"},
};

// S agrees with what is coherence-ordered, and with what strongly happens before, through any
// thread. It need not agree with a release and an acquire of which one is not seq_cst and nothing
// comes in between: Z6.U, 13/0/3.
constexpr row seq_cst_order[] = {
    {"SB of three, seq_cst", "x.sc=1 y.sc | y.sc=1 z.sc | z.sc=1 x.sc",
     "0/0/1 0/1/0 0/1/1 1/0/0 1/0/1 1/1/0 1/1/1"},
    {"SB of three, seq_cst fences", "x=1 fence.sc y | y=1 fence.sc z | z=1 fence.sc x",
     "0/0/1 0/1/0 0/1/1 1/0/0 1/0/1 1/1/0 1/1/1"},
    {"SB of three, a fence missing", "x=1 fence.sc y | y=1 fence.sc z | z=1 x",
     "0/0/0 0/0/1 0/1/0 0/1/1 1/0/0 1/0/1 1/1/0 1/1/1"},
    {"a fence that happens before another thread's read",
     "x=1 fence.sc z.rel=1 | z.acq y | y=1 fence.sc x", "00/0 00/1 01/0 01/1 10/1 11/0 11/1"},
    {"the same, not synchronised", "x=1 fence.sc z=1 | z y | y=1 fence.sc x",
     "00/0 00/1 01/0 01/1 10/0 10/1 11/0 11/1"},
    {"a fence behind another thread's store", "x.sc=1 y.sc | y=1 z.rel=1 | z.acq fence.sc x",
     "0/00 0/01 0/11 1/00 1/01 1/10 1/11"},
    {"the same, not synchronised", "x.sc=1 y.sc | y=1 z=1 | z fence.sc x",
     "0/00 0/01 0/10 0/11 1/00 1/01 1/10 1/11"},
    {"a fence behind what another thread has seen",
     "y.sc=2 x.sc=1 | x z.rel=1 | z.acq fence.sc y=1 || y",
     "0/0/1 0/0/2 0/1/1 0/1/2 1/0/1 1/0/2 1/1/1"},
    {"the same, the first store not seq_cst",
     "y.rel=2 x.sc=1 | x z.rel=1 | z.acq fence.sc y=1 || y",
     "0/0/1 0/0/2 0/1/1 0/1/2 1/0/1 1/0/2 1/1/1 1/1/2"},
    {"RWC, seq_cst but for an acquire", "x.sc=1 | x.acq y.sc | y.sc=1 x.sc",
     "00/0 00/1 01/0 01/1 10/0 10/1 11/0 11/1"},
    {"RWC, seq_cst but for a relaxed load with a fence", "x.sc=1 | x fence.sc y | y.sc=1 x.sc",
     "00/0 00/1 01/0 01/1 10/1 11/0 11/1"},
    {"W+RWC, seq_cst but for the flag", "x.sc=1 y.rel=1 | y.acq z.sc | z.sc=1 x.sc",
     "00/0 00/1 01/0 01/1 10/1 11/0 11/1"},
    {"W+RWC, seq_cst but for a relaxed flag", "x.sc=1 y=1 | y z.sc | z.sc=1 x.sc",
     "00/0 00/1 01/0 01/1 10/0 10/1 11/0 11/1"},
    {"Z6.U (P0668)", "x.sc=1 y.rel=1 | y.sc+=1 y | y.sc=3 x.sc || y",
     "01/0/1 01/0/3 01/1/1 01/1/3 03/0/1 03/0/3 03/1/1 03/1/3 12/0/2 12/0/3 12/1/2 12/1/3 13/0/3 "
     "13/1/3 31/0/1 31/1/1 34/0/1 34/0/4 34/1/1 34/1/4"},
    {"Z6.U, seq_cst", "x.sc=1 y.sc=1 | y.sc+=1 y.sc | y.sc=3 x.sc || y",
     "01/0/1 01/1/1 01/1/3 03/0/1 03/1/1 03/1/3 12/0/2 12/1/2 12/1/3 13/1/3 31/0/1 31/1/1 34/0/1 "
     "34/1/1 34/1/4"},
};

// IRIW. The readers come first: 10/10 is x before y to the one, y before x to the other.
constexpr row two_readers[] = {
    {"release and acquire", "x.acq y.acq | y.acq x.acq | x.rel=1 | y.rel=1",
     "00/00 00/01 00/10 00/11 01/00 01/01 01/10 01/11 10/00 10/01 10/10 10/11 11/00 11/01 11/10 "
     "11/11"},
    {"seq_cst", "x.sc y.sc | y.sc x.sc | x.sc=1 | y.sc=1",
     "00/00 00/01 00/10 00/11 01/00 01/01 01/10 01/11 10/00 10/01 10/11 11/00 11/01 11/10 11/11"},
    {"seq_cst on the loads", "x.sc y.sc | y.sc x.sc | x=1 | y=1",
     "00/00 00/01 00/10 00/11 01/00 01/01 01/10 01/11 10/00 10/01 10/11 11/00 11/01 11/10 11/11"},
    {"seq_cst on the stores", "x.acq y.acq | y.acq x.acq | x.sc=1 | y.sc=1",
     "00/00 00/01 00/10 00/11 01/00 01/01 01/10 01/11 10/00 10/01 10/10 10/11 11/00 11/01 11/10 "
     "11/11"},
    {"seq_cst fences", "x fence.sc y | y fence.sc x | x=1 | y=1",
     "00/00 00/01 00/10 00/11 01/00 01/01 01/10 01/11 10/00 10/01 10/11 11/00 11/01 11/10 11/11"},
    {"a seq_cst fence in one reader", "x fence.sc y | y.acq x | x.rel=1 | y.rel=1",
     "00/00 00/01 00/10 00/11 01/00 01/01 01/10 01/11 10/00 10/01 10/10 10/11 11/00 11/01 11/10 "
     "11/11"},
    {"acq_rel fences", "x fence.ar y | y fence.ar x | x=1 | y=1",
     "00/00 00/01 00/10 00/11 01/00 01/01 01/10 01/11 10/00 10/01 10/10 10/11 11/00 11/01 11/10 "
     "11/11"},
};

// More are some seconds each.
constexpr std::size_t most_operations_enumerated = 7;

bool is_small(const model::program& p) {
    std::size_t operations = 0;
    for (const auto& thread : p.threads) {
        operations += thread.size();
    }
    return operations <= most_operations_enumerated;
}

void expect(const row& r, method how, model::options o = {}) {
    const model::program p = model::to_program(r.program);
    const auto body = [&] { model::record(model::to_text(p, model::run(p))); };
    INFO(r.name << ": " << r.program);
    o.how = how;
    CHECK(model::outcomes(o, body) == r.outcomes);
}

void expect(std::span<const row> rows) {
    for (const row& r : rows) {
        expect(r, method::exhaustive);
        if (is_small(model::to_program(r.program))) {
            expect(r, method::enumerate);
        }
    }
}

struct verdict_row {
    std::string_view name;
    std::string_view program;
    failure what;
};

void expect(std::span<const verdict_row> rows) {
    for (const verdict_row& r : rows) {
        const model::program p = model::to_program(r.program);
        for (const method how : {method::exhaustive, method::enumerate}) {
            INFO(r.name << ": " << r.program);
            CHECK(model::explore({.how = how}, [&] { model::run(p); }).what == r.what);
        }
    }
}

} // namespace

TEST_CASE("litmus: two that write and then look at the other may both look too early", "[litmus]") {
    expect(store_buffering);
}

TEST_CASE("litmus: a flag publishes what was written before by release and acquire", "[litmus]") {
    expect(message_passing);
}

TEST_CASE("litmus: a release sequence is a store and the read-modify-writes upon it", "[litmus]") {
    expect(release_sequences);
}

TEST_CASE("litmus: a compare-exchange synchronises by the order of what it came to", "[litmus]") {
    expect(compare_exchanges);
}

TEST_CASE("litmus: a read-modify-write reads what it comes behind", "[litmus]") {
    expect(atomicity);
}

TEST_CASE("litmus: all threads see one order of the stores to an object", "[litmus]") {
    expect(coherence);
}

TEST_CASE("litmus: two threads' stores to two objects form no circle where seq_cst orders them",
          "[litmus]") {
    expect(store_orders);
}

TEST_CASE("litmus: no load reads from a store that comes after it, nor in a circle", "[litmus]") {
    expect(load_buffering);
}

TEST_CASE("litmus: a thread publishes what it has seen of others, too", "[litmus]") {
    expect(three_threads);
}

TEST_CASE("litmus: seq_cst operations are ordered as C++20 asks for, through any thread",
          "[litmus]") {
    expect(seq_cst_order);
}

TEST_CASE("litmus: two readers agree on the order of two stores where seq_cst orders them",
          "[litmus]") {
    expect(two_readers);
}

// ---- Sleeping, spinning, plain data

namespace {

// The waker writes the word, then wakes.
constexpr row sleepers[] = {
    {"waking synchronises nothing", "y=1 x.rel=1 x.wake=1 | x.wait=0 y", "0 1"},
    {"the word read after waking may be old", "x=1 x.wake=1 | x.wait=0 x", "0 1"},
    {"the word says what is published", "y=1 x.rel=1 x.wake=1 | x.wait=0 x.acq y", "00 01 11"},
    {"a word that changed lets no thread sleep", "x=1 x.wait=0 x", "1"},
};

constexpr verdict_row verdicts[] = {
    {"store, wake", "x=1 x.wake=1 | x.wait=0", failure::none},
    {"no wake", "x=1 | x.wait=0", failure::lost_wakeup},
    {"wake, store", "x.wake=1 x=1 | x.wait=0", failure::lost_wakeup},
    {"a wake of another word", "x=1 y.wake=1 | x.wait=0", failure::lost_wakeup},
    {"one wake for two", "x=1 x.wake=1 | x.wait=0 | x.wait=0", failure::lost_wakeup},
    {"a wake of two", "x=1 x.wake=2 | x.wait=0 | x.wait=0", failure::none},
    {"two wakes of one", "x=1 x.wake=1 x.wake=1 | x.wait=0 | x.wait=0", failure::none},
    {"the word goes back", "x=1 x.wake=1 x=0 | x.wait=0", failure::lost_wakeup},
    {"awaited", "x=1 | x@1", failure::none},
    {"awaited in vain", "x=1 x=2 | x@1", failure::livelock},
    {"awaited by each other", "x@1 y=1 | y@1 x=1", failure::livelock},
    {"published", "p=1 x.rel=1 | x.acq@1 p", failure::none},
    {"not published", "p=1 x=1 | x@1 p", failure::race},
    {"published in a release sequence", "p=1 x.rel=2 | x@2 x+=1 | x.acq@3 p", failure::none},
    {"a release sequence cut off", "p=1 x.rel=1 x=2 | x.acq@2 p", failure::race},
    {"read by both", "p | p", failure::none},
    {"written by both", "p=1 | p=1", failure::race},
    {"read, then written elsewhere", "p x.rel=1 | x.acq@1 p=1", failure::none},
    {"a seq_cst order is no synchronisation", "p=1 x.sc | x.sc p", failure::race},
};

} // namespace

TEST_CASE("litmus: a sleeper is woken, and learns nothing else by that", "[litmus]") {
    expect(sleepers);
}

TEST_CASE("litmus: each failure is found where it can happen and nowhere else", "[litmus]") {
    expect(verdicts);
}

TEST_CASE("litmus: what fails for no reason does so within its budget", "[litmus]") {
    for (const method how : {method::exhaustive, method::enumerate}) {
        expect({"none", "x~0:1 || x", "0/1"}, how);
        expect({"one", "x~0:1 x~0:1 || x", "01/1 f0/1"}, how, {.weak_failures = 1});
        expect({"two", "x~0:1 x~0:1 || x", "01/1 f0/1 ff/0"}, how, {.weak_failures = 2});
        expect({"one for each thread", "x~0:1 x~0:1 | y || x", "01/0/1 f0/0/1"}, how,
               {.weak_failures = 1});
        expect({"no sleep", "x.wait=0 z=1 | z x=1 x.wake=1", "0"}, how);
        expect({"a sleep", "x.wait=0 z=1 | z x=1 x.wake=1", "0 1"}, how, {.spurious = 1});
        expect({"a time-out", "x.timed=0 x", "00"}, how, {.timeouts = 1});
        expect(
            {"its look synchronises nothing", "y=1 x.rel=1 | x.timed=0 fence.acq y", "00 01 10 11"},
            how, {.timeouts = 1});
        expect({"a time-out, and a wake by a thread that has seen it",
                "x.timed=1 y=1 | x=1 | y x.wake=1", "0/0 0/1 1/0 1/1"},
               how, {.timeouts = 1});
        expect({"the same, where the word changes after another thread's step",
                "x.timed=1 y=1 | z [1]x=1 | z=1 | y x.wake=1",
                "0/1/0 0/1/1 1/0/0 1/0/1 1/1/0 1/1/1"},
               how, {.timeouts = 1});
        expect({"in time, or not", "x=1 x.wake=1 | x.timed=0 x.timed=0 || x", "00/1 11/1"}, how,
               {.timeouts = 1});
    }
}

// ---- The rest of the enumerations

TEST_CASE("litmus: enumerating the large ones finds the same", "[litmus][.long]") {
    for (const row& r : two_readers) {
        if (!is_small(model::to_program(r.program))) {
            expect(r, method::enumerate);
        }
    }
}

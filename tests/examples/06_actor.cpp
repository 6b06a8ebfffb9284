// # 6. An actor
//
// An actor is one task that owns a state. Other threads and tasks reach the state only by requests, through a channel,
// and get their answers through a `oneshot` each. The state needs no lock, because one task uses it, and a request of
// several steps is never mixed with another one. This chapter has an actor that keeps accounts.

#include <bide/bide.hpp>

#include <cstdio>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

// A request carries the sender of its answer. The channel moves it, so it may have members that cannot be copied.

struct answer {
    bool done;
    long balance;
};

struct request {
    std::string account;
    long change;
    bide::oneshot_sender<answer> reply;
};

using requests = bide::channel<request>;

// The caller of an actor must never wait for an answer that will not be sent. Two rules give that. A `oneshot` whose
// sender is destroyed is closed, so a request that the actor drops is answered with "closed". And when the actor ends,
// for whatever reason, this object closes the channel and drops the requests that are in it. After `close()`, `recv()`
// returns what is left and then an error, so the loop ends. A request is either received here or refused at its sender.

struct inbox {
    requests& from;
    explicit inbox(requests& channel) : from(channel) {}
    inbox(const inbox&) = delete;
    inbox& operator=(const inbox&) = delete;
    ~inbox() {
        from.close();
        while (from.recv()) {
        }
    }
};

// The actor itself is a loop. `async_recv()` returns an empty optional when the channel is closed and empty: that is the
// graceful end, after the last request. A cancellation of the task ends the wait with `stopped_error` instead, and an
// error in a request leaves the function, too. Either way `in` is destroyed. An answer whose client has given up is
// no error here.

bide::task<long> keep_accounts(requests& channel) {
    const inbox in(channel);
    std::map<std::string, long> balances; // no lock
    long served = 0;
    while (auto next = co_await in.from.async_recv()) {
        if (next->account.empty()) {
            throw std::invalid_argument("an account without a name"); // a bug of the caller
        }
        long& balance = balances[next->account];
        const bool done = balance + next->change >= 0;
        balance += done ? next->change : 0;
        const auto sent = std::move(next->reply).send({done, balance});
        served += sent ? 1 : 0;
    }
    co_return served;
}

// A client makes a `oneshot`, sends its end with the request, and waits. If the channel is full, the send waits: a
// bounded channel slows its clients down to the speed of the actor. The result is empty if the actor has ended. The
// same two waits, without `co_await`, serve a thread.

bide::task<std::optional<answer>> ask(requests& to, std::string account, long change) {
    auto [reply, answered] = bide::oneshot<answer>();
    request mine{std::move(account), change, std::move(reply)}; // named: see "g++ 12" in the README
    const auto sent = co_await to.async_send(std::move(mine));
    if (!sent) {
        co_return std::nullopt;
    }
    co_return co_await answered.async_recv();
}

bide::result<answer> ask_from_thread(requests& to, std::string account, long change) {
    auto [reply, answered] = bide::oneshot<answer>();
    if (!to.send(request{std::move(account), change, std::move(reply)})) {
        return bide::unexpected{bide::errc::closed};
    }
    return answered.recv();
}

// A hundred tasks and a thread use one account. The orderly shutdown is `close()`, then `join()`: the actor serves what
// was sent before, and `join()` returns its value. A request after that is refused at once.

bool serves_all(bide::scheduler& workers) {
    requests channel(8);
    auto actor = workers.spawn(keep_accounts(channel).named("accounts"));
    {
        bide::task_group clients(workers);
        for (int i = 0; i < 100; ++i) {
            clients.spawn([&]() -> bide::task<> { co_await ask(channel, "ann", 1); });
        }
        std::jthread thread([&] { static_cast<void>(ask_from_thread(channel, "ann", 10)); });
        clients.join();
    }
    const auto refused = ask_from_thread(channel, "ann", -111); // more than there is
    channel.close();
    const long served = std::move(actor).join();
    const auto late = bide::sync_wait(workers, ask(channel, "ann", 1));
    std::printf("%ld requests, balance %ld\n", served, refused ? refused->balance : -1);
    return served == 102 && refused && !refused->done && refused->balance == 110 && !late;
}

// An actor that fails. The first request is wrong, and the second one waits behind it in the channel. `join()` throws
// what the actor threw, to its owner, which may start another one. Both clients learn that there is no answer.

bool has_no_answer(bide::oneshot_receiver<answer>& answered) {
    const auto got = answered.try_recv();
    return !got && got.error() == bide::errc::closed;
}

bool fails_in_order(bide::scheduler& workers) {
    requests channel(8);
    auto [reply, wrong] = bide::oneshot<answer>();
    auto [second_reply, second] = bide::oneshot<answer>();
    bool ok = channel.send(request{"", 1, std::move(reply)}).has_value();
    ok = channel.send(request{"bob", 1, std::move(second_reply)}).has_value() && ok;
    auto actor = workers.spawn(keep_accounts(channel));
    try {
        std::move(actor).join();
        return false;
    } catch (const std::invalid_argument& error) {
        std::printf("the actor has ended: %s\n", error.what());
    }
    ok = has_no_answer(wrong) && has_no_answer(second) && ok;
    return ok && !ask_from_thread(channel, "bob", 1);
}

int main() {
    bide::scheduler workers;
    const bool served = serves_all(workers);
    const bool failed = fails_in_order(workers);
    return served && failed ? 0 : 1;
}

// Limits. A task that is cancelled before its first run never starts, so it has no `inbox`: its owner closes the channel
// and drops what is in it. A client that waits for the answer of another actor, which waits for this one, is a deadlock
// as with locks; let requests go one way. If the state is used by short steps of many different tasks, a
// [strand](../../include/bide/task/README.md#a-strand) serialises them without requests and answers. If the steps are
// a few nanoseconds, a mutex is simpler and faster.

// What epoll_driver and uring_driver promise alike. What differs is in epoll_driver_test.cpp and
// uring_driver_test.cpp.

#include <bide/io/epoll_driver.hpp>

#include <support/sched.hpp>

// On other systems the header is empty, and so is this.
#if defined(__linux__)

#if defined(BIDE_TESTS_HAVE_URING)
#include <bide/io/uring_driver.hpp>
#endif

#include <support/fake_clock.hpp>
#include <support/file_waits.hpp>

using namespace bide;
using namespace test;

namespace {

// The system may not let this process use such a driver.
template <class Driver, class F> void on_driver(const char* name, F f) {
    static_assert(std::is_base_of_v<driver, Driver> && !std::is_copy_constructible_v<Driver>);
    static_assert(noexcept(std::declval<Driver&>().async_wait_readable(0)));
    static_assert(noexcept(std::declval<Driver&>().forget(0)));
    INFO(name);
    std::string why;
    try {
        const Driver made;
    } catch (const std::system_error& error) {
        why = error.what();
    }
    if (!why.empty()) {
        WARN("skipped: " << why);
        return;
    }
    f(std::type_identity<Driver>());
}
// Calls f with the type of each driver, which has delays at each step.
template <class F> void for_each_driver(F f) {
    on_driver<basic_epoll_driver<test::jittery>>("epoll", f);
#if defined(BIDE_TESTS_HAVE_URING)
    on_driver<basic_uring_driver<test::jittery>>("uring", f);
#endif
}
// Calls f with each driver, as if it were a scheduler's.
template <class F> void on_each_driver(F f) {
    for_each_driver([&f](auto type) {
        typename decltype(type)::type d;
        const driver::attachment attached(d);
        f(d);
    });
}

constexpr unsigned char mix(unsigned n) {
    return static_cast<unsigned char>((n * 2'654'435'769u) >> 24);
}

// What several readers of one file have read together. They run on one thread.
struct received {
    unsigned total = 0;
    bool good = true;
    std::atomic<int> readers{0};
};

template <class Driver> test::detached receive(Driver& d, int fd, received& sum) {
    std::array<unsigned char, 300> bytes;
    for (ssize_t n; (n = ::read(fd, bytes.data(), bytes.size())) != 0;) {
        if (n < 0 && errno == EAGAIN) {
            const auto got = co_await readable(d, fd);
            sum.good = sum.good && got.has_value();
        }
        for (ssize_t i = 0; i < n; ++i, ++sum.total) {
            sum.good = sum.good && bytes[static_cast<std::size_t>(i)] == mix(sum.total);
        }
    }
    --sum.readers;
}

// Writes `total` bytes, the n-th of them mix(n), and then closes.
template <class Driver>
test::held_on<test::thread_executor> send(test::thread_executor&, Driver& d, int fd, unsigned total,
                                          file_outcome& out) {
    std::array<unsigned char, 700> bytes;
    io_result last;
    for (unsigned sent = 0; sent < total && last;) {
        const unsigned n = std::min(total - sent, 1 + 2u * mix(sent));
        for (unsigned i = 0; i < n; ++i) {
            bytes[i] = mix(sent + i);
        }
        const ssize_t written = ::write(fd, bytes.data(), n);
        if (written > 0) {
            sent += static_cast<unsigned>(written);
        } else if (errno == EAGAIN) {
            const auto got = co_await writable(d, fd);
            last = got;
        }
    }
    ::shutdown(fd, SHUT_WR);
    out.note(last);
}

} // namespace

TEST_CASE("file driver: the next wait() after a file became ready ends its waits, of one direction "
          "only") {
    on_each_driver([](auto& d) {
        const ends e = ends::full_sockets();
        file_waits all;
        for (int i = 0; i < 3; ++i) {
            all.add(readable(d, e.out));
        }
        all.add(writable(d, e.out));
        CHECK(look(d) == 0);
        all.destroy(2);
        e.put_back();
        CHECK(all.said() == "waits waits waits waits");
        REQUIRE(all.come_to(d, "granted granted waits waits"));
        CHECK(ends::drain(e.out) == 1);
        ends::drain(e.in);
        REQUIRE(all.come_to(d, "granted granted waits granted"));
        CHECK(look(d) == 0);
    });
}

TEST_CASE(
    "file driver: a hang-up ends the waits of both directions, and an error those of a pipe") {
    on_each_driver([](auto& d) {
        ends sockets = ends::full_sockets();
        ends pipe = ends::pipe();
        ends::fill(pipe.out);
        file_waits all;
        all.add(readable(d, sockets.out));
        all.add(writable(d, sockets.out));
        all.add(writable(d, pipe.out));
        CHECK(look(d) == 0);
        test::close_file(sockets.in); // a hang-up
        REQUIRE(all.come_to(d, "granted granted waits"));
        test::close_file(pipe.in); // an error
        REQUIRE(all.come_to(d, "granted granted granted"));
    });
}

TEST_CASE("file driver: a wait for a ready file succeeds at once, even with a stop or a past "
          "deadline") {
    on_each_driver([](auto& d) {
        const ends full = ends::pipe();
        full.put();
        ends at_end = ends::pipe();
        test::close_file(at_end.out);
        ends broken = ends::pipe();
        test::close_file(broken.in);
        std::FILE* const file = std::tmpfile();
        REQUIRE(file != nullptr);
        const int regular = ::fileno(file);
        std::stop_source stop = test::new_stop();
        stop.request_stop();
        file_waits all;
        const auto late = [&](auto op) {
            all.add(std::move(op).with_stop(stop.get_token()).with_deadline(deadline::poll()));
        };
        for (const int fd : {full.in, at_end.in, regular}) {
            all.add(readable(d, fd));
            late(readable(d, fd));
        }
        for (const int fd : {full.out, broken.out, regular}) {
            all.add(writable(d, fd));
            late(writable(d, fd));
        }
        CHECK(all.granted() == 12);
        std::fclose(file);
        CHECK(look(d) == 0);
    });
}

TEST_CASE("file driver: a wait for a number that is no file ends with the system's error") {
    on_each_driver([](auto& d) {
        ends e = ends::pipe();
        const int gone = e.in;
        file_waits before;
        before.add(readable(d, e.in)); // a descriptor that has an entry
        d.forget(e.in);
        CHECK(before.said() == "closed");
        test::close_file(e.in);
        bool all_fail = true;
        const std::size_t before_them = test::allocations_here();
        for (const int fd : {-1, INT_MIN, INT_MAX, 1'000'000, gone}) {
            for (const bool reads : {true, false}) {
                file_outcome out;
                test::held one =
                    reads ? test::await(readable(d, fd), out) : test::await(writable(d, fd), out);
                one.start();
                all_fail = all_fail && out.is(std::errc::bad_file_descriptor) &&
                           out.why.category() == std::system_category();
                d.forget(fd);
            }
        }
        const std::size_t allocated = test::allocations_here() - before_them;
        CHECK(all_fail);
        CHECK(allocated <= 20); // there are ten frames, and no table of a million entries
        CHECK(look(d) == 0);
    });
}

TEST_CASE("file driver: a time-out, a stop and the end of the coroutine remove the wait") {
    on_each_driver([](auto& d) {
        ends e = ends::sockets();
        std::stop_source stop = test::new_stop();
        file_waits all;
        all.add(readable(d, e.in).with_deadline(deadline::poll()));
        CHECK(all.said() == "timeout");
        all.add(readable(d, e.in).with_deadline(deadline::after(1ms)));
        all.add(readable(d, e.in).with_stop(stop.get_token()));
        all.add(readable(d, e.in));
        stop.request_stop();
        REQUIRE(test::eventually([&] { return all.said() == "timeout timeout stopped waits"; }));
        test::service_thread<test::jittery>();
        all.destroy(3);
        e.put();
        const deadline soon = deadline::after(2ms);
        CHECK(d.wait(soon) == 0); // the event without a waiter does not end it
        CHECK(native_platform::now() >= soon.steady_ns());
        CHECK(all.said() == "timeout timeout stopped waits");
        test::close_file(e.in);
        char byte = 0;
        CHECK(test::eventually([&] { // the end: the kernel keeps no reference
            return ::read(e.out, &byte, 1) == 0 || errno == ECONNRESET;
        }));
    });
}

TEST_CASE("file driver: forget() ends all waits for a file with closed, and the file can be waited "
          "for again") {
    on_each_driver([](auto& d) {
        const ends e = ends::full_sockets();
        file_waits all;
        all.add(readable(d, e.out));
        all.add(readable(d, e.out));
        all.add(writable(d, e.out));
        d.forget(e.out);
        CHECK(all.said() == "closed closed closed");
        all.add(readable(d, e.out));
        CHECK(look(d) == 0);
        e.put_back();
        REQUIRE(all.come_to(d, "closed closed closed granted"));
        d.forget(e.in); // no coroutine has waited for it
        d.forget(-1);
        d.forget(INT_MAX);
    });
}

TEST_CASE("file driver: a wait that no scheduler would end fails at once",
          "[promise.file-wait-without-driver]") {
    for_each_driver([](auto type) {
        typename decltype(type)::type d;
        const ends e = ends::pipe();
        for (int round = 0; round < 3; ++round) { // never attached, and attached earlier
            file_waits all;
            all.add(readable(d, e.in));
            all.add(readable(d, e.in).with_deadline(deadline::never()));
            all.add(readable(d, e.in).with_deadline(deadline::poll()));
            CHECK(all.said() == "undriven undriven timeout");
            const driver::attachment attached(d);
            all.add(readable(d, e.in));
            CHECK(all.said() == "undriven undriven timeout waits");
            e.put();
            REQUIRE(all.come_to(d, "undriven undriven timeout granted"));
            CHECK(ends::drain(e.in) == 1);
        }
    });
}

TEST_CASE("file driver: the end of an attachment ends all waits, and a second attachment throws") {
    for_each_driver([](auto type) {
        typename decltype(type)::type d;
        const ends a = ends::pipe();
        const ends b = ends::full_sockets();
        file_waits all;
        {
            const driver::attachment attached(d);
            all.add(readable(d, a.in));
            all.add(writable(d, b.out));
            std::error_code why;
            try {
                const driver::attachment another(d);
            } catch (const std::system_error& error) {
                why = error.code();
            }
            CHECK(why == std::errc::device_or_resource_busy);
            CHECK(all.said() == "waits waits");
        }
        CHECK(all.said() == "closed closed");
        const driver::attachment again(d);
        all.add(readable(d, a.in));
        CHECK(all.said() == "closed closed waits");
        a.put();
        REQUIRE(all.come_to(d, "closed closed granted"));
    });
}

TEST_CASE("file driver: a first wait without memory fails, and later ones allocate nothing") {
    if (!test::counts_allocations()) {
        return;
    }
    on_each_driver([](auto& d) {
        const ends e = ends::pipe();
        auto first = [&] {
            const test::out_of_memory none;
            return readable(d, e.in); // which makes the entry of the file
        }();
        file_waits refused;
        CHECK(refused.add(std::move(first)).is(std::errc::not_enough_memory));
        for (int round = 0; round < 3; ++round) {
            file_outcome out;
            test::held next = test::await(readable(d, e.in), out);
            const std::size_t before = test::allocations_here();
            next.start();
            const std::size_t after = test::allocations_here();
            e.put();
            REQUIRE(test::waits_until(d, [&] { return out.done.load(); }));
            CHECK(out.is_granted());
            CHECK((round == 0 || before == after));
            ends::drain(e.in);
        }
    });
}

// g++'s sanitizer for undefined behaviour needs files where an exception is constructed.
#if !defined(__SANITIZE_ADDRESS__)
TEST_CASE("file driver: without free descriptors the constructor throws, and leaks none") {
    for_each_driver([](auto type) {
        using any_driver = typename decltype(type)::type;
        const std::size_t files = test::open_files();
        const int first = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
        ::close(first);
        constexpr bool has_ring = std::is_constructible_v<any_driver, unsigned>;
        for (int room = 0; room < (has_ring ? 3 : 2); ++room) {
            std::exception_ptr thrown;
            {
                const test::no_descriptors small(static_cast<rlim_t>(first + room));
                try {
                    const any_driver d;
                } catch (...) {
                    thrown = std::current_exception(); // a sanitizer may need files to read it
                }
            }
            REQUIRE(thrown);
            std::error_code why;
            std::string said;
            try {
                std::rethrow_exception(thrown);
            } catch (const std::system_error& error) {
                why = error.code();
                said = error.what();
            }
            CHECK(why == std::errc::too_many_files_open);
            CHECK((room < 2 || test::contains(said, "the system has refused io_uring")));
            CHECK(test::open_files() == files);
        }
        {
            const any_driver d;
        }
        CHECK(test::open_files() == files);
    });
}
#endif

TEST_CASE("file driver: destroyed with waiters, it terminates with their number") {
    for_each_driver([](auto type) {
        const std::string said = test::dies([] {
            typename decltype(type)::type d;
            const driver::attachment attached(d);
            const ends e = ends::full_sockets();
            file_waits all;
            all.add(readable(d, e.out));
            all.add(writable(d, e.out));
            std::destroy_at(&d);
        });
        INFO(said);
        CHECK(test::contains(said, "_driver 0x"));
        CHECK(test::contains(said, "destroyed with 2 waiting"));
    });
}

TEST_CASE("file driver: wakes before a wait() end that one, and no later one") {
    on_each_driver([](auto& d) {
        for (int round = 0; round < 3; ++round) {
            d.wake();
            d.wake();
            CHECK(d.wait(deadline::never()) == 0);
            const deadline soon = deadline::after(2ms);
            CHECK(d.wait(soon) == 0); // the second wake does not end it
            CHECK(native_platform::now() >= soon.steady_ns());
        }
    });
}

TEST_CASE("file driver: a wait() does not return before its deadline, on any clock") {
    on_each_driver([](auto& d) {
        using fake = test::fake_clock<std::remove_reference_t<decltype(d)>>;
        CHECK(look(d) == 0);
        CHECK(d.wait(deadline::after(-1h)) == 0);
        CHECK(d.wait(deadline::at(std::chrono::steady_clock::now() - 1h)) == 0);
        for (const auto rest : {1ns, 999ns, 50'000ns, 1'000'001ns, 3'700'000ns}) {
            const deadline end = deadline::after(rest);
            CHECK(d.wait(end) == 0);
            CHECK(native_platform::now() >= end.steady_ns());
            const auto when = std::chrono::system_clock::now() + rest;
            CHECK(d.wait(deadline::at(when)) == 0);
            CHECK(std::chrono::system_clock::now() >= when);
        }
        std::atomic<bool> over{false};
        bool early = false;
        test::team clocks(2, [&](int i) {
            using time_point = typename fake::time_point;
            if (i == 0) {
                d.wait(deadline::at(time_point(2ms)));
                early = fake::now() < time_point(2ms);
                over = true;
            } else if (test::eventually([] { return fake::reads > 6; })) {
                fake::set(1h);
            }
        });
        clocks.join();
        CHECK(over);
        CHECK_FALSE(early);
    });
}

TEST_CASE("file driver: a signal does not end a wait") {
    on_each_driver([](auto& d) {
        struct sigaction before{};
        struct sigaction quiet{};
        static std::atomic<int> signals{0};
        signals = 0;
        quiet.sa_handler = [](int) { signals.fetch_add(1); }; // and no SA_RESTART
        REQUIRE(::sigaction(SIGUSR1, &quiet, &before) == 0);
        std::atomic<pthread_t> sleeper{};
        std::atomic<bool> ready{false};
        std::atomic<bool> over{false};
        unsigned handed = 7;
        test::run_threads(2, [&](int i) {
            if (i == 0) {
                // The TSan of g++ 12 loses a signal that comes while a thread begins its first
                // blocking call. So this thread has made one before the first signal.
                look(d);
                sleeper = ::pthread_self();
                ready = true;
                handed = d.wait(deadline::never());
                over = true;
                return;
            }
            test::eventually([&] { return ready.load(); });
            for (int sent = 1; sent <= 20 && !over; ++sent) {
                ::pthread_kill(sleeper, SIGUSR1);
                test::eventually([&] { return signals == sent; });
            }
            d.wake();
        });
        ::sigaction(SIGUSR1, &before, nullptr);
        CHECK(signals == 20);
        CHECK(handed == 0);
    });
}

TEST_CASE("file driver: no wake is lost, and each one publishes what was done before",
          "[promise.ready-file]") {
    on_each_driver([](auto& d) { CHECK(test::wakes_in_order(d, 500)); });
}

TEST_CASE("file driver: of many wakes at the same time none is lost") {
    on_each_driver([](auto& d) {
        constexpr int wakers = 3;
        constexpr int each = 500;
        std::atomic<int> made{0};
        std::atomic<int> taken{0};
        test::run_threads(1 + wakers, [&](int i) {
            if (i == 0) {
                while (taken != wakers * each) {
                    if (made.load() == taken.load()) { // sleeps only if there is nothing
                        d.wait(deadline::never());
                    }
                    taken = made.load();
                }
                return;
            }
            test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
            for (int n = 0; n < each; ++n) {
                chance();
                ++made;
                d.wake();
                if (n % 8 == 0) { // so that it sleeps sometimes
                    test::eventually([&] { return taken >= made; });
                }
            }
        });
        CHECK(taken == wakers * each);
    });
}

TEST_CASE("file driver: under load each byte arrives once, in order") {
    on_each_driver([](auto& d) {
        using sender = test::held_on<test::thread_executor>;
        constexpr std::size_t files = 24;
        constexpr unsigned total = 4'000;
        std::deque<ends> all;
        std::deque<file_outcome> sent(2 * files);
        std::deque<received> got(2 * files);
        std::vector<sender> senders;
        test::thread_executor there; // for the senders; the receivers run in wait()
        for (std::size_t i = 0; i < 2 * files; ++i) {
            if (i % 2 == 0) {
                all.push_back(ends::sockets());
            }
            const int fd = i % 2 == 0 ? all.back().in : all.back().out;
            const int small = 4'096;
            ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
            got[i].readers = 1 + static_cast<int>(i) % 3;
            for (int n = got[i].readers; n != 0; --n) {
                receive(d, fd, got[i]);
            }
            senders.push_back(send(there, d, fd, total, sent[i]));
        }
        {
            const test::driving thread(d);
            for (sender& s : senders) {
                there.post(waker([](void* h) noexcept { static_cast<sender*>(h)->start(); }, &s));
            }
            const auto over = [&] {
                return std::all_of(sent.begin(), sent.end(),
                                   [](const file_outcome& o) { return o.done.load(); }) &&
                       std::all_of(got.begin(), got.end(),
                                   [](const received& r) { return r.readers == 0; });
            };
            REQUIRE(test::eventually(over));
        }
        for (std::size_t i = 0; i < 2 * files; ++i) {
            CHECK(sent[i].is_granted());
            CHECK(got[i].good);
            CHECK(got[i].total == total);
        }
        CHECK(look(d) == 0);
    });
}

TEST_CASE("file driver: while files are opened and closed, each wait ends as it must") {
    on_each_driver([](auto& d) {
        constexpr int rounds = 100;
        constexpr int threads = 2; // they reuse each other's descriptors
        int wrong[threads] = {};
        {
            const test::driving thread(d);
            test::run_threads(threads, [&](int i) {
                test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(i));
                for (int round = 0; round < rounds; ++round) {
                    ends e = chance.below(2) == 0 ? ends::pipe() : ends::sockets();
                    std::stop_source stop = test::new_stop();
                    file_outcome out;
                    test::await_detached(readable(d, e.in).with_stop(stop.get_token()), out);
                    chance();
                    const std::uint32_t end = 1 + chance.below(7); // one of the three, or more
                    if ((end & 1) != 0) {
                        e.put();
                    }
                    if ((end & 2) != 0) {
                        d.forget(e.in);
                    }
                    if ((end & 4) != 0) {
                        stop.request_stop();
                    }
                    const bool as_it_has_to = test::eventually([&] { return out.done.load(); }) &&
                                              (((end & 1) != 0 && out.is_granted()) ||
                                               ((end & 2) != 0 && out.is(errc::closed)) ||
                                               ((end & 4) != 0 && out.is(errc::stopped)));
                    wrong[i] += as_it_has_to ? 0 : 1;
                }
            });
        }
        CHECK(wrong[0] + wrong[1] == 0);
        CHECK(look(d) == 0);
    });
}

#endif

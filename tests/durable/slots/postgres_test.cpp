#include <bide/durable/slots/postgres.hpp>

#include <bide/durable/locks.hpp>
#include <bide/durable/slots/impl/postgres.hpp>

#include <support/canned_server.hpp>
#include <support/loopback.hpp>
#include <support/servers.hpp>
#include <support/servers_kv.hpp>
#include <support/slot_conformance.hpp>
#include <support/slot_connections.hpp>
#include <support/unhurried.hpp>

#include <libpq-fe.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

using namespace bide;

static_assert(any_slot<postgres_slot>);
static_assert(!test::locked_slot<postgres_slot>);
static_assert(test::clocked_slot<postgres_slot>);
static_assert(test::shared_store_slot<postgres_slot>);
static_assert(test::explaining_slot<postgres_slot>);
static_assert(postgres_slot::guarantees.keeps_acknowledged && postgres_slot::guarantees.multi_host);
static_assert(postgres_slot::guarantees.clock == lock_clock::server);

namespace {

// Returns one server for all cases, or nullptr if PostgreSQL is not installed. The server's
// settings make it lose a commit that does not wait for the disk.
test::postgres_server* server() {
    if (!test::postgres_server::is_available()) {
        std::fputs("skipped: PostgreSQL is not installed\n", stderr);
        return nullptr;
    }
    static test::postgres_server one(test::postgres_server::speed::quick, "wal_writer_delay = 10s");
    if (!one.is_running() && !one.restart()) {
        test::show_log(one.directory() + "/log");
        FAIL("PostgreSQL does not start");
    }
    return &one;
}

// A connection that the test uses directly.
class session {
public:
    explicit session(const std::string& conninfo) : pq_(::PQconnectdb(conninfo.c_str())) {}
    session(const session&) = delete;
    session& operator=(const session&) = delete;
    ~session() { ::PQfinish(pq_); }

    PGconn& native() { return *pq_; }

    // Runs statements. Returns the first value of the last one, or the error.
    std::string operator()(const std::string& sql) {
        PGresult* const rows = ::PQexec(pq_, sql.c_str());
        const ExecStatusType status = ::PQresultStatus(rows);
        std::string answer;
        if (status == PGRES_TUPLES_OK) {
            answer = ::PQntuples(rows) > 0 ? ::PQgetvalue(rows, 0, 0) : "";
        } else if (status != PGRES_COMMAND_OK) {
            answer = ::PQresultErrorMessage(rows);
        }
        ::PQclear(rows);
        return answer;
    }

private:
    PGconn* pq_;
};

postgres_slot_options patient_for(std::chrono::milliseconds patience) {
    postgres_slot_options options{.retry_time = patience};
    return options;
}

std::string new_key() {
    static int number = 0;
    return "key " + std::to_string(++number);
}

// Changes the server's configuration while it runs.
void configure(test::postgres_server& s, const std::string& name, const std::string& value) {
    session by(s.unix_conninfo());
    by("ALTER SYSTEM SET " + name + " = '" + value + "'");
    by("SELECT pg_reload_conf()");
    REQUIRE(
        test::asks_until(10s, [&] { return session(s.unix_conninfo())("SHOW " + name) == value; }));
}

struct store {
    using slot = postgres_slot;
    static constexpr std::size_t limit = 300'000;
    static constexpr bool processes = true;
    static constexpr int scale = 10;
    static constexpr bool greets = true;

    slot open() { return open(conninfo, 10s); }
    slot open_at(std::uint16_t port, std::chrono::milliseconds patience) {
        return open(test::postgres_server::conninfo(port), patience);
    }
    slot open(const std::string& at, std::chrono::milliseconds patience) {
        postgres_slot_options options = patient_for(patience);
        options.max_value = limit;
        return slot(at, key, std::move(options));
    }
    void fresh() { key = new_key(); }
    void erase() {
        session by(direct);
        by("DELETE FROM bide_lock WHERE key = '" + key + "'");
    }
    std::uint16_t port() { return of->port(); }
    void kill9() { of->kill9(); }
    void restart() { REQUIRE(of->restart()); }

    test::postgres_server* of;
    std::string conninfo;
    std::string direct;
    std::string key = new_key();
    std::error_code no_server = postgres_error("08001");
};

bool has(const std::string& text, std::string_view part) {
    const bool is_in = text.find(part) != std::string::npos;
    if (!is_in) {
        UNSCOPED_INFO("in: " << text << "\nthere is no: " << part);
    }
    return is_in;
}

// Creates a database for one case, in which no other case creates tables.
std::string new_database(const test::postgres_server& s, const std::string& name) {
    session admin(s.conninfo());
    admin("CREATE DATABASE " + name);
    for (const char* const role : {"alice", "bob"}) {
        admin(std::string("CREATE ROLE ") + role + " LOGIN"); // fails if the role exists
    }
    return s.conninfo() + " dbname=" + name;
}

const char* const columns = " (key text PRIMARY KEY, version bigint NOT NULL, value bytea "
                            "NOT NULL)";

// Drops a table that slots use, and creates it again.
void check_another_table(test::postgres_server& s, const std::string& conninfo,
                         const std::string& table) {
    session admin(s.conninfo());
    postgres_slot_options options{.table = table};
    std::optional<postgres_slot> slot(std::in_place, conninfo, "key", options);
    const cas_result first = slot->compare_exchange(0, "1");
    REQUIRE(first.status == cas_status::stored);
    std::unique_ptr<bide::slot> renews = slot->for_renewals();
    CHECK(renews->load().has_value());

    admin("DROP TABLE " + table);
    CHECK(slot->load().error() == postgres_error("42P01"));
    CHECK(slot->load().error() == std::errc::no_such_file_or_directory);
    CHECK(has(slot->explain(), "was dropped while this process used it"));
    CHECK(slot->compare_exchange(0, "2").error == postgres_error("42P01"));

    admin("CREATE TABLE " + table + columns);
    const auto is_refused = [&](bide::slot& by) {
        CHECK(by.load().error() == postgres_error("ZB001"));
        CHECK(by.load().error() == std::errc::operation_not_permitted);
        CHECK(has(by.explain(), "not the one that this process began with"));
        CHECK(by.compare_exchange(0, "2").status != cas_status::stored);
        CHECK(by.compare_exchange(first.version, "2").status != cas_status::stored);
    };
    is_refused(*slot);
    is_refused(*renews);
    {
        postgres_slot later(conninfo, "another key", options);
        is_refused(later);
    }
    admin("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
          "AND backend_type = 'client backend'");
    CHECK(test::asks_until(10s, [&] { return slot->load().error() == postgres_error("ZB001"); }));
    is_refused(*slot);
    CHECK(admin("SELECT count(*) FROM " + table) == "0");

    // After all slots are destroyed, a new slot accepts the new table.
    slot.reset();
    renews.reset();
    postgres_slot anew(conninfo, "key", options);
    CHECK(anew.compare_exchange(0, "3").status == cas_status::stored);
}

// The error of a load. Checks that the error text names the server and quotes no password.
struct refusal {
    std::error_code error;
    std::string words;
    bool lasts = false;

    explicit refusal(const std::string& conninfo, std::chrono::milliseconds patience = 20s) {
        postgres_slot slot(conninfo, "key", patient_for(patience));
        error = slot.load().error();
        words = slot.explain();
        const bool same = slot.compare_exchange(0, "x").status == cas_status::failed;
        CHECK(same);
        CHECK(has(words, "postgres"));
        CHECK(words.find('\n') == std::string::npos);
        CHECK(words.find("s3cr") == std::string::npos);
        CHECK(slot.explain().find("s3cr") == std::string::npos);
        lasts = test::lasts(error);
    }
};

// A port whose machine does not answer: the system discards what connects to it, because the queue of
// connections to accept is full.
class silent_machine {
public:
    silent_machine() {
        port_ = test::listens(listening_);
        ::listen(listening_, 0);
        for (int& each : waiting_) {
            each = test::new_socket(SOCK_NONBLOCK);
            test::connects(each, port_);
        }
    }
    silent_machine(const silent_machine&) = delete;
    silent_machine& operator=(const silent_machine&) = delete;
    ~silent_machine() {
        for (const int each : waiting_) {
            ::close(each);
        }
        ::close(listening_);
    }
    std::uint16_t port() const noexcept { return port_; }

private:
    int listening_ = test::new_socket();
    int waiting_[3] = {};
    std::uint16_t port_ = 0;
};

// Returns the bytes of a FATAL error, as a PostgreSQL server sends it.
std::string fatal(const std::string& state, const std::string& words) {
    const std::string fields = std::string("SFATAL\0", 7) + std::string("VFATAL\0", 7) + "C" +
                               state + '\0' + "M" + words + '\0' + '\0';
    std::string length(4, '\0');
    length[3] = static_cast<char>(fields.size() + 4);
    return "E" + length + fields;
}

} // namespace

TEST_CASE("postgres_slot: keeps the contract of slots") {
    if (test::postgres_server* const s = server()) {
        store direct{s, s->conninfo(), s->conninfo()};
        test::check_slot(direct);
    }
}

TEST_CASE("postgres_slot: reports exactly what is certain when the network or the server fails") {
    if (test::postgres_server* const s = server()) {
        store direct{s, s->conninfo(), s->conninfo()};
        test::check_slot_faults(direct);
    }
}

TEST_CASE("postgres_slot: keeps the contract of slots behind a pooler that pools transactions",
          "[promise.slot-contract]") {
    test::postgres_server* const s = server();
    if (s == nullptr || !test::pgbouncer::is_available()) {
        std::fputs("skipped: PgBouncer is not installed\n", stderr);
        return;
    }
    test::pgbouncer pooler(*s);
    REQUIRE(pooler.is_running());
    store pooled{s, pooler.conninfo(), s->conninfo()};
    test::check_slot(pooled);
}

TEST_CASE("postgres_slot: a change of one key or table affects no other") {
    if (test::postgres_server* const s = server()) {
        session(s->conninfo())("CREATE SCHEMA other");
        postgres_slot_options elsewhere{.table = "other.Locks"};
        postgres_slot a(s->conninfo(), "isolated a");
        postgres_slot b(s->conninfo(), "isolated b");
        postgres_slot c(s->conninfo(), "isolated a", elsewhere);
        postgres_slot d(s->conninfo(), "isolated \xc3\xa4' -- $1");
        const auto first = test::stored(a, 0, "a");
        CHECK(b.load()->version == 0);
        CHECK(c.load()->version == 0);
        CHECK(d.load()->version == 0);
        CHECK(b.compare_exchange(0, "b").status == cas_status::stored);
        CHECK(c.compare_exchange(0, "c").status == cas_status::stored);
        CHECK(d.compare_exchange(0, "d").status == cas_status::stored);
        CHECK(a.load()->value == "a");
        CHECK(a.load()->version == first.version);
        CHECK(c.load()->value == "c");
        CHECK(d.load()->value == "d");
    }
}

TEST_CASE("postgres_slot: every operation refuses invalid arguments") {
    const auto refuses = [](postgres_slot slot) {
        const std::error_code wrong = durable_errc::invalid_argument;
        return slot.load().error() == wrong && slot.compare_exchange(0, "x").error == wrong;
    };
    CHECK(refuses(postgres_slot("", "")));
    CHECK(refuses(postgres_slot("", std::string(1'025, 'k'))));
    CHECK(refuses(postgres_slot("", std::string("k\0y", 3))));
    CHECK(refuses(postgres_slot("no such word = 1", "key")));
    for (const char* const table : {"", ".", "a.", ".a", "a.b.c", "a b", "a\"b", "1a", "a;b"}) {
        CHECK(refuses(postgres_slot("", "key", {.table = table})));
    }
}

TEST_CASE("postgres_slot: an acknowledged value survives a crash of the server") {
    if (test::postgres_server* const s = server()) {
        session(s->conninfo())("ALTER ROLE postgres SET synchronous_commit = off");
        postgres_slot made(s->conninfo(), new_key());
        postgres_slot changed(s->conninfo(), new_key());
        const auto version = changed.compare_exchange(0, "1").version;
        s->kill9(); // the restart completes what the first start has left to do
        REQUIRE(s->restart());

        // Each case commits last: no other commit can have written it to the disk.
        cas_result last;
        const auto dies = [&] {
            s->kill9();
            REQUIRE(s->restart());
            return last.status == cas_status::stored;
        };
        last = made.compare_exchange(0, "2");
        CHECK(dies());
        CHECK(made.load()->value == "2");
        CHECK(made.load()->version == last.version);

        CHECK(changed.load()->value == "1");
        last = changed.compare_exchange(version, "2");
        CHECK(dies());
        CHECK(changed.load()->value == "2");

        // Without the slot, the commit is lost: the slot makes it durable.
        {
            session user(s->conninfo());
            CHECK(user("SHOW synchronous_commit") == "off");
            user("UPDATE bide_lock SET value = 'lost' WHERE value = '2'");
        }
        CHECK(dies());
        CHECK(changed.load()->value == "2");
        session(s->conninfo())("ALTER ROLE postgres RESET synchronous_commit");
    }
}

TEST_CASE("postgres_slot: a host whose machine does not answer leaves time for the next host") {
    if (test::postgres_server* const s = server()) {
        const silent_machine machine;
        const std::string hosts = "host=127.0.0.1,127.0.0.1 user=postgres dbname=postgres port=";
        CHECK(test::in_some_time(4s, [&](std::chrono::milliseconds patience) {
            postgres_slot slot(hosts + std::to_string(machine.port()) + "," +
                                   std::to_string(s->port()),
                               new_key(), patient_for(patience));
            const auto seen = slot.load();
            CHECK((seen || seen.error() == std::errc::timed_out));
            return seen.has_value();
        }));
        postgres_slot nobody(hosts + std::to_string(machine.port()), new_key(), patient_for(1s));
        CHECK(nobody.load().error() == std::errc::timed_out);
    }
}

#if defined(TCP_USER_TIMEOUT)
TEST_CASE("postgres_slot: a host's share of the time to connect is no limit of the connection") {
    if (test::postgres_server* const s = server()) {
        const std::string port = std::to_string(s->port());
        const std::string hosts =
            "host=127.0.0.1,127.0.0.1 user=postgres dbname=postgres port=" + port + "," + port;
        for (const auto& [more, expected] :
             {std::pair{"", 0}, std::pair{" tcp_user_timeout=12345", 12'345}}) {
            detail::postgres_connection connection(detail::postgres_target_of(hosts + more));
            connection.end_at(deadline::after(test::patience));
            REQUIRE(!connection.connect());
            int limit = -1;
            socklen_t size = sizeof limit;
            ::getsockopt(connection.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, &size);
            CHECK(limit == expected);
        }
    }
}
#endif

TEST_CASE("postgres_slot: creates its table only if it is allowed to") {
    if (test::postgres_server* const s = server()) {
        session admin(s->conninfo());
        admin("CREATE SCHEMA ours; CREATE ROLE worker LOGIN; GRANT USAGE ON SCHEMA ours TO worker");
        postgres_slot_options options{.table = "ours.locks"};
        const auto is_refused = [&](const std::string& conninfo, const char* state) {
            postgres_slot slot(conninfo, "key", options);
            CHECK(slot.load().error() == postgres_error(state));
            const cas_result r = slot.compare_exchange(0, "x");
            return r.status == cas_status::failed && r.error == postgres_error(state);
        };
        CHECK(is_refused(s->conninfo() + " user=worker", "42501"));
        options.table = "nowhere.locks";
        CHECK(is_refused(s->conninfo(), "3F000"));
        options.table = "ours.locks";
        CHECK(postgres_slot(s->conninfo(), "key", options).load().has_value());
        admin("GRANT SELECT, INSERT, UPDATE ON ours.locks TO worker");
        postgres_slot worker(s->conninfo() + " user=worker", "key", options);
        CHECK(worker.compare_exchange(0, "x").status == cas_status::stored);
        CHECK(admin("SELECT reloptions FROM pg_class WHERE relname = 'locks'") ==
              "{fillfactor=50}");
    }
}

TEST_CASE("postgres_slot: clients that create the table at the same time all use it") {
    if (test::postgres_server* const s = server()) {
        for (int round = 0; round < 5; ++round) {
            const postgres_slot_options options{.table = "made_" + std::to_string(round)};
            std::atomic<int> stored{0};
            std::atomic<int> others{0};
            test::run_threads(8, [&](int i) { // clients that share nothing
                postgres_slot slot(s->conninfo() + " application_name=c" + std::to_string(i), "key",
                                   options);
                const cas_status got = slot.compare_exchange(0, "x").status;
                stored += got == cas_status::stored ? 1 : 0;
                others += got == cas_status::conflict ? 1 : 0;
            });
            CHECK(stored == 1);
            CHECK(others == 7);
        }
    }
}

TEST_CASE("postgres_slot: if a row stays locked, the operation fails for certain") {
    if (test::postgres_server* const s = server()) {
        const auto is_given_up = [](const cas_result& r) { // false: the client's time was up first
            CHECK(r.error == std::errc::timed_out);
            if (r.error != postgres_error("55P03")) {
                return false;
            }
            CHECK(r.status == cas_status::failed);
            return true;
        };
        // The server gives up after half of the client's time, if the machine is fast enough.
        CHECK(test::in_some_time(800ms, [&](std::chrono::milliseconds patience) {
            const std::string key = new_key();
            postgres_slot slot(s->conninfo(), key, patient_for(patience));
            postgres_slot patient(s->conninfo(), key, patient_for(test::patience));
            REQUIRE(patient.load().has_value());
            session user(s->conninfo());
            user("BEGIN; INSERT INTO bide_lock VALUES ('" + key + "', 5, 'x')");
            if (!is_given_up(slot.compare_exchange(0, "y"))) {
                return false;
            }
            user("COMMIT; BEGIN; SELECT 1 FROM bide_lock WHERE key = '" + key + "' FOR UPDATE");
            if (!is_given_up(slot.compare_exchange(5, "y"))) {
                return false;
            }
            CHECK(patient.load()->value == "x"); // a reader does not wait
            user("COMMIT");
            CHECK(patient.compare_exchange(5, "y").version == 6);
            CHECK(patient.load()->value == "y");
            return true;
        }));
    }
}

TEST_CASE("postgres_slot: a commit that the server refuses stores nothing") {
    if (test::postgres_server* const s = server()) {
        session admin(s->conninfo());
        postgres_slot slot(s->conninfo(), "key", {.table = "refusing"});
        const auto first = test::stored(slot, 0, "1");
        admin("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
              "'BEGIN RAISE EXCEPTION ''no'' USING ERRCODE = ''P0042''; END'");
        admin("CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON refusing "
              "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()");
        const cas_result r = slot.compare_exchange(first.version, "2");
        CHECK(test::fails(r, postgres_error("P0042")));
        CHECK(has(slot.explain(), "ERROR: no"));
        CHECK(slot.load()->version == first.version);
        CHECK(slot.load()->value == "1");
    }
}

TEST_CASE("postgres_slot: a row that no slot has written is corrupt") {
    if (test::postgres_server* const s = server()) {
        for (const char* const version : {"0", "-1"}) {
            const std::string key = new_key();
            postgres_slot slot(s->conninfo(), key);
            REQUIRE(slot.load().has_value());
            session(s->conninfo())("INSERT INTO bide_lock VALUES ('" + key + "', " + version +
                                   ", 'x')");
            CHECK(slot.load().error() == durable_errc::corrupt_record);
            CHECK(slot.compare_exchange(0, "y").status == cas_status::conflict);
        }
        postgres_slot slot(s->conninfo(), new_key());
        CHECK(slot.compare_exchange(~std::uint64_t(0), "x").status == cas_status::conflict);

        session(s->conninfo())("CREATE TABLE narrow (key text PRIMARY KEY, version int, "
                               "value bytea); INSERT INTO narrow VALUES ('key', 7, 'x')");
        postgres_slot narrow(s->conninfo(), "key", {.table = "narrow"});
        CHECK(narrow.load().error() == durable_errc::corrupt_record);
    }
}

TEST_CASE(
    "postgres_slot: a transaction that the server rolls back because of another one is repeated") {
    if (test::postgres_server* const s = server()) {
        // The second transaction fails to serialize. Its next try finds the value of the first.
        session(s->conninfo())(
            "ALTER ROLE postgres SET default_transaction_isolation = 'repeatable read'");
        const std::string key = new_key();
        postgres_slot slot(s->conninfo(), key);
        const auto first = slot.compare_exchange(0, "1");
        session user(s->conninfo());
        user("BEGIN; UPDATE bide_lock SET version = version + 1 WHERE key = '" + key + "'");
        std::thread commits([&] {
            session watcher(s->conninfo());
            test::asks_until(10s, [&] {
                return watcher("SELECT count(*) FROM pg_locks WHERE NOT granted") == "1";
            });
            user("COMMIT");
        });
        const cas_result r = slot.compare_exchange(first.version, "2");
        commits.join();
        session(s->conninfo())("ALTER ROLE postgres RESET default_transaction_isolation");
        CHECK(r.status == cas_status::conflict);
        CHECK(slot.load()->version == first.version + 1);
    }
}

TEST_CASE("postgres_slot: if the server ends the connection, the outcome is indeterminate") {
    if (test::postgres_server* const s = server()) {
        const std::string key = new_key();
        postgres_slot slot(s->conninfo(), key);
        const auto first = test::stored(slot, 0, "1");
        session user(s->conninfo());
        user("BEGIN; SELECT 1 FROM bide_lock WHERE key = '" + key + "' FOR UPDATE");
        std::thread ends([&] {
            session by(s->conninfo());
            test::asks_until(10s, [&] {
                return by("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted") ==
                       "t";
            });
        });
        const cas_result r = slot.compare_exchange(first.version, "2");
        ends.join();
        user("COMMIT");
        CHECK(r.status == cas_status::indeterminate); // it may say so after the commit as well
        CHECK(r.error == postgres_error("57P01"));
        CHECK(slot.load()->value == "1");
    }
}

TEST_CASE("postgres_slot: a commit that no standby confirmed is not acknowledged") {
    if (test::postgres_server* const s = server()) {
        const std::string key = new_key();
        postgres_slot slot(s->conninfo(), key);
        const auto first = test::stored(slot, 0, "1");
        session(s->conninfo())("ALTER ROLE postgres SET client_min_messages = error");
        slot = postgres_slot(s->conninfo(), key);
        configure(*s, "synchronous_standby_names", "nobody");
        std::atomic<bool> is_over{false};
        std::thread cancels([&] {
            session by(s->conninfo());
            while (!is_over.load()) {
                by("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = "
                   "'SyncRep'");
            }
        });
        cas_result one;
        std::uint64_t version = first.version;
        test::asks_until(10s, [&] { // until the server knows the standby to wait for
            one = slot.compare_exchange(version, "2");
            version = one.version;
            return one.status != cas_status::stored;
        });
        is_over.store(true);
        cancels.join();
        configure(*s, "synchronous_standby_names", "");
        session(s->conninfo())("ALTER ROLE postgres RESET client_min_messages");
        CHECK(one.status == cas_status::indeterminate);
        CHECK(one.error == postgres_error("01000"));
        CHECK(slot.load()->value == "2");
    }
}

TEST_CASE("postgres_slot: refuses the answers of a standby") {
    if (test::postgres_server* const s = server()) {
        postgres_slot slot(s->conninfo(), new_key());
        const auto first = test::stored(slot, 0, "1");
        const std::string standby = s->directory() + "/data/standby.signal";
        s->stop();
        std::ofstream(standby) << "";
        REQUIRE(s->restart());
        CHECK(session(s->conninfo())("SELECT pg_is_in_recovery()") == "t");
        CHECK(slot.load().error() == postgres_error("25006"));
        CHECK(test::fails(slot.compare_exchange(first.version, "2"), postgres_error("25006")));
        s->stop();
        std::filesystem::remove(standby);
        REQUIRE(s->restart());
        CHECK(slot.compare_exchange(first.version, "2").status == cas_status::stored);
    }
}

TEST_CASE("postgres_slot: two roles with different search_paths use one table",
          "[promise.postgres-tables]") {
    if (test::postgres_server* const s = server()) {
        const std::string at = new_database(*s, "two_roles");
        session admin(at);
        admin("CREATE SCHEMA alice AUTHORIZATION alice; CREATE SCHEMA bob AUTHORIZATION bob; "
              "CREATE SCHEMA other; GRANT ALL ON SCHEMA other, public TO alice, bob; "
              "ALTER ROLE bob SET search_path = other, public");
        postgres_slot alice(at + " user=alice", "key");
        const auto first = test::stored(alice, 0, "alice");
        CHECK(admin("SELECT string_agg(schemaname, ' ') FROM pg_tables WHERE tablename = "
                    "'bide_lock'") == "public");

        postgres_slot bob(at + " user=bob", "key");
        CHECK(bob.load().error() == postgres_error("42501")); // not a table of its own
        CHECK(bob.compare_exchange(0, "bob").error == postgres_error("42501"));
        CHECK(has(bob.explain(), "GRANT SELECT, INSERT, UPDATE ON \"public\".\"bide_lock\""));
        admin("GRANT SELECT, INSERT, UPDATE ON public.bide_lock TO bob");
        CHECK(bob.compare_exchange(0, "bob").status == cas_status::conflict);
        const auto seen = test::loaded(bob);
        CHECK(seen->value == "alice");
        CHECK(bob.compare_exchange(first.version, "bob").status == cas_status::stored);
        CHECK(alice.load()->value == "bob");
        admin("ALTER ROLE bob RESET search_path");
    }
}

TEST_CASE("postgres_slot: a name without a schema is a table of public, whatever else there is",
          "[promise.postgres-tables]") {
    if (test::postgres_server* const s = server()) {
        const std::string at = new_database(*s, "made_before");
        session admin(at);
        admin("CREATE SCHEMA alice AUTHORIZATION alice; CREATE SCHEMA bob AUTHORIZATION bob; "
              "GRANT ALL ON SCHEMA public TO alice, bob; GRANT USAGE ON SCHEMA alice TO bob");
        session(at + " user=alice")(std::string("CREATE TABLE bide_lock") + columns +
                                    "; INSERT INTO bide_lock VALUES ('key', 7, 'before')");
        REQUIRE(admin("SELECT value FROM alice.bide_lock") != "");
        postgres_slot alice(at + " user=alice", "key");
        const auto first = test::stored(alice, 0, "alice"); // not in the table of its schema
        CHECK(admin("SELECT count(*) FROM public.bide_lock") == "1");
        admin("GRANT SELECT, INSERT, UPDATE ON public.bide_lock TO bob");
        session(at + " user=bob")(std::string("CREATE TABLE bide_lock") + columns);
        postgres_slot bob(at + " user=bob", "key");
        CHECK(bob.load()->value == "alice");
        CHECK(bob.compare_exchange(first.version, "bob").status == cas_status::stored);
        CHECK(alice.load()->value == "bob");

        const postgres_slot_options one{.table = "alice.bide_lock"};
        postgres_slot named(at + " user=bob", "key", one);
        CHECK(named.load().error() == postgres_error("42501"));
        admin("GRANT SELECT, INSERT, UPDATE ON alice.bide_lock TO bob");
        for (const char* const user : {" user=alice", " user=bob"}) {
            CHECK(postgres_slot(at + user, "key", one).load()->version == 7);
        }
        CHECK(admin("SELECT count(*) FROM bob.bide_lock") == "0");
    }
}

TEST_CASE("postgres_slot: if a role may not create the table, the error says what to do") {
    if (test::postgres_server* const s = server()) {
        const std::string at = new_database(*s, "no_create");
        session admin(at);
        admin("REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE SCHEMA alice AUTHORIZATION "
              "alice"); // as it comes from PostgreSQL 15 on
        postgres_slot alice(at + " user=alice", "key");
        const cas_result r = alice.compare_exchange(0, "x");
        CHECK(test::fails(r, postgres_error("42501")));
        CHECK(r.error == std::errc::permission_denied);
        CHECK(has(alice.explain(), "permission denied for schema public"));
        CHECK(has(alice.explain(), "CREATE TABLE IF NOT EXISTS \"public\".\"bide_lock\""));
        CHECK(admin("SELECT count(*) FROM pg_tables WHERE tablename = 'bide_lock'") == "0");
        admin(std::string("CREATE TABLE public.bide_lock") + columns +
              "; GRANT SELECT, INSERT, UPDATE ON public.bide_lock TO alice");
        CHECK(alice.compare_exchange(0, "x").status == cas_status::stored);

        postgres_slot_options options{.table = "nowhere.bide_lock"};
        postgres_slot nowhere(at, "key", options);
        CHECK(nowhere.load().error() == postgres_error("3F000"));
        CHECK(nowhere.load().error() == std::errc::no_such_file_or_directory);
        options = {};
        options.table = "bide_other";
        admin("CREATE TABLE bide_other (a int)");
        postgres_slot other(at, "key", options);
        CHECK(other.load().error() == postgres_error("42703"));
        CHECK(other.load().error() == std::errc::invalid_argument);
    }
}

TEST_CASE("postgres_slot: refuses a table that was dropped and created again",
          "[promise.postgres-tables]") {
    if (test::postgres_server* const s = server()) {
        SECTION("directly") { check_another_table(*s, s->conninfo(), "remade"); }
        SECTION("named by its schema") {
            check_another_table(*s, s->conninfo(), "public.remade_2");
        }
        SECTION("through a pooler of transactions") {
            if (!test::pgbouncer::is_available()) {
                WARN("skipped: PgBouncer is not installed");
                return;
            }
            test::pgbouncer pooler(*s);
            REQUIRE(pooler.is_running());
            check_another_table(*s, pooler.conninfo(), "remade_3");
        }
    }
}

TEST_CASE("postgres_slot: all slots of a process share connections to a server") {
    if (test::postgres_server* const s = server()) {
        store direct{s, s->conninfo(), s->conninfo()};
        SECTION("that answers") { test::check_shared_connections(direct); }
        SECTION("that hangs") { test::check_hanging_calls(direct); }
        SECTION("that is frozen") {
            test::check_frozen_server(*s, direct.open_at(s->port(), 500ms), 500ms);
        }
        SECTION("that takes few connections") {
            test::postgres_server small(test::postgres_server::speed::quick,
                                        "max_connections = 3\nsuperuser_reserved_connections = 0\n"
                                        "max_wal_senders = 0");
            REQUIRE(small.is_running());
            store few{&small, small.conninfo(), small.conninfo()};
            test::check_few_connections(few);
        }
        SECTION("by another connection string") {
            test::flaky_proxy net(s->port());
            const std::string at = test::postgres_server::conninfo(net.port());
            postgres_slot one(at, new_key());
            postgres_slot other(at + " application_name=other", new_key());
            CHECK(one.load().has_value());
            CHECK(other.load().has_value());
            CHECK(net.connections() == 2);
            CHECK(other.store() == one.store());
        }
    }
}

TEST_CASE("postgres_slot: texts name the host of the environment") {
    if (test::postgres_server* const s = server()) {
        const std::string port = std::to_string(s->port());
        ::setenv("PGPORT", port.c_str(), 1);
        postgres_slot slot("host=127.0.0.1 user=postgres dbname=postgres", new_key());
        CHECK(slot.load().has_value());
        ::unsetenv("PGPORT");
        CHECK(slot.store() ==
              "postgres at 127.0.0.1:" + port + ", database postgres, user postgres");
        CHECK(has(slot.explain(), slot.store() + ", key key "));
    }
}

TEST_CASE("postgres_slot: a call that hangs delays no renewal", "[promise.postgres-connections]") {
    if (test::postgres_server* const s = server()) {
        const std::string key = new_key();
        postgres_slot slot(s->conninfo(), key, patient_for(60s));
        const auto version = slot.compare_exchange(0, "1").version;
        postgres_slot other(s->conninfo(), new_key());
        REQUIRE(other.compare_exchange(0, "1").status == cas_status::stored);
        const auto renews = other.for_renewals();
        const auto renews_locked = slot.for_renewals();
        REQUIRE(renews->load().has_value());

        session user(s->conninfo());
        session watcher(s->conninfo());
        const auto waits = [&] {
            return test::asks_until(10s, [&] {
                return watcher("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted") == "t";
            });
        };
        user("BEGIN; SELECT 1 FROM bide_lock WHERE key = '" + key + "' FOR UPDATE");
        cas_result r;
        std::thread waiting([&] { r = slot.compare_exchange(version, "2"); });
        CHECK(waits());
        // A renewal of the locked row fails soon and for certain. Renewals of other rows succeed.
        CHECK(test::fails(renews_locked->compare_exchange(version, "2"), postgres_error("55P03")));
        CHECK(renews->compare_exchange(renews->load()->version, "2").status == cas_status::stored);
        // Calls for other rows succeed, too: the waiting call returns its connection at intervals.
        CHECK(other.load()->value == "2");
        user("COMMIT");
        waiting.join();
        CHECK(r.status == cas_status::stored);

        // No statement gives up on a lock of the whole table: the calls wait, and the renewals of
        // another table succeed.
        postgres_slot third(s->conninfo(), "key", {.table = "bide_elsewhere"});
        REQUIRE(third.compare_exchange(0, "1").status == cas_status::stored);
        const auto renews_third = third.for_renewals();
        user("BEGIN; LOCK TABLE bide_lock IN ACCESS EXCLUSIVE MODE");
        std::thread stuck([&] { r = slot.compare_exchange(slot.load()->version, "3"); });
        CHECK(waits());
        CHECK(renews_third->compare_exchange(renews_third->load()->version, "2").status ==
              cas_status::stored);
        user("COMMIT");
        stuck.join();
        CHECK(r.status == cas_status::stored);
    }
}

TEST_CASE(
    "postgres_slot: a permanent error is reported at once, with the place and the server's text",
    "[promise.postgres-errors]") {
    if (test::postgres_server* const s = server()) {
        const std::string host = "127.0.0.1:" + std::to_string(s->port());
        const std::string secret = " password=s3cr'%/@et";
        const auto is = [&](const refusal& r, const char* state, std::errc like,
                            std::string_view words) {
            CHECK(r.lasts);
            CHECK(r.error == postgres_error(state));
            CHECK(r.error == like);
            CHECK(has(r.words, words));
            return has(r.words, host);
        };
        CHECK(is(refusal(s->conninfo() + " dbname=nothing password=s3cret"), "3D000",
                 std::errc::no_such_file_or_directory,
                 "database nothing, user postgres, key key: FATAL: database \"nothing\" does not "
                 "exist"));
        CHECK(is(refusal(s->conninfo() + " user=stranger password=s3cret"), "28000",
                 std::errc::permission_denied, "FATAL: role \"stranger\" does not exist"));

        CHECK(postgres_slot(s->conninfo(), "key").load().has_value()); // it makes the table
        session(s->conninfo())("CREATE ROLE locked_out LOGIN; CREATE ROLE asked LOGIN PASSWORD "
                               "'s3cret@/:%'; GRANT SELECT ON bide_lock TO asked");
        const std::string rules = s->directory() + "/data/pg_hba.conf";
        std::stringstream before;
        before << std::ifstream(rules).rdbuf();
        std::ofstream(rules) << "host all locked_out all reject\nhost all asked all scram-sha-256\n"
                             << before.str();
        session(s->conninfo())("SELECT pg_reload_conf()");
        REQUIRE(test::asks_until(10s, [&] {
            session refused(s->conninfo() + " user=locked_out");
            return ::PQstatus(&refused.native()) == CONNECTION_BAD;
        }));
        CHECK(is(refusal(s->conninfo() + " user=locked_out password=s3cret"), "28000",
                 std::errc::permission_denied, "pg_hba.conf rejects connection"));
        CHECK(is(refusal(s->conninfo() + " user=asked password=s3cret"), "28P01",
                 std::errc::permission_denied,
                 "database postgres, user asked, key key: FATAL: password authentication failed "
                 "for user "
                 "\"asked\""));
        const std::error_code wrong_password = refusal(s->conninfo() + " user=asked").error;
        CHECK(sqlstate(wrong_password) == "28P01");
        CHECK(wrong_password.message() == "Permission denied (SQLSTATE 28P01)");
        const std::string uri = "://asked:s3cret%40%2f%3a%25@" + host + "/postgres";
        const std::string wrong = "://asked:s3cret%40%2f%3a%24@" + host + "/postgres";
        for (const std::string scheme : {"postgres", "postgresql"}) {
            CHECK(is(refusal(scheme + wrong), "28P01", std::errc::permission_denied,
                     "password authentication failed"));
            postgres_slot right(scheme + uri, "key");
            CHECK(right.load().has_value());
            CHECK(right.explain() ==
                  "postgres at " + host + ", database postgres, user asked, key key");
        }
        ::setenv("PGPASSWORD", "s3cret", 1);
        CHECK(is(refusal(s->conninfo() + " user=asked"), "28P01", std::errc::permission_denied,
                 "password authentication failed"));
        ::setenv("PGPASSWORD", "s3cret@/:%", 1);
        CHECK(postgres_slot(s->conninfo() + " user=asked", "key").load().has_value());
        ::unsetenv("PGPASSWORD");
    }
}

TEST_CASE("postgres_slot: an error about an invalid connection string quotes no part of it",
          "[promise.postgres-errors]") {
    for (const char* const conninfo :
         {"host=127.0.0.1 password=my s3cret", "password='s3cret", "s3cret",
          "postgres://user:s3cret%zz@127.0.0.1/db", "postgres://user:s3cret%00@127.0.0.1/db",
          "postgres://user:s3cr]et@[::1/db", "postgres://user:1/s3cret@127.0.0.1/db",
          "postgres://user:s3cret/x@127.0.0.1/db", "postgres://user:x@s3cret@127.0.0.1/db",
          "postgresql://user:s3cret#@127.0.0.1:x/db", "host=127.0.0.1 port=s3cret",
          "host=127.0.0.1 port=99999 password=s3cret", "host=127.0.0.1 port=0",
          "host=127.0.0.1 sslmode=s3cret", "host=127.0.0.1 target_session_attrs=s3cret",
          "host=a,b,c port=1,2 password=s3cret", "host=127.0.0.1 no_such_word=s3cret"}) {
        CAPTURE(conninfo);
        const refusal r(conninfo);
        CHECK(r.error == durable_errc::invalid_argument);
        CHECK(r.words.size() > 20);
    }
}

TEST_CASE("postgres_slot: an unknown host and a server of another protocol are permanent errors") {
    addrinfo* found = nullptr;
    const int answer = ::getaddrinfo("no-such-host.invalid", nullptr, nullptr, &found);
    if (answer == EAI_NONAME) {
        const refusal r("host=no-such-host.invalid dbname=app user=x password=s3cret");
        CHECK(r.lasts);
        CHECK(r.error == postgres_error("ZB004"));
        CHECK(
            has(r.words, "postgres at no-such-host.invalid:5432, database app, user x, key key: "));
    } else {
        WARN("skipped: the resolver does not say that a host is not known");
    }
    const auto is_foreign = [](std::uint16_t port, std::string_view words) {
        for (const char* const mode : {"prefer", "disable", "require"}) {
            const refusal r("host=127.0.0.1 user=u dbname=d password=s3cret port=" +
                            std::to_string(port) + " sslmode=" + mode);
            CHECK(r.lasts);
            CHECK(r.error == postgres_error("ZB003"));
            CHECK(r.error == std::errc::protocol_error);
            CHECK(has(r.words, words));
        }
    };
    test::canned_server http({"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"});
    is_foreign(http.port(), "received"); // libpq's text
}

TEST_CASE("postgres_slot: errors that may pass are not reported as permanent") {
    if (test::postgres_server* const s = server()) {
        const auto may_pass = [](const std::string& conninfo, const char* state,
                                 std::string_view words) {
            const refusal r(conninfo);
            CHECK_FALSE(r.lasts);
            CHECK(r.error == postgres_error(state));
            CHECK(has(r.words, words));
        };
        may_pass("host=/nowhere user=postgres", "08001", "/nowhere");
        const std::uint16_t free = test::free_port();
        may_pass(s->conninfo() + " password=s3cret port=" + std::to_string(free), "08001",
                 "postgres at 127.0.0.1:" + std::to_string(free) +
                     ", database postgres, user postgres, key key: ");
        // One of two hosts does not listen, which may pass; the other one answers.
        const std::string second = "127.0.0.1:" + std::to_string(s->port());
        may_pass("postgres://postgres:s3cret@127.0.0.1:" + std::to_string(free) + "," + second +
                     "/nothing",
                 "08001",
                 std::to_string(s->port()) + " failed: FATAL: database \"nothing\" does not exist");
        postgres_slot both("postgresql://postgres@127.0.0.1:" + std::to_string(free) + "," +
                               second + "/postgres?target_session_attrs=read-write",
                           "key");
        CHECK(both.load().has_value());
        CHECK(has(both.explain(), "127.0.0.1,127.0.0.1:" + std::to_string(free) + "," +
                                      std::to_string(s->port()) + ", database postgres"));

        test::canned_server starting({"N", fatal("57P03", "the database system is starting up")});
        may_pass("host=127.0.0.1 user=u password=s3cret port=" + std::to_string(starting.port()),
                 "57P03", "FATAL: the database system is starting up");
        test::canned_server pooler({"N", fatal("08P01", "no more connections allowed")});
        may_pass("host=127.0.0.1 user=u password=s3cret port=" + std::to_string(pooler.port()),
                 "08P01", "FATAL: no more connections allowed");

        test::postgres_server small(test::postgres_server::speed::quick,
                                    "max_connections = 4\nsuperuser_reserved_connections = 0\n"
                                    "max_wal_senders = 0");
        REQUIRE(small.is_running());
        std::vector<std::unique_ptr<session>> all;
        for (int i = 0; i < 4; ++i) {
            all.push_back(std::make_unique<session>(small.conninfo()));
            REQUIRE(::PQstatus(&all.back()->native()) == CONNECTION_OK);
        }
        may_pass(small.conninfo() + " password=s3cret", "53300", "too many clients already");
        postgres_slot slot(small.conninfo(), "key");
        CHECK(slot.load().error() == postgres_error("53300"));
        all.clear();
        CHECK(test::asks_until(10s, [&] { return slot.load().has_value(); }));
        CHECK(slot.explain().find("too many") == std::string::npos);
    }
}

TEST_CASE(
    "postgres_slot: permanent refusals of a pooler are distinguished from those that may pass") {
    const auto refused = [](const std::string& words) { // all with the same code
        test::canned_server pooler({"N", fatal("08P01", words)});
        const refusal r("host=127.0.0.1 user=u dbname=d sslmode=prefer password=s3cret port=" +
                        std::to_string(pooler.port()));
        CHECK(has(r.words, "database d, user u, key key: FATAL: " + words));
        return r.lasts ? sqlstate(r.error) : "";
    };
    CHECK(refused("no such database: d") == "3D000");
    CHECK(refused("no such user: u") == "28P01");
    CHECK(refused("password authentication failed") == "28P01");
    CHECK(refused("query_wait_timeout") == "");
}

TEST_CASE(
    "postgres_slot: an acquire and a release without contention take two round trips each, and "
    "one if the record was just read") {
    if (test::postgres_server* const s = server()) {
        test::flaky_proxy net(s->port());
        // No negotiation, so that each request is a round trip.
        const std::string at =
            test::postgres_server::conninfo(net.port()) + " sslmode=disable gssencmode=disable";
        int before = 0;
        const auto requests = [&] {
            const int now = net.requests();
            return now - std::exchange(before, now);
        };
        durable_options quiet = test::unhurried();
        quiet.auto_renew = false; // a renewal is a request, too
        durable_mutex lock(postgres_slot(at, new_key()), quiet);
        const auto count = [&] {
            auto held = lock.acquire();
            REQUIRE(held.has_value());
            const int for_acquire = requests();
            REQUIRE(held->release().has_value());
            return std::pair(for_acquire, requests());
        };
        // It connects, looks for the table, and makes it if it is missing.
        const auto first = count();
        CHECK(first.first <= 6);
        CHECK(first.second <= 3);
        const auto forget = [] { std::this_thread::sleep_for(20ms); }; // the record gets too old
        for (int i = 0; i < 2; ++i) { // the statements are prepared
            forget();
            const auto next = count();
            CHECK(next.first <= 4);
            CHECK(next.second <= 4);
        }
        forget();
        auto held = lock.acquire();
        REQUIRE(held.has_value());
        CHECK(requests() == 2);
        forget();
        CHECK(held->renew().has_value());
        CHECK(requests() == 2);
        forget();
        CHECK(held->release().has_value());
        CHECK(requests() == 2);
        CHECK(lock.inspect().has_value());
        CHECK(requests() == 1);
        // A busy machine may take longer than 20 ms.
        CHECK(test::eventually([&] { return count() == std::pair(1, 1); }));
    }
}

TEST_CASE("postgres_slot: 150 locks of a process live on a server of 20 connections, and a locked "
          "row costs no other lock its hold",
          "[promise.postgres-connections]") {
    if (!test::postgres_server::is_available()) {
        WARN("skipped: PostgreSQL is not installed");
        return;
    }
    test::postgres_server small(test::postgres_server::speed::quick,
                                "max_connections = 20\nmax_wal_senders = 0");
    REQUIRE(small.is_running());
    constexpr std::size_t count = 150;
    // If a renewal waited for the row as long as a call does, it would take longer than a lease.
    CHECK(test::in_some_time(6s, [&](std::chrono::milliseconds lease) {
        durable_options options{.lease = lease};
        std::vector<std::unique_ptr<durable_mutex>> locks;
        std::vector<durable_guard> guards;
        const auto held = [&] {
            return std::size_t(std::count_if(guards.begin(), guards.end(),
                                             [](const auto& each) { return each.is_held(); }));
        };
        for (std::size_t i = 0; i < count; ++i) {
            locks.push_back(std::make_unique<durable_mutex>(
                postgres_slot(small.conninfo(), "lock " + std::to_string(i),
                              patient_for(lease * 5 / 3)),
                options));
            auto got = locks.back()->acquire();
            REQUIRE(got.has_value());
            guards.push_back(std::move(*got));
        }
        session user(small.conninfo());
        CHECK(user("SELECT count(*) < 8 FROM pg_stat_activity "
                   "WHERE backend_type = 'client backend'") == "t");
        user("BEGIN; SELECT 1 FROM bide_lock WHERE key = 'lock 7' FOR UPDATE");
        const auto locked_at = std::chrono::steady_clock::now();
        if (held() < count) {
            return false; // before the row was locked
        }
        REQUIRE(test::asks_until(test::patience, [&] { return !guards[7].is_held(); }));
        // The row was locked for longer than the interval of renewals.
        const bool was_long = std::chrono::steady_clock::now() - locked_at > lease / 2;
        const bool kept = held() == count - 1;
        user("COMMIT");
        bool released = true;
        for (durable_guard& each : guards) {
            const bool in_time = each.release().has_value();
            CHECK((!in_time || &each != &guards[7]));
            released = released && (in_time || &each == &guards[7]);
        }
        return was_long && kept && released;
    }));
}

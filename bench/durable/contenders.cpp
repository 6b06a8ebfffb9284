#include "durable/contenders.hpp"

#include "durable/directory.hpp"
#include "durable/stores.hpp"

#include <bide/durable/locks.hpp>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#if defined(BIDE_BENCH_HAS_POSTGRES)
#include <libpq-fe.h>
#endif

namespace bench {
namespace {

class durable_contender final : public contender {
public:
    durable_contender(bide::slot_ref slot, const lock_terms& terms)
        : lock_(std::move(slot), terms.permits, options(terms)) {}

    std::int64_t acquire() override {
        bide::acquire_request request;
        request.timeout = std::chrono::seconds(40);
        auto got = lock_.acquire(std::move(request));
        if (!got) {
            throw std::system_error(got.error(), "acquire");
        }
        held_.emplace(std::move(*got));
        return held_->fence();
    }

    void release() override {
        const auto released = held_->release();
        held_.reset();
        if (!released) {
            throw std::system_error(released.error(), "release");
        }
    }

private:
    static bide::durable_options options(const lock_terms& terms) {
        bide::durable_options o;
        o.lease = terms.lease;
        o.process_bound = terms.process_bound;
        return o;
    }

    bide::durable_semaphore lock_;
    std::optional<bide::durable_guard> held_;
};

class flock_contender final : public contender {
public:
    explicit flock_contender(const std::string& place)
        : file_(::open((work_directory::path() + "/" + place).c_str(), O_RDWR | O_CREAT | O_CLOEXEC,
                       0600)) {
        if (file_ < 0) {
            throw std::system_error(errno, std::generic_category(), "open");
        }
    }
    ~flock_contender() override { ::close(file_); }

    std::int64_t acquire() override { return change(LOCK_EX); }
    void release() override { change(LOCK_UN); }

private:
    std::int64_t change(int how) {
        while (::flock(file_, how) != 0) {
            if (errno != EINTR) {
                throw std::system_error(errno, std::generic_category(), "flock");
            }
        }
        return 0;
    }

    int file_;
};

#if defined(BIDE_BENCH_HAS_POSTGRES)
class advisory_contender final : public contender {
public:
    explicit advisory_contender(const std::string& place)
        : connection_(::PQconnectdb(postgres_conninfo().c_str())) {
        const std::string key = "(hashtext('" + place + "'))";
        lock_ = "SELECT pg_advisory_lock" + key;
        unlock_ = "SELECT pg_advisory_unlock" + key;
        if (::PQstatus(connection_) != CONNECTION_OK) {
            throw std::runtime_error(::PQerrorMessage(connection_));
        }
    }
    ~advisory_contender() override { ::PQfinish(connection_); }

    std::int64_t acquire() override {
        execute(lock_, "");
        return 0;
    }
    void release() override { execute(unlock_, "t"); }

private:
    void execute(const std::string& sql, const std::string& expected) {
        PGresult* const answer = ::PQexec(connection_, sql.c_str());
        const bool done =
            ::PQresultStatus(answer) == PGRES_TUPLES_OK && ::PQgetvalue(answer, 0, 0) == expected;
        ::PQclear(answer);
        if (!done) {
            throw std::runtime_error(sql + ": " + ::PQerrorMessage(connection_));
        }
    }

    PGconn* connection_;
    std::string lock_;
    std::string unlock_;
};
#endif

lock_kind kind_over(store& on) {
    lock_kind kind;
    kind.name = on.name();
    kind.shared_by = on.shared_by();
    kind.prepare = [&on] { on.prepare(); };
    kind.join = [&on](const std::string& place, slot_meter& meter, const lock_terms& terms) {
        return std::make_unique<durable_contender>(on.open(place, meter), terms);
    };
    return kind;
}

lock_kind flock_kind() {
    lock_kind kind;
    kind.name = "flock(2)";
    kind.is_ours = false;
    kind.prepare = [] {};
    kind.join = [](const std::string& place, slot_meter&, const lock_terms&) {
        return std::make_unique<flock_contender>(place);
    };
    return kind;
}

#if defined(BIDE_BENCH_HAS_POSTGRES)
lock_kind advisory_kind() {
    lock_kind kind;
    kind.name = "pg_advisory_lock";
    kind.is_ours = false;
    kind.prepare = [] { static_cast<void>(postgres_conninfo()); };
    kind.join = [](const std::string& place, slot_meter&, const lock_terms&) {
        return std::make_unique<advisory_contender>(place);
    };
    return kind;
}
#endif

} // namespace

const std::vector<lock_kind>& our_locks() {
    static const std::vector<lock_kind> all = [] {
        std::vector<lock_kind> kinds;
        for (store* const each : stores()) {
            kinds.push_back(kind_over(*each));
        }
        return kinds;
    }();
    return all;
}

const std::vector<lock_kind>& other_locks() {
    static const std::vector<lock_kind> all = [] {
        std::vector<lock_kind> kinds;
        kinds.push_back(flock_kind());
#if defined(BIDE_BENCH_HAS_POSTGRES)
        for (const store* const each : stores()) {
            if (std::string(each->name()) == "PostgreSQL") {
                kinds.push_back(advisory_kind());
            }
        }
#endif
        return kinds;
    }();
    return all;
}

} // namespace bench

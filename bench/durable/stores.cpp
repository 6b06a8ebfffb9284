#include "durable/stores.hpp"

#include "durable/directory.hpp"

#include <bide/durable/slots/file.hpp>
#include <bide/durable/slots/memory.hpp>

#if defined(BIDE_BENCH_HAS_SQLITE)
#include <bide/durable/slots/sqlite.hpp>

#include <sqlite3.h>
#endif
#if defined(BIDE_BENCH_HAS_POSTGRES)
#include <bide/durable/slots/postgres.hpp>
#include <support/servers.hpp>

#include <libpq-fe.h>
#endif
#if defined(BIDE_BENCH_HAS_REDIS)
#include <bide/durable/slots/redis.hpp>
#endif
#if defined(BIDE_BENCH_HAS_ETCD)
#include <bide/durable/slots/etcd.hpp>
#endif
#if defined(BIDE_BENCH_HAS_REDIS) || defined(BIDE_BENCH_HAS_ETCD)
#include <support/servers_kv.hpp>
#endif

#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

// What each is made of: a function that opens a slot of its own type.
template <class Derived> class store_of : public store {
public:
    bide::slot_ref open(const std::string& place) override {
        return {bide::allow_relaxed, self().open_slot(place)};
    }
    bide::slot_ref open(const std::string& place, slot_meter& meter) override {
        return {bide::allow_relaxed, metered_slot(self().open_slot(place), meter)};
    }

private:
    Derived& self() { return static_cast<Derived&>(*this); }
};

// The threads of a process find the memory by its name.
class memory_store final : public store_of<memory_store> {
public:
    const char* name() const override { return "memory"; }
    members shared_by() const override { return members::threads; }
    bide::memory_slot open_slot(const std::string& place) {
        const std::lock_guard held(lock_);
        return places_[place];
    }

private:
    std::mutex lock_;
    std::map<std::string, bide::memory_slot> places_;
};

class file_store final : public store_of<file_store> {
public:
    const char* name() const override { return "file"; }
    bide::file_slot open_slot(const std::string& place) {
        return bide::file_slot(work_directory::path() + "/" + place);
    }
};

#if defined(BIDE_BENCH_HAS_SQLITE)
class sqlite_store final : public store_of<sqlite_store> {
public:
    const char* name() const override { return "SQLite"; }
    bide::sqlite_slot open_slot(const std::string& place) {
        return {work_directory::path() + "/" + place + ".sqlite", "lock"};
    }
};
#endif

#if defined(BIDE_BENCH_HAS_POSTGRES)
std::unique_ptr<test::postgres_server> postgres;

class postgres_store final : public store_of<postgres_store> {
public:
    const char* name() const override { return "PostgreSQL"; }
    void prepare() override { static_cast<void>(postgres_conninfo()); }
    bide::postgres_slot open_slot(const std::string& place) {
        return {postgres->conninfo(), place};
    }
};
#endif

#if defined(BIDE_BENCH_HAS_REDIS)
std::unique_ptr<test::redis_server> redis;

class redis_store final : public store_of<redis_store> {
public:
    const char* name() const override { return "Redis"; }
    void prepare() override { redis_port(); }
    bide::redis_slot open_slot(const std::string& place) {
        return {"redis://127.0.0.1:" + std::to_string(redis_port()), place};
    }
};
#endif

#if defined(BIDE_BENCH_HAS_ETCD)
std::unique_ptr<test::etcd_server> etcd;

class etcd_store final : public store_of<etcd_store> {
public:
    const char* name() const override { return "etcd"; }
    void prepare() override { static_cast<void>(etcd_endpoint()); }
    bide::etcd_slot open_slot(const std::string& place) { return {etcd_endpoint(), place}; }
};
#endif

std::vector<std::unique_ptr<store>> find_stores() {
    std::vector<std::unique_ptr<store>> found;
    found.push_back(std::make_unique<memory_store>());
    found.push_back(std::make_unique<file_store>());
#if defined(BIDE_BENCH_HAS_SQLITE)
    found.push_back(std::make_unique<sqlite_store>());
#endif
#if defined(BIDE_BENCH_HAS_POSTGRES)
    if (test::postgres_server::is_available()) {
        found.push_back(std::make_unique<postgres_store>());
    }
#endif
#if defined(BIDE_BENCH_HAS_REDIS)
    if (!test::redis_server::program().empty()) {
        found.push_back(std::make_unique<redis_store>());
    }
#endif
#if defined(BIDE_BENCH_HAS_ETCD)
    if (!test::etcd_server::program().empty()) {
        found.push_back(std::make_unique<etcd_store>());
    }
#endif
    return found;
}

} // namespace

const std::vector<store*>& stores() {
    static const std::vector<std::unique_ptr<store>> owned = find_stores();
    static const std::vector<store*> all = [] {
        std::vector<store*> pointers;
        for (const auto& each : owned) {
            pointers.push_back(each.get());
        }
        return pointers;
    }();
    return all;
}

void stop_servers() {
#if defined(BIDE_BENCH_HAS_POSTGRES)
    postgres.reset();
#endif
#if defined(BIDE_BENCH_HAS_REDIS)
    redis.reset();
#endif
#if defined(BIDE_BENCH_HAS_ETCD)
    etcd.reset();
#endif
}

std::string postgres_conninfo() {
#if defined(BIDE_BENCH_HAS_POSTGRES)
    if (postgres == nullptr) {
        postgres = std::make_unique<test::postgres_server>(test::postgres_server::speed::durable,
                                                           "max_connections = 500");
        if (!postgres->is_running()) {
            throw std::runtime_error("PostgreSQL did not start");
        }
    }
    return postgres->conninfo();
#else
    return {};
#endif
}

int redis_port() {
#if defined(BIDE_BENCH_HAS_REDIS)
    if (redis == nullptr) {
        redis = std::make_unique<test::redis_server>();
    }
    return redis->port();
#else
    return 0;
#endif
}

std::string etcd_endpoint() {
#if defined(BIDE_BENCH_HAS_ETCD)
    if (etcd == nullptr) {
        etcd = std::make_unique<test::etcd_server>();
    }
    return etcd->endpoint();
#else
    return {};
#endif
}

std::string describe_stores() {
    std::string text;
    for (const store* const each : stores()) {
        text += (text.empty() ? "" : ", ") + std::string(each->name());
    }
#if defined(BIDE_BENCH_HAS_SQLITE)
    text += std::string("; SQLite ") + sqlite3_libversion();
#endif
    return text;
}

} // namespace bench

// The locks that users of the same stores write themselves, or get with the store.

#include "durable/contenders.hpp"
#include "durable/directory.hpp"
#include "durable/stores.hpp"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#if defined(BIDE_BENCH_HAS_POSTGRES)
#include <libpq-fe.h>
#endif
#if defined(BIDE_BENCH_HAS_REDIS)
#include <hiredis/hiredis.h>
#endif
#if defined(BIDE_BENCH_HAS_ETCD)
#include <curl/curl.h>
#endif

namespace bench {
namespace {

// flock(2). If it `writes`, each change also writes a page and syncs it before the lock can change
// again.
template <bool writes> class flock_contender final : public contender {
public:
    explicit flock_contender(const std::string& place)
        : file_(::open((work_directory::path() + "/" + place).c_str(), O_RDWR | O_CREAT | O_CLOEXEC,
                       0600)) {
        check(file_);
    }
    ~flock_contender() override { ::close(file_); }

    std::int64_t acquire() override {
        change(LOCK_EX);
        write();
        return 0;
    }
    void release() override {
        write();
        change(LOCK_UN);
    }

private:
    static void check(std::int64_t answer) {
        if (answer < 0) {
            throw std::system_error(errno, std::generic_category(), "flock");
        }
    }
    void change(int how) {
        int answer = 0;
        while ((answer = ::flock(file_, how)) != 0 && errno == EINTR) {
        }
        check(answer);
    }
    void write() {
        if constexpr (writes) {
            ++page_[0];
            check(::pwrite(file_, page_, sizeof page_, 0));
            check(::fdatasync(file_));
        }
    }

    int file_;
    char page_[4096] = {};
};

// A contender that looks again when the lock was held, after the pause that redis-py's Lock and
// Spring Integration's lock registries have by default.
class polling_contender : public contender {
public:
    std::int64_t acquire() final {
        while (!try_acquire()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
        return 0;
    }

private:
    virtual bool try_acquire() = 0;
};

void expect(bool done, const std::string& what) {
    if (!done) {
        throw std::runtime_error(what);
    }
}

#if defined(BIDE_BENCH_HAS_POSTGRES)
class connection {
public:
    connection() { expect(::PQstatus(of_) == CONNECTION_OK, ::PQerrorMessage(of_)); }
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;
    ~connection() { ::PQfinish(of_); }

    // The number of rows.
    std::string execute(const std::string& sql) {
        const std::unique_ptr<PGresult, decltype(&::PQclear)> answer(::PQexec(of_, sql.c_str()),
                                                                     &::PQclear);
        const ExecStatusType is = ::PQresultStatus(answer.get());
        expect(is == PGRES_COMMAND_OK || is == PGRES_TUPLES_OK, ::PQerrorMessage(of_));
        return ::PQcmdTuples(answer.get());
    }

private:
    PGconn* const of_ = ::PQconnectdb(postgres_conninfo().c_str());
};

class advisory_contender final : public contender {
public:
    explicit advisory_contender(const std::string& place) {
        const std::string key = "(hashtext('" + place + "'))";
        on_.execute("PREPARE lock AS SELECT pg_advisory_lock" + key);
        on_.execute("PREPARE unlock AS SELECT 1 WHERE pg_advisory_unlock" + key);
    }

    std::int64_t acquire() override {
        on_.execute("EXECUTE lock");
        return 0;
    }
    void release() override { expect(on_.execute("EXECUTE unlock") == "1", "it was not held"); }

private:
    connection on_;
};

// One row for each lock, as ShedLock has it, and an UPDATE for each change.
class update_contender final : public polling_contender {
public:
    static void prepare() {
        connection().execute("SET client_min_messages = warning; CREATE TABLE IF NOT EXISTS "
                             "shedlock (name text PRIMARY KEY, "
                             "lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, "
                             "locked_by text NOT NULL)");
    }
    explicit update_contender(const std::string& place) {
        const std::string now = "timezone('utc', CURRENT_TIMESTAMP)";
        const std::string me = "'billing-7:" + std::to_string(::getpid()) + "'";
        const std::string mine = " WHERE name = '" + place + "' AND ";
        on_.execute("INSERT INTO shedlock VALUES ('" + place + "', " + now + ", " + now + ", " +
                    me + ") ON CONFLICT DO NOTHING");
        on_.execute("PREPARE lock AS UPDATE shedlock SET lock_until = " + now +
                    " + interval '30 s', locked_at = " + now + ", locked_by = " + me + mine +
                    "lock_until <= " + now);
        on_.execute("PREPARE unlock AS UPDATE shedlock SET lock_until = " + now + mine +
                    "locked_by = " + me);
    }

    void release() override { expect(on_.execute("EXECUTE unlock") == "1", "it was not held"); }

private:
    bool try_acquire() override { return on_.execute("EXECUTE lock") == "1"; }

    connection on_;
};
#endif

#if defined(BIDE_BENCH_HAS_REDIS)
// SET NX, and a script that deletes the key if it has the value of this holder.
class set_contender final : public polling_contender {
public:
    explicit set_contender(const std::string& place)
        : key_(place),
          script_(call("SCRIPT LOAD %s", "if redis.call('get', KEYS[1]) == ARGV[1] then "
                                         "return redis.call('del', KEYS[1]) else return 0 end")
                      ->str) {}
    ~set_contender() override { ::redisFree(on_); }

    void release() override {
        expect(call("EVALSHA %s 1 %s %s", script_.c_str(), key_.c_str(), me_.c_str())->integer == 1,
               "it was not held");
    }

private:
    bool try_acquire() override {
        return call("SET %s %s NX PX 30000", key_.c_str(), me_.c_str())->type == REDIS_REPLY_STATUS;
    }

    struct free_reply {
        void operator()(redisReply* reply) const { ::freeReplyObject(reply); }
    };
    template <class... Words>
    std::unique_ptr<redisReply, free_reply> call(const char* format, Words... words) {
        std::unique_ptr<redisReply, free_reply> reply(
            static_cast<redisReply*>(::redisCommand(on_, format, words...)));
        expect(reply && reply->type != REDIS_REPLY_ERROR, "Redis: no reply, or an error");
        return reply;
    }

    redisContext* const on_ = ::redisConnect("127.0.0.1", redis_port());
    const std::string key_;
    const std::string me_ = std::to_string(::getpid());
    const std::string script_;
};
#endif

#if defined(BIDE_BENCH_HAS_ETCD)
// etcd's own lock, through its gateway for JSON: the call returns when it has the lock.
class etcd_contender final : public contender {
public:
    explicit etcd_contender(const std::string& place) : name_(place) {
        // Letters and digits of such a length are Base64.
        name_.resize((name_.size() + 3) / 4 * 4, 'A');
        lease_ = call("lease/grant", R"({"TTL":90})", "ID");
    }
    ~etcd_contender() override { ::curl_easy_cleanup(on_); }

    std::int64_t acquire() override {
        key_ = call("lock/lock", R"({"name":")" + name_ + R"(","lease":")" + lease_ + "\"}", "key");
        return 0;
    }
    void release() override { call("lock/unlock", R"({"key":")" + key_ + "\"}", "revision"); }

private:
    // Returns the text of this field of the answer.
    std::string call(const char* what, const std::string& body, const std::string& field) {
        std::string answer;
        const auto append = [](char* bytes, std::size_t, std::size_t size, void* to) {
            static_cast<std::string*>(to)->append(bytes, size);
            return size;
        };
        const std::string url = etcd_endpoint() + "/v3/" + what;
        ::curl_easy_setopt(on_, CURLOPT_URL, url.c_str());
        ::curl_easy_setopt(on_, CURLOPT_COPYPOSTFIELDS, body.c_str());
        ::curl_easy_setopt(
            on_, CURLOPT_WRITEFUNCTION,
            static_cast<std::size_t (*)(char*, std::size_t, std::size_t, void*)>(append));
        ::curl_easy_setopt(on_, CURLOPT_WRITEDATA, &answer);
        ::curl_easy_setopt(on_, CURLOPT_NOSIGNAL, 1L);
        const CURLcode done = ::curl_easy_perform(on_);
        const std::string begin = "\"" + field + "\":\"";
        const std::size_t found = answer.find(begin);
        expect(done == CURLE_OK && found != answer.npos, "etcd: " + answer);
        const std::size_t text = found + begin.size();
        return answer.substr(text, answer.find('"', text) - text);
    }

    CURL* const on_ = ::curl_easy_init();
    std::string name_;
    std::string lease_;
    std::string key_;
};
#endif

template <class Contender>
lock_kind other(const char* name, std::function<void()> prepare, bool polls = false) {
    lock_kind kind;
    kind.name = name;
    kind.is_ours = false;
    kind.polls = polls;
    kind.prepare = std::move(prepare);
    kind.join = [](const std::string& place, slot_meter&, const lock_terms&) {
        return std::make_unique<Contender>(place);
    };
    return kind;
}

std::vector<lock_kind> find_other_locks() {
    const auto nothing = [] {};
    std::vector<lock_kind> kinds{
        other<flock_contender<false>>("flock(2)", nothing),
        other<flock_contender<true>>("flock(2), two fdatasyncs", nothing),
    };
    for (const store* const each : stores()) {
        const std::string on = each->name();
#if defined(BIDE_BENCH_HAS_POSTGRES)
        if (on == "PostgreSQL") {
            kinds.push_back(other<advisory_contender>("pg_advisory_lock", &postgres_conninfo));
            kinds.push_back(
                other<update_contender>("PostgreSQL UPDATE", &update_contender::prepare, true));
        }
#endif
#if defined(BIDE_BENCH_HAS_REDIS)
        if (on == "Redis") {
            kinds.push_back(other<set_contender>("SET NX", &redis_port, true));
        }
#endif
#if defined(BIDE_BENCH_HAS_ETCD)
        if (on == "etcd") {
            kinds.push_back(other<etcd_contender>("etcd lock", &etcd_endpoint));
        }
#endif
    }
    return kinds;
}

} // namespace

const std::vector<lock_kind>& other_locks() {
    static const std::vector<lock_kind> all = find_other_locks();
    return all;
}

} // namespace bench

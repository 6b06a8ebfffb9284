#ifndef BIDE_BENCH_DURABLE_STORES_HPP
#define BIDE_BENCH_DURABLE_STORES_HPP

// Where slots can be had on this machine: what was compiled in and is installed. Servers are
// started when they are first needed, with settings by which what they acknowledge is on disk.

#include "durable/crew.hpp"
#include "durable/meter.hpp"

#include <bide/durable/slot.hpp>

#include <string>
#include <vector>

namespace bench {

class store {
public:
    store() = default;
    store(const store&) = delete;
    store& operator=(const store&) = delete;
    virtual ~store() = default;

    virtual const char* name() const = 0;

    // Which processes can share it.
    virtual members shared_by() const { return members::processes; }

    // By the parent, before a process opens it.
    virtual void prepare() {}

    // In a process of its own.
    virtual bide::slot_ref open(const std::string& place) = 0;
    virtual bide::slot_ref open(const std::string& place, slot_meter& meter) = 0;
};

// They live as long as the program; stop_servers() before its end.
const std::vector<store*>& stores();
void stop_servers();

// The addresses of the servers, which they start: for libpq, a port of 127.0.0.1, a URL. Empty or 0
// if the client is not compiled in.
std::string postgres_conninfo();
int redis_port();
std::string etcd_endpoint();

// One line.
std::string describe_stores();

} // namespace bench

#endif

#ifndef BIDE_TESTS_SUPPORT_SERVERS_HPP
#define BIDE_TESTS_SUPPORT_SERVERS_HPP

// PostgreSQL and PgBouncer on 127.0.0.1, for as long as the object lives. Where they are not
// installed is_available() is false.

#include "support/server_process.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include <pwd.h>
#include <unistd.h>

namespace test {

class postgres_server {
public:
    enum class speed {
        durable, // as it comes: what it acknowledged survives a loss of power
        quick    // survives its own death only, and starts faster
    };

    // Its programs are there.
    static bool is_available() { return !directory_of_programs().empty(); }

    // Starts the server, which may take a few seconds; see is_running(). `settings` are lines of
    // its configuration.
    explicit postgres_server(speed how = speed::quick, const std::string& settings = {}) {
        if (!is_available()) {
            return;
        }
        std::vector<std::string> words{programs_ + "/initdb",
                                       "-D",
                                       data(),
                                       "-A",
                                       "trust",
                                       "-E",
                                       "UTF8",
                                       "-U",
                                       "postgres",
                                       "--no-locale",
                                       "--no-sync",
                                       "--no-instructions"};
        if (how == speed::quick) {
            words.push_back("--wal-segsize=1");
        }
        if (!give_to_user(directory_.path()) || !runs({words, log(), user})) {
            show_log(log());
            return;
        }
        configuration_ = "listen_addresses = '127.0.0.1'\n"
                         "unix_socket_directories = '" +
                         directory_.path() +
                         "'\n"
                         "max_connections = 200\n"
                         "shared_buffers = 16MB\n";
        if (how == speed::quick) {
            configuration_ += "fsync = off\nfull_page_writes = off\nmin_wal_size = 2MB\n";
        }
        configuration_ += settings + "\n";
        for (int tries = 0; tries < 5 && !is_running(); ++tries) {
            port_ = free_port();
            restart();
        }
        if (!is_running()) {
            show_log(log());
        }
    }
    ~postgres_server() { stop(); }

    bool is_running() { return process_.is_running(); }
    std::uint16_t port() const noexcept { return port_; }
    const std::string& directory() const noexcept { return directory_.path(); }

    // For libpq.
    std::string conninfo() const { return conninfo(port_); }
    static std::string conninfo(std::uint16_t port) {
        return "host=127.0.0.1 port=" + std::to_string(port) + " user=postgres dbname=postgres";
    }
    std::string unix_conninfo() const {
        return "host=" + directory_.path() + " port=" + std::to_string(port_) +
               " user=postgres dbname=postgres";
    }

    // As a crash of the machine that loses nothing of what was written.
    void kill9() { process_.kill9(); }
    void stop() { process_.stop(SIGINT); }

    // Starts it again, with what it had stored. It says that the last one may still be there until
    // the last of its processes is gone: asked again until then.
    bool restart(std::chrono::milliseconds limit = std::chrono::seconds(20)) {
        directory_.write("data/postgresql.auto.conf",
                         configuration_ + "port = " + std::to_string(port_) + "\n");
        return asks_until(limit, [this] {
            process_.start({{programs_ + "/postgres", "-D", data()}, log(), user, SIGQUIT});
            return asks_until(std::chrono::seconds(10),
                              [this] { return !process_.is_running() || is_ready(); }) &&
                   process_.is_running();
        });
    }

    void freeze() const { process_.freeze(); }
    void thaw() const { process_.thaw(); }

    // One statement, by psql, on the server's side of things. True: it was done.
    bool execute(const std::string& sql) const {
        return runs({{programs_ + "/psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d",
                      unix_conninfo(), "-c", sql},
                     log(),
                     user});
    }

private:
    static constexpr const char* user = "postgres"; // it refuses to be run by root

    static std::string directory_of_programs() {
        std::vector<std::string> found;
        std::error_code ignored;
        for (const auto& each :
             std::filesystem::directory_iterator("/usr/lib/postgresql", ignored)) {
            const std::string programs = each.path().string() + "/bin";
            if (::access((programs + "/postgres").c_str(), X_OK) == 0 &&
                ::access((programs + "/initdb").c_str(), X_OK) == 0) {
                found.push_back(programs);
            }
        }
        const auto older = [](const std::string& a, const std::string& b) {
            return a.size() != b.size() ? a.size() < b.size() : a < b;
        };
        const auto newest = std::max_element(found.begin(), found.end(), older);
        return newest == found.end() ? std::string() : *newest;
    }

    std::string data() const { return directory_.path() + "/data"; }
    std::string log() const { return directory_.path() + "/log"; }

    // The postmaster writes it when it accepts connections, in the last line of its file.
    bool is_ready() const {
        std::ifstream file(data() + "/postmaster.pid");
        std::string line;
        std::vector<std::string> lines;
        while (std::getline(file, line)) {
            lines.push_back(line);
        }
        return lines.size() >= 8 && lines[0] == std::to_string(process_.pid()) &&
               (lines[7].rfind("ready", 0) == 0 || lines[7].rfind("standby", 0) == 0);
    }

    static bool give_to_user(const std::string& path) {
        if (::getuid() != 0) {
            return true;
        }
        const passwd* const found = ::getpwnam(user);
        return found != nullptr && ::chown(path.c_str(), found->pw_uid, found->pw_gid) == 0;
    }

    std::string programs_ = directory_of_programs();
    temp_directory directory_{"postgres"};
    std::string configuration_;
    std::uint16_t port_ = 0;
    server_process process_;
};

// In front of a server, lends its connections for the length of a transaction.
class pgbouncer {
public:
    static bool is_available() { return !program().empty(); }

    // `connections`: how many it keeps to the server.
    explicit pgbouncer(std::uint16_t server_port, int connections = 4) {
        if (!is_available()) {
            return;
        }
        for (int tries = 0; tries < 5 && !is_running(); ++tries) {
            start(server_port, connections);
        }
        if (!is_running()) {
            show_log(log());
        }
    }
    explicit pgbouncer(const postgres_server& server, int connections = 4)
        : pgbouncer(server.port(), connections) {}
    ~pgbouncer() { process_.stop(SIGTERM); }

    bool is_running() { return process_.is_running(); }
    std::uint16_t port() const noexcept { return port_; }
    std::string conninfo() const { return postgres_server::conninfo(port_); }
    void freeze() const { process_.freeze(); }
    void thaw() const { process_.thaw(); }

private:
    static std::string program() {
        return find_program({"/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"});
    }
    std::string log() const { return directory_.path() + "/log"; }

    void start(std::uint16_t server_port, int connections) {
        port_ = free_port();
        const std::string file = directory_.write("ini", "[databases]\n"
                                                         "postgres = host=127.0.0.1 port=" +
                                                             std::to_string(server_port) +
                                                             " user=postgres dbname=postgres\n"
                                                             "[pgbouncer]\n"
                                                             "listen_addr = 127.0.0.1\n"
                                                             "listen_port = " +
                                                             std::to_string(port_) +
                                                             "\n"
                                                             "unix_socket_dir =\n"
                                                             "auth_type = any\n"
                                                             "pool_mode = transaction\n"
                                                             "max_client_conn = 500\n"
                                                             "default_pool_size = " +
                                                             std::to_string(connections) +
                                                             "\n"
                                                             "server_login_retry = 0.1\n");
        process_.start({{program(), file}, log(), "postgres"});
        asks_until(std::chrono::seconds(10),
                   [this] { return !process_.is_running() || accepts(port_); });
    }

    temp_directory directory_{"pgbouncer"};
    std::uint16_t port_ = 0;
    server_process process_;
};

} // namespace test

#endif

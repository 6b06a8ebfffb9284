#ifndef BIDE_TESTS_SUPPORT_SERVERS_HPP
#define BIDE_TESTS_SUPPORT_SERVERS_HPP

// PostgreSQL and PgBouncer on 127.0.0.1. The constructor starts a server and the destructor ends
// it. If it is not installed, is_available() is false.

#include "support/server_process.hpp"
#include <support/standard.hpp>

#include <pwd.h>
#include <unistd.h>

namespace test {

class postgres_server {
public:
    enum class speed {
        durable, // the default settings: acknowledged values survive a loss of power
        quick    // acknowledged values survive only a crash of the server; it starts faster
    };

    // Whether PostgreSQL's programs are installed.
    static bool is_available() { return !directory_of_programs().empty(); }

    // Starts the server, within a few seconds. If that fails, is_running() is false. `settings` are
    // lines of its configuration.
    explicit postgres_server(speed how = speed::quick, const std::string& settings = {}) {
        if (!is_available()) {
            return;
        }
        std::string init = programs_ + "/initdb -D " + data() +
                           " -A trust -E UTF8 -U postgres --no-locale --no-sync --no-instructions";
        if (how == speed::quick) {
            init += " --wal-segsize=1";
        }
        if (!give_to_user(directory_.path()) ||
            !runs({words(init), log(), user}, std::chrono::minutes(2))) {
            show_log(log());
            return;
        }
        configuration_ = "listen_addresses = '127.0.0.1'\nunix_socket_directories = '" +
                         directory_.path() + "'\nmax_connections = 200\nshared_buffers = 16MB\n";
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

    // The connection string for libpq.
    std::string conninfo() const { return conninfo(port_); }
    static std::string conninfo(std::uint16_t port) {
        return "host=127.0.0.1 port=" + std::to_string(port) + " user=postgres dbname=postgres";
    }
    std::string unix_conninfo() const {
        return "host=" + directory_.path() + " port=" + std::to_string(port_) +
               " user=postgres dbname=postgres";
    }

    // Kills all processes, like a crash of the machine that loses no written byte.
    void kill9() { process_.kill9(); }
    void stop() { process_.stop(SIGINT); }

    // Starts the server with its stored data. The server refuses to start until the last process of
    // the previous one has ended: tries again until the limit.
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

    // Runs one statement with psql through the server's Unix socket. Returns true on success.
    bool execute(const std::string& sql) const {
        return runs({{programs_ + "/psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d",
                      unix_conninfo(), "-c", sql},
                     log(),
                     user});
    }

private:
    static constexpr const char* user = "postgres"; // PostgreSQL refuses to run as root

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

    // Whether the server accepts connections: it then writes "ready" into line 8 of its pid file.
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

// A PgBouncer in front of a server, which pools transactions.
class pgbouncer {
public:
    static bool is_available() { return !program().empty(); }

    // `connections`: the most connections to the server.
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
        std::ostringstream ini;
        ini << "[databases]\npostgres = host=127.0.0.1 port=" << server_port
            << " user=postgres dbname=postgres\n"
               "[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = "
            << port_
            << "\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n"
               "max_client_conn = 500\nserver_login_retry = 0.1\ndefault_pool_size = "
            << connections << "\n";
        const std::string file = directory_.write("ini", ini.str());
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

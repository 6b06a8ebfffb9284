#ifndef BIDE_TESTS_SUPPORT_SERVERS_KV_HPP
#define BIDE_TESTS_SUPPORT_SERVERS_KV_HPP

// Real key-value servers for tests. Each object is one server with a directory and a port of its
// own. The first call of port() starts it, and the destructor ends it. Use it on the main thread.

#include <support/server_process.hpp>
#include <support/standard.hpp>

#include <sys/time.h>
#include <unistd.h>

namespace test {

// Sends a request to a port of 127.0.0.1. Returns the answer when it has the text `until`, when the
// server closes the connection, or when no byte arrives for 5 s.
inline std::string asks_port(std::uint16_t port, std::string_view request, std::string_view until) {
    const int fd = new_socket();
    const timeval limit{5, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    std::string answer;
    if (connects(fd, port) && ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
                                  static_cast<ssize_t>(request.size())) {
        char some[4096];
        for (ssize_t n = 0; answer.find(until) == answer.npos;) {
            do { // if the test was stopped and continued, recv() fails with EINTR
                n = ::recv(fd, some, sizeof some, 0);
            } while (n < 0 && errno == EINTR);
            if (n <= 0) {
                break;
            }
            answer.append(some, static_cast<std::size_t>(n));
        }
    }
    ::close(fd);
    return answer;
}

// The common part of the servers. The derived class has the command and tells when it is ready.
template <class Server> class kv_server {
public:
    kv_server(const kv_server&) = delete;
    kv_server& operator=(const kv_server&) = delete;

    // Whether the program is installed. If not, prints to stderr that a test is skipped.
    static bool available() {
        if (!Server::program().empty()) {
            return true;
        }
        std::fprintf(stderr, "skipped: there is no %s\n", Server::name);
        return false;
    }

    // Returns the server's port. The first call starts the server.
    std::uint16_t port() {
        if (!was_ready_) {
            start();
        }
        return port_;
    }

    // Kills the server, like a crash: it writes nothing more. restart() starts it again.
    void kill9() { process_.kill9(); }

    // Starts the server again, with the data of its directory, at the same port.
    void restart() {
        process_.kill9();
        start();
    }

    // Stops all processes of the server, and continues them. Connections stay open, and no request
    // is answered.
    void freeze() const { process_.freeze(); }
    void thaw() const { process_.thaw(); }

    const std::string& directory() const noexcept { return directory_.path(); }

protected:
    kv_server() : directory_(Server::name) {}
    ~kv_server() = default;

    void start() {
        Server& self = static_cast<Server&>(*this);
        const std::string log = directory_.path() + "/log";
        for (int tries = 0; tries < 3; ++tries) { // another process may have taken the port
            process_.start({self.arguments(), log});
            if (asks_until(std::chrono::seconds(30),
                           [&] { return !process_.is_running() || self.is_ready(); }) &&
                process_.is_running()) {
                return;
            }
            process_.kill9();
            if (was_ready_) {
                break;
            }
            self.take_other_ports();
        }
        show_log(log);
        std::fprintf(stderr, "%s did not start\n", Server::name);
        std::abort();
    }

    void was_ready() noexcept { was_ready_ = true; }

    temp_directory directory_;
    std::uint16_t port_ = free_port();
    server_process process_;
    bool was_ready_ = false;
};

// A self-signed certificate and its key, as PEM files.
struct certificate {
    std::string cert;
    std::string key;

    // Whether the openssl tool is installed. If not, prints to stderr that a test is skipped.
    static bool available() {
        if (!program().empty()) {
            return true;
        }
        std::fputs("skipped: there is no openssl\n", stderr);
        return false;
    }

    // Makes a certificate with these names: "DNS:localhost,IP:127.0.0.1". If that fails, the paths
    // are empty.
    static certificate make(const temp_directory& in, const std::string& name,
                            const std::string& names) {
        const certificate made{in.path() + "/" + name + ".pem", in.path() + "/" + name + ".key"};
        const bool is_made =
            runs({{program(), "req", "-x509", "-newkey", "ec", "-pkeyopt",
                   "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=" + name,
                   "-addext", "subjectAltName=" + names, "-keyout", made.key, "-out", made.cert},
                  in.path() + "/log"});
        return is_made ? made : certificate();
    }

private:
    static std::string program() {
        return find_program({"/usr/bin/openssl", "/usr/local/bin/openssl"});
    }
};

class redis_server : public kv_server<redis_server> {
public:
    static constexpr const char* name = "redis-server";

    static std::string program() {
        return find_program({"/usr/bin/redis-server", "/usr/local/bin/redis-server"});
    }

    // `more`: further arguments, such as {"--requirepass", "secret"}. With a certificate, the
    // server also listens at tls_port(), and requires a client certificate that it trusts, such as
    // its own.
    explicit redis_server(std::vector<std::string> more = {}, std::optional<certificate> tls = {})
        : more_(std::move(more)), tls_(std::move(tls)) {}

    std::uint16_t tls_port() {
        port();
        return tls_port_;
    }

    std::string unix_socket() const { return directory() + "/socket"; }

    // Sends one command, such as "SET key value". Returns the answer when it has the text `until`.
    std::string says(const std::string& command, std::string_view until = "\r\n") {
        return asks_port(port(), command + "\r\n", until);
    }

    // Makes this server a replica of the server at this port, and waits until they are connected.
    bool follows(std::uint16_t master) {
        says("REPLICAOF 127.0.0.1 " + std::to_string(master));
        return asks_until(std::chrono::seconds(30), [&] {
            return says("INFO replication", "repl_backlog_histlen").find("master_link_status:up") !=
                   std::string::npos;
        });
    }

private:
    friend kv_server;

    std::vector<std::string> arguments() const {
        std::vector<std::string> all =
            words(program() + " --port " + std::to_string(port_) + " --bind 127.0.0.1 --dir " +
                  directory() + " --unixsocket " + unix_socket() +
                  " --appendonly yes --appendfsync always --daemonize no"
                  " --repl-diskless-sync-delay 0");
        all.insert(all.end(), {"--save", ""});
        if (tls_) {
            const std::vector<std::string> tls =
                words("--tls-port " + std::to_string(tls_port_) + " --tls-cert-file " + tls_->cert +
                      " --tls-key-file " + tls_->key + " --tls-ca-cert-file " + tls_->cert);
            all.insert(all.end(), tls.begin(), tls.end());
        }
        all.insert(all.end(), more_.begin(), more_.end());
        return all;
    }

    bool is_ready() {
        const std::string answer = asks_port(port_, "PING\r\n", "\r\n");
        const bool yes = answer == "+PONG\r\n" || answer.rfind("-NOAUTH", 0) == 0;
        if (yes) {
            was_ready();
        }
        return yes;
    }

    void take_other_ports() {
        port_ = free_port();
        tls_port_ = free_port();
    }

    std::vector<std::string> more_;
    std::optional<certificate> tls_;
    std::uint16_t tls_port_ = free_port();
};

class etcd_server : public kv_server<etcd_server> {
public:
    static constexpr const char* name = "etcd";

    static std::string program() { return find_program({"/usr/bin/etcd", "/usr/local/bin/etcd"}); }

    etcd_server() = default;

    // Starts the server with TLS. It requires a client certificate that it trusts, such as its own.
    explicit etcd_server(certificate tls) : tls_(std::move(tls)) {}

    std::string endpoint() {
        const std::uint16_t at = port();
        return url(at, tls_.has_value());
    }

    // Sends one request to the JSON gateway, without TLS. Returns the answer with its headers.
    std::string posts(const std::string& path, const std::string& body) {
        return asks_port(port(),
                         "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
                             "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body,
                         "never in an answer: reads until the server closes the connection");
    }

private:
    friend kv_server;

    static std::string url(std::uint16_t port, bool with_tls = false) {
        return (with_tls ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port);
    }

    std::vector<std::string> arguments() const {
        const std::string peers = url(peers_);
        const std::string clients = url(port_, tls_.has_value());
        std::string line = program() + " --data-dir " + directory() + "/data --name one" +
                           " --listen-client-urls " + clients + " --advertise-client-urls " +
                           clients + " --listen-peer-urls " + peers +
                           " --initial-advertise-peer-urls " + peers +
                           " --initial-cluster one=" + peers +
                           " --log-level warn --heartbeat-interval 20 --election-timeout 200";
        if (tls_) {
            line += " --cert-file " + tls_->cert + " --key-file " + tls_->key +
                    " --trusted-ca-file " + tls_->cert +
                    " --client-cert-auth --listen-metrics-urls " + url(health_);
        }
        return words(line);
    }

    bool is_ready() {
        const bool yes =
            asks_port(tls_ ? health_ : port_,
                      "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "}")
                .find("\"health\":\"true\"") != std::string::npos;
        if (yes) {
            was_ready();
        }
        return yes;
    }

    void take_other_ports() {
        port_ = free_port();
        peers_ = free_port();
        health_ = free_port();
        std::error_code ignored;
        std::filesystem::remove_all(directory() + "/data", ignored);
    }

    std::uint16_t peers_ = free_port();
    std::uint16_t health_ = free_port(); // without TLS, also for a server with TLS
    std::optional<certificate> tls_;
};

} // namespace test

#endif

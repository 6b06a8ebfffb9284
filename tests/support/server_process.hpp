#ifndef BIDE_TESTS_SUPPORT_SERVER_PROCESS_HPP
#define BIDE_TESTS_SUPPORT_SERVER_PROCESS_HPP

// Starts a real server for a test: finds a port, and runs a child process that never outlives the
// test, even if the test crashes. Linux only.

#include <support/loopback.hpp>
#include <support/standard.hpp>
#include <support/temp_directory.hpp>

#include <iostream>

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test {

// Calls question() every 3 ms until it returns true, or until the limit. Returns the last answer.
template <class Question> bool asks_until(std::chrono::milliseconds limit, Question question) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!question()) {
        if (std::chrono::steady_clock::now() >= end) {
            return false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    return true;
}

// Returns the first path that is an executable file, or an empty string.
inline std::string find_program(std::initializer_list<const char*> paths) {
    for (const char* const path : paths) {
        if (::access(path, X_OK) == 0) {
            return path;
        }
    }
    return {};
}

// The arguments of a command line; none of them has a space.
inline std::vector<std::string> words(const std::string& line) {
    std::istringstream from(line);
    return {std::istream_iterator<std::string>(from), {}};
}

// Returns a free port of 127.0.0.1. It is below the ports that the system assigns to clients, so
// that it is still free when a server restarts.
inline std::uint16_t free_port() {
    std::random_device chance;
    for (int tries = 0; tries < 1'000; ++tries) {
        const auto port = static_cast<std::uint16_t>(15'000 + chance() % 17'000);
        const int fd = new_socket();
        const int yes = 1;
        ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        const bool is_free = binds(fd, port);
        ::close(fd);
        if (is_free) {
            return port;
        }
    }
    std::fputs("no free port\n", stderr);
    std::abort();
}

// Whether a server listens at this port of 127.0.0.1.
inline bool accepts(std::uint16_t port) {
    const int fd = new_socket();
    const bool yes = connects(fd, port);
    ::close(fd);
    return yes;
}

// Returns this process and all its descendants that exist.
inline std::vector<pid_t> process_tree(pid_t root) {
    std::vector<pid_t> found{root};
    std::vector<std::array<pid_t, 2>> all; // {process, parent}
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
        const std::string name = entry.path().filename().string();
        if (name.find_first_not_of("0123456789") != std::string::npos) {
            continue;
        }
        std::string line;
        std::getline(std::ifstream(entry.path() / "stat"), line);
        const auto behind = line.rfind(')'); // "17 (its name) S 16 ..."
        if (behind != std::string::npos && behind + 4 < line.size()) {
            all.push_back({static_cast<pid_t>(std::atoi(name.c_str())),
                           static_cast<pid_t>(std::atoi(line.c_str() + behind + 4))});
        }
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
        for (const auto& [process, parent] : all) {
            if (parent == found[i]) {
                found.push_back(process);
            }
        }
    }
    return found;
}

// A child process that runs a server in the foreground and appends its output to a log. Start it on
// the main thread: the system kills it when the thread that started it ends, for any reason.
class server_process {
public:
    struct command {
        std::vector<std::string> arguments; // the program with its path, and arguments
        std::string log;                    // the path of a file
        std::string user{};          // if the test is root: the user of the server; empty: root
        int when_orphaned = SIGKILL; // the signal that it gets when the test ends
    };

    server_process() = default;
    server_process(const server_process&) = delete;
    server_process& operator=(const server_process&) = delete;
    ~server_process() { kill9(); }

    // Starts the server and returns at once: see asks_until().
    // Requires: an earlier server has ended.
    void start(const command& what) {
        const pid_t parent = ::getpid();
        uid_t uid = 0;
        gid_t gid = 0;
        const bool changes_user = ::getuid() == 0 && !what.user.empty() && ids(what.user, uid, gid);
        std::vector<char*> arguments;
        for (const std::string& word : what.arguments) {
            arguments.push_back(const_cast<char*>(word.c_str()));
        }
        arguments.push_back(nullptr);

        const pid_t child = ::fork();
        if (child < 0) {
            std::perror("fork");
            std::abort();
        }
        if (child == 0) { // from here on only what a signal handler may call
            const int in = ::open("/dev/null", O_RDONLY);
            const int out = ::open(what.log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
            ::dup2(in, 0);
            ::dup2(out, 1);
            ::dup2(out, 2);
            for (int fd = 3; fd < 1'024; ++fd) {
                ::close(fd);
            }
            sigset_t none;
            sigemptyset(&none);
            ::sigprocmask(SIG_SETMASK, &none, nullptr);
            if (changes_user &&
                (::setgroups(0, nullptr) != 0 || ::setgid(gid) != 0 || ::setuid(uid) != 0)) {
                ::_exit(126);
            }
            ::prctl(PR_SET_PDEATHSIG, what.when_orphaned); // after setuid(), which resets it
            if (::getppid() == parent) {
                ::execv(arguments[0], arguments.data());
            }
            ::_exit(127);
        }
        pid_ = child;
        owner_ = parent;
    }

    // Waits until the server ends, and returns its exit status. If a signal ended it, or if it did
    // not end within the limit and was killed, returns -1.
    int wait(std::chrono::milliseconds limit) {
        int status = -1;
        if (!is_ours() || asks_until(limit, [&] { return has_ended(status); })) {
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        }
        kill9();
        return -1;
    }

    pid_t pid() const noexcept { return pid_; }

    // Whether this process started the server, and it has not ended.
    bool is_running() {
        int status = 0;
        return is_ours() && !has_ended(status);
    }

    void signal(int number) const noexcept {
        if (is_ours()) {
            ::kill(pid_, number);
        }
    }

    // Kills all processes of the server, like a crash of the machine. Waits until they have ended
    // and the system has closed their connections.
    void kill9() {
        if (!is_ours()) {
            return;
        }
        ::kill(pid_, SIGSTOP); // so that it forks no further process
        const std::vector<pid_t> all = process_tree(pid_);
        for (const pid_t each : all) {
            ::kill(each, SIGKILL);
        }
        while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
        }
        pid_ = 0;
        asks_until(std::chrono::seconds(5), [&] {
            return std::none_of(all.begin(), all.end(),
                                [](pid_t each) { return runs_still(each); });
        });
    }

    // Asks the server to end by a signal. Kills it if it does not end within the limit.
    void stop(int number = SIGTERM,
              std::chrono::milliseconds limit = std::chrono::milliseconds(5'000)) {
        thaw();
        signal(number);
        wait(limit);
    }

    // Stops all processes of the server, and returns when they have stopped. Connections stay open,
    // and no request is answered. Sending the signals alone is not enough: kill() returns while a
    // thread may still run, and a process may fork.
    void freeze() const {
        const auto hangs = [](const std::vector<pid_t>& all) {
            return std::all_of(all.begin(), all.end(), &is_stopped);
        };
        for (std::vector<pid_t> before; is_ours();) {
            const std::vector<pid_t> all = process_tree(pid_);
            if (all == before && hangs(all)) {
                return;
            }
            signal_all(SIGSTOP);
            before = all;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    // Continues all processes of the server.
    void thaw() const { signal_all(SIGCONT); }

private:
    static bool ids(const std::string& user, uid_t& uid, gid_t& gid) {
        const passwd* const found = ::getpwnam(user.c_str());
        if (found != nullptr) {
            uid = found->pw_uid;
            gid = found->pw_gid;
        }
        return found != nullptr;
    }

    // Whether the process exists and is not a zombie.
    static bool runs_still(pid_t process) {
        std::string line;
        std::getline(std::ifstream("/proc/" + std::to_string(process) + "/stat"), line);
        const auto behind = line.rfind(')'); // "17 (its name) S 16 ..."
        return behind != std::string::npos && behind + 2 < line.size() && line[behind + 2] != 'Z';
    }

    // Whether no thread of the process runs or waits for a disk.
    static bool is_stopped(pid_t process) {
        bool all = true;
        std::error_code ignored;
        const std::string tasks = "/proc/" + std::to_string(process) + "/task";
        for (const auto& task : std::filesystem::directory_iterator(tasks, ignored)) {
            std::string line;
            std::getline(std::ifstream(task.path() / "stat"), line);
            const auto behind = line.rfind(')');
            const char state =
                behind != std::string::npos && behind + 2 < line.size() ? line[behind + 2] : 'Z';
            all = all && (state == 'T' || state == 'Z' || state == 'X');
        }
        return all;
    }

    // Whether the server is a child of this process. In a process forked from the test it is not.
    bool is_ours() const noexcept { return pid_ > 0 && owner_ == ::getpid(); }

    bool has_ended(int& status) noexcept {
        if (::waitpid(pid_, &status, WNOHANG) == pid_) {
            pid_ = 0;
            return true;
        }
        return false;
    }

    void signal_all(int number) const {
        if (is_ours()) {
            for (const pid_t each : process_tree(pid_)) {
                ::kill(each, number);
            }
        }
    }

    pid_t pid_ = 0;
    pid_t owner_ = 0;
};

// Runs a command to its end. Returns true if its exit status is 0.
inline bool runs(const server_process::command& what,
                 std::chrono::milliseconds limit = std::chrono::milliseconds(30'000)) {
    server_process process;
    process.start(what);
    return process.wait(limit) == 0;
}

// Prints the log of a server that did not start.
inline void show_log(const std::string& file) {
    std::cerr << file << ":\n" << std::ifstream(file).rdbuf() << std::endl;
}

} // namespace test

#endif

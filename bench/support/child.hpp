#ifndef BIDE_BENCH_SUPPORT_CHILD_HPP
#define BIDE_BENCH_SUPPORT_CHILD_HPP

// Measures a row in a process of its own: this program again, or another one, which prints the row's
// numbers.

#include "support/cpus.hpp"
#include "support/options.hpp"
#include "support/table.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace bench {

// One line for each number, as the parent reads them.
inline void print_sample(const sample& numbers) {
    for (const double number : numbers) {
        std::printf("%.9g\n", number);
    }
}

class child_process {
public:
    // arguments[0] is for the program to call itself. It may use `cpus` only.
    child_process(const char* program, std::vector<std::string> arguments, const cpu_list& cpus)
        : name_(arguments.front()) {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) {
            throw std::system_error(errno, std::generic_category(), "pipe2");
        }
        output_ = ends[0];
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        std::vector<char*> argv;
        for (std::string& argument : arguments) {
            argv.push_back(argument.data());
        }
        argv.push_back(nullptr);
        const scoped_affinity inherited(cpus);
        const int failed = ::posix_spawn(&pid_, program, &actions, nullptr, argv.data(), environ);
        ::posix_spawn_file_actions_destroy(&actions);
        ::close(ends[1]);
        if (failed != 0) {
            ::close(output_);
            throw std::system_error(failed, std::generic_category(), program);
        }
    }
    child_process(const child_process&) = delete;
    child_process& operator=(const child_process&) = delete;
    ~child_process() { ::close(output_); }

    // Everything that it prints. Throws std::runtime_error when it fails.
    std::string wait_for_output() {
        std::string text;
        char buffer[4096];
        for (;;) {
            const ssize_t count = ::read(output_, buffer, sizeof buffer);
            if (count <= 0) {
                break;
            }
            text.append(buffer, static_cast<std::size_t>(count));
        }
        int status = 0;
        ::waitpid(pid_, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            throw std::runtime_error("a row in a process of its own failed: " + name_);
        }
        return text;
    }

private:
    std::string name_;
    int output_ = -1;
    pid_t pid_ = -1;
};

inline sample parse_sample(const std::string& text) {
    sample numbers;
    for (const char* at = text.c_str(); *at != '\0';) {
        char* rest = nullptr;
        numbers.push_back(std::strtod(at, &rest));
        if (rest == at) {
            throw std::runtime_error("unexpected output of a row in a process of its own: " + text);
        }
        at = rest + (*rest == '\n' ? 1 : 0);
    }
    return numbers;
}

inline sample measure_in_child(const options& opts, const std::string& row_name, placement where) {
    std::vector<std::string> arguments{"bench " + row_name, "--row", row_name};
    if (opts.quick) {
        arguments.push_back("--quick");
    }
    const bool one = where == placement::one_processor;
    const cpu_list cpus = one ? cpu_list{opts.cpus.front()} : opts.cpus;
    arguments.insert(arguments.end(), {"--cpu-list", to_string(cpus)});
    child_process child("/proc/self/exe", std::move(arguments), cpus);
    return parse_sample(child.wait_for_output());
}

} // namespace bench

#endif

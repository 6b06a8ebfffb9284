// # 7. A parallel directory scan
//
// A tree of directories has a shape that is known only when it is read. A fork-join scope fits: the function that reads
// a directory spawns one call for each directory in it, and idle workers steal these calls. `fork_scope()` returns when
// all of them have ended, so what they refer to may live in the frame of its caller.

#include <bide/bide.hpp>
#include <bide/parallel/fork_scope.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

// The functions of a scan run at the same time, and add up here. Two counters that nothing else depends on are relaxed
// atomics; the end of the scope makes them visible to its caller. Errors are rare and larger, so a
// `synchronized_value` keeps them: the vector can be reached only under its lock.

struct scan_error {
    fs::path where;
    std::error_code what;
};

struct scan_result {
    std::atomic<std::uint64_t> files{0};
    std::atomic<std::uint64_t> bytes{0};
    bide::synchronized_value<std::vector<scan_error>> errors;

    void add_error(const fs::path& where, const std::error_code& what) {
        errors.lock()->push_back({where, what});
    }
};

// One directory. A tree that is read while others change it has errors: a directory without permission, a file that is
// gone before its size is asked for. They are reported and the scan goes on, so the calls that return an `error_code`
// are used. An exception would leave `fork_scope()` after all functions have ended. Links are counted as files and not
// followed, so a cycle of links does no harm.

void scan(bide::spawn_scope& scope, const fs::path& directory, scan_result& result) {
    std::error_code error;
    for (fs::directory_iterator at(directory, error), end; !error && at != end;
         at.increment(error)) {
        std::error_code of_entry;
        const fs::file_status status = at->symlink_status(of_entry);
        if (!of_entry && fs::is_directory(status)) {
            scope.spawn([path = at->path(), &result](bide::spawn_scope& same) {
                scan(same, path, result);
            });
            continue;
        }
        const std::uint64_t size =
            !of_entry && fs::is_regular_file(status) ? at->file_size(of_entry) : 0;
        if (of_entry) {
            result.add_error(at->path(), of_entry);
            continue;
        }
        // Order: relaxed, both; the end of the scope orders them before the reads of its caller.
        result.files.fetch_add(1, std::memory_order_relaxed);
        result.bytes.fetch_add(size, std::memory_order_relaxed);
    }
    if (error) {
        result.add_error(directory, error);
    }
}

// The calling thread takes part: it runs calls of the scope while it waits for the others. A thread outside of the
// scheduler and a task may both call this. The order of the errors depends on the workers, so they are sorted.

void scan_all(bide::scheduler& workers, const std::vector<fs::path>& roots, scan_result& result) {
    bide::fork_scope(workers, [&](bide::spawn_scope& scope) {
        for (const fs::path& root : roots) {
            scope.spawn([&](bide::spawn_scope& same) { scan(same, root, result); });
        }
    });
    auto errors = result.errors.lock();
    std::sort(errors->begin(), errors->end(),
              [](const scan_error& a, const scan_error& b) { return a.where < b.where; });
    for (const scan_error& error : *errors) {
        std::printf("%s: %s\n", error.where.c_str(), error.what.message().c_str());
    }
    std::printf("%llu files, %llu bytes\n", static_cast<unsigned long long>(result.files.load()),
                static_cast<unsigned long long>(result.bytes.load()));
}

// Without arguments, the program makes a tree of 3 times 3 directories with 5 files each, scans it together with a
// directory that is not there, and compares the numbers.

bool try_it(bide::scheduler& workers) {
    std::string name = (fs::temp_directory_path() / "bide_scan_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
        std::perror("no directory for the test");
        return false;
    }
    const fs::path top = name;
    for (int outer = 0; outer < 3; ++outer) {
        for (int inner = 0; inner < 3; ++inner) {
            const fs::path directory = top / std::to_string(outer) / std::to_string(inner);
            fs::create_directories(directory);
            for (int file = 0; file < 5; ++file) {
                std::ofstream(directory / std::to_string(file)) << std::string(100, 'x');
            }
        }
    }
    fs::create_directory_symlink(top, top / "cycle");
    scan_result result;
    scan_all(workers, {top, top / "missing"}, result);
    std::error_code ignored;
    fs::remove_all(top, ignored);
    const auto errors = result.errors.lock();
    return result.files == 3 * 3 * 5 + 1 && result.bytes == 3 * 3 * 5 * 100 &&
           errors->size() == 1 && errors->front().what == std::errc::no_such_file_or_directory;
}

int main(int argc, char** argv) {
    bide::scheduler workers;
    if (argc == 1) {
        return try_it(workers) ? 0 : 1;
    }
    scan_result result;
    scan_all(workers, std::vector<fs::path>(argv + 1, argv + argc), result);
    return result.errors.lock()->empty() ? 0 : 1;
}

// Limits. The functions block workers while they wait for the disk. That is right for a program that does nothing else,
// and for a cached or local file system. In a server whose workers have connections to serve, let the calls to the file
// system run by `spawn_blocking()`, and bound them by a `task_group(workers, limit)`, so that a slow network file system
// holds `limit` threads and no worker. The calls that were spawned and have not run take memory: a directory of a
// million directories is a million small closures.

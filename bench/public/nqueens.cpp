// All ways to place N queens on a board: nqueens [THREADS [8]]

#include "program.hpp"

#include <bide/parallel/fork_join.hpp>

#include <array>
#include <numeric>

namespace {

template <std::size_t N> using board = std::array<char, N>;

// Whether a queen of `column` may stand in `row`.
template <std::size_t N> bool is_free(const board<N>& rows, int column, int row) {
    for (int x = 0; x < column; ++x) {
        const int other = rows[static_cast<std::size_t>(x)];
        if (row == other || row == other - (column - x) || row == other + (column - x)) {
            return false;
        }
    }
    return true;
}

template <std::size_t N> int queens(bide::scheduler& on, int column, const board<N>& rows);

// The ways with a queen of `column` in places[first] to places[last - 1].
template <std::size_t N>
int place(bide::scheduler& on, int column, const board<N>& rows, const board<N>& places,
          std::size_t first, std::size_t last) {
    if (last - first == 1) {
        board<N> next = rows;
        next[static_cast<std::size_t>(column)] = places[first];
        return queens<N>(on, column + 1, next);
    }
    const std::size_t middle = first + (last - first) / 2;
    const auto [a, b] = bide::join(
        on, [&] { return place<N>(on, column, rows, places, first, middle); },
        [&] { return place<N>(on, column, rows, places, middle, last); });
    return a + b;
}

template <std::size_t N> int queens(bide::scheduler& on, int column, const board<N>& rows) {
    if (column == static_cast<int>(N)) {
        return 1;
    }
    board<N> places;
    std::size_t count = 0;
    for (int row = 0; row < static_cast<int>(N); ++row) {
        if (is_free<N>(rows, column, row)) {
            places[count++] = static_cast<char>(row);
        }
    }
    return count == 0 ? 0 : place<N>(on, column, rows, places, 0, count);
}

} // namespace

int main(int argc, char** argv) {
    const arguments args{argc, argv};
    bide::scheduler workers({.num_workers = args.threads(1)});
    const bool is_small = args.number(2, 14) == 8;
    const auto run = [&] {
        const int ways =
            workers
                .spawn([&] {
                    return is_small ? queens<8>(workers, 0, {}) : queens<14>(workers, 0, {});
                })
                .join();
        check(ways, is_small ? 92 : 365'596);
        return ways;
    };
    run(); // warmup
    print_run(microseconds([&] { std::printf("output: %d\n", run()); }));
}

// Includes no header of bide. Without bide::std_execution, it would need libtbb where TBB's headers are installed.
#include <algorithm>
#include <execution>
#include <numeric>
#include <vector>

int main() {
    std::vector<int> numbers(10'000);
    std::iota(numbers.rbegin(), numbers.rend(), 0);
    std::sort(std::execution::par, numbers.begin(), numbers.end());
    return std::is_sorted(numbers.begin(), numbers.end()) ? 0 : 1;
}

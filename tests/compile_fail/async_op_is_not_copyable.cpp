// expect: deleted (copy )?(function|constructor)|is deleted|implicitly-deleted
#include <bide/sync/event.hpp>

#include <utility>

int main() {
    bide::event ready;
    auto operation = ready.async_wait();
#if defined(BIDE_CONTROL)
    [[maybe_unused]] const auto other = std::move(operation);
#else
    [[maybe_unused]] const auto other = operation;
#endif
}

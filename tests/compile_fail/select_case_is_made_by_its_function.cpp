// expect: private
#include <bide/channel/select.hpp>
#include <bide/sched/this_task.hpp>

#include <chrono>

int main() {
    using namespace std::chrono_literals;
#if defined(BIDE_CONTROL)
    static_cast<void>(bide::select(bide::on_timeout(1s)));
#else
    using sleep = bide::select_case<bide::result<void>>; // it would never happen
    static_cast<void>(bide::select(sleep(bide::this_task::sleep_for(1s).as_case())));
#endif
}

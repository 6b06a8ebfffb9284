// A class of a user's whose data is no model::var.

#include <bide/model/check.hpp>
#include <bide/model/standard.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace {

class numbers {
public:
    void add(int number) {
        const std::lock_guard lock(mutex_);
        all_.push_back(number);
    }
    std::size_t size_without_lock() const { return all_.size(); } // a mistake

private:
    bide::model::mutex mutex_;
    std::vector<int> all_;
};

} // namespace

int main() {
    namespace model = bide::model;
    model::check("two threads add", [] {
        const auto all = std::make_unique<numbers>();
        model::thread other([&] { all->add(1); });
        all->add(2);
        other.join();
    });
    // Made by `new`: clang 19 does not say what a function accesses of an object on its own stack.
    model::find("a size without the lock", model::failure::race, [] {
        const auto all = std::make_unique<numbers>();
        model::thread other([&] { all->add(1); });
        BIDE_MODEL_REQUIRE(all->size_without_lock() <= 1);
        other.join();
    });
}

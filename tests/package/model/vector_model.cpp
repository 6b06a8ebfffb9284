// A class of a user's whose data is no model::var.

#include <bide/model/check.hpp>
#include <bide/model/standard.hpp>

#include <cstddef>
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
        numbers all;
        model::thread other([&] { all.add(1); });
        all.add(2);
    });
    model::find("a size without the lock", model::failure::race, [] {
        numbers all;
        model::thread other([&] { all.add(1); });
        BIDE_MODEL_REQUIRE(all.size_without_lock() <= 1);
    });
}

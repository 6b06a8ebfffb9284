// A ring of a user's for one producer and one consumer, proven for a ring of two and four values.

#include <bide/model/check.hpp>

#include <atomic>
#include <cstddef>

namespace {

template <class T, std::size_t Size, class Platform> class spsc_ring {
public:
    bool try_push(T value) noexcept {
        const std::size_t tail = tail_.load(std::memory_order::relaxed);
        if (tail - head_.load(std::memory_order::acquire) == Size) {
            return false;
        }
        slots_[tail % Size] = value;
        tail_.store(tail + 1, std::memory_order::release);
        return true;
    }
    bool try_pop(T& value) noexcept {
        const std::size_t head = head_.load(std::memory_order::relaxed);
        if (tail_.load(std::memory_order::acquire) == head) {
            return false;
        }
        value = slots_[head % Size];
        head_.store(head + 1, std::memory_order::release);
        return true;
    }

private:
    template <class U> using atomic = typename Platform::template atomic<U>;

    atomic<std::size_t> head_{0};
    atomic<std::size_t> tail_{0};
    typename Platform::template var<T> slots_[Size];
};

} // namespace

int main() {
    namespace model = bide::model;
    model::check("ring of 2, 4 values", [] {
        spsc_ring<int, 2, model::platform> ring;
        model::thread producer([&] {
            for (int value = 1; value <= 4; ++value) {
                while (!ring.try_push(value)) {
                }
            }
        });
        for (int expected = 1; expected <= 4; ++expected) {
            int value = 0;
            while (!ring.try_pop(value)) {
            }
            BIDE_MODEL_REQUIRE(value == expected);
        }
    });
}

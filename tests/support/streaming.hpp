#ifndef BIDE_TESTS_SUPPORT_STREAMING_HPP
#define BIDE_TESTS_SUPPORT_STREAMING_HPP

// Producers and consumers of streams.

#include <bide/stream/stream.hpp>
#include <bide/task/async_generator.hpp>
#include <bide/task/task.hpp>

#include <support/standard.hpp>

namespace test {

// first, first + 1, ... , last - 1.
inline bide::async_generator<int> numbers(int first, int last) {
    for (int i = first; i < last; ++i) {
        co_yield i;
    }
}

// The same, and then an exception.
inline bide::async_generator<int> numbers_then_failure(int first, int last) {
    for (int i = first; i < last; ++i) {
        co_yield i;
    }
    throw std::runtime_error("no more");
}

// All items. What ends the stream early is said in `end`.
template <class T> struct consumed {
    std::vector<T> items;
    std::string end = "end";
};
template <bide::stream S>
bide::task<consumed<std::remove_cvref_t<bide::stream_item_t<S>>>> consume(S from) {
    consumed<std::remove_cvref_t<bide::stream_item_t<S>>> all;
    try {
        while (auto item = co_await bide::detail::next_of(from)) {
            all.items.push_back(static_cast<bide::stream_item_t<S>&&>(*item));
        }
    } catch (const bide::stopped_error&) {
        all.end = "stopped";
    } catch (const std::exception& e) {
        all.end = e.what();
    }
    co_return all;
}

} // namespace test

#endif

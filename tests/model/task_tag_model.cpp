// The name and the tag of a task, which a dump reads while the task sets them, and the table of tags.

#include <bide/task/task_tag.hpp>
#include <model/task_support.hpp>
#include <support/test.hpp>

namespace {

using platform = model::platform;
using header = bide::detail::basic_task_header<platform>;
using table = bide::detail::basic_tag_table<platform, 2>;
template <class T> using var = platform::var<T>;

// A task that never starts.
class labelled final : public header {
public:
    explicit labelled(model::task_home<platform>& home) noexcept : header(home, false) {}

private:
    std::coroutine_handle<> start() noexcept override { return {}; }
    void never_start() noexcept override {}
    void settle() noexcept override {}
    void discard_outcome() noexcept override {}
    void destroy() noexcept override {}
};

} // namespace

TEST_CASE("task_tag: a thread that finds a text sees what was written before it") {
    model::check("two texts in a table of two", [] {
        table all;
        var<int> before[2]{var<int>{0}, var<int>{0}};
        std::uint8_t numbers[2]{};
        const auto add = [&](unsigned me, const char* text) {
            before[me] = 1;
            numbers[me] = all.find_or_add(text);
            MODEL_REQUIRE(numbers[me] == 1 || before[1 - me] == 1);
        };
        model::thread other([&] { add(1, "b"); });
        add(0, "a");
        other.join();
        MODEL_REQUIRE(numbers[0] + numbers[1] == 3);
    });
    model::check("one text, added twice", [] {
        table all;
        std::uint8_t numbers[2]{};
        const char texts[2][2] = {"a", "a"};
        model::thread other([&] { numbers[1] = all.find_or_add(texts[1]); });
        numbers[0] = all.find_or_add(texts[0]);
        other.join();
        MODEL_REQUIRE(numbers[0] == 1);
        MODEL_REQUIRE(numbers[1] == 1);
        MODEL_REQUIRE(all.find_or_add("b") == 2);
        MODEL_REQUIRE(all.find_or_add("c") == 0);
    });
    model::check("a text is read by its number", [] {
        table all;
        var<int> before{0};
        model::thread other(
            model::after_writing(before, [&] { MODEL_REQUIRE(all.find_or_add("a") == 1); }));
        if (all.text_of(1) != nullptr) {
            MODEL_REQUIRE(before == 1);
        }
    });
}

TEST_CASE("task_tag: a dump sees the text of the name and of the tag that it finds") {
    model::check("a task sets its name and its tag", [] {
        model::task_home<platform> home;
        labelled t(home);
        var<int> text{0};
        var<int> place{0};
        model::thread dump([&] {
            if (t.name() != nullptr) {
                MODEL_REQUIRE(text == 1);
            }
            if (t.tag() != 0) {
                MODEL_REQUIRE(place == 1);
            }
        });
        text = 1;
        t.set_name("name");
        place = 1;
        t.set_tag(3);
        dump.join();
    });
}

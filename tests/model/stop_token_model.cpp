// The standard library's stop tokens, as bodies use them.

#include <bide/model/stop_token.hpp>
#include <model/check.hpp>
#include <support/test.hpp>

using model::failure;
using model::var;

namespace {

// Says the same of both.
template <class Source, class Token> bool has_the_face_of_the_standard() {
    Source one;
    Source other;
    Source none(std::nostopstate);
    Token token = one.get_token();
    bool holds = token == one.get_token() && token != other.get_token() && one != other;
    holds =
        holds && one.stop_possible() && !none.stop_possible() && !none.get_token().stop_possible();
    holds = holds && !none.request_stop() && !none.stop_requested() && Token() == none.get_token();
    one.swap(other);
    holds = holds && other.request_stop() && token.stop_requested() && !one.stop_requested();
    Token unstopped = one.get_token();
    token.swap(unstopped);
    return holds && unstopped.stop_requested() && !token.stop_requested();
}

} // namespace

TEST_CASE("stop_token: one of the checker answers as that of std does") {
    CHECK(has_the_face_of_the_standard<std::stop_source, std::stop_token>());
    model::check("one thread", [] {
        const bool holds = has_the_face_of_the_standard<model::stop_source, model::stop_token>();
        MODEL_REQUIRE(holds);
    });
}

TEST_CASE("stop_token: a stop runs its callbacks, or they are taken back") {
    model::check("requested beside a callback's life", [] {
        model::stop_source source;
        var<int> runs{0};
        model::thread stopper([&] { source.request_stop(); });
        {
            const model::stop_callback callback(source.get_token(), [&] { runs = runs + 1; });
        }
        MODEL_REQUIRE(runs <= 1); // ordered: it has run, or does not
    });
    model::check("a loop until a stop", [] {
        model::stop_source source;
        var<int> data{0};
        model::thread worker([token = source.get_token(), &data] {
            while (!token.stop_requested()) {
            }
            MODEL_REQUIRE(data == 1);
        });
        data = 1;
        source.request_stop();
        MODEL_REQUIRE(!source.request_stop() && source.stop_requested());
    });
    model::check("a callback that takes itself back", [] {
        model::stop_source source;
        model::stop_callback<std::function<void()>>* self = nullptr;
        self = new model::stop_callback<std::function<void()>>(source.get_token(),
                                                               [&] { delete self; });
        source.request_stop();
    });
    model::check("one of two requests is the first", [] {
        model::stop_source source;
        var<int> runs{0};
        const model::stop_callback callback(source.get_token(), [&] { runs = runs + 1; });
        bool other = false;
        model::thread stopper([&] { other = source.request_stop(); });
        const bool mine = source.request_stop();
        stopper.join();
        MODEL_REQUIRE(mine != other && runs == 1);
    });
    model::check("a callback that is taken back while another one runs", [] {
        model::stop_source source;
        var<int> runs{0};
        const auto count = [&] { runs = runs + 1; };
        std::optional<model::stop_callback<decltype(count)>> first;
        std::optional<model::stop_callback<decltype(count)>> second;
        first.emplace(source.get_token(), count);
        second.emplace(source.get_token(), count);
        model::thread stopper([&] { source.request_stop(); });
        first.reset();
        second.reset();
        MODEL_REQUIRE(runs <= 2);
    });
}

TEST_CASE("stop_token: a stop orders what the standard says, and no more") {
    model::check("what a stop orders", [] {
        model::stop_source source;
        var<int> registered{0};
        var<int> requested{0};
        model::thread stopper(
            model::after_writing(requested, [&] { MODEL_REQUIRE(source.request_stop()); }));
        registered = 1;
        const model::stop_callback callback(source.get_token(), [&] {
            MODEL_REQUIRE(registered == 1); // on either thread
            MODEL_REQUIRE(requested == 1);
        });
    });
    const auto unordered = [](auto first, auto second) {
        model::stop_source source;
        var<int> data{0};
        model::thread other([&] { first(source, data); });
        second(source, data);
    };
    model::find("registrations order nothing among themselves", failure::race, [&] {
        const auto enters = [](model::stop_source& source, var<int>& data) {
            data = data + 1;
            const model::stop_callback callback(source.get_token(), [] {});
            data = data + 1;
        };
        unordered(enters, enters);
    });
    model::find("a stop that was not requested orders nothing", failure::race, [&] {
        unordered(
            [](model::stop_source& source, var<int>& data) {
                data = 1;
                const model::stop_callback callback(source.get_token(), [] {});
            },
            [](model::stop_source& source, var<int>& data) {
                if (!source.stop_requested()) {
                    data = 2;
                }
            });
    });
}

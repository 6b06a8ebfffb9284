#ifndef BIDE_TESTS_MODEL_AFTER_WRITING_HPP
#define BIDE_TESTS_MODEL_AFTER_WRITING_HPP

#include <model/check.hpp>

namespace bide::model {

// What a thread does that writes plain data and then makes a call which publishes it.
template <class Call> auto after_writing(var<int>& data, Call call) {
    return [&data, call] {
        data = 1;
        call();
    };
}

} // namespace bide::model

#endif

#ifndef BIDE_TESTS_SUPPORT_FUNCTION_REF_HPP
#define BIDE_TESTS_SUPPORT_FUNCTION_REF_HPP

#include <support/standard.hpp>

namespace test {

// A reference to a function. A template that takes it is compiled once for all functions of a signature, and
// not once for each lambda.
template <class Signature> class function_ref;

template <class R, class... Args> class function_ref<R(Args...)> {
public:
    template <class F>
        requires(!std::same_as<std::remove_cvref_t<F>, function_ref>)
    function_ref(F&& f) noexcept
        : to_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
          call_(&call<std::remove_reference_t<F>>) {}

    R operator()(Args... arguments) const { return call_(to_, std::forward<Args>(arguments)...); }

private:
    template <class F> static R call(void* to, Args... arguments) {
        return static_cast<R>((*static_cast<F*>(to))(std::forward<Args>(arguments)...));
    }

    void* to_;
    R (*call_)(void*, Args...);
};

} // namespace test

#endif

// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_INTEROP_DETAIL_ASIO_ERRORS_HPP
#define BIDE_INTEROP_DETAIL_ASIO_ERRORS_HPP

#include <bide/core/config.hpp>
#include <bide/core/errc.hpp>

#include <string>
#include <system_error>
#include <type_traits>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The category of errc for error codes that are not std::error_code.
template <class Base> class asio_category final : public Base {
public:
    const char* name() const noexcept override { return error_category().name(); }
    std::string message(int code) const override { return error_category().message(code); }
};

// Returns the error code of Asio that says the same.
template <class Asio> typename Asio::error_code asio_code(std::error_code e) noexcept {
    using code = typename Asio::error_code;
    if constexpr (std::is_same_v<code, std::error_code>) {
        return e;
    } else if (e.category() == error_category()) {
        using base = std::remove_cvref_t<decltype(code().category())>;
        static const asio_category<base> category;
        return code(e.value(), category);
    } else {
        return code(e.value(), Asio::system_category());
    }
}
template <class Asio> typename Asio::error_code asio_code(errc e) noexcept {
    return asio_code<Asio>(make_error_code(e));
}

}}} // namespace bide::BIDE_ABI::detail

#endif

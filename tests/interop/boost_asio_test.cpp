#include "support/test.hpp"

#include <bide/interop/boost_asio.hpp>

#include <boost/asio.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>

namespace net = boost::asio;
namespace with = bide::with_boost_asio;
using error_code = boost::system::error_code;
using system_error = boost::system::system_error;
#define TEST_SLOTS (BOOST_ASIO_VERSION >= 101900)

#include "interop/asio_cases.hpp"

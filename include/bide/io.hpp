// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_HPP
#define BIDE_IO_HPP

/// \file
/// Includes all of io/ except io/uring_driver.hpp, which needs liburing. Includes <sys/socket.h>,
/// which declares accept, bind, connect, listen, send and other global names.

#include <bide/io/child_process.hpp>
#include <bide/io/driver.hpp>
#include <bide/io/epoll_driver.hpp>
#include <bide/io/io_socket.hpp>
#include <bide/io/poll_executor.hpp>
#include <bide/io/pollable_wait.hpp>
#include <bide/io/signal_set.hpp>

#endif

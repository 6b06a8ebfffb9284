#ifndef BIDE_TESTS_SUPPORT_SCHED_HPP
#define BIDE_TESTS_SUPPORT_SCHED_HPP

// What nearly every test of schedulers, loops, groups and their tasks includes.

#include <bide/channel/channel.hpp>
#include <bide/core/executor.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/latch.hpp>
#include <bide/task/compose.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>
#include <support/alloc.hpp>
#include <support/coroutines.hpp>
#include <support/counted.hpp>
#include <support/death.hpp>
#include <support/dumps.hpp>
#include <support/jitter.hpp>
#include <support/platforms.hpp>
#include <support/rounds.hpp>
#include <support/scheduling.hpp>
#include <support/service.hpp>
#include <support/stop.hpp>
#include <support/stress.hpp>
#include <support/tasks.hpp>
#include <support/test.hpp>
#include <support/waiting.hpp>

#endif

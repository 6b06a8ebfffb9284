// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_HPP
#define BIDE_PARALLEL_HPP

/// \file
/// Includes all of parallel/: fork-join, pipelines, task graphs and the parallel algorithms.

#include <bide/parallel/async_fork.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/fork_scope.hpp>
#include <bide/parallel/fork_scratch.hpp>
#include <bide/parallel/parallel_adjacent_difference.hpp>
#include <bide/parallel/parallel_any_of.hpp>
#include <bide/parallel/parallel_collect.hpp>
#include <bide/parallel/parallel_copy.hpp>
#include <bide/parallel/parallel_count_if.hpp>
#include <bide/parallel/parallel_fill.hpp>
#include <bide/parallel/parallel_find.hpp>
#include <bide/parallel/parallel_fold.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_merge.hpp>
#include <bide/parallel/parallel_min_element.hpp>
#include <bide/parallel/parallel_nth_element.hpp>
#include <bide/parallel/parallel_partition.hpp>
#include <bide/parallel/parallel_pipeline.hpp>
#include <bide/parallel/parallel_range.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <bide/parallel/parallel_remove_if.hpp>
#include <bide/parallel/parallel_scan.hpp>
#include <bide/parallel/parallel_sort.hpp>
#include <bide/parallel/parallel_sort_by_cached_key.hpp>
#include <bide/parallel/parallel_transform.hpp>
#include <bide/parallel/task_graph.hpp>

#endif

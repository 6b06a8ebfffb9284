package main

import (
	"runtime"
	"sort"
	"time"
)

// Waits under overload. After bench/sched/bursts.cpp.

const overload = 4

func compute() {
	for began := time.Now(); time.Since(began) < 2*time.Microsecond; {
	}
}

// `waits` of so many tasks, each of which returns what it waited for: microseconds, median, 99 % and
// 99.9 %.
func waits(j job, wait func() time.Duration) []float64 {
	tasks := overload * j.workers
	of := make([][]float64, tasks)
	var all []func()
	for i := range of {
		mine := &of[i]
		all = append(all, func() {
			for i := 0; i < j.count/tasks; i++ {
				*mine = append(*mine, float64(wait().Nanoseconds())/1e3)
			}
		})
	}
	together(all...)
	var sorted []float64
	for _, each := range of {
		sorted = append(sorted, each...)
	}
	sort.Float64s(sorted)
	return []float64{percentile(sorted, 0.5), percentile(sorted, 0.99), percentile(sorted, 0.999)}
}

func burstsOfPermits(j job) []float64 {
	free := make(chan struct{}, j.workers)
	return waits(j, func() time.Duration {
		began := time.Now()
		free <- struct{}{}
		waited := time.Since(began)
		compute()
		runtime.Gosched()
		compute()
		<-free
		return waited
	})
}

func burstsOfRequests(j job) []float64 {
	requests := make(chan chan struct{}, j.workers)
	for i := 0; i < j.workers; i++ {
		go func() {
			for reply := range requests {
				compute()
				reply <- struct{}{}
			}
		}()
	}
	return waits(j, func() time.Duration {
		reply := make(chan struct{}, 1)
		began := time.Now()
		requests <- reply
		<-reply
		return time.Since(began)
	})
}

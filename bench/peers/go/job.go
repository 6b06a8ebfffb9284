package main

import (
	"sort"
	"time"
)

// As in bench/sched/job.hpp.
type job struct {
	count    int
	workers  int
	duration time.Duration
}

const leastRuns = 5

// Runs again and again for the job's duration, after a warm-up for a tenth of it: nanoseconds of the
// median run and of the fastest.
func timed(run func(count int)) func(job) []float64 {
	return func(j job) []float64 {
		for began := time.Now(); ; {
			run(j.count)
			if time.Since(began) >= j.duration/10 {
				break
			}
		}
		var runs []float64
		for began := time.Now(); len(runs) < leastRuns || time.Since(began) < j.duration; {
			start := time.Now()
			run(j.count)
			runs = append(runs, float64(time.Since(start).Nanoseconds()))
		}
		sort.Float64s(runs)
		return []float64{percentile(runs, 0.5), runs[0]}
	}
}

// Of sorted numbers.
func percentile(sorted []float64, share float64) float64 {
	return sorted[int(float64(len(sorted)-1)*share+0.5)]
}

// Calls each of them in a goroutine, and waits for all.
func together(tasks ...func()) {
	done := make(chan struct{}, len(tasks))
	for _, task := range tasks {
		task := task
		go func() {
			task()
			done <- struct{}{}
		}()
	}
	for range tasks {
		<-done
	}
}

func times(count int, task func()) []func() {
	all := make([]func(), count)
	for i := range all {
		all[i] = task
	}
	return all
}

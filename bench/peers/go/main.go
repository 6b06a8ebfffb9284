// Go under the workloads of bench/sched, which has the same for all others.
//
//	go_bench WORKLOAD COUNT WORKERS MILLISECONDS
//
// runs one workload on so many workers (GOMAXPROCS) and prints its numbers, one a line. COUNT is that
// of the goroutines, the operations or the messages of a run. Most workloads run again and again for so
// many milliseconds, and print the nanoseconds of the median run and of the fastest.
//
//	go_bench --version
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
)

var workloads = map[string]func(job) []float64{
	"spawn_many_local":     timed(spawnMany),
	"chained_spawn":        timed(chainedSpawn),
	"spawn_await":          timed(spawnAwait),
	"scaling":              timed(spawnYielding),
	"yield_many":           timed(yieldMany),
	"single_yield":         timed(singleYield),
	"round_trip":           timed(roundTrip),
	"contended/permits":    timed(permits),
	"contended/mutex/2":    timed(locks(2)),
	"contended/mutex/16":   timed(locks(16)),
	"contended/4-4/0":      timed(channel(4, 4, 0)),
	"contended/4-1/0":      timed(channel(4, 1, 0)),
	"contended/4-4/128":    timed(channel(4, 4, 128)),
	"contended/4-1/128":    timed(channel(4, 1, 128)),
	"contended/1-1/128":    timed(channel(1, 1, 128)),
	"contended/select":     timed(selectOfFour),
	"bursts/permit":        burstsOfPermits,
	"bursts/request_reply": burstsOfRequests,
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(runtime.Version())
		return
	}
	if len(os.Args) == 5 {
		run := workloads[os.Args[1]]
		count, bad := strconv.Atoi(os.Args[2])
		workers, worse := strconv.Atoi(os.Args[3])
		duration, worst := strconv.Atoi(os.Args[4])
		if run != nil && bad == nil && worse == nil && worst == nil && count > 0 && workers > 0 {
			runtime.GOMAXPROCS(workers)
			for _, number := range run(job{count, workers, time.Duration(duration) * time.Millisecond}) {
				fmt.Printf("%.6f\n", number)
			}
			return
		}
	}
	fmt.Fprintln(os.Stderr, "usage: go_bench WORKLOAD COUNT WORKERS MILLISECONDS")
	os.Exit(2)
}

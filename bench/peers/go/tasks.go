package main

import (
	"runtime"
	"sync/atomic"
)

// In a goroutine, as the tasks are spawned by a task.
func inside(body func(done chan<- struct{})) {
	done := make(chan struct{}, 1)
	go body(done)
	<-done
}

func spawnCounting(count int, step func()) {
	inside(func(done chan<- struct{}) {
		left := int64(count)
		for i := 0; i < count; i++ {
			go func() {
				step()
				if atomic.AddInt64(&left, -1) == 0 {
					done <- struct{}{}
				}
			}()
		}
	})
}

func spawnMany(count int)     { spawnCounting(count, func() {}) }
func spawnYielding(count int) { spawnCounting(count, runtime.Gosched) }

func chainedSpawn(count int) {
	var link func(done chan<- struct{}, left int)
	link = func(done chan<- struct{}, left int) {
		if left == 0 {
			done <- struct{}{}
		} else {
			go link(done, left-1)
		}
	}
	inside(func(done chan<- struct{}) { link(done, count) })
}

func spawnAwait(count int) {
	inside(func(done chan<- struct{}) {
		ended := make(chan struct{})
		for i := 0; i < count; i++ {
			go func() { ended <- struct{}{} }()
			<-ended
		}
		done <- struct{}{}
	})
}

const yieldsOfMany = 1000

func yieldMany(count int) {
	together(times(count, func() {
		for i := 0; i < yieldsOfMany; i++ {
			runtime.Gosched()
		}
	})...)
}

func singleYield(count int) {
	inside(func(done chan<- struct{}) {
		for i := 0; i < count; i++ {
			runtime.Gosched()
		}
		done <- struct{}{}
	})
}

func roundTrip(count int) {
	there := make(chan int, 1)
	back := make(chan int, 1)
	sum := 0
	together(
		func() {
			for i := range there {
				back <- i
			}
		},
		func() {
			for i := 0; i < count; i++ {
				there <- i
				sum += <-back
			}
			close(there)
		})
	if sum != count*(count-1)/2 {
		panic("messages were lost")
	}
}

package main

import "sync"

// Goroutines that want the same thing. After bench/sched/contended.cpp. Go has no semaphore of its own:
// a channel of permits is what its users write.

func permits(count int) {
	const tasks = 64
	free := make(chan struct{}, 3)
	together(times(tasks, func() {
		for i := 0; i < count/tasks; i++ {
			free <- struct{}{}
			<-free
		}
	})...)
}

func locks(tasks int) func(int) {
	return func(count int) {
		var one sync.Mutex
		together(times(tasks, func() {
			for i := 0; i < count/tasks; i++ {
				one.Lock()
				//lint:ignore SA2001 the pair is what is measured
				one.Unlock()
			}
		})...)
	}
}

func sendTo(c chan<- int, count int) func() {
	return func() {
		for i := 0; i < count; i++ {
			c <- i
		}
	}
}

func channel(senders, receivers, capacity int) func(int) {
	return func(count int) {
		c := make(chan int, capacity)
		receive := func() {
			for i := 0; i < count/receivers; i++ {
				<-c
			}
		}
		together(append(times(senders, sendTo(c, count/senders)), times(receivers, receive)...)...)
	}
}

func selectOfFour(count int) {
	var from [4]chan int
	var tasks []func()
	for i := range from {
		from[i] = make(chan int)
		tasks = append(tasks, sendTo(from[i], count/4))
	}
	together(append(tasks, func() {
		for i := 0; i < count; i++ {
			select {
			case <-from[0]:
			case <-from[1]:
			case <-from[2]:
			case <-from[3]:
			}
		}
	})...)
}

//! Tokio under the workloads of bench/sched, which has the same for all others.
//!
//!     tokio_bench WORKLOAD COUNT WORKERS MILLISECONDS
//!
//! runs one workload on a runtime with so many workers and prints its numbers, one a line. COUNT is
//! that of the tasks, the rounds or the messages of a run. Most workloads run again and again for
//! so many milliseconds, and print the nanoseconds of the median run and of the fastest.
//!
//!     tokio_bench --version

mod bursts;
mod contended;
mod locks;
mod messages;
mod spawn;
mod support;
mod timers;
mod wake;
mod yields;

use std::time::Duration;
use std::{env, process};
use support::Job;

fn run(workload: &str, job: &Job) -> Option<Vec<f64>> {
    let numbers = match workload {
        "spawn_many_local" => spawn::many_local(job),
        "spawn_many_remote_idle" => spawn::many_remote_idle(job),
        "spawn_many_remote_busy1" => spawn::many_remote_busy1(job),
        "spawn_many_remote_busy2" => spawn::many_remote_busy2(job),
        "spawn_await" => spawn::and_await(job),
        "spawn_await_one_thread" => spawn::and_await_one_thread(job),
        "chained_spawn" => spawn::chained(job),
        "join_set" => spawn::into_set(job),
        "scaling" => spawn::many_that_yield(job),
        "yield_many" => yields::many(job),
        "single_yield" => yields::single(job),
        "ping_pong" => messages::ping_pong(job),
        "request_reply_one_thread" => messages::request_reply_one_thread(job),
        "request_reply" => messages::request_reply(job),
        "round_trip" => messages::round_trip(job),
        "bounded" => messages::bounded(job),
        "unbounded" => messages::unbounded(job),
        "semaphore_uncontended" => locks::semaphore(job, 10),
        "semaphore_contended" => locks::semaphore(job, 5),
        "rwlock_uncontended" => locks::rwlock_uncontended(job),
        "rwlock_contended" => locks::rwlock_contended(job),
        "contended/permits" => contended::permits(job),
        "contended/mutex/2" => contended::locks(job, 2),
        "contended/mutex/16" => contended::locks(job, 16),
        "contended/4-1/128" => contended::channel(job, 4, 128),
        "contended/1-1/128" => contended::channel(job, 1, 128),
        "contended/1-1/unbounded" => contended::unbounded(job),
        "bursts/permit" => bursts::permits(job),
        "bursts/request_reply" => bursts::request_reply(job),
        "sleepers" => timers::sleepers(job),
        "waiters" => timers::waiters(job),
        "timeouts" => timers::timeouts(job),
        "fire_sleeps" => timers::fire_sleeps(job),
        "fire_timeouts" => timers::fire_timeouts(job),
        "wake" => wake::wake(job),
        "idle" => wake::idle(job),
        _ => return None,
    };
    Some(numbers)
}

fn parse(args: &[String]) -> Option<(&str, Job)> {
    if let [workload, count, workers, duration] = args {
        let count = count.parse().ok().filter(|n| *n > 0)?;
        let workers = workers.parse().ok().filter(|n| *n > 0)?;
        let duration = Duration::from_millis(duration.parse().ok()?);
        Some((workload, Job { count, workers, duration }))
    } else {
        None
    }
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    if args == ["--version"] {
        println!("{}", env!("BENCH_PEER"));
    } else if let Some(numbers) = parse(&args).and_then(|(workload, job)| run(workload, &job)) {
        for number in numbers {
            println!("{number:.6}");
        }
    } else {
        eprintln!("usage: tokio_bench WORKLOAD COUNT WORKERS MILLISECONDS");
        process::exit(2);
    }
}

//! Workers that sleep: how soon they run what comes from outside, and what they cost till then.

use crate::support::{percentile, usage, Job};
use std::sync::mpsc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Microseconds from outside to the start of the task, median and 99 %; and of the caller, median.
pub fn wake(job: &Job) -> Vec<f64> {
    let rt = job.runtime();
    let (started, start) = mpsc::sync_channel(1);
    let mut starts = Vec::new();
    let mut calls = Vec::new();
    for _ in 0..job.count {
        sleep(Duration::from_millis(2)); // all are asleep
        let started = started.clone();
        let before = Instant::now();
        rt.spawn(async move { started.send(Instant::now()).unwrap() });
        calls.push(before.elapsed().as_secs_f64() * 1e6);
        let at: Instant = start.recv().unwrap();
        starts.push((at - before).as_secs_f64() * 1e6);
    }
    starts.sort_by(f64::total_cmp);
    calls.sort_by(f64::total_cmp);
    vec![percentile(&starts, 0.5), percentile(&starts, 0.99), percentile(&calls, 0.5)]
}

/// Microseconds of processor time in so many milliseconds, and how often a thread went to sleep.
/// The one that waits meanwhile does so once.
pub fn idle(job: &Job) -> Vec<f64> {
    let rt = job.runtime();
    let handles: Vec<_> = (0..1000).map(|_| rt.spawn(tokio::task::yield_now())).collect();
    rt.block_on(async {
        for handle in handles {
            handle.await.unwrap();
        }
    });
    sleep(Duration::from_millis(100));
    let before = usage();
    sleep(job.duration);
    let after = usage();
    let cpu = (after.cpu - before.cpu).as_secs_f64() * 1e6;
    vec![cpu, (after.switches - before.switches) as f64]
}

//! What a job is, and how its runs are timed: as bench/fork_join/job.hpp does it.

use rayon::{ThreadPool, ThreadPoolBuilder};
use std::time::{Duration, Instant};

pub struct Job {
    pub size: usize,
    pub workers: usize,
    pub duration: Duration,
}

impl Job {
    pub fn pool(&self) -> ThreadPool {
        ThreadPoolBuilder::new().num_threads(self.workers).build().unwrap()
    }
}

const MOST_RUNS: usize = 10_000;

/// Calls `run` for the job's duration, after a warm-up for a tenth of it. What `prepare` returns is
/// for it; that, and `is_right` with what it returns, are not timed.
pub fn time_runs<T, R>(
    job: &Job,
    mut prepare: impl FnMut() -> T,
    mut run: impl FnMut(T) -> R,
    mut is_right: impl FnMut(R) -> bool,
) -> Vec<f64> {
    let mut once = || {
        let input = prepare();
        let began = Instant::now();
        let result = run(input);
        let elapsed = began.elapsed().as_secs_f64() * 1e9;
        assert!(is_right(result), "a wrong result");
        elapsed
    };
    let began = Instant::now();
    while {
        once();
        began.elapsed() < job.duration / 10
    } {}
    let mut runs = Vec::with_capacity(MOST_RUNS);
    let began = Instant::now();
    while {
        runs.push(once());
        runs.len() < MOST_RUNS && began.elapsed() < job.duration
    } {}
    runs.sort_by(f64::total_cmp);
    vec![runs[runs.len() / 2], runs[0], peak_resident_bytes()]
}

/// The same on a worker, with nothing to prepare.
pub fn time_on_worker<R: PartialEq + Send + Sync>(
    job: &Job,
    run: impl Fn() -> R + Sync,
    expected: R,
) -> Vec<f64> {
    job.pool().install(|| time_runs(job, || (), |()| run(), |result| result == expected))
}

fn peak_resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let (_, rest) = status.split_once("VmHWM:").unwrap();
    let kilobytes: f64 = rest.split_whitespace().next().unwrap().parse().unwrap();
    kilobytes * 1024.0
}

//! What a job is, and how its runs are timed: as bench/sched/job.hpp does it.

use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

pub struct Job {
    pub count: usize,
    pub workers: usize,
    pub duration: Duration,
}

impl Job {
    pub fn runtime(&self) -> Runtime {
        Builder::new_multi_thread().worker_threads(self.workers).enable_time().build().unwrap()
    }
}

const LEAST_RUNS: usize = 5;

/// Calls `run` for the job's duration, after a warm-up for a tenth of it: nanoseconds of the median
/// run and of the fastest.
pub fn time_runs(job: &Job, mut run: impl FnMut()) -> Vec<f64> {
    let warm_up = Instant::now();
    while {
        run();
        warm_up.elapsed() < job.duration / 10
    } {}
    let mut runs = Vec::new();
    let began = Instant::now();
    while runs.len() < LEAST_RUNS || began.elapsed() < job.duration {
        let start = Instant::now();
        run();
        runs.push(start.elapsed().as_secs_f64() * 1e9);
    }
    runs.sort_by(f64::total_cmp);
    vec![percentile(&runs, 0.5), runs[0]]
}

/// Of sorted numbers.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// What this process has used: processor time, and how often a thread of it went to sleep.
pub struct Usage {
    pub cpu: Duration,
    pub switches: i64,
}

pub fn usage() -> Usage {
    // SAFETY: plain numbers, all of which getrusage sets.
    let mut all: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut all) }, 0);
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    Usage { cpu: time(all.ru_utime) + time(all.ru_stime), switches: all.ru_nvcsw }
}

/// Of memory in use, by this process.
pub fn resident_bytes() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let resident: f64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
    // SAFETY: no memory is involved.
    resident * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as f64
}

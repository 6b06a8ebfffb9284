//! Functions that are spawned into a scope and do next to nothing: what a spawn costs.

use crate::support::{time_on_worker, Job};
use rayon::{scope, Scope};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub fn flat(job: &Job) -> Vec<f64> {
    let n = job.size as u64;
    let run = || {
        let last = AtomicU64::new(0);
        let to = &last;
        scope(|s| {
            for i in 1..=n {
                s.spawn(move |_| {
                    if i == n {
                        to.store(i, Relaxed);
                    }
                });
            }
        });
        last.load(Relaxed)
    };
    time_on_worker(job, run, n)
}

pub fn tree(job: &Job) -> Vec<f64> {
    fn grow<'s>(s: &Scope<'s>, deep: &'s AtomicU64, depth: usize) {
        if depth == 0 {
            deep.store(1, Relaxed);
            return;
        }
        s.spawn(move |s| grow(s, deep, depth - 1));
        s.spawn(move |s| grow(s, deep, depth - 1));
    }
    let run = || {
        let deep = AtomicU64::new(0);
        scope(|s| grow(s, &deep, job.size));
        deep.load(Relaxed)
    };
    time_on_worker(job, run, 1)
}

pub fn nested(job: &Job) -> Vec<f64> {
    fn nested(depth: usize) -> u64 {
        if depth == 0 {
            return 1;
        }
        let mut a = 0;
        let mut b = 0;
        scope(|s| {
            s.spawn(|_| a = nested(depth - 1));
            b = nested(depth - 1);
        });
        a + b
    }
    time_on_worker(job, || nested(job.size), 1 << job.size)
}

//! Loops over a range, and a sum.

use crate::support::{time_on_worker, Job};
use rayon::prelude::*;
use std::arch::asm;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

pub fn empty(job: &Job) -> Vec<f64> {
    let run = || {
        (0..job.size).into_par_iter().for_each(|i| {
            // SAFETY: it does nothing.
            unsafe { asm!("/* {0} */", in(reg) i, options(nomem, nostack, preserves_flags)) };
        });
    };
    time_on_worker(job, run, ())
}

const STEPS_OF_ONE_US: u64 = 1000;

fn compute_for_one_us() {
    let mut x = STEPS_OF_ONE_US;
    for _ in 0..STEPS_OF_ONE_US {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        // SAFETY: it does nothing.
        unsafe { asm!("/* {0} */", inout(reg) x, options(nomem, nostack, preserves_flags)) };
    }
}

pub fn one_us(job: &Job) -> Vec<f64> {
    let visits: Vec<AtomicU8> = (0..job.size).map(|_| AtomicU8::new(0)).collect();
    let runs = AtomicU8::new(0);
    let run = || {
        (0..job.size).into_par_iter().for_each(|i| {
            compute_for_one_us();
            let times = visits[i].load(Relaxed);
            visits[i].store(times.wrapping_add(1), Relaxed);
        });
    };
    let all_once = |()| {
        let expected = runs.load(Relaxed).wrapping_add(1);
        runs.store(expected, Relaxed);
        visits.iter().all(|times| times.load(Relaxed) == expected)
    };
    job.pool().install(|| crate::support::time_runs(job, || (), |()| run(), all_once))
}

pub fn sum(job: &Job) -> Vec<f64> {
    let numbers: Vec<u64> = (1..=job.size as u64).collect();
    let size = job.size as u64;
    time_on_worker(job, || numbers.par_iter().sum::<u64>(), size * (size + 1) / 2)
}

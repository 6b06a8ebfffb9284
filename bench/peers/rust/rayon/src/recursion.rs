//! Recursion that does next to nothing: what a fork costs.

use crate::support::{time_on_worker, time_runs, Job};
use rayon::join;
use std::arch::asm;

fn fib_of(n: u64) -> u64 {
    let (mut a, mut b) = (0, 1);
    for _ in 0..n {
        (a, b) = (b, a + b);
    }
    a
}

pub fn fib(job: &Job) -> Vec<f64> {
    fn fib(n: u64) -> u64 {
        if n < 2 {
            return n;
        }
        let (a, b) = join(|| fib(n - 1), || fib(n - 2));
        a + b
    }
    let n = job.size as u64;
    time_on_worker(job, || fib(n), fib_of(n))
}

/// Ten children, halved by joins: it has no join of ten, and a scope allocates for each child.
pub fn skynet(job: &Job) -> Vec<f64> {
    fn children(first: u64, part: u64, from: u64, to: u64) -> u64 {
        if to - from == 1 {
            return skynet(first + part * from, part);
        }
        let middle = (from + to) / 2;
        let (a, b) =
            join(|| children(first, part, from, middle), || children(first, part, middle, to));
        a + b
    }
    fn skynet(first: u64, leaves: u64) -> u64 {
        if leaves == 1 {
            first
        } else {
            children(first, leaves / 10, 0, 10)
        }
    }
    let leaves = job.size as u64;
    time_on_worker(job, || skynet(0, leaves), leaves * (leaves - 1) / 2)
}

/// Its own value each time: two of the same need two calls.
fn one() -> u64 {
    let mut value = 1u64;
    // SAFETY: it does nothing.
    unsafe { asm!("/* {0} */", inout(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

fn tree_of(depth: usize) -> u64 {
    if depth == 0 {
        return one();
    }
    let (a, b) = join(|| tree_of(depth - 1), || tree_of(depth - 1));
    a + b
}

pub fn tree(job: &Job) -> Vec<f64> {
    time_on_worker(job, || tree_of(job.size), 1 << job.size)
}

pub fn tree_from_outside(job: &Job) -> Vec<f64> {
    let pool = job.pool();
    let run = |()| pool.install(|| tree_of(job.size));
    time_runs(job, || (), run, |leaves| leaves == 1 << job.size)
}

pub fn spine(job: &Job) -> Vec<f64> {
    fn spine(depth: usize) -> u64 {
        if depth == 0 {
            return one();
        }
        let (a, b) = join(|| spine(depth - 1), one);
        a + b
    }
    time_on_worker(job, || spine(job.size), job.size as u64 + 1)
}

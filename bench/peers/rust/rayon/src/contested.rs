//! Algorithms over memory, as bench/fork_join/contested.cpp has them for its other peers.

use crate::support::{time_runs, Job};
use rayon::prelude::*;
use std::cell::RefCell;

/// SplitMix64's i-th.
fn random_number(i: u64) -> u64 {
    let x = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn make<T>(size: usize, at: impl Fn(u64) -> T) -> Vec<T> {
    (0..size as u64).map(at).collect()
}

fn small_number(i: u64) -> f64 {
    (random_number(i) % 16) as f64
}

#[derive(Clone)]
struct Record {
    key: u64,
    _rest: [u64; 3],
}

/// 5 to 24 letters.
fn random_string(mut i: u64) -> String {
    let length = 5 + random_number(i) % 20;
    (0..length)
        .map(|_| {
            i += 1_000_003;
            (b'a' + (random_number(i) % 26) as u8) as char
        })
        .collect()
}

/// A sort of what `given` has; each run sorts a copy.
fn sort<T: Clone + Send + Sync>(
    job: &Job,
    given: Vec<T>,
    sort: impl Fn(&mut [T]) + Send + Sync,
    in_order: impl Fn(&T, &T) -> bool + Send + Sync,
) -> Vec<f64> {
    let run = |mut all: Vec<T>| {
        sort(&mut all);
        all
    };
    let is_sorted = |all: Vec<T>| all.windows(2).all(|pair| in_order(&pair[0], &pair[1]));
    job.pool().install(|| time_runs(job, || given.clone(), run, is_sorted))
}

fn for_each(job: &Job) -> Vec<f64> {
    let mut all = make(job.size, small_number);
    let run = |()| all.par_iter_mut().for_each(|x| *x = 0.5 * *x + 1.0);
    job.pool().install(|| time_runs(job, || (), run, |()| true))
}

fn histogram(job: &Job) -> Vec<f64> {
    let all = make(job.size, random_number);
    let run = |()| {
        let count = |mut counts: [u32; 256], x: &u64| {
            counts[(x % 256) as usize] += 1;
            counts
        };
        let add = |mut a: [u32; 256], b: [u32; 256]| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        };
        all.par_iter().fold(|| [0u32; 256], count).reduce(|| [0u32; 256], add)
    };
    let is_right = |counts: [u32; 256]| counts.iter().sum::<u32>() as usize == job.size;
    job.pool().install(|| time_runs(job, || (), run, is_right))
}

fn dot_product(job: &Job) -> Vec<f64> {
    let a = make(job.size, small_number);
    let b = a.clone();
    let expected: f64 = a.iter().zip(&b).map(|(x, y)| x * y).sum();
    let run = |()| a.par_iter().zip(&b).map(|(x, y)| x * y).sum::<f64>();
    job.pool().install(|| time_runs(job, || (), run, |sum| sum == expected))
}

fn find(job: &Job) -> Vec<f64> {
    let all = make(job.size, |i| (random_number(i) >> 33) as u32);
    let absent = std::hint::black_box(0xffff_ffff);
    let run = |()| all.par_iter().position_first(|x| *x == absent);
    job.pool().install(|| time_runs(job, || (), run, |found| found.is_none()))
}

fn reverse(job: &Job) -> Vec<f64> {
    let mut all = make(job.size, random_number);
    let run = |()| {
        let (left, right) = all.split_at_mut(job.size / 2);
        left.par_iter_mut().zip(right.par_iter_mut().rev()).for_each(|(a, b)| std::mem::swap(a, b));
    };
    job.pool().install(|| time_runs(job, || (), run, |()| true))
}

fn transform(job: &Job) -> Vec<f64> {
    let all = make(job.size, random_number);
    let f = |x: &u64| x.wrapping_mul(3).wrapping_add(1);
    let digest = |all: &[u64]| all.iter().fold(0u64, |sum, x| sum.wrapping_mul(31).wrapping_add(*x));
    let expected = digest(&all.iter().map(f).collect::<Vec<u64>>());
    job.pool().install(|| {
        let out = RefCell::new(vec![0; job.size]);
        let run = |()| {
            let mut to = out.borrow_mut();
            to.par_iter_mut().zip(&all).for_each(|(to, x)| *to = f(x));
        };
        time_runs(job, || (), run, |()| digest(&out.borrow()) == expected)
    })
}

pub fn run(work: &str, job: &Job) -> Option<Vec<f64>> {
    let record = |i| Record { key: random_number(i), _rest: [i; 3] };
    let by_key = |a: &Record, b: &Record| a.key <= b.key;
    Some(match work {
        "for_each" => for_each(job),
        "histogram" => histogram(job),
        "dot_product" => dot_product(job),
        "sort_strings" => {
            sort(job, make(job.size, random_string), |all| all.par_sort_unstable(), |a, b| a <= b)
        }
        "sort_structs" => {
            sort(job, make(job.size, record), |all| all.par_sort_unstable_by_key(|r| r.key), by_key)
        }
        "stable_sort_structs" => {
            sort(job, make(job.size, record), |all| all.par_sort_by_key(|r| r.key), by_key)
        }
        "find" => find(job),
        "reverse" => reverse(job),
        "transform" => transform(job),
        _ => return None,
    })
}

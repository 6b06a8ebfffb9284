//! Sorting numbers in many orders.

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

type Order = fn(u64, u64) -> u64;

pub fn order(name: &str) -> Option<Order> {
    let order: Order = match name {
        "random" => |i, _| random_number(i),
        "sorted" => |i, _| i,
        "reversed" => |i, count| count - i,
        "equal" => |_, _| 42,
        "organ_pipe" => |i, count| i.min(count - 1 - i),
        "few_distinct" => |i, _| random_number(i) % 16,
        "mostly_sorted" => |i, count| match random_number(i) % 100 {
            0 => random_number(i) % count,
            _ => i,
        },
        _ => return None,
    };
    Some(order)
}

/// What sorting does not change.
fn fingerprint(numbers: &[u64]) -> (u64, u64) {
    numbers.iter().fold((0, 0), |(sum, mixed): (u64, u64), &x| {
        (sum.wrapping_add(x), mixed.wrapping_add(random_number(x)))
    })
}

fn sort_with(job: &Job, order: Order, sort: impl Fn(&mut [u64]) + Sync) -> Vec<f64> {
    let count = job.size as u64;
    let given: Vec<u64> = (0..count).map(|i| order(i, count)).collect();
    let expected = fingerprint(&given);
    job.pool().install(|| {
        let sorted = RefCell::new(given.clone());
        time_runs(
            job,
            || sorted.borrow_mut().copy_from_slice(&given),
            |()| sort(&mut sorted.borrow_mut()),
            |()| {
                let numbers = sorted.borrow();
                let in_order = numbers.windows(2).all(|pair| pair[0] <= pair[1]);
                in_order && fingerprint(&numbers) == expected
            },
        )
    })
}

pub fn unstable(job: &Job, order: Order) -> Vec<f64> {
    sort_with(job, order, |numbers| numbers.par_sort_unstable())
}

/// Sorts by a key that is costly to compute: a number after some rounds of a generator.
pub fn cached_key(job: &Job, order: Order) -> Vec<f64> {
    let key = |n: &u64| (0..32).fold(*n, |key, _| random_number(key));
    let count = job.size as u64;
    let given: Vec<u64> = (0..count).map(|i| order(i, count)).collect();
    job.pool().install(|| {
        let sorted = RefCell::new(given.clone());
        time_runs(
            job,
            || sorted.borrow_mut().copy_from_slice(&given),
            |()| sorted.borrow_mut().par_sort_by_cached_key(key),
            |()| sorted.borrow().windows(2).all(|pair| key(&pair[0]) <= key(&pair[1])),
        )
    })
}

pub fn stable(job: &Job, order: Order) -> Vec<f64> {
    sort_with(job, order, |numbers| numbers.par_sort())
}

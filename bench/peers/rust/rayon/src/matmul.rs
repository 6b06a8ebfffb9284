//! Matrices, multiplied by quarters, down to tiles of 32 x 32.

use crate::support::{time_runs, Job};
use rayon::join;
use std::cell::RefCell;

const TILE: usize = 32;

/// Where a quarter of the matrices begins; quarters of the result are written apart.
#[derive(Clone, Copy)]
struct Place {
    a: *const i32,
    b: *const i32,
    c: *mut i32,
}

// SAFETY: who is given one writes to a quarter of its own.
unsafe impl Send for Place {}
unsafe impl Sync for Place {}

impl Place {
    /// SAFETY: there is as much in each of the matrices.
    unsafe fn after(self, a: usize, b: usize, c: usize) -> Place {
        Place { a: self.a.add(a), b: self.b.add(b), c: self.c.add(c) }
    }
}

/// SAFETY: all three have a tile there, in rows that are `stride` apart.
#[inline(never)]
unsafe fn multiply_tile(at: Place, stride: usize) {
    for i in 0..TILE {
        let c = &mut *at.c.add(i * stride).cast::<[i32; TILE]>();
        for k in 0..TILE {
            let factor = *at.a.add(i * stride + k);
            let b = &*at.b.add(k * stride).cast::<[i32; TILE]>();
            for j in 0..TILE {
                c[j] = c[j].wrapping_add(factor.wrapping_mul(b[j]));
            }
        }
    }
}

/// SAFETY: all three have n x n numbers there, in rows that are `stride` apart.
unsafe fn multiply(at: Place, n: usize, stride: usize) {
    if n == TILE {
        return multiply_tile(at, stride);
    }
    let half = n / 2;
    let down = half * stride;
    for k in 0..2 {
        let quarter = |row: usize, column: usize| {
            let (a, b) = (k * half + row * down, k * down + column * half);
            multiply(at.after(a, b, row * down + column * half), half, stride);
        };
        join(
            || join(|| quarter(0, 0), || quarter(0, 1)),
            || join(|| quarter(1, 0), || quarter(1, 1)),
        );
    }
}

pub fn matmul(job: &Job) -> Vec<f64> {
    let n = job.size;
    assert!(n.is_power_of_two() && n >= TILE);
    job.pool().install(|| {
        let a = vec![1; n * n];
        let b = vec![1; n * n];
        let c = RefCell::new(vec![0; n * n]);
        time_runs(
            job,
            || c.borrow_mut().fill(0),
            |()| {
                let to = c.borrow_mut().as_mut_ptr();
                // SAFETY: all are of that size.
                unsafe { multiply(Place { a: a.as_ptr(), b: b.as_ptr(), c: to }, n, n) };
            },
            |()| c.borrow().iter().all(|x| *x == n as i32),
        )
    })
}

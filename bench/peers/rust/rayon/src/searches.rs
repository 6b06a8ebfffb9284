//! Trees that nobody knows before they are searched.

use crate::support::{time_on_worker, Job};
use rayon::join;
use std::ops::Add;

/// The sum of what `child` returns for each of a few, halved by joins.
fn sum_of<R, F>(from: usize, to: usize, child: &F) -> R
where
    R: Add<Output = R> + Send,
    F: Fn(usize) -> R + Sync,
{
    if to - from == 1 {
        return child(from);
    }
    let middle = (from + to) / 2;
    let (a, b) = join(|| sum_of(from, middle, child), || sum_of(middle, to, child));
    a + b
}

fn is_free<const N: usize>(rows: &[i8; N], column: usize, row: i32) -> bool {
    for (x, &other) in rows[..column].iter().enumerate() {
        let (other, away) = (i32::from(other), (column - x) as i32);
        if row == other || row == other - away || row == other + away {
            return false;
        }
    }
    true
}

fn queens_on<const N: usize>(column: usize, rows: &[i8; N]) -> u64 {
    if column == N {
        return 1;
    }
    let mut places = [0i8; N];
    let mut count = 0;
    for row in 0..N as i8 {
        if is_free(rows, column, i32::from(row)) {
            places[count] = row;
            count += 1;
        }
    }
    if count == 0 {
        return 0;
    }
    sum_of(0, count, &|i| {
        let mut next = *rows;
        next[column] = places[i];
        queens_on(column + 1, &next)
    })
}

pub fn queens(job: &Job) -> Vec<f64> {
    match job.size {
        10 => time_on_worker(job, || queens_on(0, &[0i8; 10]), 724),
        14 => time_on_worker(job, || queens_on(0, &[0i8; 14]), 365_596),
        _ => panic!("no answer for such a board"),
    }
}

type Digest = [u32; 5];

/// SHA-1 (FIPS 180-4) of the first words of the block; the rest of it is zero.
fn sha1(mut block: [u32; 16], length: usize) -> Digest {
    block[length] = 0x8000_0000;
    block[15] = 32 * length as u32;
    let mut w = [0u32; 80];
    w[..16].copy_from_slice(&block);
    for i in 16..80 {
        w[i] = (w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16]).rotate_left(1);
    }
    let start: Digest = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let [mut a, mut b, mut c, mut d, mut e] = start;
    for (i, word) in w.iter().enumerate() {
        let (f, k) = match i / 20 {
            0 => ((b & c) | (!b & d), 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6u32),
        };
        let next =
            a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(k).wrapping_add(*word);
        (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
    }
    let end = [a, b, c, d, e];
    std::array::from_fn(|i| start[i].wrapping_add(end[i]))
}

fn root(seed: u32) -> Digest {
    let mut block = [0; 16];
    block[4] = seed;
    sha1(block, 5)
}

fn child(parent: &Digest, number: u32) -> Digest {
    let mut block = [0; 16];
    block[..5].copy_from_slice(parent);
    block[5] = number;
    sha1(block, 6)
}

#[derive(PartialEq)]
struct Size {
    nodes: u64,
    leaves: u64,
}

impl Add for Size {
    type Output = Size;
    fn add(self, other: Size) -> Size {
        Size { nodes: self.nodes + other.nodes, leaves: self.leaves + other.leaves }
    }
}

const BRANCHING: f64 = 4.0;
const MOST_CHILDREN: usize = 100;

fn search(node: &Digest, depth: usize, deepest: usize) -> Size {
    let draw = f64::from(node[4] & 0x7fff_ffff) / 2147483648.0;
    let p = 1.0 / (1.0 + BRANCHING);
    let count = match depth < deepest {
        true => ((1.0 - draw).ln() / (1.0f64 - p).ln()).floor() as usize,
        false => 0,
    };
    if count == 0 {
        return Size { nodes: 1, leaves: 1 };
    }
    let below = sum_of(0, count.min(MOST_CHILDREN), &|i| {
        search(&child(node, i as u32), depth + 1, deepest)
    });
    below + Size { nodes: 1, leaves: 0 }
}

pub fn unbalanced(job: &Job) -> Vec<f64> {
    let expected = match job.size {
        7 => Size { nodes: 63_914, leaves: 51_124 },
        10 => Size { nodes: 4_130_071, leaves: 3_305_118 },
        _ => panic!("no answer for such a tree"),
    };
    time_on_worker(job, || search(&root(19), 0, job.size), expected)
}

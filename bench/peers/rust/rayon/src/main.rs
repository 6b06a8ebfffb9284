//! Rayon under the workloads of bench/fork_join, which has the same for all others.
//!
//!     rayon_bench WORKLOAD SIZE WORKERS MILLISECONDS
//!
//! runs one workload on a pool with so many workers, again and again for so many milliseconds, and
//! prints the nanoseconds of the median run and of the fastest, and the most bytes of memory that
//! the process had in use.
//!
//!     rayon_bench --version

mod contested;
mod loops;
mod matmul;
mod recursion;
mod scopes;
mod searches;
mod sorts;
mod support;

use std::time::Duration;
use std::{env, process};
use support::Job;

fn run(workload: &str, job: &Job) -> Option<Vec<f64>> {
    let numbers = match workload {
        "fib" => recursion::fib(job),
        "skynet" => recursion::skynet(job),
        "tree" => recursion::tree(job),
        "outside" => recursion::tree_from_outside(job),
        "spine" => recursion::spine(job),
        "scope_flat" => scopes::flat(job),
        "scope_tree" => scopes::tree(job),
        "scope_nested" => scopes::nested(job),
        "nqueens" => searches::queens(job),
        "uts" => searches::unbalanced(job),
        "matmul" => matmul::matmul(job),
        "for_empty" => loops::empty(job),
        "for_1us" => loops::one_us(job),
        "sum" => loops::sum(job),
        _ => {
            let (kind, order) = workload.split_once('_')?;
            if kind == "contested" {
                return contested::run(order, job);
            }
            let order = sorts::order(order)?;
            match kind {
                "sort" => sorts::unstable(job, order),
                "stable" => sorts::stable(job, order),
                "cached" => sorts::cached_key(job, order),
                _ => return None,
            }
        }
    };
    Some(numbers)
}

fn parse(args: &[String]) -> Option<(&str, Job)> {
    if let [workload, size, workers, duration] = args {
        let size = size.parse().ok().filter(|n| *n > 0)?;
        let workers = workers.parse().ok().filter(|n| *n > 0)?;
        let duration = Duration::from_millis(duration.parse().ok()?);
        Some((workload, Job { size, workers, duration }))
    } else {
        None
    }
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    if args == ["--version"] {
        println!("{}", env!("BENCH_PEER"));
    } else if let Some(numbers) = parse(&args).and_then(|(workload, job)| run(workload, &job)) {
        for number in numbers {
            println!("{number:.6}");
        }
    } else {
        eprintln!("usage: rayon_bench WORKLOAD SIZE WORKERS MILLISECONDS");
        process::exit(2);
    }
}

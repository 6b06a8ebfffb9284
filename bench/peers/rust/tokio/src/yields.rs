//! Tasks that go to the end of the queue. After Tokio's benches/rt_multi_threaded.rs.

use crate::support::{time_runs, Job};
use std::sync::mpsc;

const YIELDS: usize = 1000;

/// So many tasks; a thread outside waits for each.
pub fn many(job: &Job) -> Vec<f64> {
    let rt = job.runtime();
    let (done, one_done) = mpsc::sync_channel(job.count);
    time_runs(job, || {
        for _ in 0..job.count {
            let done = done.clone();
            rt.spawn(async move {
                for _ in 0..YIELDS {
                    tokio::task::yield_now().await;
                }
                done.send(()).unwrap();
            });
        }
        for _ in 0..job.count {
            one_done.recv().unwrap();
        }
    })
}

/// One task, alone, so many times.
pub fn single(job: &Job) -> Vec<f64> {
    let rt = job.runtime();
    let count = job.count;
    time_runs(job, || {
        let task = rt.spawn(async move {
            for _ in 0..count {
                tokio::task::yield_now().await;
            }
        });
        rt.block_on(task).unwrap();
    })
}

//! Tasks that want the same thing. After bench/sched/contended.cpp.

use crate::support::{time_runs, Job};
use std::future::Future;
use std::sync::Arc;
use tokio::sync::{mpsc, Mutex, Semaphore};

/// Spawns from a thread outside, which then waits for all.
fn together<F>(job: &Job, tasks: usize, run: impl Fn(usize) -> F) -> Vec<f64>
where
    F: Future<Output = ()> + Send + 'static,
{
    let rt = job.runtime();
    time_runs(job, || {
        let handles: Vec<_> = (0..tasks).map(|_| rt.spawn(run(job.count / tasks))).collect();
        rt.block_on(async {
            for handle in handles {
                handle.await.unwrap();
            }
        });
    })
}

pub fn permits(job: &Job) -> Vec<f64> {
    let three = Arc::new(Semaphore::new(3));
    together(job, 64, |count| {
        let three = three.clone();
        async move {
            for _ in 0..count {
                drop(three.acquire().await.unwrap());
            }
        }
    })
}

pub fn locks(job: &Job, tasks: usize) -> Vec<f64> {
    let one = Arc::new(Mutex::new(()));
    together(job, tasks, |count| {
        let one = one.clone();
        async move {
            for _ in 0..count {
                drop(one.lock().await);
            }
        }
    })
}

pub fn channel(job: &Job, senders: usize, capacity: usize) -> Vec<f64> {
    let rt = job.runtime();
    time_runs(job, || {
        let (to, mut from) = mpsc::channel(capacity);
        for _ in 0..senders {
            let (to, count) = (to.clone(), job.count / senders);
            rt.spawn(async move {
                for i in 0..count {
                    to.send(i).await.unwrap();
                }
            });
        }
        drop(to);
        rt.block_on(rt.spawn(async move { while from.recv().await.is_some() {} })).unwrap();
    })
}

pub fn unbounded(job: &Job) -> Vec<f64> {
    let rt = job.runtime();
    let count = job.count;
    time_runs(job, || {
        let (to, mut from) = mpsc::unbounded_channel();
        rt.spawn(async move {
            for i in 0..count {
                to.send(i).unwrap();
            }
        });
        rt.block_on(rt.spawn(async move { while from.recv().await.is_some() {} })).unwrap();
    })
}

//! Waits under overload. After bench/sched/bursts.cpp.

use crate::support::{percentile, Job};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot, Semaphore};

const OVERLOAD: usize = 4;

fn compute() {
    let began = Instant::now();
    while began.elapsed() < Duration::from_micros(2) {}
}

/// Each of so many tasks returns how long each of its waits took: microseconds, median, 99 % and
/// 99.9 %.
fn waits<F>(rt: &Runtime, job: &Job, client: impl Fn(usize) -> F) -> Vec<f64>
where
    F: Future<Output = Vec<Duration>> + Send + 'static,
{
    let tasks = OVERLOAD * job.workers;
    let handles: Vec<_> = (0..tasks).map(|_| rt.spawn(client(job.count / tasks))).collect();
    let mut all: Vec<f64> = rt.block_on(async {
        let mut all = Vec::new();
        for handle in handles {
            all.extend(handle.await.unwrap().iter().map(|wait| wait.as_secs_f64() * 1e6));
        }
        all
    });
    all.sort_by(f64::total_cmp);
    vec![percentile(&all, 0.5), percentile(&all, 0.99), percentile(&all, 0.999)]
}

pub fn permits(job: &Job) -> Vec<f64> {
    let free = Arc::new(Semaphore::new(job.workers));
    waits(&job.runtime(), job, |count| {
        let free = free.clone();
        async move {
            let mut waited = Vec::new();
            for _ in 0..count {
                let began = Instant::now();
                let _mine = free.acquire().await.unwrap();
                waited.push(began.elapsed());
                compute();
                tokio::task::yield_now().await;
                compute();
            }
            waited
        }
    })
}

/// Its receivers cannot be shared: each server has a channel of its own, and the clients take turns.
pub fn request_reply(job: &Job) -> Vec<f64> {
    let rt = job.runtime();
    let mut servers = Vec::new();
    for _ in 0..job.workers {
        let (to, mut from) = mpsc::channel::<oneshot::Sender<()>>(1);
        servers.push(to);
        rt.spawn(async move {
            while let Some(reply) = from.recv().await {
                compute();
                reply.send(()).unwrap();
            }
        });
    }
    waits(&rt, job, |count| {
        let servers = servers.clone();
        async move {
            let mut waited = Vec::new();
            for i in 0..count {
                let (reply, replied) = oneshot::channel();
                let began = Instant::now();
                servers[i % servers.len()].send(reply).await.unwrap();
                replied.await.unwrap();
                waited.push(began.elapsed());
            }
            waited
        }
    })
}

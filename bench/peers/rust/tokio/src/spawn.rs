//! Tasks that do nothing, and how they come to be. After Tokio's benches/rt_multi_threaded.rs.

use crate::support::{time_runs, Job};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::AcqRel, Ordering::Relaxed};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// By a task; the last of them tells the thread that waits.
pub fn many_local(job: &Job) -> Vec<f64> {
    let rt = job.runtime();
    let count = job.count;
    let (done, all_done) = mpsc::sync_channel(1);
    time_runs(job, || {
        let done = done.clone();
        rt.block_on(async {
            tokio::spawn(async move {
                let left = Arc::new(AtomicUsize::new(count));
                for _ in 0..count {
                    let (left, done) = (left.clone(), done.clone());
                    tokio::spawn(async move {
                        if left.fetch_sub(1, AcqRel) == 1 {
                            done.send(()).unwrap();
                        }
                    });
                }
            });
            all_done.recv().unwrap();
        });
    })
}

fn spawn_and_join(rt: &Runtime, count: usize) {
    let handles: Vec<_> = (0..count).map(|_| rt.spawn(async {})).collect();
    rt.block_on(async {
        for handle in handles {
            handle.await.unwrap();
        }
    });
}

/// By a thread outside, which then awaits all.
pub fn many_remote_idle(job: &Job) -> Vec<f64> {
    let rt = job.runtime();
    time_runs(job, || spawn_and_join(&rt, job.count))
}

/// By a task, into a set, which it then joins as they end.
pub fn into_set(job: &Job) -> Vec<f64> {
    let rt = job.runtime();
    let count = job.count;
    time_runs(job, || {
        rt.block_on(async {
            tokio::spawn(async move {
                let mut set = tokio::task::JoinSet::new();
                for _ in 0..count {
                    set.spawn(async {});
                }
                while let Some(ended) = set.join_next().await {
                    ended.unwrap();
                }
            })
            .await
            .unwrap();
        });
    })
}

fn stall() {
    let began = Instant::now();
    while began.elapsed() < Duration::from_micros(10) {
        thread::yield_now();
    }
}

/// The same, while two tasks for each worker compute and yield.
pub fn many_remote_busy1(job: &Job) -> Vec<f64> {
    let rt = job.runtime();
    let busy = Arc::new(AtomicBool::new(true));
    for _ in 0..2 * job.workers {
        let busy = busy.clone();
        rt.spawn(async move {
            while busy.load(Relaxed) {
                tokio::task::yield_now().await;
                stall();
            }
        });
    }
    let numbers = time_runs(job, || spawn_and_join(&rt, job.count));
    busy.store(false, Relaxed);
    numbers
}

/// The same, while a task for each worker spawns the next one and computes. Not measured where that
/// starves all others, as it does in Tokio before 1.28, which runs what a task spawned last next.
pub fn many_remote_busy2(job: &Job) -> Vec<f64> {
    let patience = job.duration + Duration::from_secs(4);
    let job = Job { ..*job };
    let (measured, result) = mpsc::channel();
    thread::spawn(move || measured.send(many_remote_while_spawning(&job)).unwrap());
    result.recv_timeout(patience).unwrap_or(vec![f64::NAN; 2])
}

fn many_remote_while_spawning(job: &Job) -> Vec<f64> {
    fn link(busy: Arc<AtomicBool>) {
        if busy.load(Relaxed) {
            tokio::spawn(async {
                link(busy);
                stall();
            });
        }
    }
    let rt = job.runtime();
    let busy = Arc::new(AtomicBool::new(true));
    for _ in 0..job.workers {
        let busy = busy.clone();
        rt.spawn(async { link(busy) });
    }
    let numbers = time_runs(job, || spawn_and_join(&rt, job.count));
    busy.store(false, Relaxed);
    numbers
}

/// By a task that awaits each of them at once.
pub fn and_await(job: &Job) -> Vec<f64> {
    let rt = job.runtime();
    let count = job.count;
    time_runs(job, || {
        let parent = rt.spawn(async move {
            for _ in 0..count {
                tokio::spawn(async {}).await.unwrap();
            }
        });
        rt.block_on(parent).unwrap();
    })
}

/// The same on one thread.
pub fn and_await_one_thread(job: &Job) -> Vec<f64> {
    let rt = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let count = job.count;
    time_runs(job, || {
        rt.block_on(async {
            for _ in 0..count {
                tokio::spawn(async {}).await.unwrap();
            }
        });
    })
}

/// Each spawns the next one; the last tells the thread that waits.
pub fn chained(job: &Job) -> Vec<f64> {
    fn link(done: mpsc::SyncSender<()>, left: usize) {
        if left == 0 {
            done.send(()).unwrap();
        } else {
            tokio::spawn(async move { link(done, left - 1) });
        }
    }
    let rt = job.runtime();
    let count = job.count;
    let (done, all_done) = mpsc::sync_channel(1);
    time_runs(job, || {
        let done = done.clone();
        rt.block_on(async {
            tokio::spawn(async move { link(done, count) });
            all_done.recv().unwrap();
        });
    })
}

/// By a task; each goes once to the end of the queue, so that they exist at the same time.
pub fn many_that_yield(job: &Job) -> Vec<f64> {
    let rt = job.runtime();
    let count = job.count;
    let (done, all_done) = mpsc::sync_channel(1);
    time_runs(job, || {
        let done = done.clone();
        rt.block_on(async {
            tokio::spawn(async move {
                let left = Arc::new(AtomicUsize::new(count));
                for _ in 0..count {
                    let (left, done) = (left.clone(), done.clone());
                    tokio::spawn(async move {
                        tokio::task::yield_now().await;
                        if left.fetch_sub(1, AcqRel) == 1 {
                            done.send(()).unwrap();
                        }
                    });
                }
            });
            all_done.recv().unwrap();
        });
    })
}

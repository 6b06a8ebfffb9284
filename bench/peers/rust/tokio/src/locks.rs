//! Tasks that each take a lock once. After Tokio's benches/sync_semaphore.rs and sync_rwlock.rs.

use crate::support::{time_runs, Job};
use std::future::Future;
use std::sync::Arc;
use tokio::sync::{RwLock, Semaphore};

/// Runs so many of them at once.
async fn join_all<F>(count: usize, task: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let handles: Vec<_> = (0..count).map(|_| tokio::spawn(task())).collect();
    for handle in handles {
        handle.await.unwrap();
    }
}

pub fn semaphore(job: &Job, permits: usize) -> Vec<f64> {
    async fn take(s: Arc<Semaphore>) {
        drop(s.acquire().await.unwrap());
    }
    let rt = job.runtime();
    let s = Arc::new(Semaphore::new(permits));
    time_runs(job, || rt.block_on(join_all(job.count, || take(s.clone()))))
}

async fn read(lock: Arc<RwLock<()>>) {
    drop(lock.read().await);
}

pub fn rwlock_uncontended(job: &Job) -> Vec<f64> {
    let rt = job.runtime();
    let lock = Arc::new(RwLock::new(()));
    time_runs(job, || rt.block_on(join_all(job.count, || read(lock.clone()))))
}

/// A writer has it while the readers are spawned.
pub fn rwlock_contended(job: &Job) -> Vec<f64> {
    let rt = job.runtime();
    let lock = Arc::new(RwLock::new(()));
    time_runs(job, || {
        rt.block_on(async {
            let writing = lock.write().await;
            let handles: Vec<_> =
                (0..job.count).map(|_| tokio::spawn(read(lock.clone()))).collect();
            drop(writing);
            for handle in handles {
                handle.await.unwrap();
            }
        })
    })
}

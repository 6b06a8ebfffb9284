//! Tasks that sleep, and tasks that wait with a deadline.

use crate::support::{percentile, resident_bytes, usage, Job};
use std::future::Future;
use std::mem::size_of;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use std::sync::{mpsc, Arc};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep_until, timeout, timeout_at};

const LONG: Duration = Duration::from_secs(3600);

/// Tells when so many have come.
#[derive(Clone)]
struct Countdown {
    left: Arc<AtomicUsize>,
    done: mpsc::SyncSender<()>,
}

impl Countdown {
    fn new(count: usize) -> (Countdown, mpsc::Receiver<()>) {
        let (done, all_done) = mpsc::sync_channel(1);
        (Countdown { left: Arc::new(AtomicUsize::new(count)), done }, all_done)
    }

    fn arrive(&self) {
        if self.left.fetch_sub(1, AcqRel) == 1 {
            self.done.send(()).unwrap();
        }
    }
}

/// Arrives when it goes.
struct Leaving(Countdown);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.arrive();
    }
}

fn ns_each(began: Instant, count: usize) -> f64 {
    began.elapsed().as_secs_f64() * 1e9 / count as f64
}

/// Tasks that sleep for long, spawned by a task, then cancelled from outside: nanoseconds of each,
/// for both, and bytes of each, without its handle.
pub fn sleepers(job: &Job) -> Vec<f64> {
    let rt = job.runtime();
    let count = job.count;
    let (come, all_come) = Countdown::new(count);
    let (gone, all_gone) = Countdown::new(count);
    let bytes = resident_bytes();
    let began = Instant::now();
    let handles: Vec<JoinHandle<()>> = rt
        .block_on(rt.spawn(async move {
            let sleeper = || {
                let (come, leaving) = (come.clone(), Leaving(gone.clone()));
                async move {
                    let _leaving = leaving;
                    come.arrive();
                    tokio::time::sleep(LONG).await;
                }
            };
            (0..count).map(|_| tokio::spawn(sleeper())).collect()
        }))
        .unwrap();
    all_come.recv().unwrap();
    let insert = ns_each(began, count);
    sleep(Duration::from_millis(100)); // the last ones are asleep
    let each = (resident_bytes() - bytes) / count as f64 - size_of::<JoinHandle<()>>() as f64;
    let began = Instant::now();
    handles.iter().for_each(JoinHandle::abort);
    all_gone.recv().unwrap();
    vec![insert, ns_each(began, count), each]
}

/// Tasks that wait for a permit, spawned by a task; then they get one: nanoseconds of each, for
/// both, and bytes of each.
pub fn waiters(job: &Job) -> Vec<f64> {
    wait_for_permits(job, |permits| async move { permits.acquire().await.unwrap().forget() })
}

/// The same with a far deadline.
pub fn timeouts(job: &Job) -> Vec<f64> {
    wait_for_permits(job, |permits| async move {
        timeout(LONG, permits.acquire()).await.unwrap().unwrap().forget();
    })
}

fn wait_for_permits<F>(job: &Job, wait: impl Fn(Arc<Semaphore>) -> F + Send + 'static) -> Vec<f64>
where
    F: Future<Output = ()> + Send + 'static,
{
    let rt = job.runtime();
    let count = job.count;
    let (come, all_come) = Countdown::new(count);
    let (gone, all_gone) = Countdown::new(count);
    let permits = Arc::new(Semaphore::new(0));
    let to_take = permits.clone();
    let bytes = resident_bytes();
    let began = Instant::now();
    rt.spawn(async move {
        for _ in 0..count {
            let (come, gone, waiting) = (come.clone(), gone.clone(), wait(to_take.clone()));
            tokio::spawn(async move {
                come.arrive();
                waiting.await;
                gone.arrive();
            });
        }
    });
    all_come.recv().unwrap();
    let insert = ns_each(began, count);
    sleep(Duration::from_millis(100)); // the last ones wait
    let each = (resident_bytes() - bytes) / count as f64;
    let began = Instant::now();
    permits.add_permits(count);
    all_gone.recv().unwrap();
    vec![insert, ns_each(began, count), each]
}

/// When the i-th of them is due: within a second, in no order.
fn due(from: Instant, i: usize) -> Instant {
    let place = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    from + Duration::from_micros(place * 1_000_000 >> 32)
}

/// The first is due after the job's duration, in which all are spawned.
/// Nanoseconds of processor time for each from when the first is due; microseconds that they are
/// late, median and 99 %.
fn fire<F>(job: &Job, wait: impl Fn(Instant) -> F + Clone + Send + 'static) -> Vec<f64>
where
    F: Future<Output = ()> + Send,
{
    let rt = job.runtime();
    let count = job.count;
    let first = Instant::now() + job.duration;
    let (gone, all_gone) = Countdown::new(count);
    let spawner = rt.spawn(async move {
        let sleeper = |i| {
            let (gone, wait) = (gone.clone(), wait.clone());
            async move {
                let when = due(first, i);
                wait(when).await;
                let late = when.elapsed();
                gone.arrive();
                late
            }
        };
        (0..count).map(|i| tokio::spawn(sleeper(i))).collect::<Vec<_>>()
    });
    let handles = rt.block_on(spawner).unwrap();
    sleep(first.saturating_duration_since(Instant::now()));
    let before = usage();
    all_gone.recv().unwrap();
    let cpu = (usage().cpu - before.cpu).as_secs_f64() * 1e9 / count as f64;
    let mut late: Vec<f64> = rt.block_on(async {
        let mut all = Vec::new();
        for handle in handles {
            all.push(handle.await.unwrap().as_secs_f64() * 1e6);
        }
        all
    });
    late.sort_by(f64::total_cmp);
    vec![cpu, percentile(&late, 0.5), percentile(&late, 0.99)]
}

pub fn fire_sleeps(job: &Job) -> Vec<f64> {
    fire(job, sleep_until_std)
}

async fn sleep_until_std(when: Instant) {
    sleep_until(when.into()).await;
}

pub fn fire_timeouts(job: &Job) -> Vec<f64> {
    let never = Arc::new(Semaphore::new(0));
    fire(job, move |when| {
        let never = never.clone();
        async move { assert!(timeout_at(when.into(), never.acquire()).await.is_err()) }
    })
}

//! Tasks that wait for each other. After Tokio's benches/rt_multi_threaded.rs, sync_mpsc.rs and
//! sync_mpsc_oneshot.rs.

use crate::support::{time_runs, Job};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};

/// Pairs of tasks; each pair exchanges two messages. A thread waits for the last pair.
pub fn ping_pong(job: &Job) -> Vec<f64> {
    let rt = job.runtime();
    let count = job.count;
    let (done, all_done) = std::sync::mpsc::sync_channel(1);
    time_runs(job, || {
        let done = done.clone();
        rt.block_on(async {
            tokio::spawn(async move {
                let left = Arc::new(AtomicUsize::new(count));
                for _ in 0..count {
                    let (left, done) = (left.clone(), done.clone());
                    tokio::spawn(async move {
                        let (ping, pinged) = oneshot::channel();
                        let (pong, ponged) = oneshot::channel();
                        tokio::spawn(async move {
                            pinged.await.unwrap();
                            pong.send(()).unwrap();
                        });
                        ping.send(()).unwrap();
                        ponged.await.unwrap();
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

type Request = oneshot::Sender<()>;

async fn answer(mut requests: mpsc::Receiver<Request>) {
    while let Some(request) = requests.recv().await {
        request.send(()).unwrap();
    }
}

async fn ask(server: mpsc::Sender<Request>, count: usize) {
    for _ in 0..count {
        let (reply, replied) = oneshot::channel();
        server.send(reply).await.unwrap();
        replied.await.unwrap();
    }
}

fn request_reply_on(rt: Runtime, job: &Job) -> Vec<f64> {
    let (server, requests) = mpsc::channel(10);
    rt.spawn(answer(requests));
    time_runs(job, || rt.block_on(ask(server.clone(), job.count)))
}

pub fn request_reply_one_thread(job: &Job) -> Vec<f64> {
    request_reply_on(Builder::new_current_thread().build().unwrap(), job)
}

/// The server runs on a worker, the client on a thread outside.
pub fn request_reply(job: &Job) -> Vec<f64> {
    request_reply_on(job.runtime(), job)
}

/// Two tasks take turns, by two channels with one place each.
pub fn round_trip(job: &Job) -> Vec<f64> {
    let rt = job.runtime();
    let count = job.count;
    time_runs(job, || {
        let (there, mut there_out) = mpsc::channel::<usize>(1);
        let (back, mut back_out) = mpsc::channel::<usize>(1);
        rt.spawn(async move {
            while let Some(message) = there_out.recv().await {
                back.send(message).await.unwrap();
            }
        });
        let client = rt.spawn(async move {
            let mut sum = 0;
            for i in 0..count {
                there.send(i).await.unwrap();
                sum += back_out.recv().await.unwrap();
            }
            sum
        });
        assert_eq!(rt.block_on(client).unwrap(), count * (count - 1) / 2);
    })
}

/// One task: all in, all out.
fn in_and_out<F: Future<Output = usize>>(job: &Job, run: impl Fn(usize) -> F) -> Vec<f64> {
    let rt = job.runtime();
    let count = job.count;
    time_runs(job, || assert_eq!(rt.block_on(run(count)), count * (count - 1) / 2))
}

pub fn bounded(job: &Job) -> Vec<f64> {
    in_and_out(job, |count| async move {
        let (tx, mut rx) = mpsc::channel(count);
        for i in 0..count {
            tx.send(i).await.unwrap();
        }
        let mut sum = 0;
        for _ in 0..count {
            sum += rx.recv().await.unwrap();
        }
        sum
    })
}

pub fn unbounded(job: &Job) -> Vec<f64> {
    in_and_out(job, |count| async move {
        let (tx, mut rx) = mpsc::unbounded_channel();
        for i in 0..count {
            tx.send(i).unwrap();
        }
        let mut sum = 0;
        for _ in 0..count {
            sum += rx.recv().await.unwrap();
        }
        sum
    })
}

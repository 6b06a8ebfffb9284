//! crossbeam-channel under the workloads of bench/channel, which has the same for all others.
//!
//!     crossbeam_channel_bench WORKLOAD CAPACITY MESSAGES CPU,...
//!
//! runs one workload, after a warm-up with a tenth of the messages, and prints the nanoseconds for
//! a message (`ping_pong`: for a round trip). Thread i runs on the i-th CPU, over and over; senders
//! come first. The workloads from `seq` to `select_both` are those of crossbeam-channel's own
//! benchmark.
//!
//!     crossbeam_channel_bench --version

use crossbeam_channel::{bounded, Receiver, Select, Sender};
use std::sync::Barrier;
use std::time::{Duration, Instant};
use std::{env, iter, process, thread};

const THREADS: usize = 4;
const BATCH: usize = 16;

struct Job {
    capacity: usize,
    messages: usize,
    cpus: Vec<usize>,
}

/// What was received, added up; and how long it took.
struct Outcome {
    sum: u64,
    elapsed: Duration,
}

fn run_on(cpu: usize) {
    extern "C" {
        fn sched_setaffinity(pid: i32, size: usize, mask: *const u64) -> i32;
    }
    let mut mask = [0u64; 16];
    mask[cpu / 64] = 1 << (cpu % 64);
    // SAFETY: the mask is as long as it says.
    let failed = unsafe { sched_setaffinity(0, 8 * mask.len(), mask.as_ptr()) };
    assert_eq!(failed, 0, "may not run on processor {cpu}");
}

/// The part of one thread; what it received, added up.
type Part<'a> = Box<dyn FnOnce() -> u64 + Send + 'a>;

/// Threads that start together: from when the first begins until the last ends.
fn run_team(cpus: &[usize], parts: Vec<Part>) -> Outcome {
    let gate = Barrier::new(parts.len());
    let shifts: Vec<(Instant, Instant, u64)> = thread::scope(|scope| {
        let mut team = Vec::new();
        for (i, part) in parts.into_iter().enumerate() {
            let (gate, cpu) = (&gate, cpus[i % cpus.len()]);
            team.push(scope.spawn(move || {
                run_on(cpu);
                gate.wait();
                let began = Instant::now();
                let sum = part();
                (began, Instant::now(), sum)
            }));
        }
        team.into_iter().map(|member| member.join().unwrap()).collect()
    });
    let began = shifts.iter().map(|s| s.0).min().unwrap();
    let ended = shifts.iter().map(|s| s.1).max().unwrap();
    Outcome { sum: shifts.iter().map(|s| s.2).sum(), elapsed: ended - began }
}

fn send_all(tx: &Sender<u64>, from: usize, count: usize) -> u64 {
    for i in from..from + count {
        tx.send(i as u64).unwrap();
    }
    0
}

fn recv_all(rx: &Receiver<u64>, count: usize) -> u64 {
    (0..count).map(|_| rx.recv().unwrap()).sum()
}

/// One thread: all in, all out, `batch` at a time.
fn in_and_out(job: &Job, batch: usize) -> Outcome {
    let (tx, rx) = bounded(job.capacity);
    let part = || {
        let mut sum = 0;
        for from in (0..job.messages).step_by(batch) {
            let count = batch.min(job.messages - from);
            send_all(&tx, from, count);
            sum += recv_all(&rx, count);
        }
        sum
    };
    run_team(&job.cpus, vec![Box::new(part)])
}

/// Each of the senders sends its share of the messages, each of the receivers receives its share.
fn stream(job: &Job, senders: usize, receivers: usize) -> Outcome {
    let (tx, rx) = bounded(job.capacity);
    let mut parts: Vec<Part> = Vec::new();
    for i in 0..senders {
        let (tx, share) = (&tx, job.messages / senders);
        parts.push(Box::new(move || send_all(tx, i * share, share)));
    }
    for _ in 0..receivers {
        let (rx, share) = (&rx, job.messages / receivers);
        parts.push(Box::new(move || recv_all(rx, share)));
    }
    run_team(&job.cpus, parts)
}

fn select_recv(channels: &[(Sender<u64>, Receiver<u64>)], count: usize) -> u64 {
    let one = || {
        let mut select = Select::new();
        for (_, rx) in channels {
            select.recv(rx);
        }
        let case = select.select();
        let index = case.index();
        case.recv(&channels[index].1).unwrap()
    };
    (0..count).map(|_| one()).sum()
}

fn select_send(channels: &[(Sender<u64>, Receiver<u64>)], from: usize, count: usize) -> u64 {
    for i in from..from + count {
        let mut select = Select::new();
        for (tx, _) in channels {
            select.send(tx);
        }
        let case = select.select();
        let index = case.index();
        case.send(&channels[index].0, i as u64).unwrap();
    }
    0
}

/// Over as many channels as threads. One receiver selects from senders that have a channel each;
/// or all select.
fn select(job: &Job, both: bool) -> Outcome {
    let channels: Vec<_> = iter::repeat_with(|| bounded(job.capacity)).take(THREADS).collect();
    let channels = &channels;
    let share = job.messages / THREADS;
    let mut parts: Vec<Part> = Vec::new();
    for i in 0..THREADS {
        parts.push(Box::new(move || match both {
            true => select_send(channels, i * share, share),
            false => send_all(&channels[i].0, i * share, share),
        }));
    }
    let receivers = if both { THREADS } else { 1 };
    for _ in 0..receivers {
        parts.push(Box::new(move || select_recv(channels, job.messages / receivers)));
    }
    run_team(&job.cpus, parts)
}

/// Two threads take turns.
fn ping_pong(job: &Job) -> Outcome {
    let (there, there_out) = bounded(job.capacity);
    let (back, back_out) = bounded(job.capacity);
    let rounds = job.messages as u64;
    let serve = || {
        let mut sum = 0;
        for i in 0..rounds {
            there.send(i).unwrap();
            sum += back_out.recv().unwrap();
        }
        sum
    };
    let answer = || {
        for _ in 0..rounds {
            back.send(there_out.recv().unwrap()).unwrap();
        }
        0
    };
    run_team(&job.cpus, vec![Box::new(serve), Box::new(answer)])
}

fn run(workload: &str, job: &Job) -> Option<f64> {
    let outcome = match workload {
        "seq" => in_and_out(job, job.messages),
        "pairs" => in_and_out(job, 1),
        "batch" => in_and_out(job, BATCH),
        "spsc" => stream(job, 1, 1),
        "mpsc" => stream(job, THREADS, 1),
        "mpmc" => stream(job, THREADS, THREADS),
        "select_rx" => select(job, false),
        "select_both" => select(job, true),
        "ping_pong" => ping_pong(job),
        _ => return None,
    };
    let n = job.messages as u64;
    assert_eq!(outcome.sum, n * (n - 1) / 2, "messages were lost, or received twice");
    Some(outcome.elapsed.as_secs_f64() * 1e9 / n as f64)
}

fn parse(args: &[String]) -> Option<(&str, Job)> {
    if let [workload, capacity, messages, cpus] = args {
        let capacity = capacity.parse().ok()?;
        let messages = messages.parse().ok().filter(|n| *n > 0)?;
        let cpus: Result<_, _> = cpus.split(',').map(str::parse).collect();
        Some((workload, Job { capacity, messages, cpus: cpus.ok()? }))
    } else {
        None
    }
}

fn measure(args: &[String]) -> Option<f64> {
    let (workload, mut job) = parse(args)?;
    let messages = job.messages;
    job.messages = (messages / 10).max(THREADS) / THREADS * THREADS;
    run(workload, &job)?;
    job.messages = messages;
    run(workload, &job)
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    if args == ["--version"] {
        println!("{}", env!("BENCH_PEER"));
    } else if let Some(ns) = measure(&args) {
        println!("{ns:.6}");
    } else {
        eprintln!("usage: crossbeam_channel_bench WORKLOAD CAPACITY MESSAGES CPU,...");
        process::exit(2);
    }
}

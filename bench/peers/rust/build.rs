//! Tells the program of a peer what it is made of: `x_y_bench` measures the crate x-y.

use std::{env, fs, process::Command};

fn main() {
    let rustc = Command::new(env::var("RUSTC").unwrap()).arg("--version").output().unwrap();
    let rustc = String::from_utf8_lossy(&rustc.stdout);

    let package = env::var("CARGO_PKG_NAME").unwrap();
    let peer = package.strip_suffix("_bench").unwrap().replace('_', "-");
    let lock = fs::read_to_string("Cargo.lock").unwrap();
    let (_, entry) = lock.split_once(&format!("name = \"{peer}\"")).unwrap();
    let version = entry.split('"').nth(1).unwrap();
    println!("cargo:rustc-env=BENCH_PEER={peer} {version}, {}", rustc.trim());
    println!("cargo:rerun-if-changed=Cargo.lock");
}

//! Tells the program what it is made of.

use std::{env, fs, process::Command};

fn main() {
    let rustc = Command::new(env::var("RUSTC").unwrap()).arg("--version").output().unwrap();
    println!("cargo:rustc-env=BENCH_RUSTC={}", String::from_utf8_lossy(&rustc.stdout).trim());

    let lock = fs::read_to_string("../Cargo.lock").unwrap();
    let (_, entry) = lock.split_once("name = \"crossbeam-channel\"").unwrap();
    println!("cargo:rustc-env=BENCH_CROSSBEAM={}", entry.split('"').nth(1).unwrap());
    println!("cargo:rerun-if-changed=../Cargo.lock");
}

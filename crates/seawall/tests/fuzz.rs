//! The fuzz targets' functions on seeded inputs: random bytes, and valid ones with some bytes changed, cut,
//! duplicated or swapped.
//!
//! `make fuzz` runs the same functions under a fuzzer that searches for new paths. `SEED=n` and `INPUTS=n`
//! change the inputs and their number here.

mod support {
    pub(crate) mod dice;
    pub(crate) mod targets;
}

use std::panic::catch_unwind;
use std::path::Path;
use support::dice::Dice;
use support::targets::{TARGETS, Target, seeds};

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

fn random(dice: &mut Dice, most: u64) -> Vec<u8> {
    let len = dice.log_uniform(most);
    // Small numbers are more often lengths and kinds than large ones.
    let ceiling = dice.pick(&[4, 32, 256]);
    (0..len).map(|_| dice.below(ceiling) as u8).collect()
}

fn mutated(dice: &mut Dice, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = dice.pick(seeds);
    for _ in 0..1 + dice.log_uniform(12) {
        if bytes.is_empty() {
            return random(dice, 100);
        }
        let at = if dice.percent(60) { dice.index(bytes.len().min(96)) } else { dice.index(bytes.len()) };
        match dice.below(8) {
            0 => bytes[at] = dice.below(256) as u8,
            1 => bytes[at] ^= 1 << dice.below(8),
            2 => bytes[at] = dice.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            3 => bytes[at] = bytes[at].wrapping_add(dice.pick(&[1, 255])),
            4 => {
                let other = dice.index(bytes.len());
                bytes.swap(at, other);
            }
            5 if dice.percent(30) => bytes.truncate(at),
            6 if dice.percent(30) => {
                bytes.remove(at);
            }
            7 => {
                let (from, len) = (dice.index(bytes.len()), dice.below(24) as usize);
                let piece = bytes[from..(from + len).min(bytes.len())].to_vec();
                let end = (at + piece.len()).min(bytes.len());
                bytes[at..end].copy_from_slice(&piece[..end - at]);
            }
            _ => {}
        }
    }
    bytes
}

fn feed((name, take): Target, inputs: u64) {
    let seeds = seeds(name);
    assert!(!seeds.is_empty(), "{name} has valid inputs");
    for seed in &seeds {
        take(seed);
    }
    let first = number("SEED", 1);
    for input in 0..number("INPUTS", if cfg!(debug_assertions) { inputs } else { inputs * 10 }) {
        let mut dice = Dice::new(first.wrapping_mul(0x9e37_79b9).wrapping_add(input));
        let bytes = if dice.percent(25) { random(&mut dice, 5000) } else { mutated(&mut dice, &seeds) };
        if catch_unwind(|| take(&bytes)).is_err() {
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.input"));
            std::fs::write(&file, &bytes).unwrap();
            panic!(
                "{name} panics on input {input} of SEED={first}, kept: INPUT={} TARGET={name} cargo test -p seawall \
                 --test fuzz replay -- --ignored",
                file.display()
            );
        }
    }
}

#[test]
fn each_target_takes_anything() {
    let inputs = [
        ("node", 3000),
        ("pages", 3000),
        ("redo", 5000),
        ("log", 120),
        ("control", 5000),
        ("dump", 600),
        ("keys", 20_000),
        ("database", 40),
    ];
    std::thread::scope(|scope| {
        for target in TARGETS {
            let (_, inputs) = inputs.iter().find(|(name, _)| *name == target.0).expect("it has a number of inputs");
            scope.spawn(|| feed(*target, *inputs));
        }
    });
}

/// `INPUT=file TARGET=database cargo test -p seawall --test fuzz replay -- --ignored --nocapture`.
#[test]
#[ignore = "replays a file"]
fn replay() {
    let (Ok(name), Ok(file)) = (std::env::var("TARGET"), std::env::var("INPUT")) else {
        panic!("TARGET and INPUT are needed")
    };
    let (_, take) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target of that name");
    take(&std::fs::read(file).unwrap());
}

/// The initial corpus of a fuzzer: `CORPUS=dir cargo test -p seawall --test fuzz corpus -- --ignored`.
#[test]
#[ignore = "writes files where it is told to"]
fn corpus() {
    let Some(dir) = std::env::var_os("CORPUS") else { panic!("CORPUS names a directory") };
    for (name, _) in TARGETS {
        let dir = Path::new(&dir).join(name);
        std::fs::create_dir_all(&dir).unwrap();
        for (number, seed) in seeds(name).into_iter().enumerate().step_by(1 + seeds(name).len() / 400) {
            std::fs::write(dir.join(format!("seed-{number}")), seed).unwrap();
        }
    }
}

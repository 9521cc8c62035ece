//! Asynchronous requests: reordering, short transfers, cancelled submitters, and the clock.

mod common;

use common::*;
use seawall_io::{AlignedBuf, Arena, Disk as _, IoErrorKind, Op, Request, SyncHow};
use seawall_sim::{Fault, FaultKind, SimOptions};
use std::time::Duration;

#[test]
fn requests_complete_in_another_order_than_submitted() {
    let mut reordered = 0;
    for seed in 0..100 {
        let disk = disk(seed);
        let file = settled(&disk, "/f", DIRECT, 1, 512 * 8);
        let batch = (0..8).map(|i| write_request(&file, i * 512, &[2; 512], PLAIN)).collect();
        let tickets = disk.submit(batch);
        assert_eq!(disk.in_flight(), 8);
        let mut order = Vec::new();
        while disk.step() {
            order.extend((0..8).filter(|&i| tickets[i].is_done() && !order.contains(&i)).collect::<Vec<_>>());
        }
        assert_eq!(order.len(), 8);
        reordered += u32::from(!order.is_sorted());
        assert!(tickets.iter().all(|ticket| ticket.take().unwrap().result.is_ok()));
        assert_eq!(disk.seen("/f"), Some(vec![2; 4096]));
    }
    assert!(reordered > 90, "{reordered}");
}

#[test]
fn overlapping_writes_in_flight_end_either_way() {
    let last: std::collections::BTreeSet<u8> = (0..100)
        .map(|seed| {
            let disk = disk(seed);
            let file = open(&disk, "/f", DIRECT);
            let tickets = disk.submit((1..=2).map(|i| write_request(&file, 0, &[i; 512], PLAIN)).collect());
            tickets.iter().for_each(|ticket| disk.wait(ticket).result.unwrap());
            disk.seen("/f").unwrap()[0]
        })
        .collect();
    assert_eq!(last, [1, 2].into());
}

#[test]
fn short_and_cancelled_attempts_are_completed() {
    for seed in 0..50 {
        let disk = disk(seed);
        disk.inject(Fault::short().probability(0.7));
        disk.inject(Fault::cancelled().probability(0.5));
        let file = open(&disk, "/f", DIRECT);
        let bytes: Vec<u8> = (0..16384).map(|i| (i / 512) as u8).collect();
        let halves = vec![AlignedBuf::copy_of(&bytes[..4096]).into(), AlignedBuf::copy_of(&bytes[4096..]).into()];
        let ticket = disk.submit(vec![Request::write(&file, 0, halves, DSYNC)]).remove(0);
        let done = disk.wait(&ticket);
        done.result.unwrap();
        assert_eq!(done.bufs.len(), 2);
        let ticket = disk.submit(vec![Request::read(&file, 0, AlignedBuf::zeroed(16384).into())]).remove(0);
        assert_eq!(disk.wait(&ticket).bufs[0][..], bytes);
        assert_eq!(disk.stable("/f"), None);
        sync_dir(&disk, "/");
        assert_eq!(disk.stable("/f"), Some(bytes));
        assert!(disk.trace().entries().any(|entry| entry.outcome == Err(libc::ECANCELED)) || seed > 0);
    }
}

#[test]
fn errors_and_the_end_of_the_file_reach_the_ticket() {
    let disk = disk(1);
    let file = settled(&disk, "/f", RW, 1, 100);
    let ticket = disk.submit(vec![Request::read(&file, 50, AlignedBuf::zeroed(100).into())]).remove(0);
    assert_eq!(disk.wait(&ticket).result.unwrap_err().kind, IoErrorKind::UnexpectedEof { got: 50 });
    disk.inject(Fault::eio().on(Op::Sync).once());
    let ticket = disk.submit(vec![Request::sync(&file, SyncHow::Data)]).remove(0);
    assert_eq!(disk.wait(&ticket).result.unwrap_err().errno(), Some(libc::EIO));
}

#[test]
fn polling_makes_progress_and_time_alone_completes() {
    let disk = disk(1);
    let file = open(&disk, "/f", RW);
    let ticket = disk.submit(vec![write_request(&file, 0, &[1; 10], PLAIN)]).remove(0);
    let polls = (0..1_000_000).take_while(|_| disk.drive(false) == 0).count();
    assert!(ticket.is_done() && polls > 0);
    let ticket = disk.submit(vec![write_request(&file, 0, &[2; 10], PLAIN)]).remove(0);
    disk.advance(Duration::from_secs(1));
    assert_eq!(disk.seen("/f"), Some(vec![2; 10]), "it took effect");
    assert!(!ticket.is_done(), "but no thread has looked");
    assert_eq!(disk.drive(false), 1);
    assert!(ticket.take().unwrap().result.is_ok());
    assert_eq!(disk.drive(true), 0, "nothing in flight");
}

#[test]
fn an_abandoned_ticket_abandons_neither_write_nor_buffer() {
    let disk = disk(1);
    let arena = Arena::new(4096, 1);
    let file = open(&disk, "/f", DIRECT);
    let mut buf = arena.claim().unwrap();
    buf.fill(9);
    drop(disk.submit(vec![Request::write(&file, 0, vec![buf], PLAIN)]));
    drop(file);
    assert!(arena.claim().is_none(), "the request still owns it");
    while disk.step() {}
    assert_eq!(disk.seen("/f"), Some(vec![9; 4096]));
    assert!(arena.claim().is_some());
}

#[test]
fn spikes_are_rare_and_large() {
    let disk = disk(1);
    let file = open(&disk, "/f", RW);
    let mut slow = 0;
    for _ in 0..5000 {
        let before = disk.now();
        disk.len(&file).unwrap();
        slow += u32::from(disk.now() - before > Duration::from_micros(100));
    }
    assert!((1..20).contains(&slow), "{slow}");
    assert_eq!(SimOptions::default().latency.spikes_per_million, 1000);
}

#[test]
fn a_fault_that_always_interrupts_ends_in_an_error() {
    let disk = disk(1);
    let file = open(&disk, "/f", RW);
    for errno in [libc::ECANCELED, libc::EINTR] {
        disk.clear_faults();
        disk.inject(Fault::new(FaultKind::Errno(errno)).on(Op::Write));
        let ticket = disk.submit(vec![write_request(&file, 0, &[1; 10], PLAIN)]).remove(0);
        assert_eq!(disk.wait(&ticket).result.unwrap_err().errno(), Some(errno));
    }
}

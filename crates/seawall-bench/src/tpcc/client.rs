//! One thread's work: transactions of the specified mix, each with its input by clauses 2.4.1 to 2.8.1.
//!
//! 1. The mix is a deck of 100 cards (clause 5.2.4.2), shuffled again when it is used up: 45 new-orders, 43
//!    payments, 4 of each other.
//! 2. A transaction that met a conflict is rolled back and repeated with the same input; its latency includes
//!    the retries.
//! 3. The threads are assigned to home warehouses cyclically. A thread stands for all terminals of its
//!    warehouse, so that districts are random for all transactions.

use super::Shape;
use super::random::{C_LAST_RUN, Random};
use super::schema::DISTRICTS;
use super::transactions::{Line, NewOrder, Payment, Transaction, Who, delivery, order_status, stock_level};
use crate::run::recorder::Latencies;
use crate::run::{Driven, Operation, Outcome};
use crate::store::{Result, Session, Store};
use seawall_lab::words;
use std::time::{SystemTime, UNIX_EPOCH};

words! {
    /// The five transactions.
    pub(super) enum Kind {
        NewOrder = "new-order",
        Payment = "payment",
        OrderStatus = "order-status",
        Delivery = "delivery",
        StockLevel = "stock-level",
    }
}

/// Cards of each kind in a deck of 100, in the order of [`Kind::ALL`].
const CARDS: [usize; 5] = [45, 43, 4, 4, 4];

/// The class of new-orders that name an item that does not exist and end with a rollback; the other classes are the
/// kinds.
const ROLLED_BACK: usize = Kind::ALL.len();

/// The transactions of a window of clients, in the order of [`Kind::ALL`], and how many of them were rolled back.
pub(super) fn by_kind(driven: &Driven) -> ([Latencies; 5], u64) {
    let mut kinds: [Latencies; 5] = std::array::from_fn(|kind| driven.classes[kind].clone());
    let rolled_back = &driven.classes[ROLLED_BACK];
    kinds[Kind::NewOrder as usize].merge(rolled_back);
    (kinds, rolled_back.ops)
}

/// One working thread.
pub(crate) struct Client<'s> {
    shape: Shape,
    home: u16,
    thread: u16,
    random: Random,
    session: Box<dyn Session + 's>,
    /// Cards left.
    deck: Vec<Kind>,
    /// The stamp of its last row in the history.
    stamp: u64,
    /// The class of the last transaction.
    class: usize,
    /// The transaction that met a conflict.
    pending: Option<Box<Transaction>>,
}

impl<'s> Client<'s> {
    pub(crate) fn new(store: &'s dyn Store, shape: Shape, thread: u16, seed: u64) -> Result<Self> {
        Ok(Self {
            shape,
            home: thread % shape.warehouses + 1,
            thread,
            // Units of a load are below 2^32.
            random: Random::new(seed, 1 << 32 | u64::from(thread)),
            session: store.session()?,
            deck: Vec::new(),
            stamp: 0,
            class: 0,
            pending: None,
        })
    }

    fn draw(&mut self) -> Box<Transaction> {
        if self.deck.is_empty() {
            let cards = Kind::ALL.into_iter().zip(CARDS);
            self.deck.extend(cards.flat_map(|(kind, count)| std::iter::repeat_n(kind, count)));
            self.random.shuffle(&mut self.deck);
        }
        let kind = self.deck.pop().unwrap_or(Kind::NewOrder);
        self.class = kind as usize;
        let w = self.home;
        let d = self.random.range(1, DISTRICTS.into()) as u8;
        match kind {
            Kind::NewOrder => {
                let order = self.new_order(w, d);
                Box::new(move |tx| order.run(tx))
            }
            Kind::Payment => {
                let payment = self.payment(w, d);
                Box::new(move |tx| payment.run(tx))
            }
            Kind::OrderStatus => {
                let who = self.who();
                Box::new(move |tx| order_status(tx, w, d, &who))
            }
            Kind::Delivery => {
                let carrier = self.random.range(1, 10) as u8;
                Box::new(move |tx| delivery(tx, w, carrier))
            }
            Kind::StockLevel => {
                let threshold = self.random.range(10, 20) as i16;
                Box::new(move |tx| stock_level(tx, w, d, threshold))
            }
        }
    }

    fn new_order(&mut self, w: u16, d: u8) -> NewOrder {
        let (shape, random) = (self.shape, &mut self.random);
        let count = random.range(5, 15) as usize;
        let (c, fails) = (random.customer(shape.customers), random.percent(1));
        let mut lines: Vec<Line> = (0..count)
            .map(|_| {
                let item = random.item(shape.items);
                let supply = if random.percent(1) { other_warehouse(random, w, shape.warehouses) } else { w };
                Line { item, supply, quantity: random.range(1, 10) as u8 }
            })
            .collect();
        if fails {
            lines[count - 1].item = shape.items + 1;
            self.class = ROLLED_BACK;
        }
        NewOrder { w, d, c, lines, fails }
    }

    fn payment(&mut self, w: u16, d: u8) -> Payment {
        let who = self.who();
        // Never repeats, in this run or a later one, unless the clock is set back.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        self.stamp = now.max(self.stamp + 1);
        let random = &mut self.random;
        let (c_w, c_d) = if random.percent(15) {
            (other_warehouse(random, w, self.shape.warehouses), random.range(1, DISTRICTS.into()) as u8)
        } else {
            (w, d)
        };
        let amount = random.range(100, 500_000);
        Payment { w, d, c_w, c_d, who, amount, stamp: self.stamp, thread: self.thread }
    }

    fn who(&mut self) -> Who {
        let shape = self.shape;
        if self.random.percent(60) {
            Who::Name(self.random.last_name(C_LAST_RUN, shape.names()))
        } else {
            Who::Number(self.random.customer(shape.customers))
        }
    }

    fn attempt(&mut self, input: &Transaction) -> Result<()> {
        let mut tx = self.session.begin()?;
        input(&mut *tx)?;
        // It is rolled back when dropped.
        if self.class == ROLLED_BACK { Ok(()) } else { tx.commit() }
    }
}

/// A warehouse other than `w`, if there is one.
fn other_warehouse(random: &mut Random, w: u16, warehouses: u16) -> u16 {
    if warehouses == 1 {
        return w;
    }
    let other = random.range(1, u32::from(warehouses) - 1) as u16;
    if other >= w { other + 1 } else { other }
}

impl Operation for Client<'_> {
    fn next(&mut self) -> Result<Outcome> {
        let pending = self.pending.take();
        let input = pending.unwrap_or_else(|| self.draw());
        let outcome = Outcome::of(self.attempt(&*input), 1)?;
        self.pending = (outcome == Outcome::Conflict).then_some(input);
        Ok(outcome)
    }

    fn class(&self) -> usize {
        self.class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deck_is_full_and_others_are_others() {
        assert_eq!(CARDS.iter().sum::<usize>(), 100);
        assert!(Kind::ALL.iter().enumerate().all(|(i, kind)| *kind as usize == i));
        let mut random = Random::new(1, 1);
        let mut seen = [0; 5];
        for _ in 0..400 {
            seen[usize::from(other_warehouse(&mut random, 2, 4))] += 1;
        }
        assert!(seen[0] == 0 && seen[2] == 0 && [1, 3, 4].iter().all(|w| seen[*w] > 80), "{seen:?}");
        assert_eq!(other_warehouse(&mut random, 1, 1), 1);
    }
}

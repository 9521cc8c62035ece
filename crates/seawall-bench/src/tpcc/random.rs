//! The random numbers and texts of clauses 2.1.6 and 4.3.2.

use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// C of NURand for last names: while loading, and while running. Clause 2.1.6.1 requires a difference of 65
/// to 119, except 96 and 112.
pub(super) const C_LAST_LOAD: u32 = 100;
pub(super) const C_LAST_RUN: u32 = 187;
const C_CUSTOMER: u32 = 259;
const C_ITEM: u32 = 7911;

const SYLLABLES: [&[u8]; 10] =
    [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A source of the benchmark's random values.
#[derive(Debug)]
pub(super) struct Random(Pcg64Mcg);

impl Random {
    /// `of` distinguishes sources of one seed.
    pub(super) fn new(seed: u64, of: u64) -> Self {
        let state = (u128::from(seed) << 64 | u128::from(of)).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        // Skips the first outputs, which are alike for similar states.
        Self(Pcg64Mcg::from_rng(&mut Pcg64Mcg::from_rng(&mut Pcg64Mcg::new(state | 1))))
    }

    /// Uniform in `from..=to`.
    pub(super) fn range(&mut self, from: u32, to: u32) -> u32 {
        self.0.random_range(from..=to)
    }

    /// True `percent` times of a hundred.
    pub(super) fn percent(&mut self, percent: u32) -> bool {
        self.range(1, 100) <= percent
    }

    fn nurand(&mut self, a: u32, c: u32, from: u32, to: u32) -> u32 {
        let both = self.range(0, a) | self.range(from, to);
        (both + c) % (to - from + 1) + from
    }

    /// A customer's number.
    pub(super) fn customer(&mut self, customers: u32) -> u32 {
        self.nurand(1023, C_CUSTOMER, 1, customers)
    }

    /// An item's number.
    pub(super) fn item(&mut self, items: u32) -> u32 {
        self.nurand(8191, C_ITEM, 1, items)
    }

    /// A last name, one of `names`; `c` is [`C_LAST_LOAD`] or [`C_LAST_RUN`].
    pub(super) fn last_name(&mut self, c: u32, names: u32) -> Vec<u8> {
        last_name(self.nurand(255, c, 0, names - 1))
    }

    /// Adds `from` to `to` random letters and digits to `out`.
    pub(super) fn letters(&mut self, out: &mut Vec<u8>, from: u32, to: u32) {
        let len = self.range(from, to);
        out.extend((0..len).map(|_| LETTERS[self.0.random_range(0..LETTERS.len())]));
    }

    /// N random letters and digits.
    pub(super) fn chars<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| LETTERS[self.0.random_range(0..LETTERS.len())])
    }

    /// N random digits.
    pub(super) fn digits<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.0.random_range(b'0'..=b'9'))
    }

    /// A zip code: four random digits and five ones (clause 4.3.2.7).
    pub(super) fn zip(&mut self) -> [u8; 9] {
        let digits = self.digits::<4>();
        std::array::from_fn(|i| digits.get(i).copied().unwrap_or(b'1'))
    }

    /// The data of an item or of stock: 26 to 50 letters; a tenth of all contain `ORIGINAL` somewhere.
    pub(super) fn data(&mut self, out: &mut Vec<u8>) {
        let at = out.len();
        self.letters(out, 26, 50);
        if self.percent(10) {
            let place = at + self.range(0, (out.len() - at - ORIGINAL.len()) as u32) as usize;
            out[place..place + ORIGINAL.len()].copy_from_slice(ORIGINAL);
        }
    }

    /// Shuffles.
    pub(super) fn shuffle<T>(&mut self, list: &mut [T]) {
        list.shuffle(&mut self.0);
    }
}

const ORIGINAL: &[u8] = b"ORIGINAL";

/// Whether data has `ORIGINAL` in it.
pub(super) fn is_original(data: &[u8]) -> bool {
    data.windows(ORIGINAL.len()).any(|part| part == ORIGINAL)
}

/// A last name (clause 4.3.2.3): three syllables by the digits of a number below 1,000.
pub(super) fn last_name(number: u32) -> Vec<u8> {
    [number / 100 % 10, number / 10 % 10, number % 10].map(|digit| SYLLABLES[digit as usize]).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_syllables() {
        assert_eq!(last_name(371), b"PRICALLYOUGHT");
        assert_eq!(last_name(0), b"BARBARBAR");
        assert!((0..1000).all(|n| last_name(n).len() <= 15));
        let delta = C_LAST_RUN - C_LAST_LOAD;
        assert!((65..=119).contains(&delta) && delta != 96 && delta != 112);
    }

    #[test]
    fn numbers_stay_in_range_and_are_skewed() {
        let mut random = Random::new(1, 2);
        let mut counts = vec![0u32; 3001];
        for _ in 0..100_000 {
            counts[random.customer(3000) as usize] += 1;
            assert!((1..=30).contains(&random.customer(30)));
            assert!((1..=1000).contains(&random.item(1000)));
        }
        assert_eq!(counts[0], 0);
        counts.sort_unstable();
        let most: u32 = counts[2700..].iter().sum();
        assert!(most > 20_000, "the most wanted tenth has {most} of 100,000");
        assert_ne!(Random::new(1, 2).range(0, u32::MAX), Random::new(1, 3).range(0, u32::MAX));
        assert_ne!(Random::new(2, 2).range(0, u32::MAX), Random::new(1, 2).range(0, u32::MAX));
    }

    #[test]
    fn a_tenth_is_original() {
        let mut random = Random::new(7, 7);
        let originals = (0..5000).filter(|_| {
            let mut data = Vec::new();
            random.data(&mut data);
            assert!((26..=50).contains(&data.len()));
            is_original(&data)
        });
        assert!((400..600).contains(&originals.count()));
        assert!(random.zip().ends_with(b"11111"));
    }
}

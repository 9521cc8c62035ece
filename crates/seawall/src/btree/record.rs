//! Code that all redo records of trees share.

use crate::format::{Malformed, Reader};

/// A record whose application can be refused.
pub(super) trait TryApply<'a>: Sized {
    /// Decodes a body.
    fn decode(body: &mut Reader<'a>) -> Result<Self, Malformed>;
    /// Changes the page.
    fn try_apply(&self, page: &mut [u8]) -> Result<(), Malformed>;
}

/// Implements `Redo` for a record. The forward path has checked that the record fits, so `apply` cannot fail.
macro_rules! redo_record {
    ($name:ty, $tag:expr, |$self:ident, $out:ident| $encode:block) => {
        impl Redo for $name {
            const TAG: u8 = $tag;
            fn encode(&$self, $out: &mut Vec<u8>) $encode
            fn apply(&self, page: &mut [u8]) {
                self.try_apply(page).expect("the record was checked to fit its page when it was made");
            }
        }
    };
}
pub(super) use redo_record;

pub(super) fn slot(body: &mut Reader<'_>) -> Result<u16, Malformed> {
    u16::try_from(body.varint()?).ok().ok_or(Malformed("a slot beyond the page"))
}

pub(super) fn rest<'a>(body: &mut Reader<'a>) -> &'a [u8] {
    let bytes = body.rest();
    *body = Reader::new(&[]);
    bytes
}

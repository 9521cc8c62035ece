//! One newtype per concept.

use std::fmt;

macro_rules! id {
    ($(#[$meta:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A page of the data file, by number. Page 0 is the header page and never a child, an undo page or a value, so 0
    /// means "none".
    PageId(u32), ""
);
id!(
    /// A position in the endless log, bytes. 0 means "never".
    Lsn(u64), "lsn "
);
id!(
    /// A transaction that has written. 0 means "none". 48 bits on disk.
    TxnId(u64), "txn "
);
id!(
    /// A tree. Ids are never reused.
    TreeId(u32), ""
);

impl PageId {
    /// No page.
    pub const NONE: Self = Self(0);
}

impl Lsn {
    /// Never.
    pub const ZERO: Self = Self(0);
}

impl TxnId {
    /// No transaction.
    pub const NONE: Self = Self(0);
}

impl TreeId {
    /// No tree: a free page.
    pub const FREE: Self = Self(0);
    /// The header page and the space maps.
    pub const SYSTEM: Self = Self(1);
    /// Undo pages and their directory.
    pub const UNDO: Self = Self(2);
    /// The tree that holds the names of all trees.
    pub const CATALOG: Self = Self(3);
    /// The first user tree.
    pub const FIRST_USER: Self = Self(16);
}

/// Where an undo record begins: page number (32 bits) and offset in the page (16 bits). 0 means "none".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UndoPtr(pub u64);

impl UndoPtr {
    /// No record.
    pub const NONE: Self = Self(0);

    /// Returns the pointer to the record at `offset` of `page`.
    #[must_use]
    pub fn new(page: PageId, offset: u16) -> Self {
        Self(u64::from(page.0) << 16 | u64::from(offset))
    }

    /// Returns the record's page.
    #[must_use]
    pub fn page(self) -> PageId {
        PageId((self.0 >> 16) as u32)
    }

    /// Returns the record's offset in the page, bytes.
    #[must_use]
    pub fn offset(self) -> u16 {
        self.0 as u16
    }
}

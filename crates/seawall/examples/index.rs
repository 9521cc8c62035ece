//! A secondary index is a tree of its own, changed in the same transaction as the rows: users by id, and by e-mail
//! address, which is unique.
//!
//! An index entry's key is the address and then the id. `insert_unique_prefix` refuses it when any live key
//! begins with the same address, and locks that prefix: of two transactions that insert it, one waits for the
//! other. Run with `cargo run --release --example index`.

use seawall::keys::Key;
use seawall::{Database, Error, Result, Transaction, Tree};

struct Users {
    rows: Tree,
    by_email: Tree,
}

impl Users {
    fn of(db: &Database) -> Result<Self> {
        Ok(Self { rows: db.create_tree("users")?, by_email: db.create_tree("users by e-mail")? })
    }

    /// The index key, encoded so that keys sort like the pair, and the length of the address in it.
    fn index_key(email: &str, id: u64) -> (Vec<u8>, usize) {
        let prefix_bytes = email.encode().len();
        ((email, id).encode(), prefix_bytes)
    }

    fn add(&self, tx: &mut Transaction, id: u64, email: &str) -> Result<()> {
        let (key, prefix_bytes) = Self::index_key(email, id);
        tx.insert(&self.rows, &id.encode(), email.as_bytes())?;
        tx.insert_unique_prefix(&self.by_email, prefix_bytes, &key, b"")
    }

    fn change_email(&self, tx: &mut Transaction, id: u64, email: &str) -> Result<bool> {
        let Some(old) = tx.get_for_update(&self.rows, &id.encode())? else { return Ok(false) };
        tx.delete(&self.by_email, &Self::index_key(&String::from_utf8_lossy(&old), id).0)?;
        let (key, prefix_bytes) = Self::index_key(email, id);
        tx.insert_unique_prefix(&self.by_email, prefix_bytes, &key, b"")?;
        tx.update(&self.rows, &id.encode(), email.as_bytes())
    }

    /// The id of the user with this address.
    fn find(&self, tx: &Transaction, email: &str) -> Result<Option<u64>> {
        let Some(entry) = tx.prefix(&self.by_email, &email.encode()).next() else { return Ok(None) };
        let (key, _) = entry?;
        let (_, id) =
            <(String, u64) as seawall::keys::DecodeKey>::decode(&key).map_err(|e| Error::Usage(e.to_string()))?;
        Ok(Some(id))
    }

    /// Whether rows and index agree.
    fn agree(&self, tx: &Transaction) -> Result<bool> {
        for row in tx.iter(&self.rows) {
            let (id, email) = row?;
            let id = <u64 as seawall::keys::DecodeKey>::decode(&id).map_err(|e| Error::Usage(e.to_string()))?;
            if self.find(tx, &String::from_utf8_lossy(&email))? != Some(id) {
                return Ok(false);
            }
        }
        Ok(tx.iter(&self.rows).count() == tx.iter(&self.by_email).count())
    }
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Database::open(dir.path())?;
    let users = Users::of(&db)?;
    db.transact(|tx| (0..500).try_for_each(|id| users.add(tx, id, &format!("user{id}@example.org"))))?;
    assert_eq!(users.find(&db.begin()?, "user77@example.org")?, Some(77));

    // A taken address: the whole transaction is rolled back, the row with it.
    let taken = db.transact(|tx| users.add(tx, 1000, "user77@example.org"));
    assert!(matches!(taken, Err(Error::KeyExists { .. })), "{taken:?}");
    assert_eq!(db.begin()?.get(&users.rows, &1000u64.encode())?, None);

    // An address that merely begins with the same characters is a different one.
    db.transact(|tx| users.add(tx, 1001, "user7"))?;
    assert!(db.transact(|tx| users.change_email(tx, 77, "ada@example.org"))?);
    assert_eq!(users.find(&db.begin()?, "user77@example.org")?, None);
    assert_eq!(users.find(&db.begin()?, "ada@example.org")?, Some(77));

    // Many threads insert the same address: one succeeds.
    let winners: Vec<u64> = std::thread::scope(|scope| {
        let (db, users) = (&db, &users);
        let threads: Vec<_> = (2000..2008u64)
            .map(|id| scope.spawn(move || (id, db.transact(|tx| users.add(tx, id, "grace@example.org")))))
            .collect();
        threads
            .into_iter()
            .filter_map(|thread| match thread.join().expect("no thread panics") {
                (id, Ok(())) => Some(id),
                (_, Err(Error::KeyExists { .. })) => None,
                (_, Err(error)) => panic!("{error}"),
            })
            .collect()
    });
    assert_eq!(winners.len(), 1, "{winners:?}");
    let tx = db.begin()?;
    assert_eq!(users.find(&tx, "grace@example.org")?, Some(winners[0]));
    assert!(users.agree(&tx)?);
    println!(
        "{} users, each address once; user {} has the one that eight wanted",
        tx.iter(&users.rows).count(),
        winners[0]
    );
    Ok(())
}

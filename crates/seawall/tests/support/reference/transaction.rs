//! What a transaction of the reference does.

use super::*;

impl Transaction {
    fn snapshot(&self, inner: &Inner) {
        if self.options.isolation == Isolation::RepeatableRead && self.snapshot.get().is_none() {
            self.snapshot.set(Some(inner.commits));
        }
    }

    pub(crate) fn take_snapshot(&self) -> Result<()> {
        self.snapshot(&self.db.lock());
        Ok(())
    }

    fn visible(&self, inner: &Inner, row: &Row) -> Option<Vec<u8>> {
        if let Some(own) = self.changes.get(row) {
            return own.clone();
        }
        let latest = inner.options.mutant == Mutant::NoSnapshot;
        let since = self.snapshot.get().filter(|_| !latest).unwrap_or(u64::MAX);
        inner.rows.get(row)?.iter().rev().find(|(commit, _)| *commit <= since)?.1.clone()
    }

    fn read_lock(&self, inner: &mut Inner, tree: TreeId) -> Result<()> {
        if self.options.isolation == Isolation::Serializable && inner.options.mutant != Mutant::NoReadLocks {
            if inner.written.iter().any(|((written, _), holder)| *written == tree && *holder != self.id) {
                return Err(conflict(tree, b""));
            }
            inner.read.insert((tree, self.id));
        }
        Ok(())
    }

    fn write_lock(&self, inner: &mut Inner, row: &Row) -> Result<()> {
        let mutant = inner.options.mutant;
        let held = inner.written.get(row).is_some_and(|holder| *holder != self.id) && mutant != Mutant::NoLocks;
        if held || inner.read.iter().any(|(tree, holder)| *tree == row.0 && *holder != self.id) {
            return Err(conflict(row.0, &row.1));
        }
        let strict = self.options.isolation == Isolation::RepeatableRead
            && self.options.on_conflict == OnConflict::Fail
            && mutant != Mutant::LostUpdate;
        let since = self.snapshot.get().unwrap_or(u64::MAX);
        if strict && inner.latest(row).is_some_and(|(commit, _)| *commit > since) {
            let on = LockedOn::row(row.0, row.1.clone());
            return Err(Error::WriteConflict { writer: TxnId::NONE, on });
        }
        inner.written.insert(row.clone(), self.id);
        Ok(())
    }

    pub(crate) fn get(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut inner = self.db.lock();
        self.snapshot(&inner);
        self.read_lock(&mut inner, tree.id)?;
        Ok(self.visible(&inner, &(tree.id, key.into())))
    }

    pub(crate) fn contains(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        Ok(self.get(tree, key)?.is_some())
    }

    pub(crate) fn multi_get<K: AsRef<[u8]>>(&self, tree: &Tree, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().map(|key| self.get(tree, key.as_ref())).collect()
    }

    pub(crate) fn get_for_update(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut inner = self.db.lock();
        let row = (tree.id, key.to_vec());
        self.write_lock(&mut inner, &row)?;
        let latest = || inner.latest(&row).and_then(|(_, value)| value.clone());
        Ok(self.changes.get(&row).cloned().unwrap_or_else(latest))
    }

    pub(crate) fn get_for_share(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_for_update(tree, key)
    }

    pub(crate) fn range<K: AsRef<[u8]>>(
        &self,
        tree: &Tree,
        range: impl RangeBounds<K>,
    ) -> std::vec::IntoIter<Result<(Vec<u8>, Vec<u8>)>> {
        let own = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let bounds = (own(range.start_bound()), own(range.end_bound()));
        let mut inner = self.db.lock();
        if self.interrupt.load(Ordering::SeqCst) && inner.options.mutant != Mutant::NotInterrupted {
            return vec![Err(Error::Interrupted { during: "a scan", on: None })].into_iter();
        }
        self.snapshot(&inner);
        if let Err(error) = self.read_lock(&mut inner, tree.id) {
            return vec![Err(error)].into_iter();
        }
        let keys: BTreeSet<&Row> = inner.rows.keys().chain(self.changes.keys()).collect();
        let inside = keys.into_iter().filter(|(of, key)| *of == tree.id && bounds.contains(key));
        let mut found: Vec<_> =
            inside.filter_map(|row| Some(Ok((row.1.clone(), self.visible(&inner, row)?)))).collect();
        if inner.options.mutant == Mutant::ShortScan {
            found.pop();
        }
        found.into_iter()
    }

    fn change(&mut self, tree: TreeId, key: &[u8], value: Option<&[u8]>, want: Option<bool>) -> Result<bool> {
        let mut inner = self.db.lock();
        let id = tree.0.to_le_bytes();
        let catalog = inner.rows.range((CATALOG, Vec::new())..).take_while(|((of, _), _)| *of == CATALOG);
        let mut names = catalog.filter_map(|(_, versions)| versions.last()?.1.as_deref());
        let own = self.changes.values().any(|value| value.as_deref() == Some(&id));
        if tree != CATALOG && !own && !names.any(|known| known == id) {
            return Err(Error::TreeDropped { tree });
        }
        let row = (tree, key.to_vec());
        let had_lock = inner.written.contains_key(&row);
        self.write_lock(&mut inner, &row)?;
        let latest = || inner.latest(&row).is_some_and(|(_, value)| value.is_some());
        let there = self.changes.get(&row).map_or_else(latest, Option::is_some);
        if want.is_some_and(|want| want != there) {
            if !had_lock {
                inner.written.remove(&row);
            }
            if self.options.on_conflict == OnConflict::Fail {
                self.snapshot(&inner);
            }
            return Ok(there);
        }
        self.changes.insert(row, value.map(Vec::from));
        if self.interrupt.load(Ordering::SeqCst) && inner.options.mutant == Mutant::KeepsInterrupted {
            return Err(Error::Interrupted { during: "a change", on: None });
        }
        Ok(there)
    }

    pub(crate) fn insert(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        if self.change(tree.id, key, Some(value), Some(false))? {
            return Err(Error::KeyExists { on: LockedOn::row(tree.id, key) });
        }
        Ok(())
    }
    pub(crate) fn put(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.change(tree.id, key, Some(value), None).map(drop)
    }
    pub(crate) fn update(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        self.change(tree.id, key, Some(value), Some(true))
    }
    pub(crate) fn delete(&mut self, tree: &Tree, key: &[u8]) -> Result<bool> {
        self.change(tree.id, key, None, Some(true))
    }
    pub(crate) fn delete_range<K: AsRef<[u8]>>(&mut self, tree: &Tree, range: impl RangeBounds<K>) -> Result<u64> {
        let keys: Vec<_> = self.range(tree, range).collect::<Result<_>>()?;
        let mut count = 0;
        for (key, _) in keys {
            count += u64::from(self.delete(tree, &key)?);
        }
        Ok(count)
    }

    pub(crate) fn create_tree(&mut self, name: &str) -> Result<Tree> {
        let id = {
            let mut inner = self.db.lock();
            inner.next_tree += 1;
            TreeId(inner.next_tree)
        };
        if self.change(CATALOG, name.as_bytes(), Some(&id.0.to_le_bytes()), Some(false))? {
            return Err(Error::TreeExists { name: name.into() });
        }
        Ok(Tree { id })
    }
    pub(crate) fn open_tree(&self, name: &str) -> Result<Tree> {
        let inner = self.db.lock();
        let id = self.visible(&inner, &(CATALOG, name.into()));
        id.map(|id| Tree { id: id_of(&id) }).ok_or_else(|| Error::NoSuchTree { name: name.into() })
    }
    pub(crate) fn drop_tree(&mut self, name: &str) -> Result<()> {
        if self.change(CATALOG, name.as_bytes(), None, Some(true))? {
            return Ok(());
        }
        Err(Error::NoSuchTree { name: name.into() })
    }
    pub(crate) fn rename_tree(&mut self, from: &str, to: &str) -> Result<()> {
        let id = self.open_tree(from)?.id;
        if self.change(CATALOG, to.as_bytes(), Some(&id.0.to_le_bytes()), Some(false))? {
            return Err(Error::TreeExists { name: to.into() });
        }
        self.drop_tree(from)
    }
    pub(crate) fn trees(&self) -> Result<Vec<String>> {
        let inner = self.db.lock();
        self.snapshot(&inner);
        let names: BTreeSet<&Row> =
            inner.rows.keys().chain(self.changes.keys()).filter(|(tree, _)| *tree == CATALOG).collect();
        let named = names.into_iter().filter(|row| self.visible(&inner, row).is_some());
        Ok(named.map(|(_, name)| String::from_utf8_lossy(name).into_owned()).collect())
    }

    pub(crate) fn savepoint(&mut self) -> Savepoint {
        Savepoint(self.changes.clone())
    }
    pub(crate) fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        if self.db.lock().options.mutant != Mutant::NoSavepoint {
            self.changes = savepoint.0.clone();
        }
        Ok(())
    }
    pub(crate) fn begin_statement(&mut self) {
        if self.options.isolation == Isolation::ReadCommitted {
            self.snapshot.set(Some(self.db.lock().commits));
        }
    }
    pub(crate) fn end_statement(&mut self) {
        if self.options.isolation == Isolation::ReadCommitted {
            self.snapshot.set(None);
        }
    }

    pub(crate) fn commit(self) -> Result<()> {
        let level = self.options.durability.unwrap_or(Durability::Flushed);
        self.commit_with(level)
    }
    pub(crate) fn commit_with(mut self, level: Durability) -> Result<()> {
        let changes = std::mem::take(&mut self.changes);
        if changes.is_empty() {
            return Ok(());
        }
        let mut inner = self.db.lock();
        inner.append(0, b"", &changes, level)?;
        inner.replay(0, Vec::new(), changes);
        Ok(())
    }
    pub(crate) fn commit_in_place(&mut self) -> Result<()> {
        let changes = std::mem::take(&mut self.changes);
        if !changes.is_empty() {
            let level = self.options.durability.unwrap_or(Durability::Flushed);
            let mut inner = self.db.lock();
            inner.append(0, b"", &changes, level)?;
            inner.replay(0, Vec::new(), changes);
        }
        self.restart(self.options)
    }
    pub(crate) fn rollback_in_place(&mut self) -> Result<()> {
        self.restart(self.options)
    }
    pub(crate) fn restart(&mut self, options: TxOptions) -> Result<()> {
        let mut inner = self.db.lock();
        inner.release(self.id);
        inner.next_txn += 1;
        self.id = inner.next_txn;
        let keeps = inner.options.mutant == Mutant::KeepsChanges;
        drop(inner);
        if !keeps {
            self.changes.clear();
        }
        self.snapshot.set(None);
        self.options = options;
        Ok(())
    }
    pub(crate) fn insert_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        tree: &Tree,
        rows: impl IntoIterator<Item = (K, V)>,
    ) -> Result<()> {
        for (index, (key, value)) in (0..).zip(rows) {
            self.insert(tree, key.as_ref(), value.as_ref()).map_err(|error| match error {
                Error::KeyExists { on } => Error::DuplicateRow { index, on },
                error => error,
            })?;
        }
        Ok(())
    }
    pub(crate) fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(&mut self, tree: &Tree, rows: &[(K, V)]) -> Result<()> {
        rows.iter().try_for_each(|(key, value)| self.put(tree, key.as_ref(), value.as_ref()))
    }
    pub(crate) fn insert_unique_prefix(&mut self, tree: &Tree, len: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let inner = self.db.lock();
        let alike = |row: &Row| row.0 == tree.id && row.1.starts_with(&key[..len]);
        let foreign = inner.written.iter().any(|(row, holder)| alike(row) && *holder != self.id);
        if foreign && inner.options.mutant != Mutant::NoLocks {
            return Err(conflict(tree.id, &key[..len]));
        }
        let own = self.changes.iter().any(|(row, value)| alike(row) && value.is_some());
        let latest = |row: &Row| inner.latest(row).is_some_and(|(_, value)| value.is_some());
        if own || inner.rows.keys().any(|row| alike(row) && !self.changes.contains_key(row) && latest(row)) {
            if self.options.on_conflict == OnConflict::Fail {
                self.snapshot(&inner);
            }
            return Err(Error::KeyExists { on: LockedOn::row(tree.id, key) });
        }
        drop(inner);
        self.insert(tree, key, value)
    }
    pub(crate) fn commit_start(self) -> Result<Commit> {
        Ok(Commit(Some(self.commit())))
    }
    pub(crate) fn rollback(self) -> Result<()> {
        Ok(())
    }
    pub(crate) fn prepare(mut self, xid: &Xid) -> Result<()> {
        self.prepare_at(xid, Durability::Flushed)
    }
    pub(super) fn prepare_at(&mut self, xid: &Xid, level: Durability) -> Result<()> {
        let changes = std::mem::take(&mut self.changes);
        let mut inner = self.db.lock();
        if inner.prepared.contains_key(&xid.0) {
            return Err(Error::Usage("the XID is taken".into()));
        }
        inner.append(1, &xid.0, &changes, level)?;
        inner.release(self.id);
        inner.replay(1, xid.0.clone(), changes);
        Ok(())
    }
}

/* Seawall's C interface. Made by cbindgen from crates/seawall-ffi: cargo test -p seawall-ffi says how to make it again. */

/* Conventions, for every function unless it says otherwise:

 1. It returns a seawall_status. What it produces goes through a pointer, and is written only when the status
    says so. seawall_error returns the text of the last failure of the calling thread.
 2. A handle (a seawall_db, seawall_tree, seawall_tx, seawall_cursor, ...) is made by one function and freed
    by one. Null is refused with SEAWALL_STATUS_USAGE; freeing null does nothing.
 3. A handle is used by one thread at a time, except a seawall_db, a seawall_tree and a seawall_interrupt_t,
    which any number of threads use at once. Handles can be freed in any order: each keeps alive what it needs.
 4. Bytes that are handed in (seawall_slice) are read during the call only. Bytes that are handed out belong to
    the handle that lent them, and stay until that handle's next call returns: they can be its arguments.
 5. No panic crosses the interface: a call that panics returns SEAWALL_STATUS_PANIC. Roll the transaction back.
    (The engine stops itself if a panic left a page half changed.) */

#ifndef SEAWALL_H
#define SEAWALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The result of a call.
typedef enum {
  // Done.
  SEAWALL_STATUS_OK = 0,
  // There is no such row, entry or tree. Not a failure.
  SEAWALL_STATUS_NOT_FOUND = 1,
  // The key exists.
  SEAWALL_STATUS_KEY_EXISTS = 2,
  // Another transaction changed the row after this one's snapshot: roll back and run it again.
  SEAWALL_STATUS_WRITE_CONFLICT = 3,
  // Chosen as the victim of a deadlock: roll back and run it again.
  SEAWALL_STATUS_DEADLOCK = 4,
  // The lock was not free in time. Nothing was changed by this call.
  SEAWALL_STATUS_LOCK_TIMEOUT = 5,
  // Interrupted by another thread. Nothing was changed by this call.
  SEAWALL_STATUS_INTERRUPTED = 6,
  // The transaction has as many locks as it may have.
  SEAWALL_STATUS_TOO_MANY_LOCKS = 7,
  // The disk is full.
  SEAWALL_STATUS_NO_SPACE = 8,
  // A read failed.
  SEAWALL_STATUS_IO = 9,
  // What was read is not what was written.
  SEAWALL_STATUS_CORRUPT = 10,
  // An earlier write or flush failed: nothing can be committed until the database is opened again.
  SEAWALL_STATUS_POISONED = 11,
  // It is unknown whether the transaction is committed: open the database again and look.
  SEAWALL_STATUS_OUTCOME_UNKNOWN = 12,
  // The tree was dropped.
  SEAWALL_STATUS_TREE_DROPPED = 13,
  // The tree is newer than the transaction's snapshot.
  SEAWALL_STATUS_TREE_TOO_NEW = 14,
  // A tree of that name exists.
  SEAWALL_STATUS_TREE_EXISTS = 15,
  // A key, value or name is too long.
  SEAWALL_STATUS_TOO_LONG = 16,
  // The database, or the transaction, permits no changes.
  SEAWALL_STATUS_READ_ONLY = 17,
  // An option has an invalid value.
  SEAWALL_STATUS_INVALID_OPTION = 18,
  // The directory cannot be opened as a database: another kind of file, another format, a backup.
  SEAWALL_STATUS_NOT_A_DATABASE = 19,
  // It is open already.
  SEAWALL_STATUS_LOCKED = 20,
  // The transaction has ended.
  SEAWALL_STATUS_TRANSACTION_ENDED = 21,
  // Too many transactions write or are prepared at once.
  SEAWALL_STATUS_TOO_MANY_TRANSACTIONS = 22,
  // The database was shut down, or transactions keep it from being shut down.
  SEAWALL_STATUS_SHUT_DOWN = 23,
  // The rows are not in key order.
  SEAWALL_STATUS_ROWS_OUT_OF_ORDER = 24,
  // Wrong use of the interface.
  SEAWALL_STATUS_USAGE = 25,
  // Any other failure; the text says which.
  SEAWALL_STATUS_OTHER = 26,
  // The call panicked: a defect of the engine.
  SEAWALL_STATUS_PANIC = 27,
} seawall_status;

// How much a message or a finding matters.
typedef enum {
  // Worth knowing.
  SEAWALL_IMPORTANCE_NOTE = 0,
  // It costs performance, or will soon cause worse.
  SEAWALL_IMPORTANCE_WARNING = 1,
  // Act now.
  SEAWALL_IMPORTANCE_ERROR = 2,
} seawall_importance;

// What a commit waits for.
typedef enum {
  // The database's option `durability`.
  SEAWALL_COMMIT_LEVEL_DEFAULT = 0,
  // The flush: it survives a power cut.
  SEAWALL_COMMIT_LEVEL_FLUSHED = 1,
  // The write to the device: it survives the death of the process. A power cut loses at most the commits
  // of the last `flush_interval`.
  SEAWALL_COMMIT_LEVEL_WRITTEN = 2,
  // Nothing: the death of the process or a power cut lose at most the commits of the last `flush_interval`.
  SEAWALL_COMMIT_LEVEL_DEFERRED = 3,
} seawall_commit_level;

// What others may do to what a transaction reads.
typedef enum {
  // Each statement sees what was committed when it began.
  SEAWALL_ISOLATION_READ_COMMITTED = 0,
  // All statements see what was committed at the first read without a lock.
  SEAWALL_ISOLATION_REPEATABLE_READ = 1,
  // As if transactions ran one after the other.
  SEAWALL_ISOLATION_SERIALIZABLE = 2,
} seawall_isolation;

// What a call does when another transaction holds a lock.
typedef enum {
  // The transaction's setting; in the options of a transaction, as `Wait`.
  SEAWALL_WAIT_MODE_DEFAULT = 0,
  // Wait, up to the option `lock_wait_timeout`.
  SEAWALL_WAIT_MODE_WAIT = 1,
  // Wait, up to `wait_ms`.
  SEAWALL_WAIT_MODE_FOR = 2,
  // Fail at once.
  SEAWALL_WAIT_MODE_NO = 3,
  // Locking cursors skip the row; elsewhere as `No`.
  SEAWALL_WAIT_MODE_SKIP_LOCKED = 4,
} seawall_wait_mode;

// A lock.
typedef enum {
  // None: the snapshot is read.
  SEAWALL_LOCK_NONE = 0,
  // Others may read it with a lock, too.
  SEAWALL_LOCK_SHARED = 1,
  // No other transaction has it.
  SEAWALL_LOCK_EXCLUSIVE = 2,
} seawall_lock;

// What the key of a bound means.
typedef enum {
  // There is no bound.
  SEAWALL_BOUND_KIND_UNBOUNDED = 0,
  // The key belongs to the range.
  SEAWALL_BOUND_KIND_INCLUDED = 1,
  // The key does not belong to it.
  SEAWALL_BOUND_KIND_EXCLUDED = 2,
} seawall_bound_kind;

// Where a cursor goes.
typedef enum {
  // The first entry of the range.
  SEAWALL_SEEK_FIRST = 0,
  // The last entry of the range.
  SEAWALL_SEEK_LAST = 1,
  // The first entry with this key or a larger one.
  SEAWALL_SEEK_AT_LEAST = 2,
  // The first entry with a larger key.
  SEAWALL_SEEK_AFTER = 3,
  // The last entry with this key or a smaller one.
  SEAWALL_SEEK_AT_MOST = 4,
  // The last entry with a smaller key.
  SEAWALL_SEEK_BEFORE = 5,
  // From where it stands: the next entry.
  SEAWALL_SEEK_NEXT = 6,
  // From where it stands: the previous entry.
  SEAWALL_SEEK_PREV = 7,
} seawall_seek;

// Watches a database for what its operator should know.
typedef struct seawall_advice seawall_advice;

// A cursor over a range of a tree. Each call that moves it is given the transaction.
typedef struct seawall_cursor seawall_cursor;

// An open database.
typedef struct seawall_db seawall_db;

// The building of indexes over a tree.
typedef struct seawall_index_build seawall_index_build;

// The entries of a row in an index that is being built.
typedef struct seawall_index_entries seawall_index_entries;

// Interrupts a transaction while it waits or scans.
typedef struct seawall_interrupt_t seawall_interrupt_t;

// The transactions that are prepared and not decided.
typedef struct seawall_prepared_list seawall_prepared_list;

// A point to which a transaction can be rolled back.
typedef struct seawall_savepoint_t seawall_savepoint_t;

// A transaction. After its end it is a new one with the same options: one object serves a connection.
typedef struct seawall_tx seawall_tx;

// A tree: an ordered map of keys to values.
typedef struct seawall_tree seawall_tree;

// Borrowed bytes. `data` may be null if `len` is 0.
typedef struct {
  // The first byte.
  const uint8_t *data;
  // Their number.
  size_t len;
} seawall_slice;

// Called with a message.
typedef void (*seawall_message_fn)(void *context, seawall_importance importance, seawall_slice text);

// Called with a finding: its name in docs/operations.md, what was observed, and what to do.
typedef void (*seawall_advice_fn)(void *context,
                                  seawall_importance importance,
                                  seawall_slice id,
                                  seawall_slice sentence,
                                  seawall_slice advice);

// One end of a range.
typedef struct {
  // The key; ignored if there is no bound.
  seawall_slice key;
  // What the key means: a `seawall_bound_kind`.
  uint32_t kind;
} seawall_bound;

// Called once, by a thread of the database, when the log before a position is durable (`ok`), or never
// will be.
typedef void (*seawall_on_durable_fn)(void *context, bool ok);

// Called when a transaction begins to wait for a lock, by its thread, once for each transaction that blocks it. The
// tags are those of the transactions' options.
typedef void (*seawall_wait_fn)(void *context, uint64_t waiter, uint64_t holder);

// Adds the entries of a row in one of the indexes with `seawall_index_entry`; called for each index in turn, before
// the next row, or the next version of it. The same row must give the same entries. False ends the
// building with `SEAWALL_STATUS_INTERRUPTED`.
typedef bool (*seawall_entries_fn)(void *context,
                                   size_t index,
                                   seawall_slice key,
                                   seawall_slice value,
                                   seawall_index_entries *entries);

// Called once, when the indexes are nearly complete. Every change of the base that begins after its return must be
// made to the indexes too. False ends the building with `SEAWALL_STATUS_INTERRUPTED`.
typedef bool (*seawall_switch_fn)(void *context);

// Returns the length of the part of an index key that holds its first `parts` columns.
typedef size_t (*seawall_prefix_fn)(void *context, seawall_slice key, uint32_t parts);

// Called with the text of a finding, which ends with a zero byte.
typedef void (*seawall_finding_fn)(void *context, const char *text);

// Called between the steps of a compaction with the leaves processed, and the leaves of the tree when it began. False
// ends it.
typedef bool (*seawall_compact_fn)(void *context, uint64_t done, uint64_t leaves);

// A transaction, as reports name it.
typedef struct {
  // Unique since the database was opened. Later transactions mostly have higher ones.
  uint64_t serial;
  // The tag of its options; 0 if none.
  uint64_t tag;
  // Its id; 0 before its first change.
  uint64_t id;
} seawall_party;

// A transaction that writes, or has or wants locks.
typedef struct {
  // The transaction.
  seawall_party who;
  // The changes that it has made.
  uint64_t changes;
  // The keys that it has locked. Not included: ranges, and rows that it wrote and no other transaction asked for.
  uint64_t locked_keys;
  // Whether it waits for a lock.
  bool waits;
  // Whether it is the victim of a deadlock.
  bool is_victim;
  // Whether it is prepared and belongs to no handle.
  bool is_prepared;
} seawall_transaction_info;

// Called with each transaction.
typedef void (*seawall_transaction_fn)(void *context, const seawall_transaction_info *one);

// A transaction that waits for a lock, and one that blocks it.
typedef struct {
  // The transaction that waits.
  seawall_party waiter;
  // One that it waits for.
  seawall_party holder;
  // The id of the tree.
  uint32_t tree;
  // The key, or the first key of a range.
  seawall_slice key;
  // What is wanted: a `seawall_lock`.
  uint32_t wanted;
  // How the holder has it, a `seawall_lock`; `SEAWALL_LOCK_NONE` if it is only ahead in the queue.
  uint32_t held;
  // How long it has waited, ms.
  uint64_t waited_ms;
} seawall_lock_wait_info;

// Called with each pair of a transaction that waits and one that it waits for.
typedef void (*seawall_lock_wait_fn)(void *context, const seawall_lock_wait_info *one);

// A transaction of a deadlock. Each waits for what the next one has, the last for what the first has.
typedef struct {
  // The transaction.
  seawall_party who;
  // The id of the tree.
  uint32_t tree;
  // The key, or the first key of a range, for which it waited.
  seawall_slice key;
  // What it wanted: a `seawall_lock`.
  uint32_t wanted;
  // Whether it was the one that gave way.
  bool is_victim;
} seawall_deadlock_party;

// Called with each transaction of a deadlock.
typedef void (*seawall_deadlock_fn)(void *context, const seawall_deadlock_party *one);

// I/O of one class of files, one operation and one cause.
typedef struct {
  // The class of files.
  seawall_slice file_class;
  // The operation.
  seawall_slice operation;
  // Why.
  seawall_slice cause;
  // Operations that succeeded.
  uint64_t count;
  // Those that failed.
  uint64_t errors;
  // Bytes moved.
  uint64_t bytes;
  // The time of all of them, ns.
  uint64_t total_ns;
  // Half of them took no longer than this, ns.
  uint64_t p50_ns;
  // 95% of them took no longer than this, ns.
  uint64_t p95_ns;
  // 99% of them took no longer than this, ns.
  uint64_t p99_ns;
  // The longest took this, ns.
  uint64_t max_ns;
} seawall_io_info;

// Called with each class, operation and cause that has occurred.
typedef void (*seawall_io_fn)(void *context, const seawall_io_info *one);

// How the files of one class are open.
typedef struct {
  // The class of files.
  seawall_slice file_class;
  // The flush method in effect, and why it is another than the one asked for.
  seawall_slice mode;
  // Bytes of them in the page cache; `UINT64_MAX` if unknown.
  uint64_t page_cache_bytes;
} seawall_file_info;

// Called with each class of files.
typedef void (*seawall_file_fn)(void *context, const seawall_file_info *one);

// The size of a tree, and how its leaves lie.
typedef struct {
  // Its id, which no other tree has had.
  uint32_t id;
  // Its pages, as far as the space maps have been read.
  uint64_t pages;
  // Their bytes.
  uint64_t bytes;
  // Its leaves; 0 unless they were measured.
  uint64_t leaves;
  // Leaves that do not follow the one before them in the file.
  uint64_t apart;
  // How full leaves are, from a sample of 32.
  uint32_t fill_percent;
} seawall_tree_info_t;

// Called with each number of the statistics: the part of the engine, the number's name, what it is, whether it
// only grows.
typedef void (*seawall_metric_fn)(void *context,
                                  seawall_slice group,
                                  seawall_slice name,
                                  seawall_slice help,
                                  bool is_counter,
                                  uint64_t value);

// How a transaction is to run.
typedef struct {
  // What others may do to what it reads: a `seawall_isolation`.
  uint32_t isolation;
  // What its commit waits for: a `seawall_commit_level`.
  uint32_t level;
  // What it does when another transaction holds a lock: a `seawall_wait_mode`.
  uint32_t wait;
  // The longest wait for a lock, ms, with `SEAWALL_WAIT_MODE_FOR`.
  uint64_t wait_ms;
  // Whether a change of a row that is newer than its snapshot fails (snapshot isolation). Otherwise it
  // acts on the latest version, as InnoDB does.
  bool fail_on_conflict;
  // A number that reports of lock waits show: a connection's, for example.
  uint64_t tag;
} seawall_tx_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Sets the function that is called with each message of the engine, for all databases of the process; null removes
// it, and waits until no call of it runs. It is called by any thread, and must not call this function.
//
// # Safety
// `told` may be called with `context` by any thread, until another function is set.
seawall_status seawall_on_message(seawall_message_fn told,
                                  void *context);

// Makes a watch, for one opening of a database.
//
// # Safety
// `advice` is writable.
seawall_status seawall_advice_new(seawall_advice **advice);

// Calls `told` with each finding about the time since the last call that is new: not said within the last hour, or
// worse since. The first call also looks at the options, and at the disk under the database's directories.
//
// # Safety
// `advice` and `db` are handles; `told` may be called with `context`.
seawall_status seawall_advice_look(seawall_advice *advice,
                                   const seawall_db *db,
                                   seawall_advice_fn told,
                                   void *context);

// Frees a watch.
//
// # Safety
// `advice` is null, or a handle that no call uses any more.
void seawall_advice_free(seawall_advice *advice);

// Makes a cursor without a tree.
//
// # Safety
// `cursor` is writable.
seawall_status seawall_cursor_new(seawall_cursor **cursor);

// Frees a cursor.
//
// # Safety
// `cursor` is null, or a handle of a cursor.
void seawall_cursor_free(seawall_cursor *cursor);

// Sets the tree, the range, the lock that it takes on each row, and how many rows will be read (a hint; 0: unknown).
// Keeps its memory.
//
// # Safety
// `cursor` and `tree` are handles; the bounds are readable.
seawall_status seawall_cursor_reset(seawall_cursor *cursor,
                                    const seawall_tree *tree,
                                    seawall_bound lower,
                                    seawall_bound upper,
                                    uint32_t lock,
                                    uint32_t wait,
                                    uint64_t wait_ms,
                                    uint64_t limit);

// Gives up its position and its snapshot until the next seek.
//
// # Safety
// `cursor` is a handle.
seawall_status seawall_cursor_release(seawall_cursor *cursor);

// Moves the cursor, and lends the entry's key and value until its next call. `SEAWALL_STATUS_NOT_FOUND`: there is
// none. With a null `value` a long value is not read.
//
// # Safety
// `cursor` and `tx` are handles; `key` is readable, and ignored where `to` has none; `found_key` and `value`
// are null or writable.
seawall_status seawall_cursor_seek(seawall_cursor *cursor,
                                   seawall_tx *tx,
                                   uint32_t to,
                                   seawall_slice key,
                                   seawall_slice *found_key,
                                   seawall_slice *value);

// Whether the cursor stands on a row that it has newly locked, and may return with `seawall_unlock_row`.
//
// # Safety
// `cursor` is a handle.
seawall_status seawall_cursor_newly_locked(const seawall_cursor *cursor,
                                           bool *newly_locked);

// Deletes the entry on which the cursor stands. It continues from there. `SEAWALL_STATUS_NOT_FOUND`: it was gone.
//
// # Safety
// `cursor` and `tx` are handles.
seawall_status seawall_cursor_delete(seawall_cursor *cursor,
                                     seawall_tx *tx);

// Opens the database in the directory `path`, and makes it if there is none. `options` are `count` texts
// like "pool_size=4G"; they precede those of the directory's seawall.toml.
//
// # Safety
// `path` and the options are texts that end with a zero byte; `db` is writable.
seawall_status seawall_open(const char *path,
                            const char *const *options,
                            size_t count,
                            seawall_db **db);

// Shuts the database down: later calls fail, running ones are waited for, at most for `patience_ms`; then
// it is closed clean. `SEAWALL_STATUS_SHUT_DOWN` when transactions are still open: call it again when they have ended.
// The handle is to be freed afterwards.
//
// # Safety
// `db` is a handle of a database.
seawall_status seawall_shutdown(const seawall_db *db,
                                uint64_t patience_ms);

// Frees the handle. The database closes with its last handle; to see a failure of that,
// call `seawall_shutdown` before.
//
// # Safety
// `db` is null, or a handle of a database that no call uses any more.
void seawall_free(seawall_db *db);

// Changes an option of the running database.
//
// # Safety
// `db` is a handle of a database; `name` and `value` are texts that end with a zero byte.
seawall_status seawall_set_option(const seawall_db *db, const char *name, const char *value);

// The value of an option of the running database. It stays until the thread's next call of this function.
//
// # Safety
// `db` is a handle of a database; `name` is a text that ends with a zero byte; `value` is writable.
seawall_status seawall_option(const seawall_db *db,
                              const char *name,
                              seawall_slice *value);

// Makes the log before `position` durable; the whole log if that is 0. Calls at one time share a flush.
//
// # Safety
// `db` is a handle of a database.
seawall_status seawall_flush_log(const seawall_db *db,
                                 uint64_t position);

// The end of the log now.
//
// # Safety
// `db` is a handle of a database; `position` is writable.
seawall_status seawall_log_position(const seawall_db *db, uint64_t *position);

// Decides the end of the backup that another process has asked for with `--wait-for-end`: everything that was
// committed before is in it, and nothing whose commit begins later. `position` is its end, or 0 when no backup
// waits.
//
// # Safety
// `db` is a handle of a database; `position` is writable.
seawall_status seawall_end_backup(const seawall_db *db,
                                  uint64_t *position);

// Calls `told` once when the log before `position` is durable. It causes no flush: background work flushes
// within `flush_interval`.
//
// # Safety
// `db` is a handle of a database; `told` may be called with `context` by another thread, also after this
// handle is freed, until the database has closed.
seawall_status seawall_on_durable(const seawall_db *db,
                                  uint64_t position,
                                  seawall_on_durable_fn told,
                                  void *context);

// Lists the transactions that are prepared and not decided.
//
// # Safety
// `db` is a handle of a database; `list` is writable.
seawall_status seawall_prepared(const seawall_db *db, seawall_prepared_list **list);

// The next name of the list; `SEAWALL_STATUS_NOT_FOUND` at its end.
//
// # Safety
// `list` is a handle of a list; `xid` is writable.
seawall_status seawall_prepared_next(seawall_prepared_list *list, seawall_slice *xid);

// Frees the list.
//
// # Safety
// `list` is null, or a handle of a list.
void seawall_prepared_free(seawall_prepared_list *list);

// Commits a prepared transaction that no handle has. `SEAWALL_STATUS_NOT_FOUND` if there is none of this name.
//
// # Safety
// `db` is a handle of a database; `xid` is readable.
seawall_status seawall_commit_prepared(const seawall_db *db,
                                       seawall_slice xid);

// Rolls a prepared transaction back that no handle has; as `seawall_commit_prepared`.
//
// # Safety
// `db` is a handle of a database; `xid` is readable.
seawall_status seawall_rollback_prepared(const seawall_db *db, seawall_slice xid);

// Sets the function that is called with each wait for a lock; null removes it. No lock of the engine is held while it
// runs. It is short, and may interrupt any transaction.
//
// # Safety
// `db` is a handle; `told` may be called with `context` by any thread, as long as the database is open.
seawall_status seawall_on_wait(const seawall_db *db,
                               seawall_wait_fn told,
                               void *context);

// Adds an entry. `unique_len`: no other entry may begin with so many bytes of `key`; 0: there is no such part.
//
// # Safety
// `entries` is what an `seawall_entries_fn` was given; `key` and `value` are readable.
seawall_status seawall_index_entry(seawall_index_entries *entries,
                                   seawall_slice key,
                                   size_t unique_len,
                                   seawall_slice value);

// Begins the building of indexes over `base`: from now on its changes are logged. It does not wait if no transaction
// has locks or unended changes in `base`.
//
// # Safety
// `db` and `base` are handles; `build` is writable.
seawall_status seawall_begin_index_build(const seawall_db *db,
                                         const seawall_tree *base,
                                         seawall_index_build **build);

// Builds new trees `names` of the entries that `entries` gives for each row of the base; `entries` and `switch` are
// called by this thread. Others may change the base meanwhile, and keep `keep_percent` of their rate, at most 95: the
// build pauses for them; with 0 it does not. `SEAWALL_STATUS_KEY_EXISTS`: two entries have the
// same key or unique part; `seawall_error_key` is the key of one. A build can be used once.
//
// # Safety
// `build` is a handle; `names` are `count` texts, each with a zero byte at its end; `entries` and `switch` may be
// called with `context`.
seawall_status seawall_build_indexes(seawall_index_build *build,
                                     const char *const *names,
                                     size_t count,
                                     uint32_t keep_percent,
                                     seawall_entries_fn entries,
                                     seawall_switch_fn switch_,
                                     void *context);

// Frees a build; the logging of changes ends.
//
// # Safety
// `build` is a handle or null; it is not used afterwards.
void seawall_index_build_free(seawall_index_build *build);

// Counts the rows of a range that the transaction sees. Reads no values.
//
// # Safety
// `tx` and `tree` are handles; the bounds are readable; `rows` is writable.
seawall_status seawall_count(seawall_tx *tx,
                             const seawall_tree *tree,
                             seawall_bound lower,
                             seawall_bound upper,
                             uint64_t *rows);

// The bytes of a tree's pages.
//
// # Safety
// `db` and `tree` are handles; `bytes` is writable.
seawall_status seawall_tree_bytes(const seawall_db *db, const seawall_tree *tree, uint64_t *bytes);

// Estimates a tree's rows, and for 1 to `parts` columns of its keys how many different values they have, from
// about `leaves` leaves. `prefix` is called meanwhile, by this thread.
//
// # Safety
// `db` and `tree` are handles; `rows` is null or writable; `distinct` has room for `parts` numbers; `prefix` may be
// called with `context`.
seawall_status seawall_sample(const seawall_db *db,
                              const seawall_tree *tree,
                              size_t leaves,
                              uint32_t parts,
                              seawall_prefix_fn prefix,
                              void *context,
                              double *rows,
                              double *distinct);

// Verifies a tree's nodes and long values while others use it. `SEAWALL_STATUS_CORRUPT` after `finding` was called
// for each damage, at most 100 times.
//
// # Safety
// `db` and `tree` are handles; `finding` may be called with `context`.
seawall_status seawall_check_tree(const seawall_db *db,
                                  const seawall_tree *tree,
                                  seawall_finding_fn finding,
                                  void *context);

// Brings a tree's leaves into key order in the file and fills them, while others use the tree.
// `SEAWALL_STATUS_INTERRUPTED` if `go_on` ended it; what was done until then stays.
//
// # Safety
// `db` and `tree` are handles; `go_on` may be called with `context`.
seawall_status seawall_compact_tree(const seawall_db *db,
                                    const seawall_tree *tree,
                                    seawall_compact_fn go_on,
                                    void *context);

// The longest key that the database takes, bytes; 0 without a database.
//
// # Safety
// `db` is a handle or null.
size_t seawall_key_bytes_max(const seawall_db *db);

// Calls `told` with each transaction that writes, or has or wants locks, in the order in which they began.
//
// # Safety
// `db` is a handle; `told` may be called with `context`.
seawall_status seawall_transactions(const seawall_db *db,
                                    seawall_transaction_fn told,
                                    void *context);

// Calls `told` with each transaction that waits for a lock, once for each transaction that it waits for.
//
// # Safety
// `db` is a handle; `told` may be called with `context`.
seawall_status seawall_lock_waits(const seawall_db *db,
                                  seawall_lock_wait_fn told,
                                  void *context);

// Calls `told` with each transaction of the last deadlock since the opening. `SEAWALL_STATUS_NOT_FOUND`: there was
// none.
//
// # Safety
// `db` is a handle; `told` may be called with `context`.
seawall_status seawall_last_deadlock(const seawall_db *db,
                                     seawall_deadlock_fn told,
                                     void *context);

// Calls `told` with each class of files, operation and cause that has occurred since the opening.
//
// # Safety
// `db` is a handle; `told` may be called with `context`.
seawall_status seawall_io(const seawall_db *db, seawall_io_fn told, void *context);

// Calls `told` with each class of files, and stores the I/O backend with the reason why it was chosen. That text
// stays until the thread's next call of this function or of `seawall_tree_name`.
//
// # Safety
// `db` is a handle; `told` may be called with `context`; `backend` is null or writable.
seawall_status seawall_files(const seawall_db *db,
                             seawall_file_fn told,
                             void *context,
                             seawall_slice *backend);

// The name of the tree with an id. It stays until the thread's next call of this function or of `seawall_files`.
// `SEAWALL_STATUS_NOT_FOUND`: there is no such tree, or it is not committed. Scans the names of all trees.
//
// # Safety
// `db` is a handle; `name` is writable.
seawall_status seawall_tree_name(const seawall_db *db,
                                 uint32_t id,
                                 seawall_slice *name);

// The size of a tree. With `measure` also how its leaves lie in the file and how full they are: that reads the
// branch pages above the leaves, about one page in some hundreds of the tree's, and at most 32 leaves.
//
// # Safety
// `db` and `tree` are handles; `info` is writable.
seawall_status seawall_tree_info(const seawall_db *db,
                                 const seawall_tree *tree,
                                 bool measure,
                                 seawall_tree_info_t *info);

// Calls `told` with each number of the database's statistics; the texts stay for ever.
//
// # Safety
// `db` is a handle; `told` may be called with `context`.
seawall_status seawall_metrics(const seawall_db *db, seawall_metric_fn told, void *context);

// Inserts a row; `SEAWALL_STATUS_KEY_EXISTS` if the key exists.
//
// # Safety
// `tx` is a handle of a transaction; what else is passed is valid.
seawall_status seawall_insert(seawall_tx *tx,
                              const seawall_tree *tree,
                              seawall_slice key,
                              seawall_slice value);

// Inserts a row, or replaces it.
//
// # Safety
// `tx` is a handle of a transaction; what else is passed is valid.
seawall_status seawall_put(seawall_tx *tx,
                           const seawall_tree *tree,
                           seawall_slice key,
                           seawall_slice value);

// Inserts an entry of a unique index: `SEAWALL_STATUS_KEY_EXISTS` if an entry exists whose key begins with the first
// `prefix_len` bytes of `key`.
//
// # Safety
// `tx` is a handle of a transaction; what else is passed is valid.
seawall_status seawall_insert_unique(seawall_tx *tx,
                                     const seawall_tree *tree,
                                     seawall_slice key,
                                     size_t prefix_len,
                                     seawall_slice value);

// Replaces a row; `SEAWALL_STATUS_NOT_FOUND` if there is none. Not `indexed`: the row's entries stay as they are in
// the indexes that are being built over the tree (`seawall_begin_index_build`), which then need not read it again.
//
// # Safety
// `tx` and `tree` are handles; `key` and `value` are readable.
seawall_status seawall_update(seawall_tx *tx,
                              const seawall_tree *tree,
                              seawall_slice key,
                              seawall_slice value,
                              bool indexed);

// Deletes a row; `SEAWALL_STATUS_NOT_FOUND` if there is none.
//
// # Safety
// `tx` and `tree` are handles; `key` is readable.
seawall_status seawall_delete(seawall_tx *tx, const seawall_tree *tree, seawall_slice key);

// Reads a row of the snapshot; `SEAWALL_STATUS_NOT_FOUND` if there is none.
//
// # Safety
// `tx` and `tree` are handles; `key` is readable; `value` is null or writable.
seawall_status seawall_get(seawall_tx *tx,
                           const seawall_tree *tree,
                           seawall_slice key,
                           seawall_slice *value);

// Locks a row, whether it exists or not, and reads its latest version; `SEAWALL_STATUS_NOT_FOUND` if it does not
// exist. `newly_locked`: `seawall_unlock_row` may return the lock.
//
// # Safety
// `tx` and `tree` are handles; `key` is readable; `value` and `newly_locked` are null or writable.
seawall_status seawall_lock_row(seawall_tx *tx,
                                const seawall_tree *tree,
                                seawall_slice key,
                                uint32_t lock,
                                uint32_t wait,
                                uint64_t wait_ms,
                                seawall_slice *value,
                                bool *newly_locked);

// Returns the lock of a row that a locking read of this statement took new; `unlocked` says whether it did.
//
// # Safety
// `tx` and `tree` are handles; `key` is readable; `unlocked` is null or writable.
seawall_status seawall_unlock_row(seawall_tx *tx,
                                  const seawall_tree *tree,
                                  seawall_slice key,
                                  bool *unlocked);

// As `seawall_unlock_row`, at serializable too: for a row that stands for something else, and whose value the
// transaction does not use.
//
// # Safety
// `tx` and `tree` are handles; `key` is readable.
seawall_status seawall_release_row(seawall_tx *tx,
                                   const seawall_tree *tree,
                                   seawall_slice key);

// Locks a whole tree exclusively until the transaction ends: waits until no other transaction, prepared ones included,
// has locks or unended changes in it.
//
// # Safety
// `tx` and `tree` are handles.
seawall_status seawall_lock_tree(seawall_tx *tx,
                                 const seawall_tree *tree);

// A semi-consistent read, at read committed: locks the row if it is free (`locked`), otherwise reads its committed
// version.
//
// # Safety
// `tx` and `tree` are handles; `key` is readable; `value` and `locked` are null or writable.
seawall_status seawall_lock_or_committed(seawall_tx *tx,
                                         const seawall_tree *tree,
                                         seawall_slice key,
                                         seawall_slice *value,
                                         bool *locked);

// Whether the transaction's snapshot, if it has taken one, is as new as the tree: `SEAWALL_STATUS_TREE_TOO_NEW` if
// the tree was made later, so that the snapshot would find it empty.
//
// # Safety
// `tx` and `tree` are handles.
seawall_status seawall_may_read(seawall_tx *tx,
                                const seawall_tree *tree);

// Requests the pages of rows that are going to be read soon, and waits for none of them. `absent`: how many are not in
// memory yet.
//
// # Safety
// `tx` and `tree` are handles; `keys` are `count` readable slices; `absent` is null or writable.
seawall_status seawall_prefetch(seawall_tx *tx,
                                const seawall_tree *tree,
                                const seawall_slice *keys,
                                size_t count,
                                size_t *absent);

// An estimate of a range's rows and pages, from branch pages. An unbounded end is a null slice.
//
// # Safety
// `tx` and `tree` are handles; the bounds are readable; `rows` and `pages` are null or writable.
seawall_status seawall_estimate_range(seawall_tx *tx,
                                      const seawall_tree *tree,
                                      seawall_bound lower,
                                      seawall_bound upper,
                                      uint64_t *rows,
                                      uint64_t *pages);

// The text of the last call of this thread that failed: what, where, and what to do. UTF-8. It stays until
// the next failure of the thread.
const char *seawall_error(void);

// The key of the last call of this thread that failed with `SEAWALL_STATUS_KEY_EXISTS`. It stays until the next
// such failure of the thread.
seawall_slice seawall_error_key(void);

// The version of the library, for example "0.1.0".
const char *seawall_version(void);

// Makes a transaction. It costs nothing until it reads or changes a row.
//
// # Safety
// `db` is a handle of a database; `options` is readable; `tx` is writable.
seawall_status seawall_begin(const seawall_db *db,
                             const seawall_tx_options *options,
                             seawall_tx **tx);

// Frees a transaction: rolls it back, unless it is prepared.
//
// # Safety
// `tx` is null, or a handle of a transaction.
void seawall_transaction_free(seawall_tx *tx);

// Gives the transaction new options, from its beginning on: it must not have read or changed anything yet.
//
// # Safety
// `tx` is a handle of a transaction; `options` is readable.
seawall_status seawall_restart(seawall_tx *tx,
                               const seawall_tx_options *options);

// Commits. After a failure the text says whether it is committed.
//
// # Safety
// `tx` is a handle of a transaction; what else is passed is valid.
seawall_status seawall_commit(seawall_tx *tx);

// Rolls back.
//
// # Safety
// `tx` is a handle of a transaction; what else is passed is valid.
seawall_status seawall_rollback(seawall_tx *tx);

// Takes the snapshot now, not at the first read.
//
// # Safety
// `tx` is a handle of a transaction; what else is passed is valid.
seawall_status seawall_take_snapshot(seawall_tx *tx);

// Begins a statement: at read committed it sees what is committed now.
//
// # Safety
// `tx` is a handle of a transaction; what else is passed is valid.
seawall_status seawall_begin_statement(seawall_tx *tx);

// Ends a statement: `seawall_unlock_row` returns no lock of it any more.
//
// # Safety
// `tx` is a handle of a transaction; what else is passed is valid.
seawall_status seawall_end_statement(seawall_tx *tx);

// Changes the isolation from the next statement on.
//
// # Safety
// `tx` is a handle of a transaction; what else is passed is valid.
seawall_status seawall_set_isolation(seawall_tx *tx, uint32_t isolation);

// Changes what it does when another transaction holds a lock.
//
// # Safety
// `tx` is a handle of a transaction; what else is passed is valid.
seawall_status seawall_set_wait(seawall_tx *tx, uint32_t wait, uint64_t wait_ms);

// Changes what its commit waits for.
//
// # Safety
// `tx` is a handle of a transaction; what else is passed is valid.
seawall_status seawall_set_level(seawall_tx *tx, uint32_t level);

// Whether the transaction has changed anything: `id` is its number then, otherwise 0.
//
// # Safety
// `tx` is a handle of a transaction; `id` is writable.
seawall_status seawall_transaction_id(seawall_tx *tx, uint64_t *id);

// Makes a savepoint. Free it with `seawall_savepoint_free`, in any order.
//
// # Safety
// `tx` is a handle of a transaction; `savepoint` is writable.
seawall_status seawall_savepoint(seawall_tx *tx, seawall_savepoint_t **savepoint);

// Undoes all changes since the savepoint, which stays.
//
// # Safety
// `tx` and `savepoint` are handles.
seawall_status seawall_rollback_to(seawall_tx *tx, const seawall_savepoint_t *savepoint);

// Frees a savepoint; changes nothing.
//
// # Safety
// `savepoint` is null, or a handle of a savepoint.
void seawall_savepoint_free(seawall_savepoint_t *savepoint);

// A handle with which any thread interrupts the transaction, also after later commits and rollbacks.
//
// # Safety
// `tx` is a handle of a transaction; `interrupt` is writable.
seawall_status seawall_interrupt_new(seawall_tx *tx,
                                     seawall_interrupt_t **interrupt);

// Interrupts the transaction's waits and scans until `seawall_interrupt_clear`. Any thread may call it.
//
// # Safety
// `interrupt` is a handle.
seawall_status seawall_interrupt(const seawall_interrupt_t *interrupt);

// Lets the transaction go on.
//
// # Safety
// `interrupt` is a handle.
seawall_status seawall_interrupt_clear(const seawall_interrupt_t *interrupt);

// Frees the handle.
//
// # Safety
// `interrupt` is null, or a handle that no call uses any more.
void seawall_interrupt_free(seawall_interrupt_t *interrupt);

// Prepares the transaction under the name `xid` (1 to 140 bytes): it survives a crash, and waits for the
// outside log's decision. `position` is where the log must be flushed to if `level` is below
// `SEAWALL_COMMIT_LEVEL_FLUSHED`.
//
// # Safety
// `tx` is a handle of a transaction; `xid` is readable; `position` is null or writable.
seawall_status seawall_prepare(seawall_tx *tx,
                               seawall_slice xid,
                               uint32_t level,
                               uint64_t *position);

// Commits a prepared transaction that the outside log has decided, in that log's order: visible to others at once, no
// flush, no I/O. It is durable when the log is flushed to `position`.
//
// # Safety
// `tx` is a handle of a transaction; `position` is null or writable.
seawall_status seawall_commit_ordered(seawall_tx *tx,
                                      uint64_t *position);

// Makes a tree. It exists for others when the transaction has committed.
//
// # Safety
// `tx` is a handle of a transaction; `name` is a text; `tree` is writable.
seawall_status seawall_create_tree(seawall_tx *tx, const char *name, seawall_tree **tree);

// Opens a tree; `SEAWALL_STATUS_NOT_FOUND` if there is none of this name.
//
// # Safety
// `tx` is a handle of a transaction; `name` is a text; `tree` is writable.
seawall_status seawall_open_tree(seawall_tx *tx, const char *name, seawall_tree **tree);

// Drops a tree; `SEAWALL_STATUS_NOT_FOUND` if there is none of this name.
//
// # Safety
// `tx` is a handle of a transaction; what else is passed is valid.
seawall_status seawall_drop_tree(seawall_tx *tx, const char *name);

// Renames a tree.
//
// # Safety
// `tx` is a handle of a transaction; what else is passed is valid.
seawall_status seawall_rename_tree(seawall_tx *tx, const char *from, const char *to);

// Frees the handle of a tree.
//
// # Safety
// `tree` is null, or a handle that no call uses any more.
void seawall_tree_free(seawall_tree *tree);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SEAWALL_H */

/* Seawall's C interface. Made by cbindgen from crates/seawall-ffi: cargo test -p seawall-ffi says how to make it again. */

/* Conventions, for every function unless it says otherwise:

 1. It returns a seawall_status. Results are stored through pointers, and only when the status says that there is a
    result. seawall_error returns the text of the calling thread's last failure.
 2. One function makes a handle (a seawall_db, seawall_tree, seawall_tx, seawall_cursor, ...) and another
    frees it. A null handle is refused with SEAWALL_STATUS_USAGE; freeing null does nothing.
 3. Only one thread at a time may use a handle, except a seawall_db, a seawall_tree and a seawall_interrupt_t,
    which any number of threads may use at once. Handles may be freed in any order: each keeps alive what it needs.
 4. A call reads the bytes of its arguments (seawall_slice) only until it returns. Bytes that a call stores for the
    caller belong to the first handle among its arguments, and stay valid until the next call with that handle
    returns: they may be arguments of that call. Bytes that a callback gets are valid only until it returns.
 5. No panic crosses the interface: a call that panics returns SEAWALL_STATUS_PANIC. Then roll the transaction
    back. (The engine stops itself if a panic left a page half changed.) */

#ifndef SEAWALL_H
#define SEAWALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The result of a call.
typedef enum {
  // Done.
  SEAWALL_STATUS_OK = 0,
  // There is no such row, entry, tree or prepared transaction. Not a failure.
  SEAWALL_STATUS_NOT_FOUND = 1,
  // The key exists.
  SEAWALL_STATUS_KEY_EXISTS = 2,
  // Another transaction changed the row after this transaction took its snapshot: roll back and run it again.
  SEAWALL_STATUS_WRITE_CONFLICT = 3,
  // The transaction was chosen as the victim of a deadlock: roll back and run it again.
  SEAWALL_STATUS_DEADLOCK = 4,
  // The lock was not free in time. This call changed nothing.
  SEAWALL_STATUS_LOCK_TIMEOUT = 5,
  // Another thread interrupted the call. This call changed nothing.
  SEAWALL_STATUS_INTERRUPTED = 6,
  // The transaction holds as many locks as it may.
  SEAWALL_STATUS_TOO_MANY_LOCKS = 7,
  // The disk is full.
  SEAWALL_STATUS_NO_SPACE = 8,
  // An I/O request failed, or the system could not start a thread.
  SEAWALL_STATUS_IO = 9,
  // Data read from disk is damaged.
  SEAWALL_STATUS_CORRUPT = 10,
  // An earlier write or flush failed: no transaction can commit until the database is opened again.
  SEAWALL_STATUS_POISONED = 11,
  // It is unknown whether the transaction is committed: open the database again and look.
  SEAWALL_STATUS_OUTCOME_UNKNOWN = 12,
  // The tree was dropped.
  SEAWALL_STATUS_TREE_DROPPED = 13,
  // The tree is newer than the transaction's snapshot.
  SEAWALL_STATUS_TREE_TOO_NEW = 14,
  // A tree with that name exists.
  SEAWALL_STATUS_TREE_EXISTS = 15,
  // A key, value or name is too long.
  SEAWALL_STATUS_TOO_LONG = 16,
  // The database or the transaction permits no changes.
  SEAWALL_STATUS_READ_ONLY = 17,
  // An option has an invalid value.
  SEAWALL_STATUS_INVALID_OPTION = 18,
  // The directory cannot be opened as a database: it holds other files, another format, or a backup, or needs
  // recovery.
  SEAWALL_STATUS_NOT_A_DATABASE = 19,
  // The database is open already.
  SEAWALL_STATUS_LOCKED = 20,
  // The transaction has ended.
  SEAWALL_STATUS_TRANSACTION_ENDED = 21,
  // Too many transactions write or are prepared at once.
  SEAWALL_STATUS_TOO_MANY_TRANSACTIONS = 22,
  // The database was shut down, or open transactions prevent the shutdown.
  SEAWALL_STATUS_SHUT_DOWN = 23,
  // The rows are not in key order.
  SEAWALL_STATUS_ROWS_OUT_OF_ORDER = 24,
  // The interface was used incorrectly.
  SEAWALL_STATUS_USAGE = 25,
  // Any other failure; `seawall_error` says which.
  SEAWALL_STATUS_OTHER = 26,
  // The call panicked: a defect of the engine.
  SEAWALL_STATUS_PANIC = 27,
} seawall_status;

// The importance of a message or a finding.
typedef enum {
  // Worth knowing.
  SEAWALL_IMPORTANCE_NOTE = 0,
  // It costs performance, or will soon cause something worse.
  SEAWALL_IMPORTANCE_WARNING = 1,
  // Act now.
  SEAWALL_IMPORTANCE_ERROR = 2,
} seawall_importance;

// What a thread waits for.
typedef enum {
  // A lock that another transaction holds.
  SEAWALL_BLOCKING_LOCK = 0,
  // The log: a commit that becomes durable, or space for a change.
  SEAWALL_BLOCKING_LOG = 1,
  // A page that is read from the data file.
  SEAWALL_BLOCKING_PAGE = 2,
} seawall_blocking;

// What a commit waits for.
typedef enum {
  // The database's option `durability`.
  SEAWALL_COMMIT_LEVEL_DEFAULT = 0,
  // The flush: the commit survives a power cut.
  SEAWALL_COMMIT_LEVEL_FLUSHED = 1,
  // The write to the device: the commit survives the death of the process. A power cut loses at most the commits of
  // the last `flush_interval`.
  SEAWALL_COMMIT_LEVEL_WRITTEN = 2,
  // Nothing: the death of the process or a power cut loses at most the commits of the last `flush_interval`.
  SEAWALL_COMMIT_LEVEL_DEFERRED = 3,
} seawall_commit_level;

// What other transactions may do to the rows that a transaction reads.
typedef enum {
  // Each statement sees what was committed when it began.
  SEAWALL_ISOLATION_READ_COMMITTED = 0,
  // All statements see what was committed at the first read without a lock.
  SEAWALL_ISOLATION_REPEATABLE_READ = 1,
  // The result is as if transactions ran one after the other.
  SEAWALL_ISOLATION_SERIALIZABLE = 2,
} seawall_isolation;

// What a call does when another transaction holds a lock.
typedef enum {
  // The transaction's setting. In the options of a transaction, the same as `SEAWALL_WAIT_MODE_WAIT`.
  SEAWALL_WAIT_MODE_DEFAULT = 0,
  // Wait at most the time of the option `lock_wait_timeout`.
  SEAWALL_WAIT_MODE_WAIT = 1,
  // Wait at most `wait_ms`.
  SEAWALL_WAIT_MODE_FOR = 2,
  // Fail at once.
  SEAWALL_WAIT_MODE_NO = 3,
  // Locking cursors skip the row; other calls fail at once, like `SEAWALL_WAIT_MODE_NO`.
  SEAWALL_WAIT_MODE_SKIP_LOCKED = 4,
} seawall_wait_mode;

// The lock that a read takes.
typedef enum {
  // No lock: the snapshot is read.
  SEAWALL_LOCK_NONE = 0,
  // Other transactions may also hold a shared lock.
  SEAWALL_LOCK_SHARED = 1,
  // No other transaction may hold a lock.
  SEAWALL_LOCK_EXCLUSIVE = 2,
} seawall_lock;

// What the key of a bound means.
typedef enum {
  // There is no bound.
  SEAWALL_BOUND_KIND_UNBOUNDED = 0,
  // The key belongs to the range.
  SEAWALL_BOUND_KIND_INCLUDED = 1,
  // The key does not belong to the range.
  SEAWALL_BOUND_KIND_EXCLUDED = 2,
} seawall_bound_kind;

// Where a cursor moves.
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
  // The entry after the cursor's position.
  SEAWALL_SEEK_NEXT = 6,
  // The entry before the cursor's position.
  SEAWALL_SEEK_PREV = 7,
} seawall_seek;

// Watches a database for what its operator should know.
typedef struct seawall_advice seawall_advice;

// A cursor over a range of a tree. Each call that moves it takes the transaction as an argument.
typedef struct seawall_cursor seawall_cursor;

// An open database.
typedef struct seawall_db seawall_db;

// A build of indexes over a tree.
typedef struct seawall_index_build seawall_index_build;

// Collects the entries of a row in an index that is being built.
typedef struct seawall_index_entries seawall_index_entries;

// A handle that interrupts a transaction while it waits or scans.
typedef struct seawall_interrupt_t seawall_interrupt_t;

// A list of the transactions that are prepared and not decided.
typedef struct seawall_prepared_list seawall_prepared_list;

// A point to which a transaction can be rolled back.
typedef struct seawall_savepoint_t seawall_savepoint_t;

// A transaction. After it ends, the object is a new transaction with the same options, so one object can serve a
// connection.
typedef struct seawall_tx seawall_tx;

// A tree: an ordered map of keys to values.
typedef struct seawall_tree seawall_tree;

// Borrowed bytes. `data` may be null if `len` is 0.
typedef struct {
  // The first byte.
  const uint8_t *data;
  // The number of bytes.
  size_t len;
} seawall_slice;

// Called with a message.
typedef void (*seawall_message_fn)(void *context, seawall_importance importance, seawall_slice text);

// Called with a finding: its name in docs/operations.md (`id`), what was observed (`sentence`), and what to do
// (`advice`).
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

// Called by a thread that is about to wait.
typedef void (*seawall_blocks_fn)(seawall_blocking on);

// Called by a thread that has waited, once for each call of the other function.
typedef void (*seawall_goes_on_fn)(void);

// Called when a transaction begins to wait for a lock, by the thread that waits, once for each transaction that blocks
// it. `waiter` and `holder` are the tags of the transactions' options.
typedef void (*seawall_wait_fn)(void *context, uint64_t waiter, uint64_t holder);

// Adds the entries of one row for one of the indexes, with `seawall_index_entry`. It is called for each index in turn
// before the next row, or the next version of the row. The same row must always give the same entries. Returning false
// ends the build with `SEAWALL_STATUS_INTERRUPTED`.
typedef bool (*seawall_entries_fn)(void *context,
                                   size_t index,
                                   seawall_slice key,
                                   seawall_slice value,
                                   seawall_index_entries *entries);

// Called once, when the indexes are nearly complete. Every change of the base that begins after it returns must be
// made to the indexes too. Returning false ends the build with `SEAWALL_STATUS_INTERRUPTED`.
typedef bool (*seawall_switch_fn)(void *context);

// Returns the length of the part of an index key that holds its first `parts` columns.
typedef size_t (*seawall_prefix_fn)(void *context, seawall_slice key, uint32_t parts);

// Called with the text of a finding; the text ends with a zero byte.
typedef void (*seawall_finding_fn)(void *context, const char *text);

// Called between the steps of a compaction, with the number of leaves processed (`done`) and the number of leaves that
// the tree had at the beginning (`leaves`). Returning false ends the compaction.
typedef bool (*seawall_compact_fn)(void *context, uint64_t done, uint64_t leaves);

// How reports name a transaction.
typedef struct {
  // A number that is unique since the database was opened. Later transactions mostly have higher numbers.
  uint64_t serial;
  // The tag of the transaction's options; 0 if none.
  uint64_t tag;
  // The transaction's id; 0 before its first change.
  uint64_t id;
} seawall_party;

// A transaction that writes, or holds or waits for locks.
typedef struct {
  // The transaction.
  seawall_party who;
  // The number of changes that it has made.
  uint64_t changes;
  // The number of keys that it has locked, without ranges, and without rows that it wrote and no other transaction
  // asked for.
  uint64_t locked_keys;
  // Whether it waits for a lock.
  bool waits;
  // Whether it is the victim of a deadlock and must be rolled back.
  bool is_victim;
  // Whether it is prepared and belongs to no handle.
  bool is_prepared;
} seawall_transaction_info;

// Called with each transaction.
typedef void (*seawall_transaction_fn)(void *context, const seawall_transaction_info *one);

// A transaction that waits for a lock, and one transaction that blocks it.
typedef struct {
  // The transaction that waits.
  seawall_party waiter;
  // A transaction that it waits for.
  seawall_party holder;
  // The id of the tree.
  uint32_t tree;
  // The key, or the first key of a range; empty for a whole tree.
  seawall_slice key;
  // The requested lock: a `seawall_lock`.
  uint32_t wanted;
  // The lock that the holder has: a `seawall_lock`, or `SEAWALL_LOCK_NONE` if the holder is only ahead in the queue.
  uint32_t held;
  // How long the waiter has waited, ms.
  uint64_t waited_ms;
} seawall_lock_wait_info;

// Called with each pair of a waiting transaction and a transaction that it waits for.
typedef void (*seawall_lock_wait_fn)(void *context, const seawall_lock_wait_info *one);

// A transaction of a deadlock. Each waits for a lock of the next one, and the last for a lock of the first.
typedef struct {
  // The transaction.
  seawall_party who;
  // The id of the tree.
  uint32_t tree;
  // The key, or the first key of a range, for which it waited; empty for a whole tree.
  seawall_slice key;
  // The lock that it requested: a `seawall_lock`.
  uint32_t wanted;
  // Whether it was chosen as the victim.
  bool is_victim;
} seawall_deadlock_party;

// Called with each transaction of a deadlock.
typedef void (*seawall_deadlock_fn)(void *context, const seawall_deadlock_party *one);

// The I/O of one class of files, one operation and one cause.
typedef struct {
  // The class of files.
  seawall_slice file_class;
  // The operation.
  seawall_slice operation;
  // The cause.
  seawall_slice cause;
  // Operations that succeeded.
  uint64_t count;
  // Operations that failed.
  uint64_t errors;
  // Bytes moved.
  uint64_t bytes;
  // The total time of the operations, ns.
  uint64_t total_ns;
  // Half of the operations took no longer than this, ns.
  uint64_t p50_ns;
  // 95% of the operations took no longer than this, ns.
  uint64_t p95_ns;
  // 99% of the operations took no longer than this, ns.
  uint64_t p99_ns;
  // The longest operation took this, ns.
  uint64_t max_ns;
} seawall_io_info;

// Called with each class, operation and cause that has occurred.
typedef void (*seawall_io_fn)(void *context, const seawall_io_info *one);

// How the files of one class are opened.
typedef struct {
  // The class of files.
  seawall_slice file_class;
  // The flush method in effect, and the reason if it is not the requested one.
  seawall_slice mode;
  // Bytes of the files in the page cache; `UINT64_MAX` if unknown.
  uint64_t page_cache_bytes;
} seawall_file_info;

// Called with each class of files.
typedef void (*seawall_file_fn)(void *context, const seawall_file_info *one);

// The size of a tree, and the layout of its leaves in the file.
typedef struct {
  // The tree's id; ids are never reused.
  uint32_t id;
  // The number of its pages, as far as the space maps have been read.
  uint64_t pages;
  // The bytes of those pages.
  uint64_t bytes;
  // The number of its leaves; 0 unless they were measured.
  uint64_t leaves;
  // Leaves that do not directly follow, in the file, the leaf before them in key order.
  uint64_t apart;
  // How full the leaves are, percent, from a sample of 32 leaves.
  uint32_t fill_percent;
} seawall_tree_info_t;

// Called with each number of the statistics: the part of the engine (`group`), the number's name, what it means
// (`help`), and whether it only grows (`is_counter`).
typedef void (*seawall_metric_fn)(void *context,
                                  seawall_slice group,
                                  seawall_slice name,
                                  seawall_slice help,
                                  bool is_counter,
                                  uint64_t value);

// The options of a transaction.
typedef struct {
  // The isolation level: a `seawall_isolation`.
  uint32_t isolation;
  // What the commit waits for: a `seawall_commit_level`.
  uint32_t level;
  // What a call does when another transaction holds a lock: a `seawall_wait_mode`.
  uint32_t wait;
  // The longest wait for a lock, ms, with `SEAWALL_WAIT_MODE_FOR`.
  uint64_t wait_ms;
  // Whether changing a row whose latest version was committed after the transaction's snapshot fails (snapshot
  // isolation). Otherwise the change acts on the latest version. As in InnoDB, only reads take the snapshot.
  bool fail_on_conflict;
  // A number that reports of lock waits show, for example a connection's number.
  uint64_t tag;
} seawall_tx_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Sets the function that is called with each message of the engine, for all databases of the process; null removes it.
// Waits until no call of the previous function runs. Any thread may call `told`, which must not call this function.
//
// # Safety
// Any thread may call `told` with `context`, until another function is set.
seawall_status seawall_on_message(seawall_message_fn told,
                                  void *context);

// Makes a watch for one opening of a database.
//
// # Safety
// `advice` is writable.
seawall_status seawall_advice_new(seawall_advice **advice);

// Calls `told` with each new finding about the time since the last call. A finding is new if it was not reported
// within the last hour, or is worse since. The first call also checks the options, and the disks of the database's
// directories.
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

// Makes a cursor without a tree: call `seawall_cursor_reset` first.
//
// # Safety
// `cursor` is writable.
seawall_status seawall_cursor_new(seawall_cursor **cursor);

// Frees a cursor.
//
// # Safety
// `cursor` is null, or a handle of a cursor.
void seawall_cursor_free(seawall_cursor *cursor);

// Sets the cursor's tree, its range, the lock that it takes on each row, and how many rows will be read (`limit`, a
// hint; 0 if unknown). The cursor keeps its allocated memory.
//
// # Safety
// `cursor` and `tree` are handles; the bounds are readable, and are no bytes that the cursor has lent.
seawall_status seawall_cursor_reset(seawall_cursor *cursor,
                                    const seawall_tree *tree,
                                    seawall_bound lower,
                                    seawall_bound upper,
                                    uint32_t lock,
                                    uint32_t wait,
                                    uint64_t wait_ms,
                                    uint64_t limit);

// Releases the cursor's position and snapshot until the next seek, and the memory of rows that
// `seawall_cursor_next_rows` read.
//
// # Safety
// `cursor` is a handle.
seawall_status seawall_cursor_release(seawall_cursor *cursor);

// Moves the cursor to an entry, and stores the entry's key and value. They stay valid until the next call with the
// cursor returns. Returns `SEAWALL_STATUS_NOT_FOUND` if there is no such entry. With a null `value`, a long value is
// not read.
//
// # Safety
// `cursor` and `tx` are handles; `key` is readable, and is ignored if `to` needs no key; `found_key` and `value` are
// null or writable.
seawall_status seawall_cursor_seek(seawall_cursor *cursor,
                                   seawall_tx *tx,
                                   uint32_t to,
                                   seawall_slice key,
                                   seawall_slice *found_key,
                                   seawall_slice *value);

// Moves the cursor over at most `most` of the next entries, or with `back` of the previous ones. Stores their keys and
// values in `keys` and `values`, and their number in `count`: it is less than `most` at the end of the range, or if
// the entries are long. Keys and values stay valid until the next call with the cursor returns. Returns
// `SEAWALL_STATUS_NOT_FOUND` if there is no such entry. An error after the first entry is returned by the next step,
// if that comes before a seek. A cursor that takes locks locks all these entries.
//
// The cursor stands on the last entry only if `count` is `most` or the entries are long. At the end of the range or
// after an error it stands on no entry: seek the last entry's key to go in the other direction or to delete it.
//
// # Safety
// `cursor` and `tx` are handles; `keys` and `values` have room for `most` slices; `count` is writable.
seawall_status seawall_cursor_next_rows(seawall_cursor *cursor,
                                        seawall_tx *tx,
                                        bool back,
                                        size_t most,
                                        seawall_slice *keys,
                                        seawall_slice *values,
                                        size_t *count);

// Stores whether the cursor stands on a row that it has newly locked, so that `seawall_unlock_row` may release the
// lock.
//
// # Safety
// `cursor` is a handle.
seawall_status seawall_cursor_newly_locked(const seawall_cursor *cursor,
                                           bool *newly_locked);

// Deletes the entry at the cursor's position. The cursor can continue from there. Returns `SEAWALL_STATUS_NOT_FOUND`
// if another transaction had deleted the entry.
//
// # Safety
// `cursor` and `tx` are handles.
seawall_status seawall_cursor_delete(seawall_cursor *cursor,
                                     seawall_tx *tx);

// Opens the database in the directory `path`, and creates it if there is none. `options` has `count` texts like
// "pool_size=4G"; they override the options in the directory's seawall.toml.
//
// # Safety
// `path` and the options are texts that end with a zero byte; `db` is writable.
seawall_status seawall_open(const char *path,
                            const char *const *options,
                            size_t count,
                            seawall_db **db);

// Shuts the database down: refuses new transactions, waits at most `patience_ms` until all handles of transactions are
// freed and running calls have returned, then closes the database cleanly. Calls fail afterwards. Returns
// `SEAWALL_STATUS_SHUT_DOWN` if the time was too short: new transactions stay refused, and the call can be repeated.
// The handle must still be freed.
//
// # Safety
// `db` is a handle of a database.
seawall_status seawall_shutdown(const seawall_db *db,
                                uint64_t patience_ms);

// Frees the handle. The database closes when its last handle is freed; to see whether closing fails, call
// `seawall_shutdown` first.
//
// # Safety
// `db` is null, or a handle of a database that no call uses any more.
void seawall_free(seawall_db *db);

// Changes an option of the running database.
//
// # Safety
// `db` is a handle of a database; `name` and `value` are texts that end with a zero byte.
seawall_status seawall_set_option(const seawall_db *db, const char *name, const char *value);

// Stores in `value` the value of an option of the running database. The text stays valid until the thread's next call
// of this function.
//
// # Safety
// `db` is a handle of a database; `name` is a text that ends with a zero byte; `value` is writable.
seawall_status seawall_option(const seawall_db *db,
                              const char *name,
                              seawall_slice *value);

// Makes the log before `position` durable, or the whole log if `position` is 0. Concurrent calls share a flush.
//
// # Safety
// `db` is a handle of a database.
seawall_status seawall_flush_log(const seawall_db *db,
                                 uint64_t position);

// Decides the end of the backup that another process requested with `--wait-for-end`: the backup has everything that
// was committed before this call, and nothing whose commit begins after it. Stores the end in `position`, or 0 when no
// backup waits.
//
// # Safety
// `db` is a handle of a database; `position` is writable.
seawall_status seawall_end_backup(const seawall_db *db,
                                  uint64_t *position);

// Lists the transactions that are prepared and not decided.
//
// # Safety
// `db` is a handle of a database; `list` is writable.
seawall_status seawall_prepared(const seawall_db *db, seawall_prepared_list **list);

// Stores the next name of the list in `xid`. Returns `SEAWALL_STATUS_NOT_FOUND` at the end of the list.
//
// # Safety
// `list` is a handle of a list; `xid` is writable.
seawall_status seawall_prepared_next(seawall_prepared_list *list,
                                     seawall_slice *xid);

// Frees the list.
//
// # Safety
// `list` is null, or a handle of a list.
void seawall_prepared_free(seawall_prepared_list *list);

// Commits a prepared transaction that belongs to no handle. Returns `SEAWALL_STATUS_NOT_FOUND` if none has this name.
//
// # Safety
// `db` is a handle of a database; `xid` is readable.
seawall_status seawall_commit_prepared(const seawall_db *db,
                                       seawall_slice xid);

// Like `seawall_commit_prepared`, in the order of an outside log: the commit is visible to others at once. It is
// durable when Seawall's log is flushed up to the stored `position`.
//
// # Safety
// `db` is a handle of a database; `xid` is readable; `position` is null or writable.
seawall_status seawall_commit_prepared_ordered(const seawall_db *db,
                                               seawall_slice xid,
                                               uint64_t *position);

// Rolls back a prepared transaction that belongs to no handle. Returns `SEAWALL_STATUS_NOT_FOUND` if none has this
// name.
//
// # Safety
// `db` is a handle of a database; `xid` is readable.
seawall_status seawall_rollback_prepared(const seawall_db *db,
                                         seawall_slice xid);

// Sets the functions that are told of the waits of threads, for a program that schedules its threads itself: for all
// databases of the process, until it ends. Returns `SEAWALL_STATUS_USAGE` if they are set already. The functions must
// be short and must not call the engine; the engine's own threads call them, too.
//
// # Safety
// Any thread may call `blocks` and `goes_on` from now on.
seawall_status seawall_on_block(seawall_blocks_fn blocks,
                                seawall_goes_on_fn goes_on);

// Sets the function that is called at each wait for a lock; null removes it. The engine holds no lock of its own while
// the function runs. The function must be short; it may interrupt any transaction.
//
// # Safety
// `db` is a handle; any thread may call `told` with `context`, as long as the database is open.
seawall_status seawall_on_wait(const seawall_db *db,
                               seawall_wait_fn told,
                               void *context);

// Adds an entry. No other entry's key may begin with the first `unique_len` bytes of `key`; 0 means that there is no
// unique part.
//
// # Safety
// `entries` is the argument of the running `seawall_entries_fn`; `key` and `value` are readable.
seawall_status seawall_index_entry(seawall_index_entries *entries,
                                   seawall_slice key,
                                   size_t unique_len,
                                   seawall_slice value);

// Begins a build of indexes over `base`: from now on, changes of `base` are logged. Does not wait if no transaction
// has locks or uncommitted changes in `base`; otherwise waits until all active transactions have ended.
//
// # Safety
// `db` and `base` are handles; `build` is writable.
seawall_status seawall_begin_index_build(const seawall_db *db,
                                         const seawall_tree *base,
                                         seawall_index_build **build);

// Makes a handle with which any thread can end the build, in whatever step it is.
//
// # Safety
// `build` is a handle of a build that has not begun to run; `interrupt` is writable.
seawall_status seawall_index_build_interrupt(const seawall_index_build *build,
                                             seawall_interrupt_t **interrupt);

// Builds new trees `names` from the entries that `entries` gives for each row of the base. This thread calls `entries`
// and `switch`. Other transactions may change the base meanwhile: the build pauses so that they keep `keep_percent`
// (at most 95) of their rate; with 0 it does not pause. Leaves are filled to `fill_percent` (50 to 100; with 0, 90).
// Returns `SEAWALL_STATUS_KEY_EXISTS` if two entries have the same key or unique part; `seawall_error_key` then
// returns the key of one of them. A build can be used once.
//
// # Safety
// `build` is a handle; `names` are `count` texts, each with a zero byte at its end; `entries` and `switch` may be
// called with `context`.
seawall_status seawall_build_indexes(seawall_index_build *build,
                                     const char *const *names,
                                     size_t count,
                                     uint32_t fill_percent,
                                     uint32_t keep_percent,
                                     seawall_entries_fn entries,
                                     seawall_switch_fn switch_,
                                     void *context);

// Frees a build. Changes of the base are no longer logged.
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

// Stores the bytes of a tree's pages.
//
// # Safety
// `db` and `tree` are handles; `bytes` is writable.
seawall_status seawall_tree_bytes(const seawall_db *db, const seawall_tree *tree, uint64_t *bytes);

// Estimates from about `leaves` leaves how many rows a tree has, and how many different values the first 1, 2, ...
// `parts` columns of its keys have. Meanwhile this thread calls `prefix`.
//
// # Safety
// `db` and `tree` are handles; `rows` is null or writable; `distinct` is null or has space for `parts` numbers;
// `prefix` may be called with `context`.
seawall_status seawall_sample(const seawall_db *db,
                              const seawall_tree *tree,
                              size_t leaves,
                              uint32_t parts,
                              seawall_prefix_fn prefix,
                              void *context,
                              double *rows,
                              double *distinct);

// Verifies a tree's nodes and long values while others use the tree. If it finds damage, it calls `finding` for each
// defect, at most 100 times, and returns `SEAWALL_STATUS_CORRUPT`.
//
// # Safety
// `db` and `tree` are handles; `finding` may be called with `context`.
seawall_status seawall_check_tree(const seawall_db *db,
                                  const seawall_tree *tree,
                                  seawall_finding_fn finding,
                                  void *context);

// Brings a tree's leaves into key order in the file and fills them to `fill_percent` (50 to 100; with 0, 90), while
// others use the tree. Returns `SEAWALL_STATUS_INTERRUPTED` if `go_on` ended it; what was done until then stays.
//
// # Safety
// `db` and `tree` are handles; `go_on` may be called with `context`.
seawall_status seawall_compact_tree(const seawall_db *db,
                                    const seawall_tree *tree,
                                    uint32_t fill_percent,
                                    seawall_compact_fn go_on,
                                    void *context);

// Returns the length of the longest key that the database accepts, bytes; 0 if `db` is null.
//
// # Safety
// `db` is a handle or null.
size_t seawall_key_bytes_max(const seawall_db *db);

// Calls `told` with each transaction that writes, or holds or waits for locks, in the order in which they began.
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

// Calls `told` with each transaction of the last deadlock since the database was opened. Returns
// `SEAWALL_STATUS_NOT_FOUND` if there was none.
//
// # Safety
// `db` is a handle; `told` may be called with `context`.
seawall_status seawall_last_deadlock(const seawall_db *db, seawall_deadlock_fn told, void *context);

// Calls `told` with each class of files, operation and cause that has occurred since the database was opened.
//
// # Safety
// `db` is a handle; `told` may be called with `context`.
seawall_status seawall_io(const seawall_db *db,
                          seawall_io_fn told,
                          void *context);

// Calls `told` with each class of files. Stores in `backend` the I/O backend with the reason why it was chosen. That
// text stays valid until the thread's next call of this function or of `seawall_tree_name`.
//
// # Safety
// `db` is a handle; `told` may be called with `context`; `backend` is null or writable.
seawall_status seawall_files(const seawall_db *db,
                             seawall_file_fn told,
                             void *context,
                             seawall_slice *backend);

// Stores in `name` the name of the tree with this id. It stays valid until the thread's next call of this function or
// of `seawall_files`. Returns `SEAWALL_STATUS_NOT_FOUND` if there is no such tree, or its creation is not committed.
// Scans the names of all trees.
//
// # Safety
// `db` is a handle; `name` is writable.
seawall_status seawall_tree_name(const seawall_db *db,
                                 uint32_t id,
                                 seawall_slice *name);

// Stores the size of a tree in `info`. With `measure`, also measures how its leaves lie in the file and how full they
// are: this reads the branch pages above the leaves (about one in some hundreds of the tree's pages) and at most 32
// leaves.
//
// # Safety
// `db` and `tree` are handles; `info` is writable.
seawall_status seawall_tree_info(const seawall_db *db,
                                 const seawall_tree *tree,
                                 bool measure,
                                 seawall_tree_info_t *info);

// Calls `told` with each number of the database's statistics. The texts stay valid until the process ends.
//
// # Safety
// `db` is a handle; `told` may be called with `context`.
seawall_status seawall_metrics(const seawall_db *db,
                               seawall_metric_fn told,
                               void *context);

// Inserts a row. Returns `SEAWALL_STATUS_KEY_EXISTS` if the key exists.
//
// # Safety
// `tx` is a handle of a transaction; the other arguments are valid.
seawall_status seawall_insert(seawall_tx *tx,
                              const seawall_tree *tree,
                              seawall_slice key,
                              seawall_slice value);

// Inserts a row, or replaces it.
//
// # Safety
// `tx` is a handle of a transaction; the other arguments are valid.
seawall_status seawall_put(seawall_tx *tx,
                           const seawall_tree *tree,
                           seawall_slice key,
                           seawall_slice value);

// Inserts an entry of a unique index. Returns `SEAWALL_STATUS_KEY_EXISTS` if an entry exists whose key begins with the
// first `prefix_len` bytes of `key`.
//
// # Safety
// `tx` is a handle of a transaction; the other arguments are valid.
seawall_status seawall_insert_unique(seawall_tx *tx,
                                     const seawall_tree *tree,
                                     seawall_slice key,
                                     size_t prefix_len,
                                     seawall_slice value);

// Replaces a row. Returns `SEAWALL_STATUS_NOT_FOUND` if there is none. Without `indexed`, the change must leave the
// row's entries unchanged in all indexes that are being built over the tree (`seawall_begin_index_build`): the build
// does not read the row again.
//
// # Safety
// `tx` and `tree` are handles; `key` and `value` are readable.
seawall_status seawall_update(seawall_tx *tx,
                              const seawall_tree *tree,
                              seawall_slice key,
                              seawall_slice value,
                              bool indexed);

// Deletes a row. Returns `SEAWALL_STATUS_NOT_FOUND` if there is none.
//
// # Safety
// `tx` and `tree` are handles; `key` is readable.
seawall_status seawall_delete(seawall_tx *tx, const seawall_tree *tree, seawall_slice key);

// Reads a row of the snapshot. Returns `SEAWALL_STATUS_NOT_FOUND` if there is none.
//
// # Safety
// `tx` and `tree` are handles; `key` is readable; `value` is null or writable.
seawall_status seawall_get(seawall_tx *tx,
                           const seawall_tree *tree,
                           seawall_slice key,
                           seawall_slice *value);

// Locks a row, whether it exists or not, and reads its latest version. Returns `SEAWALL_STATUS_NOT_FOUND` if it does
// not exist. Stores in `newly_locked` whether `seawall_unlock_row` may release the lock.
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

// Releases the lock on a row if a locking read of this statement newly took it. Stores in `unlocked` whether it was
// released. At serializable, all locks stay.
//
// # Safety
// `tx` and `tree` are handles; `key` is readable; `unlocked` is null or writable.
seawall_status seawall_unlock_row(seawall_tx *tx,
                                  const seawall_tree *tree,
                                  seawall_slice key,
                                  bool *unlocked);

// Like `seawall_unlock_row`, but also at serializable: for a row that stands for something else, and whose value the
// transaction does not use.
//
// # Safety
// `tx` and `tree` are handles; `key` is readable.
seawall_status seawall_release_row(seawall_tx *tx,
                                   const seawall_tree *tree,
                                   seawall_slice key);

// Locks a whole tree exclusively until the transaction ends: first waits until no other transaction, prepared ones
// included, has locks or uncommitted changes in it.
//
// # Safety
// `tx` and `tree` are handles.
seawall_status seawall_lock_tree(seawall_tx *tx,
                                 const seawall_tree *tree);

// A semi-consistent read, at read committed: locks the row if it is free, otherwise reads its committed version.
// Stores in `locked` whether the row was locked. Returns `SEAWALL_STATUS_NOT_FOUND` if there is no such row.
//
// # Safety
// `tx` and `tree` are handles; `key` is readable; `value` and `locked` are null or writable.
seawall_status seawall_lock_or_committed(seawall_tx *tx,
                                         const seawall_tree *tree,
                                         seawall_slice key,
                                         seawall_slice *value,
                                         bool *locked);

// Checks that the transaction's snapshot, if it has one, is not older than the tree. Returns
// `SEAWALL_STATUS_TREE_TOO_NEW` if the tree was made later, so that the snapshot would find it empty.
//
// # Safety
// `tx` and `tree` are handles.
seawall_status seawall_may_read(seawall_tx *tx,
                                const seawall_tree *tree);

// Prefetches the pages of rows that will be read soon, without waiting for them. Stores in `absent` how many of the
// pages are not in memory yet.
//
// # Safety
// `tx` and `tree` are handles; `keys` are `count` readable slices; `absent` is null or writable.
seawall_status seawall_prefetch(seawall_tx *tx,
                                const seawall_tree *tree,
                                const seawall_slice *keys,
                                size_t count,
                                size_t *absent);

// Estimates a range's rows and pages, mostly from branch pages.
//
// # Safety
// `tx` and `tree` are handles; the bounds are readable; `rows` and `pages` are null or writable.
seawall_status seawall_estimate_range(seawall_tx *tx,
                                      const seawall_tree *tree,
                                      seawall_bound lower,
                                      seawall_bound upper,
                                      uint64_t *rows,
                                      uint64_t *pages);

// Returns the text of the calling thread's last failure: what, where, and what to do. UTF-8. It stays valid until the
// thread's next failure.
const char *seawall_error(void);

// Returns the existing key of the calling thread's last failure with `SEAWALL_STATUS_KEY_EXISTS`. It stays valid until
// the thread's next such failure.
seawall_slice seawall_error_key(void);

// Returns the version of the library, for example "0.1.0".
const char *seawall_version(void);

// Makes a transaction. It holds no lock and no snapshot until it is used.
//
// # Safety
// `db` is a handle of a database; `options` is readable; `tx` is writable.
seawall_status seawall_begin(const seawall_db *db,
                             const seawall_tx_options *options,
                             seawall_tx **tx);

// Frees a transaction, and rolls it back unless it is prepared.
//
// # Safety
// `tx` is null, or a handle of a transaction.
void seawall_transaction_free(seawall_tx *tx);

// Rolls back uncommitted changes, and begins a new transaction with new options.
//
// # Safety
// `tx` is a handle of a transaction; `options` is readable.
seawall_status seawall_restart(seawall_tx *tx, const seawall_tx_options *options);

// Commits the transaction. After a failure, `seawall_error` says whether it is committed.
//
// # Safety
// `tx` is a handle of a transaction; the other arguments are valid.
seawall_status seawall_commit(seawall_tx *tx);

// Rolls the transaction back.
//
// # Safety
// `tx` is a handle of a transaction; the other arguments are valid.
seawall_status seawall_rollback(seawall_tx *tx);

// At repeatable read, takes the snapshot now instead of at the first read. At serializable with `fail_on_conflict`,
// reading or changing a row whose latest version is committed later fails from then on.
//
// # Safety
// `tx` is a handle of a transaction; the other arguments are valid.
seawall_status seawall_take_snapshot(seawall_tx *tx);

// Begins a statement: at read committed, its reads see what is committed now.
//
// # Safety
// `tx` is a handle of a transaction; the other arguments are valid.
seawall_status seawall_begin_statement(seawall_tx *tx);

// Ends a statement: `seawall_unlock_row` can no longer release the locks that it took.
//
// # Safety
// `tx` is a handle of a transaction; the other arguments are valid.
seawall_status seawall_end_statement(seawall_tx *tx);

// Changes the isolation level from the next statement on.
//
// # Safety
// `tx` is a handle of a transaction; the other arguments are valid.
seawall_status seawall_set_isolation(seawall_tx *tx, uint32_t isolation);

// Changes what a call does when another transaction holds a lock.
//
// # Safety
// `tx` is a handle of a transaction; the other arguments are valid.
seawall_status seawall_set_wait(seawall_tx *tx, uint32_t wait, uint64_t wait_ms);

// Changes what the transaction's commit waits for.
//
// # Safety
// `tx` is a handle of a transaction; the other arguments are valid.
seawall_status seawall_set_level(seawall_tx *tx, uint32_t level);

// Stores in `id` the transaction's id, or 0 if it has not changed anything.
//
// # Safety
// `tx` is a handle of a transaction; `id` is writable.
seawall_status seawall_transaction_id(seawall_tx *tx, uint64_t *id);

// Makes a savepoint. Free it with `seawall_savepoint_free`, in any order.
//
// # Safety
// `tx` is a handle of a transaction; `savepoint` is writable.
seawall_status seawall_savepoint(seawall_tx *tx, seawall_savepoint_t **savepoint);

// Undoes all changes since the savepoint, which stays valid. If that stops halfway, for example because a page cannot
// be read, the transaction can only be rolled back, to that savepoint, an earlier one, or as a whole.
//
// # Safety
// `tx` and `savepoint` are handles.
seawall_status seawall_rollback_to(seawall_tx *tx,
                                   const seawall_savepoint_t *savepoint);

// Frees a savepoint; does not change the transaction.
//
// # Safety
// `savepoint` is null, or a handle of a savepoint.
void seawall_savepoint_free(seawall_savepoint_t *savepoint);

// Makes a handle with which any thread can interrupt the transaction, even after later commits and rollbacks.
//
// # Safety
// `tx` is a handle of a transaction; `interrupt` is writable.
seawall_status seawall_interrupt_new(seawall_tx *tx,
                                     seawall_interrupt_t **interrupt);

// Interrupts the transaction's waits and scans until `seawall_interrupt_clear`. Any thread may call this function.
//
// # Safety
// `interrupt` is a handle.
seawall_status seawall_interrupt(const seawall_interrupt_t *interrupt);

// Ends the interrupt, so that the transaction can continue.
//
// # Safety
// `interrupt` is a handle.
seawall_status seawall_interrupt_clear(const seawall_interrupt_t *interrupt);

// Frees the handle.
//
// # Safety
// `interrupt` is null, or a handle that no call uses any more.
void seawall_interrupt_free(seawall_interrupt_t *interrupt);

// Prepares the transaction under the name `xid` (1 to 140 bytes): it survives a crash, and waits for the outside log's
// decision. If `level` is below `SEAWALL_COMMIT_LEVEL_FLUSHED`, Seawall's log must be flushed up to the stored
// `position` before the outside log records the commit.
//
// # Safety
// `tx` is a handle of a transaction; `xid` is readable; `position` is null or writable.
seawall_status seawall_prepare(seawall_tx *tx,
                               seawall_slice xid,
                               uint32_t level,
                               uint64_t *position);

// Commits a prepared transaction that the outside log has decided, in that log's order. The commit is visible to
// others at once and does no I/O. It is durable when Seawall's log is flushed up to the stored `position`.
//
// # Safety
// `tx` is a handle of a transaction; `position` is null or writable.
seawall_status seawall_commit_ordered(seawall_tx *tx,
                                      uint64_t *position);

// Makes a tree. Other transactions see it after this transaction has committed.
//
// # Safety
// `tx` is a handle of a transaction; `name` is a text; `tree` is writable.
seawall_status seawall_create_tree(seawall_tx *tx, const char *name, seawall_tree **tree);

// Opens a tree. Returns `SEAWALL_STATUS_NOT_FOUND` if no tree has this name.
//
// # Safety
// `tx` is a handle of a transaction; `name` is a text; `tree` is writable.
seawall_status seawall_open_tree(seawall_tx *tx, const char *name, seawall_tree **tree);

// Drops a tree. Returns `SEAWALL_STATUS_NOT_FOUND` if no tree has this name.
//
// # Safety
// `tx` is a handle of a transaction; the other arguments are valid.
seawall_status seawall_drop_tree(seawall_tx *tx, const char *name);

// Renames a tree.
//
// # Safety
// `tx` is a handle of a transaction; the other arguments are valid.
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

/* SPDX-License-Identifier: GPL-2.0-only */
/* The life of a connection's transaction:

     idle --begin (first table, or START TRANSACTION WITH CONSISTENT SNAPSHOT)--> active
     active --prepare--> prepared --commit_ordered--> committed --commit--> idle
     active --commit, rollback--> idle            prepared --rollback--> idle
     prepared --XA, the connection ends or is reset--> kept by the engine under its name

   One transaction object of the engine serves a connection for its life. Before a statement's first change, a savepoint
   is set. When the server rolls a statement back, the transaction returns to that savepoint. */
#include "connection.h"
#include "advice.h"
#include "crash_point.h"
#include "dictionary.h"
#include <atomic>
#include <cstring>
#include <unistd.h>

/* Functions of the server, which declares them in no header. */
extern "C" int thd_need_wait_reports(const MYSQL_THD thd);
extern "C" int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other);

namespace seawall {

handlerton *hton;
Db db;

/* All connections, by the thread's number, which is the tag of their transactions. */
static std::mutex connections_mutex;
static std::map<uint64_t, Connection *> connections;

Connection *Connection::known(THD *thd) { return static_cast<Connection *>(thd_get_ha_data(thd, hton)); }

Connection *Connection::of(THD *thd) {
  Connection *connection = known(thd);
  if (!connection) {
    connection = new (std::nothrow) Connection;
    if (!connection) return nullptr;
    connection->m_thd = thd;
    thd_set_ha_data(thd, hton, connection);
    std::lock_guard<std::mutex> guard(connections_mutex);
    connection->m_number = thd_get_thread_id(thd);
    Connection *&known = connections[connection->m_number];
    connection->m_outer = known;
    known = connection;
  }
  return connection;
}

Connection::~Connection() {
  {
    std::lock_guard<std::mutex> guard(connections_mutex);
    if (m_outer) connections[m_number] = m_outer;
    else connections.erase(m_number);
  }
  detach();
}

/* The server's thread pool may run another connection in place of one that waits: the one that holds the lock, or others whose
   commits share a flush. */
void Connection::blocks(seawall_blocking on) {
  thd_wait_begin(nullptr, on == SEAWALL_BLOCKING_LOCK ? THD_WAIT_ROW_LOCK : THD_WAIT_DISKIO);
}

void Connection::goes_on() { thd_wait_end(nullptr); }

/* A replica that applies transactions in parallel must know which waits for which: if one that must commit first waits
   for a later one, the later one is rolled back and retried. */
void Connection::waits(void *, uint64_t waiter, uint64_t holder) {
  std::lock_guard<std::mutex> guard(connections_mutex); /* the holder does not end meanwhile */
  auto waits = connections.find(waiter), holds = connections.find(holder);
  if (waits == connections.end() || !thd_need_wait_reports(waits->second->m_thd)) return;
  thd_rpl_deadlock_check(waits->second->m_thd, holds == connections.end() ? nullptr : holds->second->m_thd);
}

/* Called under the mutex of the connections, so that the thread does not end meanwhile. */
Connection::Open Connection::describe() const {
  Open open;
  char query[1024];
  open.thread = m_number;
  open.begun_us = m_begun_us;
  open.isolation = m_isolation;
  open.query.assign(query, thd_query_safe(m_thd, query, sizeof query));
  open.cs = m_thd->charset();
  return open;
}

std::vector<Connection::Open> Connection::open() {
  std::vector<Open> all;
  uint64_t next = 0;
  for (bool more = true; more;) {
    std::lock_guard<std::mutex> guard(connections_mutex); /* not held for all at once */
    auto at = connections.lower_bound(next);
    for (int left = 64; left > 0 && at != connections.end(); left--, ++at) {
      if (at->second->m_begun_us != 0) all.push_back(at->second->describe());
      next = at->first + 1;
    }
    more = at != connections.end();
  }
  return all;
}

Connection::Open Connection::find(uint64_t thread) {
  std::lock_guard<std::mutex> guard(connections_mutex);
  auto found = connections.find(thread);
  return found == connections.end() ? Open() : found->second->describe();
}

static bool in_transaction(THD *thd) { return thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN); }

static seawall_isolation isolation_of(THD *thd) {
  switch (thd_tx_isolation(thd)) {
  case ISO_READ_UNCOMMITTED:
  case ISO_READ_COMMITTED: return SEAWALL_ISOLATION_READ_COMMITTED;
  /* As in InnoDB: a plain SELECT that is its own transaction reads a snapshot. */
  case ISO_SERIALIZABLE: return in_transaction(thd) ? SEAWALL_ISOLATION_SERIALIZABLE : SEAWALL_ISOLATION_REPEATABLE_READ;
  default: return SEAWALL_ISOLATION_REPEATABLE_READ;
  }
}

/* The default of lock_wait_timeout, seconds. */
static const ulong DAY = 86400;

/* NOWAIT and WAIT n set lock_wait_timeout for their statement. From its default on, a day, the engine's own limit
   applies: the threads of a replica have a year. */
static seawall_status set_wait(seawall_tx *tx, ulong seconds) {
  return seawall_set_wait(tx, seconds == 0 ? SEAWALL_WAIT_MODE_NO : seconds >= DAY ? SEAWALL_WAIT_MODE_WAIT : SEAWALL_WAIT_MODE_FOR,
                          (uint64_t)seconds * 1000);
}

int Connection::begin() {
  seawall_tx_options options{};
  options.isolation = m_isolation = isolation_of(m_thd);
  options.fail_on_conflict = fails_on_conflict(m_thd);
  m_wait_seconds = DAY;
  options.level = durability_of(m_thd);
  options.wait = SEAWALL_WAIT_MODE_WAIT;
  options.tag = m_number;
  seawall_status status;
  if (m_tx) {
    status = seawall_restart(m_tx.get(), &options);
  } else {
    status = seawall_begin(db.get(), &options, m_tx.out());
    if (status == SEAWALL_STATUS_OK) {
      std::lock_guard<std::mutex> guard(m_interrupt_mutex);
      status = seawall_interrupt_new(m_tx.get(), m_interrupt.out());
    }
  }
  if (status != SEAWALL_STATUS_OK) return error_of(m_thd, status, nullptr);
  m_active = true;
  m_begun_us = m_thd->start_utime;
  m_prepared = m_has_locked = m_committed = m_changed_temporary = m_changed_lasting = false;
  m_incomplete = 0;
  return 0;
}

int Connection::use(THD *thd, bool locks) {
  m_thd = thd;
  /* The server has detached the connection's XA transaction, which the engine keeps. */
  if (!m_xid.empty()) detach();
  if (!m_active) {
    if (int error = begin()) return error;
    m_statement = false;
  }
  m_has_locked |= locks;
  if (!m_statement) {
    seawall_status status = SEAWALL_STATUS_OK;
    seawall_isolation isolation = isolation_of(thd);
    if (isolation != m_isolation) status = seawall_set_isolation(m_tx.get(), m_isolation = isolation);
    m_has_locked |= isolation == SEAWALL_ISOLATION_SERIALIZABLE; /* each read locks */
    if (status == SEAWALL_STATUS_OK) status = seawall_begin_statement(m_tx.get());
    ulong seconds = thd->variables.lock_wait_timeout;
    if (status == SEAWALL_STATUS_OK && seconds != m_wait_seconds) {
      status = set_wait(m_tx.get(), seconds);
      m_wait_seconds = seconds;
    }
    if (status != SEAWALL_STATUS_OK) return error_of(thd, status, nullptr);
    clear_interrupt();
    if (seawall_is_killed(thd)) interrupt();
    m_statement = true;
  }
  trans_register_ha(thd, false, hton, 0);
  if (in_transaction(thd)) trans_register_ha(thd, true, hton, 0);
  return 0;
}

seawall_status Connection::before_change(const seawall_savepoint_t **before, bool *first) {
  m_changes++;
  *first = !m_before;
  seawall_status status = m_before ? SEAWALL_STATUS_OK : seawall_savepoint(m_tx.get(), m_before.out());
  *before = m_before.get();
  return status;
}

const std::vector<uint64_t> &Connection::copied() {
  if (m_copying != m_thd->query_id) m_copied.clear();
  m_copying = m_thd->query_id;
  return m_copied;
}

void Connection::note_copied(uint64_t table) {
  copied();
  m_copied.push_back(table);
}

int Connection::take_snapshot() {
  if (int error = use(m_thd, false)) return error;
  seawall_status status = seawall_take_snapshot(m_tx.get());
  return status == SEAWALL_STATUS_OK ? 0 : error_of(m_thd, status, nullptr);
}

seawall_status Connection::lock_auto(const std::shared_ptr<Counters> &counters) {
  for (const std::shared_ptr<Counters> &locked : m_auto_locked)
    if (locked == counters) return SEAWALL_STATUS_OK;
  seawall_status status = counters->lock_auto(m_tx.get());
  if (status == SEAWALL_STATUS_OK) m_auto_locked.push_back(counters);
  return status;
}

void Connection::unlock_auto(seawall_tx *tx) {
  for (const std::shared_ptr<Counters> &counters : m_auto_locked) counters->unlock_auto(tx);
  m_auto_locked.clear();
}

void Connection::end_statement() {
  if (m_statement) {
    unlock_auto(m_tx.get());
    seawall_end_statement(m_tx.get());
    m_before.out();
    m_statement = false;
  }
}

void Connection::ended() {
  unlock_auto(nullptr);
  m_before.out();
  m_savepoints.clear();
  m_statement = m_active = m_prepared = m_committed = false;
  m_begun_us = 0;
  m_xid.clear();
  /* After a failure, the next start drops them. */
  for (uint64_t table : m_to_drop)
    if (drop_trees_of(table) != SEAWALL_STATUS_OK)
      sql_print_warning("Seawall: a dropped table stays until the server starts again: %s", seawall_error());
  m_to_drop.clear();
}

/* Frees the transaction. The engine keeps it if it is prepared, and otherwise rolls it back. */
void Connection::release_tx() {
  {
    std::lock_guard<std::mutex> guard(m_interrupt_mutex);
    m_interrupt.out();
  }
  m_before.out();
  m_savepoints.clear();
  m_tx.out();
}

/* Abandons the transaction. */
void Connection::detach() {
  release_tx();
  if (m_prepared) m_to_drop.clear();
  ended();
}

/* Prints the engine's text: the server itself would only print a number. */
int Connection::failed_end(const char *what, seawall_status status) {
  my_printf_error(ER_ERROR_DURING_COMMIT, "Seawall: the transaction could not be %s: %s", MYF(0), what, seawall_error());
  return error_of(m_thd, status, nullptr);
}

/* Whether a commit or rollback, of one statement unless `all`, ends the transaction. */
static bool ends(THD *thd, bool all) { return all || !in_transaction(thd); }

/* The server ends a bulk insertion before it commits, but does not check the end of every copy. Rolls back, as the server
   does not ask for it after every failed commit. */
int Connection::check_complete(bool all) {
  if (m_incomplete == 0) return 0;
  if (!ends(m_thd, all)) m_thd->mark_transaction_to_rollback(true); /* the binary log may have the statement */
  rollback(all);
  my_printf_error(ER_ERROR_DURING_COMMIT, "Seawall: the statement cannot be committed: a table lacks rows or index entries that it should make", MYF(0));
  return HA_ERR_INTERNAL_ERROR;
}

/* Visible before it is flushed: the server has no order for XA COMMIT, and the binary log has it already. A consistent
   snapshot in between lacks what the binary log's position includes. */
static seawall_status commit_by_name(const seawall_db *db, seawall_slice name) {
  uint64_t position;
  seawall_status status = seawall_commit_prepared_ordered(db, name, &position);
  return status == SEAWALL_STATUS_OK ? seawall_flush_log(db, position) : status;
}

int Connection::commit(bool all) {
  if (!m_active) return 0;
  if (int error = check_complete(all)) return error;
  if (!ends(m_thd, all)) {
    end_statement();
    return 0;
  }
  seawall_status status = SEAWALL_STATUS_OK;
  unlock_auto(m_tx.get());
  crash_point("commit", "begun");
  if (!m_xid.empty()) status = commit_by_name(db.get(), slice(m_xid));
  else if (!m_committed) {
    if (needs_no_flush()) status = seawall_set_level(m_tx.get(), SEAWALL_COMMIT_LEVEL_DEFERRED);
    if (status == SEAWALL_STATUS_OK) status = seawall_commit(m_tx.get());
  }
  crash_point("commit", "done");
  int error = status == SEAWALL_STATUS_OK ? 0 : failed_end("committed", status);
  if (error) detach();
  else ended();
  return error;
}

/* If that stops halfway, the whole transaction must be rolled back. */
seawall_status Connection::roll_back_to(const seawall_savepoint_t *savepoint) {
  seawall_status status = seawall_rollback_to(m_tx.get(), savepoint);
  if (status != SEAWALL_STATUS_OK) m_thd->mark_transaction_to_rollback(true);
  return status;
}

int Connection::rollback(bool all) {
  m_incomplete = 0;
  if (!m_active) return 0;
  m_changes++;
  clear_interrupt();
  seawall_status status;
  if (!ends(m_thd, all)) {
    status = m_statement && m_before ? roll_back_to(m_before.get()) : SEAWALL_STATUS_OK;
    end_statement();
  } else {
    status = m_xid.empty() ? seawall_rollback(m_tx.get()) : seawall_rollback_prepared(db.get(), slice(m_xid));
    ended();
  }
  return status == SEAWALL_STATUS_OK ? 0 : error_of(m_thd, status, nullptr);
}

/* The name under which the engine keeps a prepared transaction. */
static std::string name_of(const XID *xid) {
  std::string name;
  uint32_t format = (uint32_t)xid->formatID;
  for (int i = 24; i >= 0; i -= 8) name.push_back((char)(format >> i));
  name.push_back((char)xid->gtrid_length);
  name.append(xid->data, xid->gtrid_length + xid->bqual_length);
  return name;
}

static bool xid_of(seawall_slice name, XID *xid) {
  if (name.len < 5 || name.len > 5 + MAXGTRIDSIZE + MAXBQUALSIZE || name.data[4] > name.len - 5) return false;
  const uint8_t *at = name.data;
  xid->formatID = (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
  xid->gtrid_length = at[4];
  xid->bqual_length = (long)(name.len - 5 - at[4]);
  memcpy(xid->data, at + 5, name.len - 5);
  return true;
}

int Connection::prepare(bool all) {
  if (!m_active) return 0;
  if (int error = check_complete(all)) return error;
  if (!ends(m_thd, all)) return 0; /* the statement may still be rolled back */
  uint64_t id = 0;
  seawall_transaction_id(m_tx.get(), &id);
  MYSQL_XID xid;
  thd_get_xid(m_thd, &xid);
  XID *known = reinterpret_cast<XID *>(&xid);
  /* Not XA COMMIT ONE PHASE, which the server commits like any other transaction. */
  bool by_user = thd_sql_command(m_thd) == SQLCOM_XA_PREPARE;
  if (id == 0) { /* it changed nothing: commit and rollback are the same */
    if (!by_user) return 0;
    /* XA PREPARE: its end may never come to this connection. A commit waits until what it has read under locks is durable. */
    return commit(true);
  }
  end_statement();
  std::string name = name_of(known);
  crash_point("prepare", "begun");
  seawall_commit_level level = needs_no_flush() && !by_user ? SEAWALL_COMMIT_LEVEL_DEFERRED : durability_of(m_thd);
  seawall_status status = seawall_prepare(m_tx.get(), slice(name), level, nullptr);
  crash_point("prepare", "done");
  if (status != SEAWALL_STATUS_OK) return failed_end("prepared", status);
  m_prepared = true;
  if (by_user) {
    /* XA PREPARE: from now on, any connection may end the transaction, even while this one is idle. This one ends it by
       its name, too. */
    m_xid = name;
    release_tx();
  }
  return 0;
}

int Connection::set_savepoint(uint64_t *number) {
  Savepoint savepoint;
  seawall_status status = seawall_savepoint(m_tx.get(), savepoint.out());
  if (status != SEAWALL_STATUS_OK) return error_of(m_thd, status, nullptr);
  *number = ++m_last_savepoint;
  m_savepoints.emplace(*number, std::move(savepoint));
  return 0;
}

int Connection::rollback_to(uint64_t number) {
  m_changes++;
  /* If there is none, the transaction had not begun when the savepoint was set. */
  auto found = m_savepoints.find(number);
  if (found == m_savepoints.end()) return 0;
  seawall_status status = roll_back_to(found->second.get());
  m_savepoints.erase(std::next(found), m_savepoints.end());
  return status == SEAWALL_STATUS_OK ? 0 : error_of(m_thd, status, nullptr);
}

void Connection::commit_ordered(bool all) {
  if (!m_active || !ends(m_thd, all) || !m_prepared || !m_xid.empty()) return;
  uint64_t position;
  crash_point("commit-ordered", "begun");
  if (seawall_commit_ordered(m_tx.get(), &position) == SEAWALL_STATUS_OK) {
    crash_point("commit-ordered", "done");
    m_committed = true;
    return;
  }
  /* The binary log has the transaction: if the server continued, the two logs would differ. The next start commits
     it. */
  sql_print_error("Seawall: a transaction that the binary log has could not be committed: %s. The server stops; its next start commits it.",
                  seawall_error());
  abort();
}

/* Under the mutex, an interrupt that is being raised is either cleared together with its flag, or keeps the flag. */
void Connection::clear_interrupt() {
  if (!m_interrupted) return;
  std::lock_guard<std::mutex> guard(m_interrupt_mutex);
  m_interrupted = false;
  if (m_interrupt) seawall_interrupt_clear(m_interrupt.get());
}

void Connection::interrupt() {
  std::lock_guard<std::mutex> guard(m_interrupt_mutex);
  m_interrupted = true;
  if (m_interrupt) seawall_interrupt(m_interrupt.get());
  if (m_of_other) seawall_interrupt(m_of_other.get());
}

seawall_status Connection::enter(seawall_tx *other) {
  seawall_status status = set_wait(other, m_thd->variables.lock_wait_timeout);
  std::lock_guard<std::mutex> guard(m_interrupt_mutex);
  if (status == SEAWALL_STATUS_OK) status = seawall_interrupt_new(other, m_of_other.out());
  if (status == SEAWALL_STATUS_OK && seawall_is_killed(m_thd)) seawall_interrupt(m_of_other.get());
  return status;
}

void Connection::leave() {
  std::lock_guard<std::mutex> guard(m_interrupt_mutex);
  m_of_other.out();
}

int error_of(THD *thd, seawall_status status, std::string *text) {
  if (text) *text = seawall_error();
  note_failure(thd, status);
  switch (status) {
  case SEAWALL_STATUS_OK: return 0;
  case SEAWALL_STATUS_NOT_FOUND: return HA_ERR_KEY_NOT_FOUND;
  case SEAWALL_STATUS_KEY_EXISTS: return HA_ERR_FOUND_DUPP_KEY;
  case SEAWALL_STATUS_WRITE_CONFLICT:
    if (thd) thd->mark_transaction_to_rollback(true);
    return HA_ERR_RECORD_CHANGED;
  case SEAWALL_STATUS_DEADLOCK:
    if (thd) thd->mark_transaction_to_rollback(true);
    return HA_ERR_LOCK_DEADLOCK;
  case SEAWALL_STATUS_LOCK_TIMEOUT:
    if (thd) thd->mark_transaction_to_rollback(false);
    return HA_ERR_LOCK_WAIT_TIMEOUT;
  case SEAWALL_STATUS_INTERRUPTED: return HA_ERR_ABORTED_BY_USER;
  case SEAWALL_STATUS_TOO_MANY_LOCKS: return HA_ERR_LOCK_TABLE_FULL;
  case SEAWALL_STATUS_NO_SPACE: return HA_ERR_RECORD_FILE_FULL;
  case SEAWALL_STATUS_CORRUPT: return HA_ERR_CRASHED;
  case SEAWALL_STATUS_TREE_DROPPED: return HA_ERR_NO_SUCH_TABLE;
  case SEAWALL_STATUS_TREE_TOO_NEW: return HA_ERR_TABLE_DEF_CHANGED;
  case SEAWALL_STATUS_TREE_EXISTS: return HA_ERR_TABLE_EXIST;
  case SEAWALL_STATUS_TOO_LONG: return HA_ERR_TO_BIG_ROW;
  case SEAWALL_STATUS_READ_ONLY: return HA_ERR_TABLE_READONLY;
  case SEAWALL_STATUS_TOO_MANY_TRANSACTIONS: return HA_ERR_TOO_MANY_CONCURRENT_TRXS;
  case SEAWALL_STATUS_PANIC: /* nothing more may be done in it */
    if (thd) thd->mark_transaction_to_rollback(true);
    return HA_ERR_INTERNAL_ERROR;
  default: return HA_ERR_INTERNAL_ERROR;
  }
}

// --- the server's hooks ----------------------------------------------------------------------------------

static int close_connection(handlerton *, THD *thd) {
  Connection *connection = Connection::known(thd);
  /* KILL looks for the connection under this mutex. The server's reference to the plugin stays: releasing the last one
     unloads the plugin. */
  mysql_mutex_lock(&thd->LOCK_thd_data);
  thd->ha_data[hton->slot].ha_ptr = nullptr;
  mysql_mutex_unlock(&thd->LOCK_thd_data);
  delete connection;
  return 0;
}
static int commit(handlerton *, THD *thd, bool all) {
  Connection *connection = Connection::known(thd);
  return connection ? connection->commit(all) : 0;
}
static int rollback(handlerton *, THD *thd, bool all) {
  Connection *connection = Connection::known(thd);
  return connection ? connection->rollback(all) : 0;
}
static int prepare(handlerton *, THD *thd, bool all) {
  Connection *connection = Connection::known(thd);
  return connection ? connection->prepare(all) : 0;
}
static void commit_ordered(handlerton *, THD *thd, bool all) {
  if (Connection *connection = Connection::known(thd)) connection->commit_ordered(all);
}
static int start_consistent_snapshot(handlerton *, THD *thd) {
  Connection *connection = Connection::of(thd);
  return connection ? connection->take_snapshot() : HA_ERR_OUT_OF_MEM;
}
static void kill_query(handlerton *, THD *thd, enum thd_kill_levels) {
  if (Connection *connection = Connection::known(thd)) connection->interrupt();
}

static int savepoint_set(handlerton *, THD *thd, void *place) {
  uint64_t *number = static_cast<uint64_t *>(place);
  *number = 0;
  Connection *connection = Connection::known(thd);
  return connection && connection->is_active() ? connection->set_savepoint(number) : 0;
}
static int savepoint_rollback(handlerton *, THD *thd, void *place) {
  Connection *connection = Connection::known(thd);
  return connection ? connection->rollback_to(*static_cast<uint64_t *>(place)) : 0;
}
/* mariadb-dump lets the definition of a table change when it has dumped it. */
static bool savepoint_rollback_can_release_mdl(handlerton *, THD *thd) {
  Connection *connection = Connection::known(thd);
  return !connection || !connection->has_locked();
}
static int savepoint_release(handlerton *, THD *thd, void *place) {
  if (Connection *connection = Connection::known(thd)) connection->release_savepoint(*static_cast<uint64_t *>(place));
  return 0;
}

static int recover(handlerton *, XID *list, uint len) {
  /* The server calls this until it returns fewer than fit: it continues where it stopped. */
  static Owned<seawall_prepared_list, seawall_prepared_free> prepared;
  if (!prepared && seawall_prepared(db.get(), prepared.out()) != SEAWALL_STATUS_OK) return 0;
  uint count = 0;
  seawall_slice name;
  while (count < len && seawall_prepared_next(prepared.get(), &name) == SEAWALL_STATUS_OK)
    if (xid_of(name, &list[count])) count++;
  if (count < len) prepared.out();
  return (int)count;
}
/* The return codes of the X/Open interface, which the server's headers lack. */
enum { XA_OK = 0, XAER_RMERR = -3, XAER_NOTA = -4 };

template <seawall_status (*END)(const seawall_db *, seawall_slice)> static int end_by_xid(handlerton *, XID *xid) {
  seawall_status status = END(db.get(), slice(name_of(xid)));
  if (status != SEAWALL_STATUS_OK && status != SEAWALL_STATUS_NOT_FOUND) {
    THD *thd = current_thd;
    note_failure(thd, status);
    /* The server ignores the code, but keeps a transaction that could not be ended if there is an error. */
    if (thd) my_printf_error(ER_XAER_RMERR, "Seawall: the prepared transaction could not be ended: %s", MYF(0), seawall_error());
  }
  return status == SEAWALL_STATUS_OK ? XA_OK : status == SEAWALL_STATUS_NOT_FOUND ? XAER_NOTA : XAER_RMERR;
}

/* The server asks once for each binary log when all that the log has is durable here, and RESET MASTER waits for the answer
   with the binary log locked: it is not left to the next flush. Without an answer, recovery reads that binary log again. */
static std::atomic<bool> has_no_answer(false);
static void commit_checkpoint_request(void *cookie) {
  if (seawall_flush_log(db.get(), 0) == SEAWALL_STATUS_OK) {
    commit_checkpoint_notify_ha(cookie);
    return;
  }
  has_no_answer = true;
  sql_print_error("Seawall: binary logs are kept for the next start, because its log cannot be written: %s", seawall_error());
}
/* The server's end would wait for the answer. */
static void pre_shutdown() {
  if (!has_no_answer) return;
  sql_print_error("Seawall: the server ends at once, because the log could not be written. The next start recovers from the binary logs");
  _exit(EXIT_FAILURE);
}
/* BACKUP STAGE END calls this before commits continue: a backup that waits for it ends where the binary log ends. The
   server ignores the outcome. A backup whose end could not be decided keeps waiting, and fails when the engine does. */
static void end_backup() {
  uint64_t position = 0;
  if (seawall_end_backup(db.get(), &position) != SEAWALL_STATUS_OK)
    sql_print_error("Seawall: the end of a backup could not be decided: %s", seawall_error());
  else if (position)
    sql_print_information("Seawall: a backup ends at position %llu", (unsigned long long)position);
}
static int ddl_recovery_done(handlerton *) {
  drop_left_copies();
  return 0;
}
static bool flush_logs(handlerton *) { return seawall_flush_log(db.get(), 0) != SEAWALL_STATUS_OK; }

void set_hooks(handlerton *h) {
  h->savepoint_offset = sizeof(uint64_t);
  h->close_connection = SEAWALL_HOOK(close_connection);
  h->commit = SEAWALL_HOOK(commit);
  h->rollback = SEAWALL_HOOK(rollback);
  h->prepare = SEAWALL_HOOK(prepare);
  h->commit_ordered = SEAWALL_HOOK(commit_ordered);
  h->start_consistent_snapshot = SEAWALL_HOOK(start_consistent_snapshot);
  h->savepoint_set = SEAWALL_HOOK(savepoint_set);
  h->savepoint_rollback = SEAWALL_HOOK(savepoint_rollback);
  h->savepoint_release = SEAWALL_HOOK(savepoint_release);
  h->savepoint_rollback_can_release_mdl = SEAWALL_HOOK(savepoint_rollback_can_release_mdl);
  h->recover = SEAWALL_HOOK(recover);
  h->commit_by_xid = SEAWALL_HOOK(end_by_xid<commit_by_name>);
  h->rollback_by_xid = SEAWALL_HOOK(end_by_xid<seawall_rollback_prepared>);
  h->kill_query = kill_query;
  h->commit_checkpoint_request = commit_checkpoint_request;
  h->pre_shutdown = pre_shutdown;
  h->flush_logs = flush_logs;
  h->end_backup = end_backup;
  h->signal_ddl_recovery_done = ddl_recovery_done;
}

}

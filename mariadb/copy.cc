/* SPDX-License-Identifier: GPL-2.0-only */
/* How ALTER TABLE and CREATE TABLE ... SELECT copy rows into a new table. No other connection sees that table before
   the statement ends.

   1. A separate transaction of the copy commits the rows in pieces, so that neither undo nor locks grow with the table.
      After an error, and after a crash, the server drops the table.
   2. Indexes get no entries meanwhile. At the end they are built from sorted entries; one transaction of the dictionary
      replaces the empty indexes that the table was made with. An index that cannot be built from the rows alone is
      maintained row by row.
   3. The pieces are not flushed, but the log is flushed at the end, because no other flush need follow a CREATE TABLE
      ... SELECT.
   4. A refused row ends the statement, so the changes of a single row are never undone. Statements with IGNORE or
      REPLACE therefore do not copy this way.
   5. The server's locks keep writers away from the table that is copied, but do not cover prepared transactions that no
      connection has. The copy waits for them, and fails when they do not end. It reads the table in a separate
      transaction that begins after the wait: the connection's snapshot may be older than their commits.
   6. After a failed end of a copy, the statement's commit fails, too (Connection::note_incomplete): ALTER TABLE ...
      REORGANIZE PARTITION does not check that end.
   7. Temporary tables are not copied this way: a snapshot of the connection's transaction does not see what another one
      commits. Nor are tables with a UNIQUE ... USING HASH: the server looks for duplicates in the connection's
      transaction.
   8. LOCK=NONE (from 11.2 on): the server logs what others change in the original from its first row on, and after step 2
      makes the same changes in the new table. The connection's snapshot is older than the copied rows, so another
      separate transaction makes them, at READ COMMITTED. That transaction is committed when the server unlocks the new
      table, and flushed: the server then notes that the copy is complete, and after a crash drops the original. The
      server's locks do not cover a transaction that is prepared meanwhile and whose connection ends: its later commit
      would be lost with the original. So the ALTER fails, before that note.
   9. What is copied in the connection's transaction is flushed for the same reason, whatever seawall_durability says. */
#include "crash_point.h"
#include "ha_seawall.h"
#include "index_build.h"

using namespace seawall;

static const uint64_t ROWS_OF_PIECE = 10000;

bool ha_seawall::can_copy() const {
  const LEX *lex = ha_thd()->lex;
  for (uint at = 0; at < table->s->keys; at++)
    if (table->key_info[at].algorithm == HA_KEY_ALG_LONG_HASH) return false;
  /* The server searches the new table for rows whose periods overlap. */
  if (table->s->period.unique_keys) return false;
  return !table->s->sequence && !is_temporary(m_name.c_str()) && !lex->ignore && lex->duplicates == DUP_ERROR;
}

int ha_seawall::begin_copy() {
  m_copy.sorted.clear();
  for (uint at = 0; at < table->s->keys; at++) m_copy.sorted.push_back(!is_primary(at) && can_be_built(table, at, m_share->layouts.levels));
  return begin_own(SEAWALL_COMMIT_LEVEL_DEFERRED);
}

/* Commits a change of a sequence, or a piece of a copy. */
int ha_seawall::commit_own() {
  if (!m_own || m_copy.replays) return 0;
  if (m_copy.on) {
    m_copy.rows++;
    if (++m_copy.piece < ROWS_OF_PIECE) return 0;
    m_copy.piece = 0;
  }
  if (int error = failed(seawall_commit(m_own.get()))) return error;
  crash_point(m_copy.on ? "copy" : "sequence", "committed");
  return begin_own(m_copy.on || m_is_temporary ? SEAWALL_COMMIT_LEVEL_DEFERRED : SEAWALL_COMMIT_LEVEL_FLUSHED);
}

bool seawall::copies_a_table(THD *thd) {
  switch (thd_sql_command(thd)) {
  case SQLCOM_ALTER_TABLE:
  case SQLCOM_CREATE_INDEX:
  case SQLCOM_DROP_INDEX:
  case SQLCOM_OPTIMIZE:
  case SQLCOM_REPAIR: return true;
  default: return false;
  }
}

/* Returns whether this statement copies or verifies the rows of `table`. Then it only reads the table, and its lock keeps all
   writers away. Two other statements have the command ALTER TABLE: CHECK PARTITION keeps no writer away, and REPAIR PARTITION
   writes the table. */
static bool is_original(THD *thd, const TABLE *table) {
  const TABLE_LIST *opened = table->pos_in_table_list;
  return copies_a_table(thd) && table->s->tmp_table == NO_TMP_TABLE && (!opened || opened->lock_type < TL_WRITE_ALLOW_WRITE) &&
         thd->mdl_context.is_lock_owner(MDL_key::TABLE, table->s->db.str, table->s->table_name.str, MDL_SHARED_NO_WRITE);
}

/* Called before the first row of the original is read (5). */
int ha_seawall::begin_original() {
  if (m_own || !is_original(ha_thd(), table)) return 0;
  m_connection->note_copied(m_share->number);
  if (int error = wait_for_prepared(rows())) return error;
  if (int error = begin_own(SEAWALL_COMMIT_LEVEL_DEFERRED)) return error;
  return failed(seawall_begin_statement(m_own.get()));
}

int ha_seawall::finish_copy() {
  if (!m_copy.on) return 0;
  if (!m_own) { /* no row was copied */
    abandon_copy();
    return 0;
  }
  THD *thd = ha_thd();
  int error = failed(seawall_commit(m_own.get()));
  if (!error) error = failed(seawall_flush_log(db.get(), 0));
  /* The server may check only for an error: indexes without their entries must not be taken for complete. */
  if (!error && seawall_is_killed(thd)) {
    thd->send_kill_message();
    error = HA_ERR_ABORTED_BY_USER;
  }
  if (!error && !thd->is_error()) error = build_sorted_indexes();
  abandon_copy();
  if (error || thd->is_error()) m_connection->note_incomplete(1);
  if (error || !HAS_ONLINE_ALTER || !copies_a_table(thd)) return error;
  error = begin_own(SEAWALL_COMMIT_LEVEL_FLUSHED);
  m_copy.replays = !error;
  m_lock = SEAWALL_LOCK_NONE; /* no other connection sees the table */
  return error;
}

static bool excludes_all(THD *thd) {
  const TABLE_LIST *original = thd->lex->query_tables;
  return original && thd->mdl_context.is_lock_owner(MDL_key::TABLE, original->db.str, original->table_name.str, MDL_EXCLUSIVE);
}

/* Commits what others have changed meanwhile (8). */
int ha_seawall::finish_replay() {
  if (!m_copy.replays) return 0;
  /* Without LOCK=NONE the server excludes the readers later, and check_original() follows. */
  int error = ha_thd()->is_error() || !excludes_all(ha_thd()) ? 0 : check_originals([](uint64_t) { return true; });
  if (!error && (error = failed(seawall_commit(m_own.get())))) print_error(error, MYF(0));
  crash_point("copy", "replayed");
  m_own.out();
  m_copy = Copy();
  return error;
}

/* A table whose copy has no end of its own: the server has excluded all connections from the original, which is `this`. The
   statement need not have locked it: `m_connection` may be another, ended one. */
int ha_seawall::check_original() {
  return m_share ? check_originals([&](uint64_t number) { return number == m_share->number; }) : 0;
}

/* Called while the server excludes all connections from the originals, before the new table takes the name (8). */
template <typename F> int ha_seawall::check_originals(F is_meant) {
  Connection *connection = HAS_ONLINE_ALTER ? Connection::known(ha_thd()) : nullptr;
  if (!connection) return 0;
  for (uint64_t number : connection->copied()) {
    if (!is_meant(number)) continue;
    Tx own;
    Tree tree;
    seawall_tx_options options{};
    options.isolation = SEAWALL_ISOLATION_READ_COMMITTED;
    options.wait = SEAWALL_WAIT_MODE_NO;
    seawall_status status = seawall_begin(db.get(), &options, own.out());
    if (status == SEAWALL_STATUS_OK) status = seawall_open_tree(own.get(), tree_name(number, 0).c_str(), tree.out());
    if (status == SEAWALL_STATUS_OK) status = seawall_lock_tree(own.get(), tree.get());
    if (status == SEAWALL_STATUS_OK) continue;
    int error = failed(status);
    if (status == SEAWALL_STATUS_LOCK_TIMEOUT)
      my_printf_error(ER_LOCK_WAIT_TIMEOUT, "A transaction that was prepared during ALTER TABLE has changed the table: end it "
                      "(XA RECOVER, XA COMMIT, XA ROLLBACK), then repeat ALTER TABLE", MYF(0));
    else
      print_error(error, MYF(0));
    return error;
  }
  return 0;
}

/* Committed rows stay until the server drops the table. */
void ha_seawall::abandon_copy() {
  if (m_copy.on) m_own.out();
  m_copy = Copy();
}

int ha_seawall::build_sorted_indexes() {
  Changes changes;
  changes.path = m_name;
  changes.version = version_of(table);
  std::vector<uint> indexes;
  for (uint at = 0; at < table->s->keys; at++) {
    if (!m_copy.sorted[at]) continue;
    indexes.push_back(at);
    changes.dropped.push_back(table->key_info[at].name.str);
  }
  if (indexes.empty()) return 0;
  if (int error = failed(announce_indexes(changes.dropped, &changes))) return error;
  Index_build build;
  seawall_status status = build.begin(rows(), fill_percent_of(table), 0);
  for (size_t at = 0; at < indexes.size(); at++)
    build.add(table, m_share->layouts, indexes[at], tree_name(m_share->number, changes.added[at].number));
  THD *thd = ha_thd();
  if (status == SEAWALL_STATUS_OK)
    status = build.run([&](ulonglong rows) {
      thd_progress_report(thd, rows, m_copy.rows);
      return !seawall_is_killed(thd);
    });
  if (status == SEAWALL_STATUS_OK) status = build.finish();
  if (status == SEAWALL_STATUS_OK) {
    crash_point("copy", "built");
    if (int error = failed(alter_tables({&changes}))) return error;
    std::lock_guard<std::mutex> guard(m_share->mutex);
    m_share->open = false;
    return open_trees(m_name.c_str());
  }
  report(table, build, status);
  build.abandon();
  if (abandon_indexes(m_share->number, changes) != SEAWALL_STATUS_OK)
    sql_print_warning("Seawall: an index that was not finished stays until the server starts again: %s", seawall_error());
  return status == SEAWALL_STATUS_KEY_EXISTS ? HA_ERR_FOUND_DUPP_KEY : HA_ERR_INTERNAL_ERROR;
}

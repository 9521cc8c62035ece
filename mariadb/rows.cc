/* SPDX-License-Identifier: GPL-2.0-only */
/* Rows: their keys, changing them, reading them. */
#include "ha_seawall.h"
#include <algorithm>
#include <cstring>

using namespace seawall;

// --- keys ---------------------------------------------------------------------------------------------

const seawall_tree *ha_seawall::index_tree(uint index) const {
  uint primary = table->s->primary_key;
  if (index == primary) return rows();
  return m_share->trees[primary < MAX_KEY && primary < index ? index : index + 1].get();
}

void ha_seawall::primary_key_of(const uchar *record, Bytes *key) const {
  uint primary = table->s->primary_key;
  if (primary < MAX_KEY) m_keys[primary].encode(record, MAX_KEY, key);
  else key->append(m_primary);
}

/* Encodes an index's entry. `unique_len`: how many of the key's first bytes no other entry may have; 0 for none. */
void ha_seawall::entry_of(uint index, const uchar *record, Bytes *key, Bytes *value, size_t *unique_len) const {
  Bytes row;
  primary_key_of(record, &row);
  *unique_len = m_entries[index].encode(record, row, key, value);
}

/* Opens a cursor over the keys with a prefix. `limit`: how many rows will be read (a hint; 0: unknown). */
seawall_status ha_seawall::open_prefix(const seawall_tree *tree, const Bytes &prefix, seawall_lock lock, uint64_t limit, Cursor *cursor) {
  Bytes end = prefix;
  seawall_bound upper = UNBOUNDED;
  if (successor(&end)) upper = {slice(end), SEAWALL_BOUND_KIND_EXCLUDED};
  seawall_status status = seawall_cursor_new(cursor->out());
  if (status != SEAWALL_STATUS_OK) return status;
  return seawall_cursor_reset(cursor->get(), tree, {slice(prefix), SEAWALL_BOUND_KIND_INCLUDED}, upper, lock, SEAWALL_WAIT_MODE_DEFAULT, 0, limit);
}

/* How a duplicate is locked that the statement handles. REPLACE and ON DUPLICATE KEY UPDATE will change it. If replicas
   execute the statement, IGNORE must keep it: another transaction that deleted it and committed first would come before
   the statement in the binary log. */
seawall_lock ha_seawall::duplicate_lock() const {
  if (m_replaces) return SEAWALL_LOCK_EXCLUSIVE;
  THD *thd = ha_thd();
  bool executed = mysql_bin_log.is_open() && thd->variables.sql_log_bin && !thd->is_current_stmt_binlog_format_row();
  return m_ignores_duplicates && executed && !m_own && thd_tx_isolation(thd) > ISO_READ_COMMITTED ? SEAWALL_LOCK_SHARED : SEAWALL_LOCK_NONE;
}

/* Inserts a key, of which no other may have the first `unique_len` bytes (0: the whole key). */
seawall_status ha_seawall::insert_key(const seawall_tree *tree, const Bytes &key, size_t unique_len, const Bytes &value) {
  for (;;) {
    seawall_status status = unique_len ? seawall_insert_unique(tx(), tree, slice(key), unique_len, slice(value))
                                       : seawall_insert(tx(), tree, slice(key), slice(value));
    if (status != SEAWALL_STATUS_KEY_EXISTS) return status;
    seawall_lock lock = duplicate_lock();
    if (lock == SEAWALL_LOCK_NONE) return status;
    Cursor cursor;
    seawall_slice found;
    status = open_prefix(tree, key.substr(0, unique_len ? unique_len : key.size()), lock, 1, &cursor);
    if (status == SEAWALL_STATUS_OK) status = seawall_cursor_seek(cursor.get(), tx(), SEAWALL_SEEK_FIRST, NOTHING, &found, nullptr);
    if (status == SEAWALL_STATUS_OK) return SEAWALL_STATUS_KEY_EXISTS;
    /* With NOT_FOUND, another transaction has deleted it meanwhile. */
    if (status != SEAWALL_STATUS_NOT_FOUND) return status;
  }
}

int ha_seawall::insert_entry(uint index, const uchar *record) {
  size_t unique_len;
  entry_of(index, record, &m_new_key, &m_value, &unique_len);
  seawall_status status = insert_key(index_tree(index), m_new_key, unique_len, m_value);
  if (status == SEAWALL_STATUS_KEY_EXISTS) m_connection->note_duplicate(index);
  return failed(status);
}

static bool is_same(const Field *field, const uchar *old_record, const uchar *new_record) {
  bool null = field->is_null_in_record(old_record);
  if (null != field->is_null_in_record(new_record)) return false;
  /* Some of its bits are stored among the NULL bits. */
  if (field->real_type() == MYSQL_TYPE_BIT) return false;
  return null || !field->cmp_binary(field->ptr_in_record(old_record), field->ptr_in_record(new_record));
}

/* Whether all columns of the index have the same values in both records. */
static bool is_same(const KEY *key, const TABLE *table, const uchar *old_record, const uchar *new_record) {
  for (uint at = 0; at < key->user_defined_key_parts; at++)
    if (!is_same(table->field[key->key_part[at].fieldnr - 1], old_record, new_record)) return false;
  return true;
}

/* Prefetches the leaves of a row's entries in several indexes, before the entries are changed one after the other. With
   `other`, the row's new columns, only for the indexes in which its entry changes. */
void ha_seawall::request_entries(const uchar *record, const uchar *other) {
  uint secondary = table->s->keys - (table->s->primary_key < MAX_KEY);
  if (secondary < 2 || m_change_pace.rests()) return;
  uint primary = table->s->primary_key;
  bool same_row = other && (primary >= MAX_KEY || is_same(table->key_info + primary, table, record, other));
  bool any_absent = false;
  Bytes keys[2], value;
  size_t unique_len;
  for (uint at = 0; at < table->s->keys; at++) {
    if (is_primary(at) || (same_row && is_same(table->key_info + at, table, record, other))) continue;
    entry_of(at, record, &keys[0], &value, &unique_len);
    if (other) entry_of(at, other, &keys[1], &value, &unique_len);
    if (other && keys[0] == keys[1]) continue;
    const seawall_slice wanted[] = {slice(keys[0]), slice(keys[1])};
    size_t absent = 0;
    /* An error occurs again with the change. */
    any_absent |= seawall_prefetch(tx(), index_tree(at), wanted, other ? 2 : 1, &absent) != SEAWALL_STATUS_OK || absent > 0;
  }
  m_change_pace.note(any_absent);
}

// --- changes ------------------------------------------------------------------------------------------

namespace {
/* Undoes what a call has changed, unless it succeeded. */
class Guard {
public:
  /* A call that makes at most `one_change` has nothing to undo when the change fails. `connection`: null for a sequence
     or a copy. */
  Guard(Connection *connection, seawall_tx *tx, bool one_change) : m_tx(tx) {
    const seawall_savepoint_t *of_statement = nullptr;
    bool first = false;
    if (connection) m_status = connection->before_change(&of_statement, &first);
    if (m_status != SEAWALL_STATUS_OK || one_change) return;
    if (!first) m_status = seawall_savepoint(tx, m_own.out());
    m_before = first ? of_statement : m_own.get();
  }
  seawall_status status() const { return m_status; }
  int done(int error) {
    if (error && m_before && seawall_rollback_to(m_tx, m_before) != SEAWALL_STATUS_OK) return HA_ERR_INTERNAL_ERROR;
    return error;
  }

private:
  seawall_tx *m_tx;
  seawall_status m_status = SEAWALL_STATUS_OK;
  Savepoint m_own;
  const seawall_savepoint_t *m_before = nullptr;
};
}

/* `rows`: how many are inserted or deleted. */
void ha_seawall::note_changes(uint64_t rows) {
  m_connection->note_change(m_is_temporary);
  if (rows) m_share->changes.fetch_add(rows, std::memory_order_relaxed);
  time_t now = m_connection->thd()->query_start();
  if (m_share->updated.load(std::memory_order_relaxed) != now) m_share->updated.store(now, std::memory_order_relaxed);
}

int ha_seawall::write_row(const uchar *record) {
  if (table->next_number_field && record == table->record[0]) {
    m_auto_error = 0;
    if (int error = update_auto_increment()) return m_auto_error ? m_auto_error : error;
  }
  if (m_copy.on && !m_own)
    if (int error = begin_copy()) return error;
  /* The server writes the first row of a temporary sequence without a lock of the table. */
  if (table->s->sequence && !m_own)
    if (int error = external_lock(ha_thd(), F_WRLCK)) return error;
  seawall_tx *tx = this->tx();
  m_key.clear();
  uint primary = table->s->primary_key;
  if (primary >= MAX_KEY) {
    uint64_t number;
    if (int error = failed(m_share->counters->take_row(&number))) return error;
    m_primary.clear();
    for (int shift = 56; shift >= 0; shift -= 8) m_primary.push_back((char)(number >> shift));
  }
  primary_key_of(record, &m_key);
  if (collects()) return collect(record);
  if (!m_copy.on) request_entries(record, nullptr);
  m_value.clear();
  m_row.encode(record, &m_value);
  Guard guard(m_own ? nullptr : m_connection, tx, only_rows() || m_copy.on);
  seawall_status status = guard.status();
  if (status != SEAWALL_STATUS_OK) return failed(status);
  status = insert_key(rows(), m_key, 0, m_value);
  if (status == SEAWALL_STATUS_KEY_EXISTS) m_connection->note_duplicate(primary);
  note_changes(1);
  int error = failed(status);
  if (!error) error = write_long_columns(record);
  for (uint at = 0; !error && at < table->s->keys; at++)
    if (!is_primary(at) && !(m_copy.on && m_copy.sorted[at])) error = insert_entry(at, record);
  if (!error) error = note_auto_increment(record);
  error = guard.done(error);
  if (!error) m_share->grown.fetch_add(1, std::memory_order_relaxed);
  return error ? error : commit_own();
}

int ha_seawall::change_entries(const uchar *old_record, const uchar *new_record) {
  Bytes old_key, new_key, old_value, new_value;
  uint primary = table->s->primary_key;
  bool same_row = primary >= MAX_KEY || is_same(table->key_info + primary, table, old_record, new_record);
  for (uint at = 0; at < table->s->keys; at++) {
    if (is_primary(at) || (same_row && is_same(table->key_info + at, table, old_record, new_record))) continue;
    size_t unique_len;
    entry_of(at, old_record, &old_key, &old_value, &unique_len);
    entry_of(at, new_record, &new_key, &new_value, &unique_len);
    bool same_key = old_key == new_key;
    if (same_key && old_value == new_value) continue;
    seawall_tx *tx = this->tx();
    seawall_status status = same_key ? seawall_update(tx, index_tree(at), slice(new_key), slice(new_value), true)
                                     : seawall_delete(tx, index_tree(at), slice(old_key));
    if (status == SEAWALL_STATUS_NOT_FOUND) {
      m_error = "an index lacks the entry of a row that is being updated: CHECK TABLE, and restore from a backup";
      return HA_ERR_CRASHED;
    }
    if (status == SEAWALL_STATUS_OK && !same_key) status = insert_key(index_tree(at), new_key, unique_len, new_value);
    if (status == SEAWALL_STATUS_KEY_EXISTS) m_connection->note_duplicate(at);
    if (status != SEAWALL_STATUS_OK) return failed(status);
  }
  return 0;
}

/* Whether a change of a row that keeps its key may change an index that is being built. */
bool ha_seawall::changes_built(const uchar *old_record, const uchar *new_record) const {
  if (!m_share->building.load(std::memory_order_acquire)) return true;
  for (uint column : m_share->built_on)
    if (!is_same(table->field[column], old_record, new_record)) return true;
  return false;
}

/* Whether one of the statement's columns differs; BLOBs and bits are not compared. */
static bool has_short_change(const TABLE *table, const uchar *old_record, const uchar *new_record) {
  for (Field **at = table->field; *at; at++) {
    Field *field = *at;
    if (field->flags & BLOB_FLAG || field->real_type() == MYSQL_TYPE_BIT || !field->stored_in_db()) continue;
    if (!bitmap_is_set(table->write_set, field->field_index)) continue;
    bool null = field->is_null_in_record(old_record);
    if (null != field->is_null_in_record(new_record)) return true;
    if (!null && field->cmp_binary(field->ptr_in_record(old_record), field->ptr_in_record(new_record))) return true;
  }
  return false;
}

int ha_seawall::update_row(const uchar *old_record, const uchar *new_record) {
  seawall_tx *tx = this->tx();
  m_old_key.clear();
  m_key.clear();
  primary_key_of(old_record, &m_old_key);
  primary_key_of(new_record, &m_key);
  m_value.clear();
  m_row.encode(new_record, &m_value);
  if (m_old_key == m_key && !has_short_change(table, old_record, new_record)) {
    Bytes old_value;
    m_row.encode(old_record, &old_value);
    if (old_value == m_value && !long_columns_changed(old_record, new_record)) return HA_ERR_RECORD_IS_THE_SAME;
  }
  note_changes(0);
  request_entries(old_record, new_record);
  Guard guard(m_own ? nullptr : m_connection, tx, only_rows() && m_old_key == m_key);
  seawall_status status = guard.status();
  if (status != SEAWALL_STATUS_OK) return failed(status);
  if (m_old_key == m_key) {
    status = seawall_update(tx, rows(), slice(m_key), slice(m_value), changes_built(old_record, new_record));
  } else {
    status = insert_key(rows(), m_key, 0, m_value);
    if (status == SEAWALL_STATUS_KEY_EXISTS) m_connection->note_duplicate(table->s->primary_key);
    if (status == SEAWALL_STATUS_OK) status = seawall_delete(tx, rows(), slice(m_old_key));
  }
  if (status == SEAWALL_STATUS_OK) status = change_long_columns(old_record, new_record);
  int error = failed(status);
  if (!error) error = change_entries(old_record, new_record);
  if (!error && table->found_next_number_field && bitmap_is_set(table->write_set, table->found_next_number_field->field_index))
    error = note_auto_increment(new_record);
  error = guard.done(error);
  return error ? error : commit_own();
}

int ha_seawall::delete_row(const uchar *record) {
  seawall_tx *tx = this->tx();
  m_key.clear();
  primary_key_of(record, &m_key);
  Guard guard(m_own ? nullptr : m_connection, tx, only_rows());
  note_changes(1);
  request_entries(record, nullptr);
  seawall_status deleted = guard.status();
  if (deleted == SEAWALL_STATUS_OK) deleted = seawall_delete(tx, rows(), slice(m_key));
  if (deleted == SEAWALL_STATUS_OK) deleted = delete_long_columns(record, m_key);
  int error = failed(deleted);
  for (uint at = 0; !error && at < table->s->keys; at++) {
    if (is_primary(at)) continue;
    size_t unique_len;
    entry_of(at, record, &m_old_key, &m_value, &unique_len);
    seawall_status status = seawall_delete(tx, index_tree(at), slice(m_old_key));
    if (status == SEAWALL_STATUS_NOT_FOUND) {
      m_error = "an index lacks the entry of a row that is being deleted: CHECK TABLE, and restore from a backup";
      error = HA_ERR_CRASHED;
    } else {
      error = failed(status);
    }
  }
  error = guard.done(error);
  if (!error) m_share->grown.fetch_sub(1, std::memory_order_relaxed);
  return error;
}

// --- reading ------------------------------------------------------------------------------------------

/* Sets the columns of the row with the key `m_primary`. */
int ha_seawall::read_row(seawall_tx *tx, uchar *record, seawall_slice value) {
  const uchar *from = value.data;
  if (m_row.has_blobs()) {
    m_blobs.assign((const char *)value.data, value.len);
    from = (const uchar *)m_blobs.data();
  }
  /* A statement that changes rows, and the server's computed columns, need all columns. */
  bool all = m_lock == SEAWALL_LOCK_EXCLUSIVE || m_own || table->vfield;
  const MY_BITMAP *wanted = all ? nullptr : table->read_set;
  if (m_row.decode(from, value.len, record, wanted)) return m_row.long_columns().empty() ? 0 : read_long_columns(tx, record);
  m_error = "a row does not have the columns of its table: CHECK TABLE, and restore from a backup";
  return HA_ERR_CRASHED;
}

/* Reads the row with the key `m_primary`, from the snapshot or with the statement's lock. */
int ha_seawall::fetch(uchar *record) {
  seawall_slice value;
  seawall_tx *tx = this->tx();
  seawall_status status = m_lock == SEAWALL_LOCK_NONE
      ? seawall_get(tx, rows(), slice(m_primary), &value)
      : seawall_lock_row(tx, rows(), slice(m_primary), m_lock, m_wait, 0, &value, nullptr);
  /* The row is skipped; the statement does not fail. */
  if (status == SEAWALL_STATUS_LOCK_TIMEOUT && m_wait == SEAWALL_WAIT_MODE_SKIP_LOCKED) return HA_ERR_LOCK_WAIT_TIMEOUT;
  if (status != SEAWALL_STATUS_OK) return failed(status);
  return read_row(tx, record, value);
}

/* Sets the columns of an index entry, and the key of its row. */
bool ha_seawall::read_entry(uchar *record, seawall_slice key, seawall_slice value) {
  memcpy(record, table->s->default_values, table->s->null_bytes);
  return m_entries[active_index].decode(key.data, key.len, value.data, value.len, record, &m_primary);
}

/* For UPDATE at READ COMMITTED: the committed version of a row that another transaction has locked shows whether the
   row is worth waiting for. Not for a single row, and not with an index or long columns, which could be of another
   version. */
bool ha_seawall::reads_semi_consistently() const {
  bool primary = active_index == MAX_KEY || is_primary(active_index);
  return m_semi_consistent && primary && !m_share->long_columns && !m_exact && m_lock == SEAWALL_LOCK_EXCLUSIVE && m_wait == SEAWALL_WAIT_MODE_DEFAULT;
}

/* The direction in which a scan continues. */
static seawall_seek next_of(seawall_seek to) {
  return to == SEAWALL_SEEK_LAST || to == SEAWALL_SEEK_PREV || to == SEAWALL_SEEK_BEFORE || to == SEAWALL_SEEK_AT_MOST
             ? SEAWALL_SEEK_PREV
             : SEAWALL_SEEK_NEXT;
}

int ha_seawall::damaged_entry() {
  m_error = "an index entry is damaged: CHECK TABLE, and restore from a backup";
  return HA_ERR_CRASHED;
}

/* Whether the scan may read rows before the server asks for them. A HANDLER goes on in other statements, and a locking
   scan, such as each one at SERIALIZABLE, would lock rows that the statement may never reach. */
bool ha_seawall::may_prefetch() const {
  THD *thd = ha_thd();
  return m_lock == SEAWALL_LOCK_NONE && !m_prefetched.stopped && thd_tx_isolation(thd) != ISO_SERIALIZABLE && thd_sql_command(thd) != SQLCOM_HA_READ;
}

/* Moves the cursor as seawall_cursor_seek does. After a few steps in one direction, the next rows are prefetched. */
seawall_status ha_seawall::step(seawall_seek to, const Bytes &key, seawall_slice *found, seawall_slice *value) {
  Prefetched &rows = m_prefetched;
  bool goes_on = to == SEAWALL_SEEK_NEXT || to == SEAWALL_SEEK_PREV;
  bool changed = rows.at < rows.count && rows.changes != m_connection->changes();
  if (rows.count > 0 && (to != rows.to || changed)) {
    /* The cursor is ahead of the scan, or beyond the end of its range: the scan goes on from its own last row. */
    const seawall_slice last = rows.keys[rows.at - 1];
    rows.clear();
    rows.stopped = changed;
    if (!goes_on) return seawall_cursor_seek(m_cursor.get(), tx(), to, slice(key), found, value);
    return seawall_cursor_seek(m_cursor.get(), tx(), to == SEAWALL_SEEK_NEXT ? SEAWALL_SEEK_AFTER : SEAWALL_SEEK_BEFORE, last, found, value);
  }
  if (rows.at == rows.count) {
    if (to != rows.to) rows.steps = 0;
    rows.to = to;
    rows.at = rows.count = 0;
    if (!goes_on || rows.steps < Prefetched::STEPS || !may_prefetch()) {
      rows.steps++;
      return seawall_cursor_seek(m_cursor.get(), tx(), to, slice(key), found, value);
    }
    rows.changes = m_connection->changes();
    seawall_status status = seawall_cursor_next_rows(m_cursor.get(), tx(), to == SEAWALL_SEEK_PREV, rows.most, rows.keys, rows.values, &rows.count);
    if (status != SEAWALL_STATUS_OK) return status;
    rows.most = std::min(2 * rows.most, Prefetched::ROWS_MAX);
  }
  *found = rows.keys[rows.at];
  if (value) *value = rows.values[rows.at];
  rows.at++;
  return SEAWALL_STATUS_OK;
}

/* Moves the cursor, and reads its row, or only its index entry. */
int ha_seawall::move(uchar *record, seawall_seek to, const Bytes &key) {
  bool primary = active_index == MAX_KEY || is_primary(active_index);
  bool condition = !primary && pushed_idx_cond && pushed_idx_cond_keyno == active_index;
  /* Not while the server fills the filter, which it does from entries alone. */
  bool rowids = !primary && !m_keyread && pushed_rowid_filter && rowid_filter_is_active;
  bool filter = condition || rowids;
  /* For an index merge, the server asks for the entries alone of any index, even one over prefixes of columns. */
  bool entries = !primary && m_covers[active_index];
  /* A scan that will change rows locks the rows, not only their entries. */
  bool covered = entries && (m_keyread || m_ahead.entries) && m_lock != SEAWALL_LOCK_EXCLUSIVE;
  /* The server computes no virtual columns for a statement that needs the index alone: they are read from the entry. */
  bool completed = entries && m_keyread && !covered && table->vfield;
  bool cut = !primary && m_entries[active_index].may_be_cut();
  m_reads_rows = !covered;
  if (m_waits_for_row) {
    /* The committed version of a locked row matches the statement's condition: now wait for the row. */
    m_waits_for_row = false;
    int error = fetch(record);
    if (error != HA_ERR_KEY_NOT_FOUND) return error;
  }
  for (;;) {
    seawall_slice found, value = NOTHING;
    seawall_status status = step(to, key, &found, primary || covered || completed || filter || cut ? &value : nullptr);
    if (status == SEAWALL_STATUS_NOT_FOUND) return HA_ERR_END_OF_FILE;
    if (status != SEAWALL_STATUS_OK) return failed(status);
    Bytes &place = primary ? m_primary : m_entry;
    place.assign((const char *)found.data, found.len);
    if (primary) {
      if (!reads_semi_consistently()) return read_row(tx(), record, value);
      bool locked;
      status = seawall_lock_or_committed(tx(), rows(), slice(m_primary), &value, &locked);
      if (status == SEAWALL_STATUS_OK) {
        m_waits_for_row = !locked;
        return read_row(tx(), record, value);
      }
      if (status != SEAWALL_STATUS_NOT_FOUND) return failed(status);
      if (locked) seawall_unlock_row(tx(), rows(), slice(m_primary), nullptr);
      to = next_of(to);
      continue;
    }
    bool known = covered || filter ? read_entry(record, found, value)
                                   : m_entries[active_index].row_of(found.data, found.len, cut ? value.data : nullptr, value.len, &m_primary);
    if (!known) return damaged_entry();
    Bytes entry = completed ? Bytes((const char *)value.data, value.len) : Bytes();
    int error = 0;
    if (filter) {
      check_result_t result = condition ? handler_index_cond_check(this) : CHECK_POS;
      if (result == CHECK_POS && rowids) result = handler_rowid_filter_check(this);
      if (result == CHECK_OUT_OF_RANGE) return HA_ERR_END_OF_FILE;
      if (result == CHECK_ABORTED_BY_USER) return HA_ERR_ABORTED_BY_USER;
      if (result == CHECK_NEG) error = HA_ERR_KEY_NOT_FOUND;
    }
    if (!error && !covered) {
      /* Not for entries that a condition may exclude. */
      if (!filter) look_ahead(next_of(to) == SEAWALL_SEEK_PREV);
      error = fetch(record);
    }
    if (!error && m_keyread && !entries && table->vfield) {
      /* For an index merge, the server asks for the entries alone of any index, and then computes no virtual columns. */
      const uint index = keyread;
      keyread = MAX_KEY;
      error = table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
      keyread = index;
    }
    if (!error && completed && !read_entry(record, slice(m_entry), slice(entry))) return damaged_entry();
    bool skipped = error == HA_ERR_LOCK_WAIT_TIMEOUT && m_wait == SEAWALL_WAIT_MODE_SKIP_LOCKED;
    if (skipped) seawall_unlock_row(tx(), index_tree(active_index), slice(m_entry), nullptr);
    /* With HA_ERR_KEY_NOT_FOUND, the row was deleted, or the pushed condition excludes it. */
    if (error != HA_ERR_KEY_NOT_FOUND && !skipped) return error;
    to = next_of(to);
  }
}

void ha_seawall::reset_cursor(const seawall_tree *tree) {
  m_point = false;
  m_look = Look();
  m_prefetched.clear();
  seawall_bound lower = UNBOUNDED, upper = UNBOUNDED;
  if (m_exact) lower = {slice(m_search), SEAWALL_BOUND_KIND_INCLUDED};
  if (m_has_upper) upper = {slice(m_upper), SEAWALL_BOUND_KIND_EXCLUDED};
  m_waits_for_row = false;
  seawall_cursor_reset(m_cursor.get(), tree, lower, upper, reads_semi_consistently() ? SEAWALL_LOCK_NONE : m_lock, m_wait, 0, 0);
}

/* A snapshot that is older than the table would find it empty. Temporary tables are the connection's own. */
int ha_seawall::check_readable() {
  if (int error = insert_collected()) return error;
  if (table->s->tmp_table != NO_TMP_TABLE) return 0;
  return failed(seawall_may_read(tx(), rows()));
}

int ha_seawall::rnd_init(bool) {
  if (int error = check_readable()) return error;
  if (int error = begin_original()) return error;
  active_index = MAX_KEY;
  m_exact = m_has_upper = m_positioned = false;
  reset_cursor(rows());
  return 0;
}
int ha_seawall::rnd_end() {
  seawall_cursor_release(m_cursor.get());
  return 0;
}
int ha_seawall::rnd_next(uchar *record) {
  int error = move(record, m_positioned ? SEAWALL_SEEK_NEXT : SEAWALL_SEEK_FIRST, m_search);
  m_positioned = true;
  return error;
}

void ha_seawall::position(const uchar *record) {
  if (table->s->primary_key < MAX_KEY) {
    m_key.clear();
    primary_key_of(record, &m_key);
  } else {
    m_key = m_primary;
  }
  size_t len = m_key.size();
  int2store(ref, len);
  memcpy(ref + 2, m_key.data(), len);
  memset(ref + 2 + len, 0, ref_length - 2 - len);
}
int ha_seawall::rnd_pos(uchar *record, uchar *position) {
  m_primary.assign((const char *)position + 2, uint2korr(position));
  m_reads_rows = true;
  int error = fetch(record);
  return error == HA_ERR_LOCK_WAIT_TIMEOUT && m_wait == SEAWALL_WAIT_MODE_SKIP_LOCKED ? HA_ERR_KEY_NOT_FOUND : error;
}
int ha_seawall::cmp_ref(const uchar *a, const uchar *b) {
  uint la = uint2korr(a), lb = uint2korr(b);
  int order = memcmp(a + 2, b + 2, std::min(la, lb));
  return order ? order : (int)la - (int)lb;
}

int ha_seawall::index_init(uint index, bool) {
  if (int error = check_readable()) return error;
  active_index = index;
  m_exact = m_has_upper = m_positioned = false;
  return 0;
}
int ha_seawall::index_end() {
  active_index = MAX_KEY;
  seawall_cursor_release(m_cursor.get());
  return 0;
}

void ha_seawall::encode_search(uint index, const uchar *key, key_part_map parts, Bytes *to) {
  uint count = 0, len = 0;
  KEY *info = table->key_info + index;
  for (; (parts & 1) && count < info->ext_key_parts; parts >>= 1) len += info->key_part[count++].store_length;
  /* The bounds of a LIKE are longer than the column: their truncation is not counted. */
  enum_check_fields check = table->in_use->count_cuted_fields;
  table->in_use->count_cuted_fields = CHECK_FIELD_IGNORE;
  key_restore(m_scratch.data(), key, info, len);
  table->in_use->count_cuted_fields = check;
  to->clear();
  m_keys[index].encode(m_scratch.data(), count, to);
  if (count <= info->user_defined_key_parts) return;
  /* Then the parts of the primary key that are given. Columns that the index has itself are not given again. */
  const KEY &primary = table->key_info[table->s->primary_key];
  auto is_given = [&](const KEY_PART_INFO &part) {
    return std::any_of(info->key_part, info->key_part + count, [&](const KEY_PART_INFO &given) { return given.fieldnr == part.fieldnr; });
  };
  const KEY_PART_INFO *first = primary.key_part, *end = first + primary.user_defined_key_parts;
  m_keys[table->s->primary_key].encode(m_scratch.data(), (uint)(std::find_if_not(first, end, is_given) - first), to);
}

/* Reads the row with the key `m_primary`, which may be missing. */
int ha_seawall::read_point(uchar *record) {
  int error = fetch(record);
  if (error == HA_ERR_LOCK_WAIT_TIMEOUT && m_wait == SEAWALL_WAIT_MODE_SKIP_LOCKED) return HA_ERR_KEY_NOT_FOUND;
  /* At READ COMMITTED, others may insert the missing row. */
  if (error == HA_ERR_KEY_NOT_FOUND) unlock_row();
  return error;
}

/* The server searches for what would violate a constraint that the engine does not know (USING HASH, WITHOUT OVERLAPS), and
   then writes: until the transaction ends, no other transaction must search for the same. At READ COMMITTED a search locks
   no range: the key is locked, without its period, as that of a row that is not there. */
int ha_seawall::lock_constraint(const uchar *key, key_part_map parts) {
  const KEY &info = table->key_info[active_index];
  bool hash = info.algorithm == HA_KEY_ALG_LONG_HASH;
  if (m_lock != SEAWALL_LOCK_EXCLUSIVE || m_own || !(hash || info.without_overlaps)) return 0;
  if (thd_tx_isolation(m_connection->thd()) > ISO_READ_COMMITTED) return 0;
  Bytes at;
  encode_search(active_index, key, hash ? parts : parts & make_prev_keypart_map(info.user_defined_key_parts - 2), &at);
  seawall_status status = seawall_lock_row(tx(), index_tree(active_index), slice(at), SEAWALL_LOCK_EXCLUSIVE, SEAWALL_WAIT_MODE_DEFAULT, 0, nullptr, nullptr);
  return status == SEAWALL_STATUS_NOT_FOUND ? 0 : failed(status);
}

int ha_seawall::index_read_map(uchar *record, const uchar *key, key_part_map parts, ha_rkey_function find) {
  if (int error = lock_constraint(key, parts)) return error;
  encode_search(active_index, key, parts, &m_search);
  key_part_map whole = make_prev_keypart_map(table->key_info[active_index].user_defined_key_parts);
  if (find == HA_READ_KEY_EXACT && is_primary(active_index) && (parts & whole) == whole) {
    m_point = m_reads_rows = true;
    m_waits_for_row = false;
    m_primary = m_search;
    return read_point(record);
  }
  m_upper = m_search;
  bool has_successor = successor(&m_upper);
  Bytes beyond = m_upper;
  m_exact = m_has_upper = false;
  seawall_seek to = SEAWALL_SEEK_AT_LEAST;
  const Bytes *at = &m_search;
  switch (find) {
  case HA_READ_KEY_EXACT:
    m_exact = true;
    m_has_upper = has_successor;
    to = SEAWALL_SEEK_FIRST;
    break;
  case HA_READ_PREFIX_LAST:
    m_exact = true;
    m_has_upper = has_successor;
    to = SEAWALL_SEEK_LAST;
    break;
  case HA_READ_KEY_OR_NEXT:
  case HA_READ_AFTER_KEY:
    if (find == HA_READ_AFTER_KEY) {
      if (!has_successor) return HA_ERR_END_OF_FILE;
      at = &beyond;
    }
    if (end_range && m_in_range) {
      Bytes end;
      encode_search(active_index, end_range->key, end_range->keypart_map, &end);
      m_has_upper = end_range->flag == HA_READ_BEFORE_KEY || successor(&end);
      m_upper = end;
    }
    break;
  case HA_READ_BEFORE_KEY: to = SEAWALL_SEEK_BEFORE; break;
  case HA_READ_KEY_OR_PREV:
  case HA_READ_PREFIX_LAST_OR_PREV:
    to = has_successor ? SEAWALL_SEEK_BEFORE : SEAWALL_SEEK_LAST;
    at = &beyond;
    break;
  default: return HA_ERR_WRONG_COMMAND;
  }
  reset_cursor(index_tree(active_index));
  m_positioned = true;
  int error = move(record, to, *at);
  if (error != HA_ERR_END_OF_FILE) return error;
  /* leave_key() continues from there. */
  if (m_exact) (is_primary(active_index) ? m_primary : m_entry) = m_search;
  return HA_ERR_KEY_NOT_FOUND;
}
/* HANDLER and loose index scans continue beyond the key that they have sought. */
int ha_seawall::leave_key(uchar *record, seawall_seek to) {
  if (!m_exact && !m_point) return move(record, to == SEAWALL_SEEK_AFTER ? SEAWALL_SEEK_NEXT : SEAWALL_SEEK_PREV, m_search);
  m_exact = m_has_upper = false;
  reset_cursor(index_tree(active_index));
  Bytes from = is_primary(active_index) ? m_primary : m_entry;
  return move(record, to, from);
}
int ha_seawall::index_next(uchar *record) { return leave_key(record, SEAWALL_SEEK_AFTER); }
int ha_seawall::index_prev(uchar *record) { return leave_key(record, SEAWALL_SEEK_BEFORE); }
/* The cursor's range has only this key. (The record has no virtual columns yet that could be compared.) */
int ha_seawall::index_next_same(uchar *record, const uchar *, uint) {
  return m_point ? HA_ERR_END_OF_FILE : move(record, SEAWALL_SEEK_NEXT, m_search);
}
int ha_seawall::index_first(uchar *record) {
  m_exact = m_has_upper = false;
  reset_cursor(index_tree(active_index));
  return move(record, SEAWALL_SEEK_FIRST, m_search);
}
int ha_seawall::index_last(uchar *record) {
  m_exact = m_has_upper = false;
  reset_cursor(index_tree(active_index));
  return move(record, SEAWALL_SEEK_LAST, m_search);
}

/* SPDX-License-Identifier: GPL-2.0-only */
/* Long columns: the values of TEXT and BLOB columns that have more than APART_FROM bytes, in a tree of their own.

     rows:          primary key                 -> columns; of a long value only its length
     long columns:  primary key, column number  -> the value

   1. The length alone tells whether a value is apart (is_apart): rows, records and this tree agree.
   2. A row and its long values change in one transaction, under the row's lock: a snapshot has both of one version,
      and the owner of the row's lock has the latest of both.
   3. A value is read only by statements that read its column, and written only if it has changed. All values are read
      where the server writes whole rows that the statement does not read: versions of rows, moves between partitions,
      replicated rows.
   4. A column that is dropped instantly leaves its values in the tree until their rows are deleted. */
#include "ha_seawall.h"

using namespace seawall;

static Bytes long_key(const Bytes &primary, uint32_t number) {
  Bytes key = primary;
  for (int shift = 24; shift >= 0; shift -= 8) key.push_back((char)(number >> shift));
  return key;
}

static seawall_slice value_of(const Long_column &column, const uchar *record) {
  const uchar *at = column.field->ptr_in_record(record), *data;
  memcpy(&data, at + column.field->pack_length_no_ptr(), sizeof data);
  return {data, column.field->get_length(at)};
}

/* Whether the long value differs between the records, or only one of them has one. */
static bool has_changed(const Long_column &column, const uchar *old_record, const uchar *new_record) {
  if (is_unread(column.field, new_record)) return false;
  bool before = is_apart(column.field, old_record), after = is_apart(column.field, new_record);
  if (!before || !after) return before != after;
  if (is_unread(column.field, old_record)) return true;
  seawall_slice from = value_of(column, old_record), to = value_of(column, new_record);
  return from.len != to.len || memcmp(from.data, to.data, to.len);
}

/* Reads one value, with the statement's lock. The row is locked already: another transaction has the value's lock only
   while it releases its locks, so wait for it. */
seawall_status ha_seawall::get_long(seawall_tx *tx, const Bytes &key, seawall_slice *value) const {
  const seawall_tree *tree = m_share->long_columns.get();
  return m_lock == SEAWALL_LOCK_NONE ? seawall_get(tx, tree, slice(key), value)
                                     : seawall_lock_row(tx, tree, slice(key), m_lock, SEAWALL_WAIT_MODE_WAIT, 0, value, nullptr);
}

/* Whether a long value of the row with the key `m_old_key` changes; one that the statement has not read is read now. */
bool ha_seawall::long_columns_changed(const uchar *old_record, const uchar *new_record) {
  for (const Long_column &column : m_row.long_columns()) {
    if (!has_changed(column, old_record, new_record)) continue;
    if (!is_apart(column.field, old_record) || !is_apart(column.field, new_record) || !is_unread(column.field, old_record)) return true;
    seawall_slice from, to = value_of(column, new_record);
    if (get_long(tx(), long_key(m_old_key, column.number), &from) != SEAWALL_STATUS_OK) return true; /* which finds the error again */
    if (from.len != to.len || memcmp(from.data, to.data, to.len)) return true;
  }
  return false;
}

/* Reads, for the row with the key `m_primary`, the long values of the columns that the statement reads. */
int ha_seawall::read_long_columns(seawall_tx *tx, uchar *record) {
  const std::vector<Long_column> &columns = m_row.long_columns();
  m_long_values.resize(columns.size());
  m_long_keys.clear();
  const THD *thd = table->in_use;
  bool changes = m_lock == SEAWALL_LOCK_EXCLUSIVE;
  /* The engine itself computes virtual columns, from whatever columns, for an index whose entries it cannot read alone. */
  bool computes = m_keyread && table->vfield && active_index != MAX_KEY && (is_primary(active_index) || !m_covers[active_index]);
  bool whole = computes || (changes && (table->versioned() || table->part_info || thd->rgi_slave || thd->rgi_fake));
  for (size_t at = 0; at < columns.size(); at++) {
    Field_blob *field = columns[at].field;
    /* A change of the row needs its index entries, whatever the statement reads. */
    bool needed = whole || (changes && columns[at].indexed) || bitmap_is_set(table->read_set, field->field_index);
    if (!needed || !is_unread(field, record)) continue;
    m_long_keys.push_back(long_key(m_primary, columns[at].number));
    seawall_slice value;
    seawall_status status = get_long(tx, m_long_keys.back(), &value);
    if (status != SEAWALL_STATUS_OK && status != SEAWALL_STATUS_NOT_FOUND) return failed(status);
    uchar *to = field->ptr + (record - table->record[0]);
    if (status == SEAWALL_STATUS_NOT_FOUND || value.len != field->get_length(to)) {
      m_error = "a long value of column " + std::string(field->field_name.str) + " is missing or damaged: CHECK TABLE, and restore from a backup";
      return HA_ERR_CRASHED;
    }
    m_long_values[at].assign((const char *)value.data, value.len);
    const char *data = m_long_values[at].data();
    memcpy(to + field->pack_length_no_ptr(), &data, sizeof data);
  }
  return 0;
}

/* Writes the long values of a new row. */
int ha_seawall::write_long_columns(const uchar *record) {
  for (const Long_column &column : m_row.long_columns()) {
    if (!is_apart(column.field, record)) continue;
    if (is_unread(column.field, record)) {
      m_error = "a new row has a column that the statement has not read: report this defect of the engine";
      return HA_ERR_INTERNAL_ERROR;
    }
    Bytes key = long_key(m_key, column.number);
    if (int error = failed(seawall_put(tx(), m_share->long_columns.get(), slice(key), value_of(column, record)))) return error;
  }
  return 0;
}

/* Deletes all long values of the row with the key `primary`, including those of dropped columns. */
seawall_status ha_seawall::delete_long_columns(const uchar *record, const Bytes &primary) {
  bool any = m_share->long_values_of_dropped;
  for (const Long_column &column : m_row.long_columns()) any |= is_apart(column.field, record);
  if (!any) return SEAWALL_STATUS_OK;
  Cursor cursor;
  seawall_slice key;
  seawall_status status = open_prefix(m_share->long_columns.get(), primary, SEAWALL_LOCK_EXCLUSIVE, 0, &cursor);
  seawall_seek to = SEAWALL_SEEK_FIRST;
  while (status == SEAWALL_STATUS_OK) {
    status = seawall_cursor_seek(cursor.get(), tx(), to, NOTHING, &key, nullptr);
    if (status == SEAWALL_STATUS_OK) status = seawall_cursor_delete(cursor.get(), tx());
    to = SEAWALL_SEEK_NEXT;
  }
  return status == SEAWALL_STATUS_NOT_FOUND ? SEAWALL_STATUS_OK : status;
}

/* Writes the long values that changed between the row with the key `m_old_key` and the row with the key `m_key`. */
seawall_status ha_seawall::change_long_columns(const uchar *old_record, const uchar *new_record) {
  const seawall_tree *tree = m_share->long_columns.get();
  bool moved = m_old_key != m_key;
  seawall_status status = SEAWALL_STATUS_OK;
  for (const Long_column &column : m_row.long_columns()) {
    bool unread = is_unread(column.field, new_record);
    if (status != SEAWALL_STATUS_OK) return status;
    if (!moved && !has_changed(column, old_record, new_record)) continue;
    Bytes key = long_key(m_key, column.number);
    if (unread) { /* the row gets another key */
      seawall_slice value;
      status = get_long(tx(), long_key(m_old_key, column.number), &value);
      Bytes copy(status == SEAWALL_STATUS_OK ? (const char *)value.data : "", status == SEAWALL_STATUS_OK ? value.len : 0);
      if (status == SEAWALL_STATUS_OK) status = seawall_put(tx(), tree, slice(key), slice(copy));
    } else if (is_apart(column.field, new_record)) {
      status = seawall_put(tx(), tree, slice(key), value_of(column, new_record));
    } else if (!moved) {
      status = seawall_delete(tx(), tree, slice(key));
    }
  }
  if (status == SEAWALL_STATUS_OK && moved) status = delete_long_columns(old_record, m_old_key);
  return status;
}

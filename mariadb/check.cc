/* SPDX-License-Identifier: GPL-2.0-only */
/* CHECK TABLE. First each tree is checked by itself; then, in one snapshot, rows are checked against their index entries
   and long values. To look up the entry of each row would read an index's pages in random order. Instead, the rows and
   each index are read once, in order, and the sums of the entries' hashes are compared. Only an index whose sum differs is
   searched row by row. */
#include "ha_seawall.h"

using namespace seawall;

namespace {

/* The entries of an index in any order: their number, and the sum of their hashes (FNV-1a, then the finalizer of
   MurmurHash3, without which the sum would be weak). */
struct Sum {
  uint64_t count = 0, hashes = 0;
  void add(seawall_slice key, seawall_slice value) {
    uint64_t hash = 0xcbf29ce484222325;
    auto take = [&](const uint8_t *from, size_t len) {
      for (size_t i = 0; i < len; i++) hash = (hash ^ from[i]) * 0x100000001b3;
    };
    uint32_t len = (uint32_t)key.len; /* where the key ends */
    take((const uint8_t *)&len, sizeof len);
    take(key.data, key.len);
    take(value.data, value.len);
    hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;
    hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
    hashes += hash ^ hash >> 33;
    count++;
  }
};

template <typename... Values> int corrupt(THD *thd, const char *format, Values... values) {
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, format, values...);
  return HA_ADMIN_CORRUPT;
}

int unless_ok(THD *thd, seawall_status status) {
  if (status == SEAWALL_STATUS_OK) return HA_ADMIN_OK;
  corrupt(thd, "Seawall: %s", seawall_error());
  return status == SEAWALL_STATUS_CORRUPT ? HA_ADMIN_CORRUPT : HA_ADMIN_FAILED;
}

/* Whether an index has a virtual column. */
bool has_virtual_part(const TABLE *table) {
  for (uint at = 0; table->vfield && at < table->s->keys; at++)
    for (uint part = 0; part < table->key_info[at].user_defined_key_parts; part++)
      if (!table->key_info[at].key_part[part].field->stored_in_db()) return true;
  return false;
}

/* Calls `each` with all entries of a tree, in order, until it returns other than HA_ADMIN_OK. */
template <typename F> int scan(THD *thd, seawall_tx *tx, const seawall_tree *tree, F each) {
  Cursor cursor;
  seawall_status status = seawall_cursor_new(cursor.out());
  if (status == SEAWALL_STATUS_OK)
    status = seawall_cursor_reset(cursor.get(), tree, UNBOUNDED, UNBOUNDED, SEAWALL_LOCK_NONE, SEAWALL_WAIT_MODE_DEFAULT, 0, 0);
  seawall_slice key, value;
  for (seawall_seek to = SEAWALL_SEEK_FIRST; status == SEAWALL_STATUS_OK; to = SEAWALL_SEEK_NEXT) {
    status = seawall_cursor_seek(cursor.get(), tx, to, NOTHING, &key, &value);
    if (status != SEAWALL_STATUS_OK) break;
    if (thd_kill_level(thd) != THD_IS_NOT_KILLED) return HA_ADMIN_FAILED;
    if (int found = each(key, value)) return found;
  }
  return status == SEAWALL_STATUS_NOT_FOUND ? HA_ADMIN_OK : unless_ok(thd, status);
}

}

extern "C" {
static void warn_of(void *context, const char *text) { corrupt(static_cast<THD *>(context), "Seawall: %s", text); }
}

/* Reads a row of the scan into the record; virtual columns only if an index needs one: they may fail. */
int ha_seawall::read_checked(THD *thd, seawall_tx *tx, seawall_slice key, seawall_slice value) {
  m_primary.assign((const char *)key.data, key.len);
  if (read_row(tx, table->record[0], value)) return corrupt(thd, "Seawall: %s", m_error.c_str());
  if (has_virtual_part(table)) table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
  return HA_ADMIN_OK;
}

/* Finds the first row whose entry is wrong. If there is none, the index has more entries than rows. */
int ha_seawall::find_wrong_entry(THD *thd, seawall_tx *tx, uint index, uint64_t entries) {
  const char *name = table->key_info[index].name.str;
  uint64_t count = 0;
  Bytes entry, rest;
  int found = scan(thd, tx, rows(), [&](seawall_slice key, seawall_slice value) {
    count++;
    if (int bad = read_checked(thd, tx, key, value)) return bad;
    size_t unique_len;
    entry_of(index, table->record[0], &entry, &rest, &unique_len);
    seawall_slice stored;
    seawall_status status = seawall_get(tx, index_tree(index), slice(entry), &stored);
    bool missing = status == SEAWALL_STATUS_NOT_FOUND;
    if (status != SEAWALL_STATUS_OK && !missing) return unless_ok(thd, status);
    if (!missing && stored.len == rest.size() && (stored.len == 0 || !memcmp(stored.data, rest.data(), stored.len))) return HA_ADMIN_OK;
    return corrupt(thd, "Seawall: row %llu (counted by the primary key) %s index %s", (ulonglong)count,
                   missing ? "is missing from" : "has other columns in", name);
  });
  if (found != HA_ADMIN_OK) return found;
  return corrupt(thd, "Seawall: index %s has %llu entries for %llu rows", name, (ulonglong)entries, (ulonglong)count);
}

/* Checks the rows against all that belongs to them. */
int ha_seawall::check_rows(THD *thd, seawall_tx *tx) {
  std::vector<Sum> wanted(table->s->keys);
  uint64_t named = 0, values = 0;
  Bytes entry, rest;
  int found = scan(thd, tx, rows(), [&](seawall_slice key, seawall_slice value) {
    if (int bad = read_checked(thd, tx, key, value)) return bad;
    for (uint at = 0; at < table->s->keys; at++) {
      if (is_primary(at)) continue;
      size_t unique_len;
      entry_of(at, table->record[0], &entry, &rest, &unique_len);
      wanted[at].add(slice(entry), slice(rest));
    }
    for (const Long_column &column : m_row.long_columns()) named += is_apart(column.field, table->record[0]);
    return HA_ADMIN_OK;
  });
  if (found != HA_ADMIN_OK) return found;
  if (m_share->long_columns) {
    found = unless_ok(thd, seawall_count(tx, m_share->long_columns.get(), UNBOUNDED, UNBOUNDED, &values));
    if (found != HA_ADMIN_OK) return found;
    if (values != named && !(values > named && m_share->long_values_of_dropped))
      return corrupt(thd, "Seawall: %llu long values are stored, and rows name %llu", (ulonglong)values, (ulonglong)named);
  }
  for (uint at = 0; at < table->s->keys; at++) {
    if (is_primary(at)) continue;
    Sum stored;
    found = scan(thd, tx, index_tree(at), [&](seawall_slice key, seawall_slice value) {
      stored.add(key, value);
      return HA_ADMIN_OK;
    });
    if (found == HA_ADMIN_OK && (stored.count != wanted[at].count || stored.hashes != wanted[at].hashes))
      found = find_wrong_entry(thd, tx, at, stored.count);
    if (found != HA_ADMIN_OK) return found;
  }
  return HA_ADMIN_OK;
}

int ha_seawall::check(THD *thd, HA_CHECK_OPT *options) {
  int found = HA_ADMIN_OK;
  for (const seawall_tree *tree : all_trees()) {
    seawall_status status = seawall_check_tree(db.get(), tree, warn_of, thd);
    if (status == SEAWALL_STATUS_OK) continue;
    if (status != SEAWALL_STATUS_CORRUPT) unless_ok(thd, status);
    found = status == SEAWALL_STATUS_CORRUPT ? HA_ADMIN_CORRUPT : HA_ADMIN_FAILED;
  }
  if (found != HA_ADMIN_OK || options->flags & T_QUICK) return found;
  Tx tx;
  seawall_tx_options of_check{};
  of_check.isolation = SEAWALL_ISOLATION_REPEATABLE_READ;
  of_check.wait = SEAWALL_WAIT_MODE_WAIT;
  found = unless_ok(thd, seawall_begin(db.get(), &of_check, tx.out()));
  if (found == HA_ADMIN_OK) found = unless_ok(thd, seawall_take_snapshot(tx.get()));
  if (found != HA_ADMIN_OK) return found;
  MY_BITMAP *old = tmp_use_all_columns(table, &table->read_set);
  found = check_rows(thd, tx.get());
  tmp_restore_column_map(&table->read_set, old);
  return found;
}

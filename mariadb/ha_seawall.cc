/* SPDX-License-Identifier: GPL-2.0-only */
#include "ha_seawall.h"
#include <algorithm>
#include <cstring>

using namespace seawall;

ha_seawall::ha_seawall(handlerton *h, TABLE_SHARE *share) : handler(h, share) {}
ha_seawall::~ha_seawall() = default;

handler::Table_flags ha_seawall::table_flags() const {
  return HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS | HA_PRIMARY_KEY_IN_READ_INDEX | HA_TABLE_SCAN_ON_INDEX |
         HA_REC_NOT_IN_SEQ | HA_CAN_SQL_HANDLER | HA_CAN_BIT_FIELD | HA_BINLOG_ROW_CAPABLE | HA_BINLOG_STMT_CAPABLE |
         HA_CAN_VIRTUAL_COLUMNS | HA_CONCURRENT_OPTIMIZE | HA_CRASH_SAFE | HA_CAN_SKIP_LOCKED | HA_PERSISTENT_TABLE |
         HA_ONLINE_ANALYZE | HA_CAN_TABLES_WITHOUT_ROLLBACK * 0;
}

ulong ha_seawall::index_flags(uint index, uint, bool) const {
  ulong flags = HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE;
  if (index == table_share->primary_key) flags |= HA_CLUSTERED_INDEX;
  return flags;
}

int ha_seawall::failed(seawall_status status) {
  if (status == SEAWALL_STATUS_OK) return 0;
  return error_of(table ? table->in_use : nullptr, status, &m_error);
}

bool ha_seawall::get_error_message(int error, String *text) {
  if (error != HA_ERR_INTERNAL_ERROR && error != HA_ERR_CRASHED) return false;
  text->copy(m_error.data(), (uint32)m_error.size(), system_charset_info);
  return false;
}

// --- tables ----------------------------------------------------------------------------------------------

int ha_seawall::open_trees(const char *name) {
  seawall_status status = find_table(name, &m_share->definition);
  if (status == SEAWALL_STATUS_NOT_FOUND) return HA_ERR_NO_SUCH_TABLE;
  if (status != SEAWALL_STATUS_OK) return failed(status);
  Tx tx;
  seawall_tx_options options{};
  options.isolation = SEAWALL_ISOLATION_READ_COMMITTED;
  options.wait = SEAWALL_WAIT_MODE_WAIT;
  status = seawall_begin(db.get(), &options, tx.out());
  std::vector<Tree> trees;
  for (uint32_t at = 0; status == SEAWALL_STATUS_OK && at <= m_share->definition.indexes; at++) {
    trees.emplace_back();
    status = seawall_open_tree(tx.get(), tree_name(m_share->definition.number, at).c_str(), trees.back().out());
  }
  if (status != SEAWALL_STATUS_OK) return failed(status);
  uint64_t next_row = 1;
  if (table->s->primary_key >= MAX_KEY) {
    Cursor cursor;
    seawall_slice key;
    status = seawall_cursor_new(cursor.out());
    if (status == SEAWALL_STATUS_OK)
      status = seawall_cursor_reset(cursor.get(), trees[0].get(), UNBOUNDED, UNBOUNDED, SEAWALL_LOCK_NONE,
                                    SEAWALL_WAIT_MODE_DEFAULT, 0, 1);
    if (status == SEAWALL_STATUS_OK)
      status = seawall_cursor_seek(cursor.get(), tx.get(), SEAWALL_SEEK_LAST, NOTHING, &key, nullptr);
    if (status == SEAWALL_STATUS_OK && key.len == 8) {
      for (int i = 0, shift = 56; i < 8; i++, shift -= 8) next_row = i ? next_row | (uint64_t)key.data[i] << shift : (uint64_t)key.data[0] << 56;
      next_row++;
    } else if (status != SEAWALL_STATUS_NOT_FOUND) {
      return status == SEAWALL_STATUS_OK ? HA_ERR_CRASHED : failed(status);
    }
  }
  m_share->next_row = next_row;
  m_share->next_auto = 0;
  m_share->trees = std::move(trees);
  m_share->open = true;
  return 0;
}

int ha_seawall::open(const char *name, int, uint) {
  m_name = name;
  lock_shared_ha_data();
  m_share = static_cast<Share *>(get_ha_share_ptr());
  if (!m_share) {
    m_share = new (std::nothrow) Share;
    if (m_share) set_ha_share_ptr(m_share);
  }
  unlock_shared_ha_data();
  if (!m_share) return HA_ERR_OUT_OF_MEM;
  {
    std::lock_guard<std::mutex> guard(m_share->mutex);
    if (!m_share->open)
      if (int error = open_trees(name)) return error;
  }
  thr_lock_data_init(&m_share->lock, &m_lock_data, nullptr);
  m_row.init(table);
  m_keys.resize(table->s->keys);
  size_t longest = 8;
  for (uint at = 0; at < table->s->keys; at++) m_keys[at].init(table, table->key_info + at);
  if (table->s->primary_key < MAX_KEY) longest = m_keys[table->s->primary_key].max_bytes();
  ref_length = (uint)std::min<size_t>(longest, 4000) + 2;
  m_scratch.resize(table->s->reclength + 8);
  seawall_status status = seawall_cursor_new(m_cursor.out());
  return failed(status);
}

int ha_seawall::close() {
  m_cursor.out();
  return 0;
}

static MYSQL_THDVAR_BOOL(ignore_foreign_keys, PLUGIN_VAR_OPCMDARG,
                         "Let tables be made without the foreign keys that their statement has, with a warning", nullptr,
                         nullptr, false);

/* Foreign keys are refused, or left out with a warning: never left out in silence. */
static int refuse_foreign_keys(THD *thd) {
  List_iterator<Key> keys(thd->lex->alter_info.key_list);
  while (const Key *key = keys++) {
    if (key->type != Key::FOREIGN_KEY) continue;
    const char *text = "Seawall has no foreign keys (constraint `%s`): SET seawall_ignore_foreign_keys = 1 makes the table without them";
    if (!THDVAR(thd, ignore_foreign_keys)) {
      my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, text, MYF(0), key->name.str ? key->name.str : "");
      return HA_WRONG_CREATE_OPTION;
    }
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION,
                        "Seawall has no foreign keys: constraint `%s` is left out", key->name.str ? key->name.str : "");
  }
  return 0;
}

int ha_seawall::create(const char *name, TABLE *form, HA_CREATE_INFO *info) {
  if (int error = refuse_foreign_keys(form->in_use)) return error;
  uint32_t secondary = 0;
  for (uint at = 0; at < form->s->keys; at++) {
    const KEY *key = form->key_info + at;
    if (key->algorithm == HA_KEY_ALG_FULLTEXT || key->algorithm == HA_KEY_ALG_RTREE ||
        (key->flags & (HA_FULLTEXT | HA_SPATIAL))) {
      my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, "Seawall has no FULLTEXT and no SPATIAL indexes (index `%s`)", MYF(0),
                      key->name.str);
      return HA_WRONG_CREATE_OPTION;
    }
    Key_codec codec;
    codec.init(form, key);
    if (codec.max_bytes() > 3900) {
      my_error(ER_TOO_LONG_KEY, MYF(0), 3072);
      return HA_WRONG_CREATE_OPTION;
    }
    if (at != form->s->primary_key) secondary++;
  }
  seawall_status status = create_table(name, secondary, info->auto_increment_value);
  return error_of(nullptr, status, &m_error);
}

int ha_seawall::delete_table(const char *name) {
  seawall_status status = seawall::drop_table(name);
  return status == SEAWALL_STATUS_NOT_FOUND ? HA_ERR_NO_SUCH_TABLE : error_of(nullptr, status, &m_error);
}

int ha_seawall::rename_table(const char *from, const char *to) {
  seawall_status status = seawall::rename_table(from, to);
  return status == SEAWALL_STATUS_NOT_FOUND ? HA_ERR_NO_SUCH_TABLE : error_of(nullptr, status, &m_error);
}

int ha_seawall::truncate() {
  std::lock_guard<std::mutex> guard(m_share->mutex);
  if (int error = failed(truncate_table(m_name.c_str(), 0))) return error;
  return open_trees(m_name.c_str());
}

// --- keys ------------------------------------------------------------------------------------------------

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

/* The key of an index's entry; `unique_len`: the bytes that no other entry may have, 0 for none. */
void ha_seawall::entry_of(uint index, const uchar *record, Bytes *key, size_t *unique_len) const {
  key->clear();
  m_keys[index].encode(record, MAX_KEY, key);
  bool unique = (table->key_info[index].flags & HA_NOSAME) && !m_keys[index].has_null(record);
  *unique_len = unique ? key->size() : 0;
  primary_key_of(record, key);
}

int ha_seawall::insert_entry(uint index, const uchar *record) {
  size_t unique_len;
  entry_of(index, record, &m_new_key, &unique_len);
  seawall_tx *tx = m_connection->tx();
  seawall_status status = unique_len
      ? seawall_insert_unique(tx, index_tree(index), slice(m_new_key), unique_len, NOTHING)
      : seawall_insert(tx, index_tree(index), slice(m_new_key), NOTHING);
  if (status == SEAWALL_STATUS_KEY_EXISTS) m_duplicate = index;
  return failed(status);
}

// --- changes ---------------------------------------------------------------------------------------------

namespace {
/* Undoes what a call has changed, unless it succeeded. */
class Guard {
public:
  Guard(seawall_tx *tx, bool needed) : m_tx(tx) {
    if (needed && seawall_savepoint(tx, m_before.out()) != SEAWALL_STATUS_OK) m_before.out();
  }
  int done(int error) {
    if (error && m_before && seawall_rollback_to(m_tx, m_before.get()) != SEAWALL_STATUS_OK) return HA_ERR_INTERNAL_ERROR;
    return error;
  }

private:
  seawall_tx *m_tx;
  Savepoint m_before;
};
}

int ha_seawall::write_row(const uchar *record) {
  if (table->next_number_field && record == table->record[0])
    if (int error = update_auto_increment()) return error;
  seawall_tx *tx = m_connection->tx();
  m_key.clear();
  uint primary = table->s->primary_key;
  if (primary >= MAX_KEY) {
    uint64_t number = m_share->next_row++;
    m_primary.clear();
    for (int shift = 56; shift >= 0; shift -= 8) m_primary.push_back((char)(number >> shift));
  }
  primary_key_of(record, &m_key);
  m_value.clear();
  m_row.encode(record, &m_value);
  Guard guard(tx, table->s->keys > 0);
  seawall_status status = seawall_insert(tx, rows(), slice(m_key), slice(m_value));
  if (status == SEAWALL_STATUS_KEY_EXISTS) m_duplicate = primary;
  int error = failed(status);
  for (uint at = 0; !error && at < table->s->keys; at++)
    if (!is_primary(at)) error = insert_entry(at, record);
  if (!error && table->next_number_field) error = note_auto_increment(record);
  return guard.done(error);
}

int ha_seawall::change_entries(const uchar *old_record, const uchar *new_record) {
  Bytes old_key, new_key;
  for (uint at = 0; at < table->s->keys; at++) {
    if (is_primary(at)) continue;
    size_t unique_len;
    entry_of(at, old_record, &old_key, &unique_len);
    entry_of(at, new_record, &new_key, &unique_len);
    if (old_key == new_key) continue;
    seawall_tx *tx = m_connection->tx();
    seawall_status status = seawall_delete(tx, index_tree(at), slice(old_key));
    if (status == SEAWALL_STATUS_NOT_FOUND) {
      m_error = "an index lacks the entry of a row that is being updated: CHECK TABLE, and restore from a backup";
      return HA_ERR_CRASHED;
    }
    if (status == SEAWALL_STATUS_OK)
      status = unique_len ? seawall_insert_unique(tx, index_tree(at), slice(new_key), unique_len, NOTHING)
                          : seawall_insert(tx, index_tree(at), slice(new_key), NOTHING);
    if (status == SEAWALL_STATUS_KEY_EXISTS) m_duplicate = at;
    if (status != SEAWALL_STATUS_OK) return failed(status);
  }
  return 0;
}

int ha_seawall::update_row(const uchar *old_record, const uchar *new_record) {
  seawall_tx *tx = m_connection->tx();
  m_old_key.clear();
  m_key.clear();
  primary_key_of(old_record, &m_old_key);
  primary_key_of(new_record, &m_key);
  m_value.clear();
  m_row.encode(new_record, &m_value);
  Guard guard(tx, true);
  seawall_status status;
  if (m_old_key == m_key) {
    status = seawall_update(tx, rows(), slice(m_key), slice(m_value));
  } else {
    status = seawall_insert(tx, rows(), slice(m_key), slice(m_value));
    if (status == SEAWALL_STATUS_KEY_EXISTS) m_duplicate = table->s->primary_key;
    if (status == SEAWALL_STATUS_OK) status = seawall_delete(tx, rows(), slice(m_old_key));
  }
  int error = failed(status);
  if (!error) error = change_entries(old_record, new_record);
  if (!error && table->next_number_field && new_record == table->record[0]) error = note_auto_increment(new_record);
  return guard.done(error);
}

int ha_seawall::delete_row(const uchar *record) {
  seawall_tx *tx = m_connection->tx();
  m_key.clear();
  primary_key_of(record, &m_key);
  Guard guard(tx, table->s->keys > 0);
  int error = failed(seawall_delete(tx, rows(), slice(m_key)));
  for (uint at = 0; !error && at < table->s->keys; at++) {
    if (is_primary(at)) continue;
    size_t unique_len;
    entry_of(at, record, &m_old_key, &unique_len);
    seawall_status status = seawall_delete(tx, index_tree(at), slice(m_old_key));
    if (status == SEAWALL_STATUS_NOT_FOUND) {
      m_error = "an index lacks the entry of a row that is being deleted: CHECK TABLE, and restore from a backup";
      error = HA_ERR_CRASHED;
    } else {
      error = failed(status);
    }
  }
  return guard.done(error);
}

// --- reading ---------------------------------------------------------------------------------------------

int ha_seawall::read_row(uchar *record, seawall_slice value) {
  const uchar *from = value.data;
  if (m_row.has_blobs()) {
    m_long.assign((const char *)value.data, value.len);
    from = (const uchar *)m_long.data();
  }
  if (m_row.decode(from, value.len, record)) return 0;
  m_error = "a row does not have the columns of its table: CHECK TABLE, and restore from a backup";
  return HA_ERR_CRASHED;
}

/* Reads the row of `m_primary`, from the snapshot or with the statement's lock. */
int ha_seawall::fetch(uchar *record) {
  seawall_slice value;
  seawall_tx *tx = m_connection->tx();
  seawall_status status = m_lock == SEAWALL_LOCK_NONE
      ? seawall_get(tx, rows(), slice(m_primary), &value)
      : seawall_lock_row(tx, rows(), slice(m_primary), m_lock, m_wait, 0, &value, nullptr);
  if (status != SEAWALL_STATUS_OK) return failed(status);
  return read_row(record, value);
}

/* Moves the cursor, and reads its row. */
int ha_seawall::move(uchar *record, seawall_seek to, const Bytes &key) {
  for (;;) {
    seawall_slice found, value;
    bool primary = active_index == MAX_KEY || is_primary(active_index);
    seawall_status status = seawall_cursor_seek(m_cursor.get(), m_connection->tx(), to, slice(key), &found,
                                                primary ? &value : nullptr);
    if (status == SEAWALL_STATUS_NOT_FOUND) return HA_ERR_END_OF_FILE;
    if (status != SEAWALL_STATUS_OK) return failed(status);
    m_key.assign((const char *)found.data, found.len);
    if (primary) {
      m_primary = m_key;
      return read_row(record, value);
    }
    /* The entry's key ends with the row's: as long as the parts before take. */
    size_t at = 0;
    if (!m_keys[active_index].length_in(m_key, &at)) {
      m_error = "an index entry is damaged: CHECK TABLE, and restore from a backup";
      return HA_ERR_CRASHED;
    }
    m_primary.assign(m_key, at, Bytes::npos);
    int error = fetch(record);
    if (error != HA_ERR_KEY_NOT_FOUND && !(error == HA_ERR_LOCK_WAIT_TIMEOUT && m_wait == SEAWALL_WAIT_MODE_SKIP_LOCKED))
      return error;
    /* The row was deleted, or is skipped. */
    to = to == SEAWALL_SEEK_LAST || to == SEAWALL_SEEK_PREV || to == SEAWALL_SEEK_BEFORE || to == SEAWALL_SEEK_AT_MOST
             ? SEAWALL_SEEK_PREV
             : SEAWALL_SEEK_NEXT;
  }
}

void ha_seawall::reset_cursor(const seawall_tree *tree) {
  seawall_bound lower = UNBOUNDED, upper = UNBOUNDED;
  if (m_exact) lower = {slice(m_search), SEAWALL_BOUND_KIND_INCLUDED};
  if (m_has_upper) upper = {slice(m_upper), SEAWALL_BOUND_KIND_EXCLUDED};
  seawall_cursor_reset(m_cursor.get(), tree, lower, upper, m_lock, m_wait, 0, 0);
}

int ha_seawall::rnd_init(bool) {
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
  size_t len = std::min<size_t>(m_key.size(), ref_length - 2);
  int2store(ref, len);
  memcpy(ref + 2, m_key.data(), len);
  memset(ref + 2 + len, 0, ref_length - 2 - len);
}
int ha_seawall::rnd_pos(uchar *record, uchar *position) {
  m_primary.assign((const char *)position + 2, uint2korr(position));
  return fetch(record);
}
int ha_seawall::cmp_ref(const uchar *a, const uchar *b) {
  uint la = uint2korr(a), lb = uint2korr(b);
  int order = memcmp(a + 2, b + 2, std::min(la, lb));
  return order ? order : (int)la - (int)lb;
}

int ha_seawall::index_init(uint index, bool) {
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
  for (; (parts & 1) && count < info->user_defined_key_parts; parts >>= 1) len += info->key_part[count++].store_length;
  /* The bounds of a LIKE are longer than the column: what does not fit does not count. */
  enum_check_fields check = table->in_use->count_cuted_fields;
  table->in_use->count_cuted_fields = CHECK_FIELD_IGNORE;
  key_restore(m_scratch.data(), key, info, len);
  table->in_use->count_cuted_fields = check;
  to->clear();
  m_keys[index].encode(m_scratch.data(), count, to);
}

int ha_seawall::index_read_map(uchar *record, const uchar *key, key_part_map parts, ha_rkey_function find) {
  encode_search(active_index, key, parts, &m_search);
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
    if (end_range) {
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
  return error == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : error;
}
int ha_seawall::index_next(uchar *record) { return move(record, SEAWALL_SEEK_NEXT, m_search); }
int ha_seawall::index_prev(uchar *record) { return move(record, SEAWALL_SEEK_PREV, m_search); }
int ha_seawall::index_next_same(uchar *record, const uchar *key, uint len) {
  if (int error = move(record, SEAWALL_SEEK_NEXT, m_search)) return error;
  return key_cmp_if_same(table, key, active_index, len) ? HA_ERR_END_OF_FILE : 0;
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

// --- automatic numbers -----------------------------------------------------------------------------------

/* Begins counting at the largest number in the table; under the share's mutex. */
int ha_seawall::begin_counting() {
  if (m_share->next_auto) return 0;
  uint64_t next = std::max<uint64_t>(m_share->definition.auto_from, 1);
  uint index = table->s->next_number_index;
  if (table->s->next_number_keypart == 0) {
    Cursor cursor;
    Tx tx;
    seawall_tx_options options{};
    options.wait = SEAWALL_WAIT_MODE_WAIT;
    seawall_status status = seawall_begin(db.get(), &options, tx.out());
    if (status == SEAWALL_STATUS_OK) status = seawall_cursor_new(cursor.out());
    if (status == SEAWALL_STATUS_OK)
      status = seawall_cursor_reset(cursor.get(), index_tree(index), UNBOUNDED, UNBOUNDED, SEAWALL_LOCK_NONE,
                                    SEAWALL_WAIT_MODE_DEFAULT, 0, 1);
    seawall_slice key, value;
    bool reverse = table->key_info[index].key_part[0].key_part_flag & HA_REVERSE_SORT;
    if (status == SEAWALL_STATUS_OK)
      status = seawall_cursor_seek(cursor.get(), tx.get(), reverse ? SEAWALL_SEEK_FIRST : SEAWALL_SEEK_LAST, NOTHING, &key, &value);
    if (status == SEAWALL_STATUS_OK && !is_primary(index)) {
      Bytes entry((const char *)key.data, key.len), primary;
      size_t at = 0;
      if (!m_keys[index].length_in(entry, &at)) return HA_ERR_CRASHED;
      primary.assign(entry, at, Bytes::npos);
      status = seawall_get(tx.get(), rows(), slice(primary), &value);
    }
    if (status == SEAWALL_STATUS_OK) {
      Bytes row((const char *)value.data, value.len);
      if (!m_row.decode((const uchar *)row.data(), row.size(), m_scratch.data())) return HA_ERR_CRASHED;
      my_ptrdiff_t offset = m_scratch.data() - table->record[0];
      Field *field = table->found_next_number_field;
      field->move_field_offset(offset);
      longlong last = field->val_int();
      bool is_unsigned = field->flags & UNSIGNED_FLAG;
      field->move_field_offset(-offset);
      if (is_unsigned || last > 0) next = std::max<uint64_t>(next, (uint64_t)last == UINT64_MAX ? UINT64_MAX : (uint64_t)last + 1);
    } else if (status != SEAWALL_STATUS_NOT_FOUND) {
      return failed(status);
    }
  }
  m_share->next_auto = next;
  return 0;
}

void ha_seawall::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                                    ulonglong *reserved) {
  if (table->s->next_number_keypart != 0) {
    /* Counted for each value of the parts before. */
    handler::get_auto_increment(offset, increment, wanted, first, reserved);
    return;
  }
  std::lock_guard<std::mutex> guard(m_share->mutex);
  if (begin_counting()) {
    *first = ULONGLONG_MAX;
    return;
  }
  uint64_t next = m_share->next_auto;
  if (increment > 1) next = next <= offset ? offset : offset + (next - offset + increment - 1) / increment * increment;
  *first = next;
  *reserved = wanted;
  uint64_t after = next + wanted * increment;
  m_share->next_auto = after < next ? UINT64_MAX : after;
}

/* A row has come with a number of its own. */
int ha_seawall::note_auto_increment(const uchar *record) {
  if (table->s->next_number_keypart != 0) return 0;
  Field *field = table->found_next_number_field;
  if (!field || !bitmap_is_set(table->write_set, field->field_index)) return 0;
  my_ptrdiff_t offset = record - table->record[0];
  field->move_field_offset(offset);
  longlong value = field->val_int();
  bool is_unsigned = field->flags & UNSIGNED_FLAG;
  field->move_field_offset(-offset);
  if (!is_unsigned && value <= 0) return 0;
  std::lock_guard<std::mutex> guard(m_share->mutex);
  if (int error = begin_counting()) return error;
  uint64_t next = (uint64_t)value == UINT64_MAX ? UINT64_MAX : (uint64_t)value + 1;
  m_share->next_auto = std::max(m_share->next_auto, next);
  return 0;
}

int ha_seawall::reset_auto_increment(ulonglong value) {
  std::lock_guard<std::mutex> guard(m_share->mutex);
  m_share->next_auto = 0;
  m_share->definition.auto_from = value;
  return begin_counting();
}

void ha_seawall::update_create_info(HA_CREATE_INFO *info) {
  if (info->used_fields & HA_CREATE_USED_AUTO || !table->found_next_number_field) return;
  std::lock_guard<std::mutex> guard(m_share->mutex);
  if (!begin_counting()) info->auto_increment_value = m_share->next_auto;
}

// --- what the optimizer asks -----------------------------------------------------------------------------

int ha_seawall::info(uint flags) {
  if (flags & HA_STATUS_ERRKEY) errkey = m_duplicate;
  if (flags & HA_STATUS_VARIABLE) {
    uint64_t count = 0, pages = 0, bytes = 0;
    Tx tx;
    seawall_tx_options options{};
    options.wait = SEAWALL_WAIT_MODE_WAIT;
    if (seawall_begin(db.get(), &options, tx.out()) == SEAWALL_STATUS_OK)
      seawall_estimate_range(tx.get(), rows(), UNBOUNDED, UNBOUNDED, &count, &pages);
    seawall_tree_bytes(db.get(), rows(), &bytes);
    stats.records = (ha_rows)std::max<uint64_t>(count, 2); /* 0 and 1 would mean exactly so many */
    stats.data_file_length = bytes;
    stats.mean_rec_length = (ulong)(count ? bytes / count : 0);
    stats.index_file_length = 0;
    for (size_t at = 1; at < m_share->trees.size(); at++) {
      uint64_t more = 0;
      seawall_tree_bytes(db.get(), m_share->trees[at].get(), &more);
      stats.index_file_length += more;
    }
    stats.deleted = 0;
  }
  if (flags & HA_STATUS_CONST) {
    stats.block_size = 16384;
    ref_length = ref_length;
    for (uint at = 0; at < table->s->keys; at++) {
      KEY *key = table->key_info + at;
      for (uint part = 0; part < key->ext_key_parts; part++) {
        bool whole = part + 1 >= key->user_defined_key_parts;
        key->rec_per_key[part] = whole && (key->flags & HA_NOSAME) ? 1 : 0;
      }
    }
  }
  if ((flags & HA_STATUS_AUTO) && table->found_next_number_field) {
    std::lock_guard<std::mutex> guard(m_share->mutex);
    if (!begin_counting()) stats.auto_increment_value = m_share->next_auto;
  }
  return 0;
}

ha_rows ha_seawall::records_in_range(uint index, const key_range *min, const key_range *max, page_range *) {
  Bytes low, high;
  seawall_bound lower = UNBOUNDED, upper = UNBOUNDED;
  if (min) {
    encode_search(index, min->key, min->keypart_map, &low);
    if (min->flag == HA_READ_AFTER_KEY && !successor(&low)) return 0;
    lower = {slice(low), SEAWALL_BOUND_KIND_INCLUDED};
  }
  if (max) {
    encode_search(index, max->key, max->keypart_map, &high);
    if (max->flag == HA_READ_BEFORE_KEY || successor(&high)) upper = {slice(high), SEAWALL_BOUND_KIND_EXCLUDED};
  }
  uint64_t count = 0, pages = 0;
  if (seawall_estimate_range(m_connection->tx(), index_tree(index), lower, upper, &count, &pages) != SEAWALL_STATUS_OK)
    return HA_POS_ERROR;
  return (ha_rows)std::max<uint64_t>(count, 1);
}

int ha_seawall::extra(enum ha_extra_function) { return 0; }
int ha_seawall::reset() {
  m_wait = SEAWALL_WAIT_MODE_DEFAULT;
  m_long.clear();
  return 0;
}

// --- locks -----------------------------------------------------------------------------------------------

THR_LOCK_DATA **ha_seawall::store_lock(THD *thd, THR_LOCK_DATA **to, thr_lock_type type) {
  if (type != TL_IGNORE) {
    bool committed = thd_tx_isolation(thd) <= ISO_READ_COMMITTED;
    if (type >= TL_WRITE_ALLOW_WRITE) {
      m_lock = SEAWALL_LOCK_EXCLUSIVE;
    } else if (type == TL_READ_WITH_SHARED_LOCKS || (type == TL_READ_NO_INSERT && !committed)) {
      m_lock = SEAWALL_LOCK_SHARED;
    } else {
      m_lock = SEAWALL_LOCK_NONE;
    }
    m_wait = SEAWALL_WAIT_MODE_DEFAULT;
    if (const TABLE_LIST *list = table->pos_in_table_list) {
      if (list->select_lex && list->select_lex->select_lock == st_select_lex::select_lock_type::NONE) {
      } else if (list->skip_locked) {
        m_wait = SEAWALL_WAIT_MODE_SKIP_LOCKED;
      }
    }
  }
  if (type != TL_IGNORE && m_lock_data.type == TL_UNLOCK) {
    /* The engine locks rows: writers of a table do not wait for each other, as long as no LOCK TABLES asks for it. */
    if (type >= TL_WRITE_CONCURRENT_INSERT && type <= TL_WRITE && !thd_in_lock_tables(thd) && !thd_tablespace_op(thd))
      type = TL_WRITE_ALLOW_WRITE;
    if (type == TL_READ_NO_INSERT && !thd_in_lock_tables(thd)) type = TL_READ;
    m_lock_data.type = type;
  }
  *to++ = &m_lock_data;
  return to;
}

int ha_seawall::external_lock(THD *thd, int type) {
  if (type == F_UNLCK) {
    if (m_connection && m_connection->tables > 0 && --m_connection->tables == 0 &&
        !thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN)) {
      /* The server calls commit or rollback, if the statement was registered. */
    }
    return 0;
  }
  m_connection = Connection::of(thd);
  if (!m_connection) return HA_ERR_OUT_OF_MEM;
  if (type == F_WRLCK) m_lock = SEAWALL_LOCK_EXCLUSIVE;
  m_connection->tables++;
  return m_connection->use(thd);
}

int ha_seawall::start_stmt(THD *thd, thr_lock_type type) {
  m_connection = Connection::of(thd);
  if (!m_connection) return HA_ERR_OUT_OF_MEM;
  m_lock = type >= TL_WRITE_ALLOW_WRITE ? SEAWALL_LOCK_EXCLUSIVE
           : type == TL_READ_WITH_SHARED_LOCKS || type == TL_READ_NO_INSERT ? SEAWALL_LOCK_SHARED
                                                                            : SEAWALL_LOCK_NONE;
  return m_connection->use(thd);
}

void ha_seawall::unlock_row() {
  if (m_lock == SEAWALL_LOCK_NONE || !m_connection) return;
  seawall_unlock_row(m_connection->tx(), rows(), slice(m_primary), nullptr);
  if (active_index != MAX_KEY && !is_primary(active_index))
    seawall_unlock_row(m_connection->tx(), index_tree(active_index), slice(m_key), nullptr);
}

// --- the plugin ------------------------------------------------------------------------------------------

static handler *create_handler(handlerton *h, TABLE_SHARE *share, MEM_ROOT *root) {
  return new (root) ha_seawall(h, share);
}
static void drop_database_hook(handlerton *, char *path) {
  if (drop_database(path) != SEAWALL_STATUS_OK)
    sql_print_error("Seawall: the tables of %s could not be dropped: %s", path, seawall_error());
}
static int drop_table_hook(handlerton *, const char *path) {
  seawall_status status = drop_table(path);
  return status == SEAWALL_STATUS_NOT_FOUND ? ENOENT : error_of(nullptr, status, nullptr);
}

static char *pool_size_text, *options_text;
static MYSQL_SYSVAR_STR(pool_size, pool_size_text, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                        "Memory for pages, for example 4G", nullptr, nullptr, "128M");
static MYSQL_SYSVAR_STR(options, options_text, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                        "More options of the engine: name=value, separated by commas", nullptr, nullptr, "");
static struct st_mysql_sys_var *variables[] = {MYSQL_SYSVAR(pool_size), MYSQL_SYSVAR(options), MYSQL_SYSVAR(ignore_foreign_keys),
                                              nullptr};

/* The server's: directories below the data directory that are no databases. */
extern bool ignore_db_dirs_append(const char *name);

static int init(void *p) {
  hton = static_cast<handlerton *>(p);
  std::vector<std::string> options{std::string("pool_size=") + pool_size_text};
  std::string more = options_text ? options_text : "";
  for (size_t begin = 0; begin < more.size();) {
    size_t end = std::min(more.find(',', begin), more.size());
    if (end > begin) options.push_back(more.substr(begin, end - begin));
    begin = end + 1;
  }
  std::vector<const char *> texts;
  for (const std::string &option : options) texts.push_back(option.c_str());
  ignore_db_dirs_append("#seawall");
  std::string path = std::string(mysql_real_data_home) + "#seawall";
  seawall_status status = seawall_open(path.c_str(), texts.data(), texts.size(), db.out());
  if (status == SEAWALL_STATUS_OK) status = open_dictionary();
  if (status != SEAWALL_STATUS_OK) {
    sql_print_error("Seawall: %s", seawall_error());
    sql_print_error("Seawall: the server goes on without the engine; its tables cannot be used.");
    db.out();
    return 1;
  }
  hton->create = create_handler;
  hton->flags = HTON_CAN_RECREATE * 0 | HTON_SUPPORTS_EXTENDED_KEYS * 0;
  hton->drop_database = drop_database_hook;
  hton->drop_table = drop_table_hook;
  static const char *no_files[] = {nullptr};
  hton->tablefile_extensions = no_files;
  set_hooks(hton);
  sql_print_information("Seawall %s has opened %s", seawall_version(), path.c_str());
  return 0;
}

static int deinit(void *) {
  close_dictionary();
  seawall_status status = seawall_shutdown(db.get(), 60000);
  if (status != SEAWALL_STATUS_OK) sql_print_error("Seawall: %s", seawall_error());
  db.out();
  return 0;
}

static struct st_mysql_storage_engine engine = {MYSQL_HANDLERTON_INTERFACE_VERSION};

maria_declare_plugin(seawall){
    MYSQL_STORAGE_ENGINE_PLUGIN,
    &engine,
    "SEAWALL",
    "The Seawall authors",
    "Transactions, row locks and direct I/O: the Seawall storage engine",
    PLUGIN_LICENSE_GPL,
    init,
    deinit,
    0x0001,
    nullptr,
    variables,
    "0.1",
    MariaDB_PLUGIN_MATURITY_GAMMA} maria_declare_plugin_end;

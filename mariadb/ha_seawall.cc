/* SPDX-License-Identifier: GPL-2.0-only */
#include "ha_seawall.h"
#include <create_options.h>
#include <algorithm>

using namespace seawall;

ha_seawall::ha_seawall(handlerton *h, TABLE_SHARE *share) : handler(h, share) {}
ha_seawall::~ha_seawall() = default;

handler::Table_flags ha_seawall::table_flags() const {
  Table_flags flags = HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS | HA_PRIMARY_KEY_IN_READ_INDEX | HA_TABLE_SCAN_ON_INDEX |
                      HA_REC_NOT_IN_SEQ | HA_CAN_SQL_HANDLER | HA_BINLOG_ROW_CAPABLE |
                      HA_CAN_VIRTUAL_COLUMNS | HA_CONCURRENT_OPTIMIZE | HA_CRASH_SAFE | HA_CAN_SKIP_LOCKED |
                      HA_ONLINE_ANALYZE | HA_REQUIRES_KEY_COLUMNS_FOR_DELETE | HA_CAN_GEOMETRY |
                      HA_CAN_TABLES_WITHOUT_ROLLBACK | HA_CAN_ONLINE_BACKUPS;
  /* Without range locks, the same statements could have other results on a replica. */
  THD *thd = ha_thd();
  if (!thd || thd_tx_isolation(thd) > ISO_READ_COMMITTED) flags |= HA_BINLOG_STMT_CAPABLE;
  /* Long columns are read only when the statement reads them. */
  if (table_share && table_share->blob_fields) flags |= HA_PARTIAL_COLUMN_READ;
  return flags;
}

ulong ha_seawall::index_flags(uint index, uint part, bool all_parts) const {
  ulong flags = HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE;
  uint primary = table_share->primary_key;
  auto readable = [&](uint key, uint at) {
    const KEY_PART_INFO &p = table_share->key_info[key].key_part[at];
    return !p.field || is_readable(p.field, p.length);
  };
  bool covers = readable(index, part);
  for (uint at = 0; all_parts && at < part; at++) covers &= readable(index, at);
  /* An index with other parts is not read alone, but its rows; and then the server computes no virtual column. */
  const Field *field = table_share->key_info[index].key_part[part].field;
  if (field && !field->stored_in_db())
    for (uint at = 0; at < table_share->key_info[index].user_defined_key_parts; at++) covers &= readable(index, at);
  if (primary < MAX_KEY)
    for (uint at = 0; at < table_share->key_info[primary].user_defined_key_parts; at++) covers &= readable(primary, at);
  if (covers) flags |= HA_KEYREAD_ONLY;
  if (index == primary) return flags | HA_CLUSTERED_INDEX;
  if (index < m_may_be_cut.size() ? m_may_be_cut[index] : may_be_cut(index)) flags |= HA_KEY_SCAN_NOT_ROR;
  /* A pushed condition, and the end of a range with it, may use any part, not only the one that the server asks
     about. */
  for (uint at = 0; at < table_share->key_info[index].user_defined_key_parts; at++) covers &= readable(index, at);
  return covers ? flags | HA_DO_INDEX_COND_PUSHDOWN | HA_DO_RANGE_FILTER_PUSHDOWN : flags;
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

// --- tables -------------------------------------------------------------------------------------------

/* Opens the table's trees. Called under the share's mutex. */
int ha_seawall::open_trees(const char *name) {
  Definition definition;
  seawall_status status = find_table(name, &definition);
  if (status == SEAWALL_STATUS_NOT_FOUND) return HA_ERR_NO_SUCH_TABLE;
  Tx tx;
  seawall_tx_options options{};
  options.isolation = SEAWALL_ISOLATION_READ_COMMITTED;
  options.wait = SEAWALL_WAIT_MODE_WAIT;
  if (status == SEAWALL_STATUS_OK) status = seawall_begin(db.get(), &options, tx.out());
  std::vector<Tree> trees(1);
  if (status == SEAWALL_STATUS_OK) status = seawall_open_tree(tx.get(), tree_name(definition.number, 0).c_str(), trees[0].out());
  for (uint at = 0; status == SEAWALL_STATUS_OK && at < table->s->keys; at++) {
    if (is_primary(at)) continue;
    uint32_t index = definition.index(table->key_info[at].name.str);
    if (index == 0) {
      m_error = "the engine has no index of the name that the table's definition has: " + std::string(table->key_info[at].name.str);
      return HA_ERR_CRASHED;
    }
    trees.emplace_back();
    status = seawall_open_tree(tx.get(), tree_name(definition.number, index).c_str(), trees.back().out());
  }
  Tree long_columns;
  if (status == SEAWALL_STATUS_OK && definition.has_long_columns)
    status = seawall_open_tree(tx.get(), tree_name(definition.number, LONG_COLUMNS).c_str(), long_columns.out());
  if (status == SEAWALL_STATUS_OK) status = counters_of(definition.number, &m_share->counters);
  if (status != SEAWALL_STATUS_OK) return failed(status);
  m_share->trees = std::move(trees);
  m_share->number = definition.number;
  m_share->created = (time_t)definition.created;
  m_share->layouts = definition.layouts;
  m_share->long_columns = std::move(long_columns);
  m_share->long_values_of_dropped = false;
  for (const auto &column : definition.layouts.dropped) m_share->long_values_of_dropped |= column.second.apart;
  {
    std::lock_guard<std::mutex> guard(m_share->statistics_mutex);
    m_share->statistics.reset();
  }
  m_share->size.known = false;
  m_share->open = true;
  return 0;
}

int ha_seawall::open(const char *name, int, uint) {
  m_name = name;
  m_is_temporary = is_temporary(name);
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
    if (!m_row.init(table, m_share->layouts)) {
      m_error = "the engine's rows have other columns than the table's definition";
      return HA_ERR_CRASHED;
    }
  }
  key_used_on_scan = table->s->primary_key;
  size_t longest = init_keys();
  ref_length = (uint)std::min(longest, seawall_key_bytes_max(db.get())) + 2;
  m_scratch.resize(table->s->reclength + 8);
  if (int error = failed(seawall_cursor_new(m_cursor.out()))) return error;
  /* The server asks for the rows per value only here and in SHOW INDEX. The table opens even if its statistics cannot
     be read. */
  info(HA_STATUS_VARIABLE | HA_STATUS_CONST);
  return 0;
}

/* Whether entries of a secondary index may be cut (Entry_codec). The server asks the first partition, even if it is not
   open, for all partitions, which may have either encoding. */
bool ha_seawall::may_be_cut(uint index) const {
  const uint primary = table_share->primary_key;
  for (bool levels : {false, true}) {
    if (!is_partition() && m_share && levels != m_share->layouts.levels) continue;
    Key_codec columns, row;
    columns.init(nullptr, table_share->field, table_share->key_info + index, levels);
    if (primary < MAX_KEY) row.init(nullptr, table_share->field, table_share->key_info + primary, levels);
    if (Entry_codec(&columns, primary < MAX_KEY ? &row : nullptr, false, seawall_key_bytes_max(db.get())).may_be_cut()) return true;
  }
  return false;
}

/* Returns the maximum length of a row's key. */
size_t ha_seawall::init_keys() {
  const uint primary = table->s->primary_key;
  m_keys.resize(table->s->keys);
  m_covers.resize(table->s->keys);
  m_may_be_cut.resize(table->s->keys);
  m_entries.clear();
  for (uint at = 0; at < table->s->keys; at++) {
    m_keys[at].init(table, table->key_info + at, m_share->layouts.levels);
    m_may_be_cut[at] = at != primary && may_be_cut(at);
    m_covers[at] = index_flags(at, table->key_info[at].user_defined_key_parts - 1, true) & HA_KEYREAD_ONLY;
  }
  for (uint at = 0; at < table->s->keys; at++) {
    KEY *info = table->key_info + at;
    m_entries.emplace_back(&m_keys[at], primary < MAX_KEY ? &m_keys[primary] : nullptr, info->flags & HA_NOSAME, seawall_key_bytes_max(db.get()));
    if (!m_may_be_cut[at]) continue;
    /* Entries with equal columns are not in the order of the primary key: the optimizer must not rely on it. */
    info->ext_key_parts = info->user_defined_key_parts;
    info->ext_key_flags = info->flags;
    info->ext_key_part_map = 0;
  }
  if (primary >= MAX_KEY) return 8;
  if (!is_partition()) return m_keys[primary].max_bytes();
  /* The server takes the length from those partitions that it has opened by now. */
  Key_codec other;
  other.init(table, table->key_info + primary, !m_share->layouts.levels);
  return std::max(m_keys[primary].max_bytes(), other.max_bytes());
}

int ha_seawall::close() {
  m_cursor.out();
  return 0;
}

/* Refuses foreign keys, or leaves them out with a warning: never silently. The list of keys is that of the statement only if
   the statement defines a table: others create tables too (a partition for history in an UPDATE), and find the list of an
   earlier statement, whose memory is freed. */
static int refuse_foreign_keys(THD *thd) {
  if (thd->lex->sql_command != SQLCOM_CREATE_TABLE && thd->lex->sql_command != SQLCOM_ALTER_TABLE) return 0;
  List_iterator<Key> keys(thd->lex->alter_info.key_list);
  while (const Key *key = keys++) {
    if (key->type != Key::FOREIGN_KEY) continue;
    std::string name = key->name.str && *key->name.str ? "constraint `" + std::string(key->name.str) + "`" : "a constraint without a name";
    if (!ignores_foreign_keys(thd)) {
      my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION,
                      "Seawall has no foreign keys (%s): SET seawall_ignore_foreign_keys = 1 makes the table without them", MYF(0), name.c_str());
      return HA_WRONG_CREATE_OPTION;
    }
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION, "Seawall has no foreign keys: %s is left out",
                        name.c_str());
  }
  return 0;
}

struct ha_table_option_struct {
  ulonglong fill_percent;
};
ha_create_table_option seawall::table_options[] = {HA_TOPTION_NUMBER("FILL_PERCENT", fill_percent, 90, 50, 100, 1), HA_TOPTION_END};

/* A partitioned table has the options of its partitions' engine; a sequence has none. */
uint seawall::fill_percent_of(const TABLE *table) {
  const ha_table_option_struct *options = table->file && table->file->partition_ht() == hton ? table->s->option_struct : nullptr;
  return options ? (uint)options->fill_percent : 0;
}

Lengths seawall::lengths_of(TABLE *form, uint index, bool levels) {
  const size_t most = seawall_key_bytes_max(db.get());
  const uint primary = form->s->primary_key;
  Key_codec columns, row;
  columns.init(form, form->key_info + index, levels);
  size_t bytes = columns.usual_bytes();
  if (index == primary) {
    if (std::any_of(form->field, form->field + form->s->fields, may_be_apart)) bytes += LONG_KEY_BYTES;
    return {bytes, bytes > most, false};
  }
  if (primary < MAX_KEY) row.init(form, form->key_info + primary, levels);
  Entry_codec entries(&columns, primary < MAX_KEY ? &row : nullptr, false, most);
  bytes += Entry_codec::DIGEST_BYTES;
  return {bytes, bytes > most, entries.may_be_cut()};
}

/* Whether an option of another engine is on, which ALTER TABLE hands over silently. */
static bool is_on(const HA_CREATE_INFO *info, const char *name) {
  for (const engine_option_value *option = info->option_list; option; option = option->next) {
    const char *value = option->value.str;
    if (value && !strcasecmp(option->name.str, name) && (!strcasecmp(value, "YES") || !strcasecmp(value, "ON") || !strcmp(value, "1"))) return true;
  }
  return false;
}

int ha_seawall::create(const char *name, TABLE *form, HA_CREATE_INFO *info) {
  if (int error = refuse_foreign_keys(form->in_use)) return error;
  if (info->row_type == ROW_TYPE_FIXED || info->row_type == ROW_TYPE_PAGE) {
    my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "SEAWALL", "ROW_TYPE");
    return HA_WRONG_CREATE_OPTION;
  }
  if (is_on(info, "ENCRYPTED")) {
    my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "SEAWALL", "ENCRYPTED");
    return HA_WRONG_CREATE_OPTION;
  }
  if (is_on(info, "PAGE_COMPRESSED"))
    push_warning(form->in_use, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION, "Seawall does not compress: PAGE_COMPRESSED has no effect");
  if (info->row_type == ROW_TYPE_COMPRESSED || info->key_block_size)
    push_warning(form->in_use, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION, "Seawall does not compress: ROW_FORMAT=COMPRESSED and KEY_BLOCK_SIZE have no effect");
  /* Without symbolic links the server warns, and leaves them out. */
  for (auto [given, what] : {std::pair(info->data_file_name, "DATA DIRECTORY"), std::pair(info->index_file_name, "INDEX DIRECTORY")})
    if (given) push_warning_printf(form->in_use, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED, ER_THD(form->in_use, WARN_OPTION_IGNORED), what);
  uint32_t columns = 0;
  bool has_long_columns = false;
  for (Field **field = form->field; *field; field++) {
    columns += (*field)->stored_in_db();
    has_long_columns |= may_be_apart(*field);
  }
  std::vector<std::string> secondary;
  for (uint at = 0; at < form->s->keys; at++) {
    const KEY *key = form->key_info + at;
    if (seawall_is_special(key)) {
      my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, "Seawall has no FULLTEXT and no SPATIAL indexes (index `%s`)", MYF(0),
                      key->name.str);
      return HA_WRONG_CREATE_OPTION;
    }
    Lengths lengths = lengths_of(form, at, Layouts().levels);
    if (lengths.too_long) {
      my_printf_error(ER_TOO_LONG_KEY, "The keys of index `%s` may have %zu bytes; the limit is %zu, or more in a new database with a larger page_size", MYF(0),
                      key->name.str, lengths.bytes, seawall_key_bytes_max(db.get()));
      return HA_WRONG_CREATE_OPTION;
    }
    if (at != form->s->primary_key) secondary.push_back(key->name.str);
  }
  seawall_status status = create_table(name, columns, has_long_columns, secondary, version_of(form), info->auto_increment_value);
  return error_of(nullptr, status, &m_error);
}

std::string seawall::version_of(const TABLE *form) {
  return std::string((const char *)form->s->tabledef_version.str, form->s->tabledef_version.length);
}

/* The trees are dropped when the connection's transaction ends, if it may have locked them: those of temporary tables,
   which are dropped without a commit before. */
static std::vector<uint64_t> *later(bool temporary) {
  THD *thd = current_thd;
  Connection *connection = thd ? Connection::known(thd) : nullptr;
  return connection ? connection->to_drop(temporary) : nullptr;
}

int seawall::drop_by_path(const char *path, Bytes *error) {
  seawall_status status = drop_table(path, later(is_temporary(path)));
  return status == SEAWALL_STATUS_NOT_FOUND ? HA_ERR_NO_SUCH_TABLE : error_of(nullptr, status, error);
}

int ha_seawall::delete_table(const char *name) { return drop_by_path(name, &m_error); }

int ha_seawall::rename_table(const char *from, const char *to) {
  seawall_status status = seawall::rename_table(from, to);
  return status == SEAWALL_STATUS_NOT_FOUND ? HA_ERR_NO_SUCH_TABLE : error_of(nullptr, status, &m_error);
}

int ha_seawall::truncate() {
  /* The server's locks do not cover prepared transactions that no connection has: wait for them. */
  if (table->s->tmp_table == NO_TMP_TABLE)
    if (int error = failed(seawall_lock_tree(tx(), rows()))) return error;
  std::lock_guard<std::mutex> guard(m_share->mutex);
  if (int error = failed(truncate_table(m_name.c_str(), later(is_temporary(m_name.c_str()))))) return error;
  m_share->open = false;
  return open_trees(m_name.c_str());
}

/* A second handler of the statement locks the rows that it reads in the same way as the first. */
handler *ha_seawall::clone(const char *name, MEM_ROOT *root) {
  handler *other = handler::clone(name, root);
  if (other) {
    static_cast<ha_seawall *>(other)->m_lock = m_lock;
    static_cast<ha_seawall *>(other)->m_wait = m_wait;
  }
  return other;
}

// --- automatic numbers --------------------------------------------------------------------------------

/* The largest number that fits the column. */
static uint64_t most_of(Field *field) { return field->get_max_int_value(); }

/* Locks the automatic numbers by seawall_autoinc_lock_mode, as in InnoDB. 0: each statement that inserts locks the
   numbers until it ends; 1: only a statement that is not `simple`, and one that comes while the numbers are locked; 2:
   none. `take` changes the counter; with `unless_locked` it only does so if the numbers are not locked. */
template <typename F> seawall_status ha_seawall::take_auto_increment(bool simple, F take) {
  ulong mode = autoinc_lock_mode();
  if (mode == 2 || m_own) return take(false);
  seawall_status status = mode == 1 && simple ? take(true) : SEAWALL_STATUS_LOCK_TIMEOUT;
  if (status != SEAWALL_STATUS_LOCK_TIMEOUT) return status;
  status = m_connection->lock_auto(m_share->counters);
  return status == SEAWALL_STATUS_OK ? take(false) : status;
}

void ha_seawall::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                                    ulonglong *reserved) {
  if (table->s->next_number_keypart != 0) {
    /* The numbers are counted for each value of the key parts before. */
    handler::get_auto_increment(offset, increment, wanted, first, reserved);
    return;
  }
  int command = thd_sql_command(m_connection->thd());
  /* The number of rows is known. SQLCOM_END: rows of a binary log. */
  bool simple = command == SQLCOM_INSERT || command == SQLCOM_REPLACE || command == SQLCOM_END;
  /* No gaps; nor behind the rows that FOR PORTION OF leaves, as in InnoDB. */
  if (autoinc_lock_mode() == 0 || command == SQLCOM_UPDATE || command == SQLCOM_DELETE) wanted = 1;
  uint64_t number;
  m_auto_error = failed(take_auto_increment(simple, [&](bool unless_locked) {
    return m_share->counters->take_auto(offset, increment, wanted, most_of(table->found_next_number_field), unless_locked, &number);
  }));
  *first = m_auto_error ? ULONGLONG_MAX : number;
  *reserved = wanted;
}

/* The automatic number in a row, 0 if it has none. */
uint64_t ha_seawall::auto_number(const uchar *record) {
  /* Not next_number_field: the server sets it only for an INSERT, not for an UPDATE, a row that comes from another
     partition, or a change from a replica's primary. */
  Field *field = table->found_next_number_field;
  if (!field) return 0;
  MY_BITMAP *columns = dbug_tmp_use_all_columns(table, &table->read_set);
  my_ptrdiff_t offset = record - table->record[0];
  field->move_field_offset(offset);
  longlong value = field->val_int();
  field->move_field_offset(-offset);
  dbug_tmp_restore_column_map(&table->read_set, columns);
  return value > 0 || field->flags & UNSIGNED_FLAG ? (uint64_t)value : 0;
}

/* Notes the number that a row has. */
int ha_seawall::note_auto_increment(const uchar *record) {
  if (table->s->next_number_keypart != 0) return 0;
  uint64_t value = auto_number(record);
  if (value == 0 || value < m_share->counters->next_auto()) return 0;
  /* Not between the numbers of another statement: a replica may execute that one alone. */
  return failed(take_auto_increment(true, [&](bool unless_locked) {
    return m_share->counters->note_auto(value, most_of(table->found_next_number_field), unless_locked);
  }));
}

int ha_seawall::reset_auto_increment(ulonglong value) { return failed(m_share->counters->set_auto(value)); }

void ha_seawall::update_create_info(HA_CREATE_INFO *info) {
  if (info->used_fields & HA_CREATE_USED_AUTO || !table->found_next_number_field) return;
  info->auto_increment_value = m_share->counters->next_auto();
}

// --- what the optimizer asks --------------------------------------------------------------------------

/* Estimates the size again when a sixteenth of the rows have changed; in between, counts inserted and deleted rows. */
Share::Size ha_seawall::size_of_table() {
  std::lock_guard<std::mutex> guard(m_share->size_mutex);
  Share::Size &size = m_share->size;
  uint64_t changes = m_share->changes.load(std::memory_order_relaxed);
  int64_t grown = m_share->grown.load(std::memory_order_relaxed);
  if (size.known && changes - size.changes <= size.rows / 16) {
    int64_t rows = (int64_t)size.rows + grown - size.grown;
    size.rows = rows > 0 ? rows : 0;
    size.grown = grown;
    return size;
  }
  size = Share::Size();
  size.changes = changes;
  size.grown = grown;
  Tx tx;
  seawall_tx_options options{};
  options.wait = SEAWALL_WAIT_MODE_WAIT;
  uint64_t pages;
  size.known = seawall_begin(db.get(), &options, tx.out()) == SEAWALL_STATUS_OK &&
               seawall_estimate_range(tx.get(), rows(), UNBOUNDED, UNBOUNDED, &size.rows, &pages) == SEAWALL_STATUS_OK;
  auto add = [](const seawall_tree *tree, uint64_t *to) {
    uint64_t bytes = 0;
    seawall_tree_bytes(db.get(), tree, &bytes);
    *to += bytes;
  };
  add(rows(), &size.bytes);
  if (m_share->long_columns) add(m_share->long_columns.get(), &size.bytes);
  for (size_t at = 1; at < m_share->trees.size(); at++) add(m_share->trees[at].get(), &size.index_bytes);
  return size;
}

int ha_seawall::info(uint flags) {
  if (flags & HA_STATUS_ERRKEY) errkey = m_connection ? m_connection->duplicate() : MAX_KEY;
  if (flags & HA_STATUS_VARIABLE) {
    Share::Size size = size_of_table();
    /* The optimizer treats a table with 0 rows as empty. Partitions of history that are full are told by exact counts
       (`ha_partition::part_records`, which says HA_STATUS_OPEN). */
    stats.records = (ha_rows)(size.rows == 0 && !(flags & (HA_STATUS_TIME | HA_STATUS_OPEN)) ? 1 : size.rows);
    stats.data_file_length = size.bytes;
    stats.index_file_length = size.index_bytes;
    stats.mean_rec_length = (ulong)(size.rows ? size.bytes / size.rows : 0);
    stats.deleted = 0;
    stats.create_time = m_share->created;
    stats.update_time = m_share->updated.load(std::memory_order_relaxed);
  }
  if (flags & HA_STATUS_CONST || ((flags & HA_STATUS_VARIABLE) && are_statistics_old())) {
    stats.block_size = 16384;
    std::shared_ptr<const Statistics> known;
    if (int error = read_statistics(false, &known)) return error;
    for (uint at = 0; at < table->s->keys; at++) {
      KEY *key = table->key_info + at;
      uint own = key->user_defined_key_parts;
      for (uint part = 0; part < key->ext_key_parts; part++) {
        bool one = (part + 1 >= own && (key->flags & HA_NOSAME)) || (part + 1 == key->ext_key_parts && (key->ext_key_flags & HA_EXT_NOSAME));
        /* With parts of the primary key, there are at most as many as without. */
        key->rec_per_key[part] = one ? 1 : known ? known->rows_per_value(key->name.str, std::min(part, own - 1)) : 0;
      }
    }
  }
  if ((flags & HA_STATUS_AUTO) && table->found_next_number_field)
    stats.auto_increment_value = m_share->counters->next_auto();
  return 0;
}

#if MYSQL_VERSION_ID < 110000
/* Rows in the order of the primary key are read as in a scan of the table, of which they are a part. */
double ha_seawall::read_time(uint index, uint ranges, ha_rows rows) {
  if (!is_primary(index)) return handler::read_time(index, ranges, rows);
  double share = stats.records > rows ? rows2double(rows) / rows2double(stats.records) : 1;
  return ranges + share * scan_time();
}
#endif

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
  if (seawall_estimate_range(tx(), index_tree(index), lower, upper, &count, &pages) != SEAWALL_STATUS_OK)
    return HA_POS_ERROR;
  return (ha_rows)std::max<uint64_t>(count, 1);
}

/* A pushed condition on columns of the index, and with it the end of the range, is tested before the row is read. */
Item *ha_seawall::idx_cond_push(uint index, Item *condition) {
  pushed_idx_cond = condition;
  pushed_idx_cond_keyno = index;
  in_range_check_pushed_down = true;
  return nullptr;
}

/* The filter, which has the rows that another index selects, is tested before the row is read, too. */
bool ha_seawall::rowid_filter_push(Rowid_filter *filter) {
  pushed_rowid_filter = filter;
  rowid_filter_is_active = true;
  return false;
}

int ha_seawall::extra(enum ha_extra_function operation) {
  switch (operation) {
  case HA_EXTRA_WRITE_CAN_REPLACE:
  case HA_EXTRA_INSERT_WITH_UPDATE: m_replaces = true; break;
  case HA_EXTRA_WRITE_CANNOT_REPLACE: m_replaces = false; break;
  case HA_EXTRA_IGNORE_DUP_KEY: m_ignores_duplicates = true; break;
  case HA_EXTRA_NO_IGNORE_DUP_KEY: m_ignores_duplicates = false; break;
  case HA_EXTRA_KEYREAD: m_keyread = true; break;
  case HA_EXTRA_NO_KEYREAD: m_keyread = false; break;
  case SEAWALL_BEGIN_COPY: m_copy.on = can_copy(); break;
  case SEAWALL_END_COPY: return finish_copy();
  case SEAWALL_ABORT_COPY: abandon_copy(); break;
  case HA_EXTRA_PREPARE_FOR_RENAME: return check_original();
  default: break;
  }
  return 0;
}
int ha_seawall::reset() {
  m_ignores_duplicates = m_replaces = m_keyread = m_semi_consistent = m_waits_for_row = false;
  m_wait = SEAWALL_WAIT_MODE_DEFAULT;
  m_blobs.clear();
  m_long_values.clear();
  m_ahead.clear();
  m_batch = Batch(); /* rows that it should still have make the commit fail */
  if (!m_copy.replays) {
    abandon_copy();
    /* After LOCK TABLES, the next statement uses the handler that a copy has read from. A sequence keeps its transaction. */
    if (!table->s->sequence) m_own.out();
  }
  return 0;
}

// --- locks --------------------------------------------------------------------------------------------

/* Whether the rows that the statement reads must not change until the transaction ends, as in InnoDB: a replica that
   executes the statement at its place in the binary log reads the same, and what is computed from them stays right. */
static bool reads_for_changes(THD *thd, thr_lock_type type) {
  bool repeatable = thd_tx_isolation(thd) > ISO_READ_COMMITTED;
  int command = thd_sql_command(thd);
  switch (command) {
  case SQLCOM_INSERT_SELECT:
  case SQLCOM_REPLACE_SELECT:
  case SQLCOM_UPDATE:
  case SQLCOM_CREATE_TABLE: return repeatable;
  case SQLCOM_INSERT:
  case SQLCOM_REPLACE:
  case SQLCOM_UPDATE_MULTI:
  case SQLCOM_DELETE:
  case SQLCOM_DELETE_MULTI:
  case SQLCOM_LOAD:
  case SQLCOM_SET_OPTION:
  case SQLCOM_DO:
  case SQLCOM_CALL:
  case SQLCOM_END: return true; /* an expression of a procedure, such as IF (SELECT ...) */
  default:
    /* A function or trigger that is logged as the statement which calls it. */
    return repeatable && type == TL_READ_NO_INSERT && (command == SQLCOM_SELECT || thd->in_sub_stmt) && !thd_in_lock_tables(thd);
  }
}

/* Sets how the statement locks the rows that it reads. */
void ha_seawall::set_lock(THD *thd, thr_lock_type type) {
  bool shared = type == TL_READ_WITH_SHARED_LOCKS || type == TL_READ_SKIP_LOCKED || reads_for_changes(thd, type);
  m_lock = type >= TL_WRITE_ALLOW_WRITE ? SEAWALL_LOCK_EXCLUSIVE : shared ? SEAWALL_LOCK_SHARED : SEAWALL_LOCK_NONE;
  const TABLE_LIST *list = table->pos_in_table_list;
  bool asks = list && !(list->select_lex && list->select_lex->select_lock == st_select_lex::select_lock_type::NONE);
  m_wait = asks && list->skip_locked ? SEAWALL_WAIT_MODE_SKIP_LOCKED : SEAWALL_WAIT_MODE_DEFAULT;
}

/* The server's locks of tables are not used, as in InnoDB: metadata locks, and the engine's locks of rows, are enough. */
THR_LOCK_DATA **ha_seawall::store_lock(THD *thd, THR_LOCK_DATA **to, thr_lock_type type) {
  if (type != TL_IGNORE) {
    set_lock(thd, type);
    m_stored_lock = m_lock;
  }
  return to;
}

/* Begins the separate transaction of a sequence, whose numbers stay used after a rollback, or of a copy (copy.cc). */
int ha_seawall::begin_own(seawall_commit_level level) {
  seawall_tx_options options{};
  options.isolation = SEAWALL_ISOLATION_READ_COMMITTED;
  options.level = level;
  options.wait = SEAWALL_WAIT_MODE_WAIT;
  return failed(seawall_begin(db.get(), &options, m_own.out()));
}

int ha_seawall::external_lock(THD *thd, int type) {
  if (type == F_UNLCK) { /* the server ends the statement */
    int error = finish_replay();
    abandon_copy();
    m_own.out();
    return error;
  }
  m_connection = Connection::of(thd);
  if (!m_connection) return HA_ERR_OUT_OF_MEM;
  if (table->s->sequence) {
    /* The server lets one connection at a time write it. */
    m_lock = SEAWALL_LOCK_NONE;
    return begin_own(m_is_temporary ? SEAWALL_COMMIT_LEVEL_DEFERRED : SEAWALL_COMMIT_LEVEL_FLUSHED);
  }
  if (type == F_WRLCK) m_lock = SEAWALL_LOCK_EXCLUSIVE;
  return m_connection->use(thd, m_lock != SEAWALL_LOCK_NONE);
}

int ha_seawall::start_stmt(THD *thd, thr_lock_type type) {
  m_connection = Connection::of(thd);
  if (!m_connection) return HA_ERR_OUT_OF_MEM;
  set_lock(thd, type);
  /* As in InnoDB, an expression of a function or trigger, such as SET x = (SELECT ...), reads with the lock of the
     statement that calls it; a SELECT that is a statement of its own reads the snapshot. */
  bool expression = thd->in_sub_stmt && !(thd_sql_command(thd) == SQLCOM_SELECT && type == TL_READ);
  if (expression && m_lock == SEAWALL_LOCK_NONE && m_stored_lock != SEAWALL_LOCK_NONE && thd_tx_isolation(thd) > ISO_READ_COMMITTED)
    m_lock = SEAWALL_LOCK_SHARED;
  return m_connection->use(thd, m_lock != SEAWALL_LOCK_NONE);
}

void ha_seawall::try_semi_consistent_read(bool yes) {
  m_semi_consistent = yes && thd_tx_isolation(ha_thd()) <= ISO_READ_COMMITTED;
  m_waits_for_row = false;
}

/* Only at READ COMMITTED: at higher levels, what a statement has read must not change. */
void ha_seawall::unlock_row() {
  if (std::exchange(m_waits_for_row, false)) return; /* it is not locked */
  if (m_lock == SEAWALL_LOCK_NONE || !m_connection || thd_tx_isolation(m_connection->thd()) > ISO_READ_COMMITTED) return;
  for (const Bytes &key : m_long_keys) seawall_unlock_row(tx(), m_share->long_columns.get(), slice(key), nullptr);
  if (m_reads_rows) seawall_unlock_row(tx(), rows(), slice(m_primary), nullptr);
  if (active_index != MAX_KEY && !is_primary(active_index))
    seawall_unlock_row(tx(), index_tree(active_index), slice(m_entry), nullptr);
}

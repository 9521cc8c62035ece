/* SPDX-License-Identifier: GPL-2.0-only */
/* ALTER TABLE in place, and maintenance: OPTIMIZE and ANALYZE TABLE.

   1. A change of the server's definition alone is instant: the engine notes the definition's version. Adding, dropping
      or moving columns makes a new layout of rows (layout.h), and changes no row.
   2. A new index is a tree that is announced in the dictionary and built while others change the table (index_build.h).
      When the table's writers have ended, the index is completed. One transaction makes it the table's, together with
      every other change of the statement, for all partitions.
   3. After a crash the server asks, by the version, whether that transaction has committed (check_version). When the
      server starts, announced indexes that did not become the table's are dropped. */
#include "crash_point.h"
#include "ha_seawall.h"
#include "index_build.h"
#include <algorithm>
#include <cstring>
#include <memory>

using namespace seawall;

// --- ALTER TABLE -----------------------------------------------------------------------------------------

namespace {

const alter_table_operations INSTANT = ALTER_COLUMN_NAME | ALTER_RENAME_COLUMN | ALTER_COLUMN_DEFAULT | ALTER_COLUMN_OPTION |
                                       ALTER_CHANGE_CREATE_OPTION | ALTER_RENAME | ALTER_RENAME_INDEX | ALTER_INDEX_IGNORABILITY |
                                       ALTER_CHANGE_INDEX_COMMENT | ALTER_INDEX_ORDER | ALTER_DROP_CHECK_CONSTRAINT |
                                       ALTER_PARTITIONED | ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_COLUMN_INDEX_LENGTH;
const alter_table_operations DROP = ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_DROP_UNIQUE_INDEX;
const alter_table_operations ADD = ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX;

const alter_table_operations COLUMNS = ALTER_ADD_STORED_BASE_COLUMN | ALTER_DROP_STORED_COLUMN | ALTER_STORED_COLUMN_ORDER |
                                       ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN | ALTER_VIRTUAL_COLUMN_ORDER;

const char *const BY_VERSIONING = "The times of system versioning are added or removed";

/* Adds the layout of `altered`, if it is new. If existing rows cannot be read by it, returns why, else null. */
const char *add_layout(const TABLE *table, const TABLE *altered, const Alter_inplace_info *info, Layouts *layouts) {
  std::map<const Field *, uint32_t> numbers;
  size_t at = 0;
  for (Field **field = table->field; *field; field++)
    if ((*field)->stored_in_db()) numbers[*field] = layouts->all.back()[at++];
  std::vector<uint32_t> columns;
  List_iterator_fast<Create_field> origins(info->alter_info->create_list);
  for (Field **field = altered->field; *field; field++) {
    const Create_field *origin = origins++;
    if (!origin) return "The columns are not those of the statement";
    if (!(*field)->stored_in_db()) continue;
    auto known = numbers.find(origin->field);
    if (known != numbers.end()) {
      columns.push_back(known->second);
      numbers.erase(known);
      continue;
    }
    /* All existing rows get the same value. */
    if ((*field)->vers_sys_field()) return BY_VERSIONING;
    if ((*field)->flags & AUTO_INCREMENT_FLAG) return "Each row gets another value of an added AUTO_INCREMENT column";
    const char *default_reason = "The default of an added column is an expression, or of type TEXT or BLOB";
    if ((*field)->default_value || (*field)->has_default_now_unireg_check()) return default_reason;
    const uchar *defaults = altered->s->default_values;
    Layouts::Default value{(*field)->real_maybe_null() && (*field)->is_null_in_record(defaults), ""};
    if (is_apart(*field, defaults)) return default_reason;
    if (!value.null) pack_field(*field, defaults, defaults - altered->record[0], &value.bytes);
    columns.push_back(++layouts->last_column);
    layouts->defaults[layouts->last_column] = value;
  }
  for (const auto &column : numbers) {
    if (!how_to_pass_over(column.first, &layouts->dropped[column.second])) return "Rows cannot be read without a dropped column";
    layouts->defaults.erase(column.second);
  }
  if (columns != layouts->all.back()) layouts->all.push_back(columns);
  return layouts->all.size() <= Layouts::MOST ? nullptr : "The columns have been changed too often since the last copy";
}

class Alter : public inplace_alter_handler_ctx {
public:
  explicit Alter(Share *share) : share(share) {}
  Share *share;
  Changes changes;
  uint64_t table = 0;
  bool announced = false;
  std::unique_ptr<Index_build> build;
};

/* The indexes that the statement adds, by their numbers in `altered`. */
std::vector<uint> added_indexes(const TABLE *altered, const Alter_inplace_info *info) {
  std::vector<uint> added;
  for (uint at = 0; at < info->index_add_count; at++) {
    const char *name = info->key_info_buffer[info->index_add_buffer[at]].name.str;
    for (uint key = 0; key < altered->s->keys; key++)
      if (!strcmp(altered->key_info[key].name.str, name)) added.push_back(key);
  }
  return added;
}

/* The columns of the added indexes, and those of the primary key. */
std::vector<uint> built_columns(const TABLE *altered, const Alter_inplace_info *info) {
  std::vector<uint> keys = added_indexes(altered, info), columns;
  if (altered->s->primary_key < MAX_KEY) keys.push_back(altered->s->primary_key);
  for (uint key : keys)
    for (uint part = 0; part < altered->key_info[key].user_defined_key_parts; part++)
      columns.push_back(altered->key_info[key].key_part[part].fieldnr - 1);
  return columns;
}

/* Has the table copied; with ALGORITHM=INPLACE the user gets the reason. */
enum_alter_inplace_result copies(Alter_inplace_info *info, const char *reason) {
  info->unsupported_reason = reason;
  return HA_ALTER_INPLACE_NOT_SUPPORTED;
}

const char *const BY_PRIMARY_KEY = "Rows are stored by the primary key";

/* Why a change of this kind copies the table; null if only its name says it. */
const char *reason_of(alter_table_operations flags) {
  if (flags & ALTER_STORED_COLUMN_TYPE) return my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_COLUMN_TYPE);
  if (flags & (ALTER_ADD_PK_INDEX | ALTER_DROP_PK_INDEX)) return BY_PRIMARY_KEY;
  if (flags & (ALTER_COLUMN_NULLABLE | ALTER_COLUMN_NOT_NULLABLE)) return "Rows store NULL only for columns that allow it";
  if (flags & ALTER_ADD_STORED_GENERATED_COLUMN) return "A copy computes the values of a stored generated column";
  if (flags & ALTER_ADD_CHECK_CONSTRAINT) return "A copy checks the rows by a new constraint";
  return nullptr;
}

const char *primary_name(const TABLE *table) {
  return table->s->primary_key < MAX_KEY ? table->key_info[table->s->primary_key].name.str : "";
}

}

/* Accepts a longer VARCHAR whose length in a row takes as many bytes as before. */
bool ha_seawall::can_convert_nocopy(const Field &field, const Column_definition &wanted) const {
  return field.type_handler() == &type_handler_varchar && wanted.type_handler() == &type_handler_varchar && field.stored_in_db() &&
         !field.compression_method() && !wanted.compression_method() && field.charset() == wanted.charset &&
         wanted.length >= field.field_length && (wanted.length > 255) == (field.field_length > 255);
}

/* A part of an index may stay as it is when its column becomes longer. */
Compare_keys ha_seawall::compare_key_parts(const Field &old_field, const Column_definition &new_field, const KEY_PART_INFO &old_part,
                                           const KEY_PART_INFO &new_part) const {
  if (old_field.is_equal(new_field) || !can_convert_nocopy(old_field, new_field))
    return handler::compare_key_parts(old_field, new_field, old_part, new_part);
  if (old_part.length == new_part.length) return Compare_keys::Equal;
  bool whole = old_part.length == old_field.field_length && new_part.length == new_field.length;
  return whole ? Compare_keys::EqualButKeyPartLength : Compare_keys::NotEqual;
}

/* Whether the indexes of both definitions have the same entries, and entries with the longer columns are not too
   long. */
bool ha_seawall::keeps_entries(TABLE *altered) const {
  for (uint at = 0; at < table->s->keys; at++) {
    for (uint key = 0; key < altered->s->keys; key++) {
      if (!seawall_same_name(table->key_info[at].name.str, altered->key_info[key].name.str)) continue;
      Key_codec codec;
      codec.init(altered, altered->key_info + key, m_share->layouts.levels);
      if (!m_keys[at].encodes_as(codec)) return false;
    }
  }
  for (uint key = 0; key < altered->s->keys; key++)
    if (lengths_of(altered, key, m_share->layouts.levels).too_long) return false;
  return true;
}

/* An index build sees neither the long columns of a row nor columns that are computed, and it cannot tell which row a
   duplicate belongs to if entries may be cut. create() refuses an index whose keys are too long. */
bool seawall::can_be_built(TABLE *form, uint index, bool levels) {
  const KEY *key = form->key_info + index;
  if (key->algorithm == HA_KEY_ALG_LONG_HASH) return false;
  for (uint part = 0; part < key->user_defined_key_parts; part++) {
    const Field *field = key->key_part[part].field;
    if (!field->stored_in_db() || !has_sort_keys(field, levels) || may_be_apart(field)) return false;
  }
  Lengths lengths = lengths_of(form, index, levels);
  return !lengths.too_long && !(key->flags & HA_NOSAME && lengths.may_be_cut);
}

enum_alter_inplace_result ha_seawall::check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info) {
  alter_table_operations flags = info->handler_flags;
  HA_CREATE_INFO *create = info->create_info;
  if (flags & ~(INSTANT | DROP | ADD | COLUMNS)) return copies(info, reason_of(flags));
  /* Only the copy leaves out duplicates. */
  if (info->ignore && (flags & (ALTER_ADD_UNIQUE_INDEX | ALTER_ADD_PK_INDEX)))
    return copies(info, my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_IGNORE));
  if (create->used_fields & HA_CREATE_USED_SEQUENCE) return copies(info, "A copy checks that the rows are those of a sequence");
  /* create() refuses them. */
  if (create->row_type == ROW_TYPE_FIXED || create->row_type == ROW_TYPE_PAGE) return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (flags & COLUMNS) {
    Layouts layouts = m_share->layouts;
    bool long_columns = false;
    for (Field **field = altered->field; *field; field++) long_columns |= may_be_apart(*field);
    /* create() refuses a primary key that is too long for them. */
    if (long_columns && !m_share->long_columns && table->s->primary_key < MAX_KEY &&
        m_keys[table->s->primary_key].usual_bytes() + LONG_KEY_BYTES > seawall_key_bytes_max(db.get()))
      return HA_ALTER_INPLACE_NOT_SUPPORTED;
    if (info->error_if_not_empty) return copies(info, "A copy checks that the table is empty");
    if (const char *reason = add_layout(table, altered, info, &layouts)) return copies(info, reason);
  }
  const alter_table_operations longer = ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_COLUMN_INDEX_LENGTH;
  if (flags & longer && (flags & ALTER_RENAME_INDEX || seawall_stores_references(table) || !keeps_entries(altered)))
    return copies(info, "The longer column changes the entries of an index, or an index gets another name too");
  if (altered->versioned() != table->versioned()) return copies(info, BY_VERSIONING);
  if (strcmp(primary_name(table), primary_name(altered))) return copies(info, BY_PRIMARY_KEY);
  if ((create->used_fields & HA_CREATE_USED_AUTO) && create->auto_increment_value < m_share->counters->next_auto() &&
      (is_partition() || !table->found_next_number_field || table->s->next_number_keypart > 0))
    return copies(info, "A copy finds the largest number, below which AUTO_INCREMENT cannot begin");
  for (uint index : added_indexes(altered, info))
    if (!can_be_built(altered, index, m_share->layouts.levels))
      return copies(info, "A column of the index is virtual or may be stored apart from its row, or its entries are too long");
  return flags & ADD ? HA_ALTER_INPLACE_NOCOPY_NO_LOCK : HA_ALTER_INPLACE_INSTANT;
}

static bool is_any_prepared() {
  Owned<seawall_prepared_list, seawall_prepared_free> list;
  seawall_slice name;
  return seawall_prepared(db.get(), list.out()) == SEAWALL_STATUS_OK && seawall_prepared_next(list.get(), &name) == SEAWALL_STATUS_OK;
}

/* Waits for prepared transactions that no connection has. The server's lock excludes all others, except, before a copy, those
   that only lock rows which they read. It waits in short steps, so that KILL and lock_wait_timeout can end it, and keeps no
   lock, which would keep the build of an index from ending. */
int ha_seawall::wait_for_prepared(const seawall_tree *rows) {
  THD *thd = ha_thd();
  const ulong SLICE_MS = 100, OWN_LIMIT_S = 50;
  if (table->s->tmp_table != NO_TMP_TABLE) return 0;
  for (ulonglong waited_ms = 0;; waited_ms += SLICE_MS) {
    Tx own;
    seawall_tx_options options{};
    options.isolation = SEAWALL_ISOLATION_READ_COMMITTED;
    options.wait = SEAWALL_WAIT_MODE_FOR;
    options.wait_ms = SLICE_MS;
    seawall_status status = seawall_begin(db.get(), &options, own.out());
    if (status == SEAWALL_STATUS_OK) status = seawall_lock_tree(own.get(), rows);
    if (status == SEAWALL_STATUS_OK) return 0;
    /* A prepared transaction may stay for days; others that lock rows have a connection, and end. */
    ulong limit_s = thd->variables.lock_wait_timeout;
    if (is_any_prepared()) limit_s = std::min(limit_s, OWN_LIMIT_S);
    if (status != SEAWALL_STATUS_LOCK_TIMEOUT || waited_ms >= 1000ULL * limit_s) return failed(status);
    if (thd_kill_level(thd) != THD_IS_NOT_KILLED) {
      thd->send_kill_message();
      return HA_ERR_ABORTED_BY_USER;
    }
  }
}

/* Reads the largest automatic number in a row, 0 if there is none. The caller has the server's exclusive lock. */
int ha_seawall::largest_auto(uint64_t *largest) {
  *largest = 0;
  if (int error = wait_for_prepared(rows())) return error;
  const uint index = table->s->next_number_index;
  const bool descending = table->key_info[index].key_part[0].key_part_flag & HA_REVERSE_SORT;
  Tx own;
  Cursor cursor;
  seawall_tx_options options{};
  options.isolation = SEAWALL_ISOLATION_READ_COMMITTED;
  seawall_slice key, value;
  seawall_status status = seawall_begin(db.get(), &options, own.out());
  if (status == SEAWALL_STATUS_OK) status = seawall_cursor_new(cursor.out());
  if (status == SEAWALL_STATUS_OK)
    status = seawall_cursor_reset(cursor.get(), is_primary(index) ? rows() : index_tree(index), UNBOUNDED, UNBOUNDED, SEAWALL_LOCK_NONE,
                                  SEAWALL_WAIT_MODE_DEFAULT, 0, 0);
  if (status == SEAWALL_STATUS_OK)
    status = seawall_cursor_seek(cursor.get(), own.get(), descending ? SEAWALL_SEEK_FIRST : SEAWALL_SEEK_LAST, NOTHING, &key, &value);
  if (status == SEAWALL_STATUS_NOT_FOUND) return 0;
  if (status != SEAWALL_STATUS_OK) return failed(status);
  uchar *record = table->record[1];
  Bytes row;
  bool known = is_primary(index) ? m_row.decode(value.data, value.len, record)
                                 : m_entries[index].decode(key.data, key.len, value.data, value.len, record, &row);
  if (!known) return damaged_entry();
  *largest = auto_number(record);
  return 0;
}

bool ha_seawall::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) {
  Alter *alter = new Alter(m_share);
  info->handler_ctx = alter;
  alter->changes.path = m_name;
  alter->changes.version = version_of(altered);
  alter->table = m_share->number;
  if (info->handler_flags & COLUMNS) {
    alter->changes.layouts = m_share->layouts;
    if (add_layout(table, altered, info, &alter->changes.layouts)) return true; /* it was checked before */
    for (Field **field = altered->field; *field; field++) alter->changes.has_long_columns |= may_be_apart(*field);
  }
  for (uint at = 0; at < info->index_drop_count; at++) alter->changes.dropped.push_back(info->index_drop_buffer[at]->name.str);
  for (const Alter_inplace_info::Rename_key_pair &names : info->rename_keys)
    alter->changes.renamed.emplace_back(names.old_key->name.str, names.new_key->name.str);
  std::vector<std::string> names;
  for (uint index : added_indexes(altered, info)) names.push_back(altered->key_info[index].name.str);
  if (!names.empty() || info->index_drop_count)
    if (int error = wait_for_prepared(rows())) {
      print_error(error, MYF(0));
      return true;
    }
  if (names.empty()) return false;
  if (int error = failed(announce_indexes(names, &alter->changes))) {
    print_error(error, MYF(0));
    return true;
  }
  alter->announced = true;
  /* The server's exclusive lock excludes writers here. */
  alter->build = std::make_unique<Index_build>();
  if (seawall_status status = alter->build->begin(rows(), fill_percent_of(altered), index_build_keep_percent(ha_thd()))) {
    print_error(failed(status), MYF(0));
    return true;
  }
  note_built_columns(altered, info);
  return false;
}

/* Tells writers which columns the new indexes have: the build need not read a row again in which only other columns
   change. */
void ha_seawall::note_built_columns(const TABLE *altered, const Alter_inplace_info *info) {
  m_share->building.store(false);
  if (info->handler_flags & COLUMNS) return;
  m_share->built_on = built_columns(altered, info);
  m_share->building.store(true, std::memory_order_release);
}

/* Reports why an index could not be built. */
bool ha_seawall::report(TABLE *altered, const Index_build &build, seawall_status status) {
  m_error = build.error();
  if (status == SEAWALL_STATUS_KEY_EXISTS && build.duplicate() < MAX_KEY) {
    print_keydup_error(altered, altered->key_info + build.duplicate(), MYF(0));
  } else if (status == SEAWALL_STATUS_CORRUPT) {
    print_error(HA_ERR_CRASHED, MYF(0));
  } else if (status == SEAWALL_STATUS_NO_SPACE) {
    print_error(HA_ERR_RECORD_FILE_FULL, MYF(0));
  } else if (status == SEAWALL_STATUS_INTERRUPTED) {
    ha_thd()->send_kill_message();
  } else {
    my_printf_error(ER_GET_ERRMSG, "Seawall: %s", MYF(0), m_error.c_str());
  }
  return true;
}

bool ha_seawall::inplace_alter_table(TABLE *altered, Alter_inplace_info *info) {
  Alter *alter = static_cast<Alter *>(info->handler_ctx);
  if (!alter->build) return false;
  THD *thd = ha_thd();
  /* Not use_all_columns(), which signals the handler of a partitioned table, which is not open. */
  altered->column_bitmaps_set_no_signal(&altered->s->all_set, &altered->s->all_set);
  std::vector<uint> added = added_indexes(altered, info);
  /* A column that the statement adds has its default in existing rows. */
  const Layouts &layouts = alter->changes.layouts.all.empty() ? m_share->layouts : alter->changes.layouts;
  for (size_t at = 0; at < added.size(); at++)
    alter->build->add(altered, layouts, added[at], tree_name(alter->table, alter->changes.added[at].number));
  bitmap_clear_all(&altered->def_read_set);
  for (uint column : built_columns(altered, info)) bitmap_set_bit(&altered->def_read_set, column);
  alter->build->reads(&altered->def_read_set);
  uint64_t rows_of_table = std::max<uint64_t>(stats.records, 1);
  thd_progress_init(thd, 1);
  seawall_status status = alter->build->run([&](ulonglong rows) {
    thd_progress_report(thd, std::min<ulonglong>(rows, rows_of_table), rows_of_table);
    return thd_kill_level(thd) == THD_IS_NOT_KILLED;
  });
  thd_progress_end(thd);
  return status != SEAWALL_STATUS_OK && report(altered, *alter->build, status);
}

bool ha_seawall::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) {
  Alter *alter = static_cast<Alter *>(info->handler_ctx);
  if (!commit) {
    m_share->building.store(false);
    if (!alter || !alter->announced) return false;
    alter->build.reset();
    if (abandon_indexes(alter->table, alter->changes) != SEAWALL_STATUS_OK)
      sql_print_warning("Seawall: an index that was not finished stays until the server starts again: %s", seawall_error());
    return false;
  }
  /* All partitions are committed with the first. */
  std::vector<Alter *> all;
  if (info->group_commit_ctx)
    for (inplace_alter_handler_ctx **at = info->group_commit_ctx; *at; at++) all.push_back(static_cast<Alter *>(*at));
  else
    all.push_back(alter);
  std::vector<const Changes *> tables;
  for (Alter *one : all) {
    one->share->building.store(false);
    if (one->build) {
      /* Here KILL ends the wait for what was prepared during the build. */
      if (int error = wait_for_prepared(one->share->trees[0].get())) {
        print_error(error, MYF(0));
        return true;
      }
      if (seawall_status status = one->build->finish()) return report(altered, *one->build, status);
    }
    tables.push_back(&one->changes);
  }
  crash_point("index", "built");
  seawall_status status = SEAWALL_STATUS_OK;
  /* Also set when the statement drops the column. */
  if (info->create_info->used_fields & HA_CREATE_USED_AUTO && altered->found_next_number_field)
    for (Alter *one : all) {
      std::shared_ptr<Counters> counters;
      if (status == SEAWALL_STATUS_OK) status = counters_of(one->table, &counters);
      if (status != SEAWALL_STATUS_OK) break;
      uint64_t next = info->create_info->auto_increment_value, last = counters->next_auto() - 1;
      if (next <= last && !is_partition()) {
        if (int error = largest_auto(&last)) {
          print_error(error, MYF(0));
          return true;
        }
      }
      /* No number is left behind the last one. */
      status = counters->set_auto(std::max(next, last == UINT64_MAX ? last : last + 1));
    }
  if (status == SEAWALL_STATUS_OK) status = alter_tables(tables);
  if (status != SEAWALL_STATUS_OK) {
    print_error(failed(status), MYF(0));
    return true;
  }
  for (Alter *one : all) one->announced = false;
  info->group_commit_ctx = nullptr;
  return false;
}

// --- statistics ------------------------------------------------------------------------------------------

extern "C" {
static size_t prefix_of(void *context, seawall_slice key, uint32_t parts) {
  size_t len;
  return static_cast<Key_codec *>(context)->length_in(key.data, key.len, parts, &len) ? len : key.len;
}
}

/* Whether enough rows have changed since the statistics were sampled that they must be sampled again. */
static bool are_old(const Share *share) {
  uint64_t rows = share->statistics ? (uint64_t)share->statistics->rows : 0;
  return share->changes.load(std::memory_order_relaxed) - share->sampled_at > std::max<uint64_t>(1000, rows / 2);
}

bool ha_seawall::are_statistics_old() {
  std::lock_guard<std::mutex> guard(m_share->statistics_mutex);
  return m_share->statistics && are_old(m_share);
}

/* Reads the table's statistics, and samples them if there are none, or if `again`. */
int ha_seawall::read_statistics(bool again, std::shared_ptr<const Statistics> *known) {
  const size_t LEAVES = 20;
  std::lock_guard<std::mutex> guard(m_share->statistics_mutex);
  bool old = m_share->statistics && are_old(m_share);
  if (m_share->statistics && !again && !old) {
    *known = m_share->statistics;
    return 0;
  }
  uint64_t changes = m_share->changes.load(std::memory_order_relaxed);
  auto statistics = std::make_shared<Statistics>();
  seawall_status status = again || old ? SEAWALL_STATUS_NOT_FOUND : seawall::read_statistics(m_share->number, statistics.get());
  if (status == SEAWALL_STATUS_NOT_FOUND) {
    status = SEAWALL_STATUS_OK;
    for (uint at = 0; status == SEAWALL_STATUS_OK && at < table->s->keys; at++) {
      Statistics::Index index{table->key_info[at].name.str, std::vector<double>(m_keys[at].parts())};
      status = seawall_sample(db.get(), index_tree(at), LEAVES, m_keys[at].parts(), prefix_of, &m_keys[at], &statistics->rows,
                              index.distinct.data());
      statistics->indexes.push_back(std::move(index));
    }
    /* Statistics of a small table change with every row. */
    if (status == SEAWALL_STATUS_OK && (again || statistics->rows > 10000)) {
      status = write_statistics(m_share->number, *statistics);
      /* This server can use them even if they were not written. */
      if (!again) status = SEAWALL_STATUS_OK;
    }
  }
  if (status != SEAWALL_STATUS_OK) return failed(status);
  *known = m_share->statistics = statistics;
  m_share->sampled_at = changes;
  return 0;
}

// --- OPTIMIZE TABLE --------------------------------------------------------------------------------------

extern "C" {
static bool goes_on(void *context, uint64_t done, uint64_t leaves) {
  THD *thd = static_cast<THD *>(context);
  thd_progress_report(thd, std::min(done, leaves), leaves);
  return thd_kill_level(thd) == THD_IS_NOT_KILLED;
}
}

std::vector<const seawall_tree *> ha_seawall::all_trees() const {
  std::vector<const seawall_tree *> trees;
  for (const Tree &tree : m_share->trees) trees.push_back(tree.get());
  if (m_share->long_columns) trees.push_back(m_share->long_columns.get());
  return trees;
}

/* Compacts each tree. */
int ha_seawall::optimize(THD *thd, HA_CHECK_OPT *) {
  std::vector<const seawall_tree *> trees = all_trees();
  thd_progress_init(thd, (uint)trees.size());
  seawall_status status = SEAWALL_STATUS_OK;
  for (size_t at = 0; at < trees.size() && status == SEAWALL_STATUS_OK; at++) {
    if (at > 0) thd_progress_next_stage(thd);
    status = seawall_compact_tree(db.get(), trees[at], fill_percent_of(table), goes_on, thd);
  }
  thd_progress_end(thd);
  if (status == SEAWALL_STATUS_INTERRUPTED) return HA_ADMIN_FAILED;
  if (status != SEAWALL_STATUS_OK) {
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "Seawall: %s", seawall_error());
    return status == SEAWALL_STATUS_CORRUPT ? HA_ADMIN_CORRUPT : HA_ADMIN_FAILED;
  }
  return analyze(thd, nullptr);
}

// --- ANALYZE TABLE ---------------------------------------------------------------------------------------

int ha_seawall::analyze(THD *, HA_CHECK_OPT *) {
  std::shared_ptr<const Statistics> statistics;
  if (read_statistics(true, &statistics)) return HA_ADMIN_FAILED;
  info(HA_STATUS_CONST);
  return HA_ADMIN_OK;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/* A table is filled row by row, from a list in memory; SEAWALL_TREES reads one table of the server at a time. Each
   needs the privilege PROCESS, as InnoDB's tables do. */
#include "information_schema.h"
#include "dictionary.h"
#include "reports.h"
#include <sql_acl.h>
#include <sql_i_s.h>
#include <sql_string.h>
#include <tztime.h>

namespace seawall {

using Show::CEnd;
using Show::Column;
using Show::Datetime;
using Show::Double;
using Show::ULong;
using Show::ULonglong;
using Show::Varchar;

struct st_mysql_information_schema information_schema = {MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};

namespace {

/* Stores the columns of a row in their order. */
class Row {
public:
  Row(THD *thd, TABLE *table) : m_thd(thd), m_table(table) { restore_record(table, s->default_values); }
  Row &text(const std::string &text, CHARSET_INFO *cs = &my_charset_utf8mb3_general_ci) {
    Field *field = next();
    Well_formed_prefix whole(cs, text.data(), text.size(), field->field_length / field->charset()->mbmaxlen);
    field->store(text.data(), whole.length(), cs);
    return *this;
  }
  Row &number(uint64_t number) {
    next()->store((longlong)number, true);
    return *this;
  }
  Row &real(double number) {
    next()->store(number);
    return *this;
  }
  Row &time(time_t seconds) {
    MYSQL_TIME time;
    m_thd->variables.time_zone->gmt_sec_to_TIME(&time, (my_time_t)seconds);
    next()->store_time(&time);
    return *this;
  }
  Row &null() {
    m_table->field[m_at++]->set_null();
    return *this;
  }
  Row &text_or_null(const std::string &text) { return text.empty() ? null() : this->text(text); }
  /* Returns true if no more rows can be stored. */
  bool store() { return schema_table_store_record(m_thd, m_table); }

private:
  Field *next() {
    Field *field = m_table->field[m_at++];
    field->set_notnull();
    return field;
  }
  THD *m_thd;
  TABLE *m_table;
  uint m_at = 0;
};

bool may_see(THD *thd) { return !check_global_access(thd, PROCESS_ACL); }

const char *mode_name(uint32_t lock) { return lock == SEAWALL_LOCK_SHARED ? "S" : "X"; }

// --- transactions and locks ------------------------------------------------------------------------------

ST_FIELD_INFO trx_columns[] = {
    Column("trx_id", ULonglong(), NOT_NULL),
    Column("trx_state", Varchar(13), NOT_NULL),
    Column("trx_started", Datetime(0), NULLABLE),
    Column("trx_requested_lock_id", Varchar(80), NULLABLE),
    Column("trx_wait_started", Datetime(0), NULLABLE),
    Column("trx_weight", ULonglong(), NOT_NULL),
    Column("trx_mysql_thread_id", ULonglong(), NOT_NULL),
    Column("trx_query", Varchar(1024), NULLABLE),
    Column("trx_lock_memory_bytes", ULonglong(), NOT_NULL),
    Column("trx_rows_locked", ULonglong(), NOT_NULL),
    Column("trx_rows_modified", ULonglong(), NOT_NULL),
    Column("trx_isolation_level", Varchar(16), NULLABLE),
    CEnd()};

/* Bytes of a lock, as the engine counts them for lock_memory_per_transaction. */
const uint64_t LOCK_BYTES = 256;

int fill_trx(THD *thd, TABLE_LIST *tables, COND *) {
  if (!may_see(thd)) return 1;
  Report report;
  if (!report) return 0;
  std::vector<Wait> waits = all_waits();
  std::map<uint64_t, const Wait *> of_waiter;
  for (const Wait &wait : waits) of_waiter[number_of(wait.waiter)] = &wait;
  for (const Transaction &one : all_transactions()) {
    Row row(thd, tables->table);
    auto found = of_waiter.find(one.number);
    const Wait *wait = found == of_waiter.end() ? nullptr : found->second;
    row.number(one.number).text(one.is_prepared || !wait ? one.state() : "LOCK WAIT");
    if (one.connection.thread) row.time(time_of(one.connection.begun_us));
    else row.null();
    if (wait) row.text(wait->key.id(one.number, wait->wanted)).time(time(nullptr) - (time_t)(wait->waited_ms / 1000));
    else row.null().null();
    row.number(one.changes + one.locked_keys).number(one.connection.thread);
    if (one.connection.query.empty()) row.null();
    else row.text(one.connection.query, one.connection.cs);
    row.number(one.locked_keys * LOCK_BYTES).number(one.locked_keys).number(one.changes);
    if (one.connection.thread) row.text(name_of(one.connection.isolation));
    else row.null();
    if (row.store()) return 1;
  }
  return 0;
}

ST_FIELD_INFO locks_columns[] = {
    Column("lock_id", Varchar(80), NOT_NULL),
    Column("lock_trx_id", ULonglong(), NOT_NULL),
    Column("lock_mode", Varchar(8), NOT_NULL),
    Column("lock_type", Varchar(8), NOT_NULL),
    Column("lock_table", Varchar(1024), NOT_NULL),
    Column("lock_index", Varchar(NAME_CHAR_LEN), NULLABLE),
    Column("lock_data", Varchar(520), NULLABLE),
    CEnd()};

/* Lists the locks that are waited for, and the locks that block them. */
int fill_locks(THD *thd, TABLE_LIST *tables, COND *) {
  if (!may_see(thd)) return 1;
  Report report;
  if (!report) return 0;
  struct Lock {
    uint64_t transaction;
    uint32_t mode;
    const Lock_key *key;
  };
  std::vector<Wait> waits = all_waits();
  std::map<std::string, Lock> locks;
  std::vector<uint32_t> trees;
  for (const Wait &wait : waits) {
    uint64_t waiter = number_of(wait.waiter), holder = number_of(wait.holder);
    locks[wait.key.id(waiter, wait.wanted)] = {waiter, wait.wanted, &wait.key};
    locks[wait.key.id(holder, wait.held)] = {holder, wait.held, &wait.key};
    trees.push_back(wait.key.tree);
  }
  std::map<uint32_t, Place> places = places_of(trees);
  for (const auto &[id, lock] : locks) {
    const Place &place = places[lock.key->tree];
    Row row(thd, tables->table);
    row.text(id).number(lock.transaction).text(mode_name(lock.mode)).text("RECORD").text(place.quoted());
    row.text_or_null(place.index).text(lock.key->text);
    if (row.store()) return 1;
  }
  return 0;
}

ST_FIELD_INFO lock_waits_columns[] = {
    Column("requesting_trx_id", ULonglong(), NOT_NULL),
    Column("requested_lock_id", Varchar(80), NOT_NULL),
    Column("blocking_trx_id", ULonglong(), NOT_NULL),
    Column("blocking_lock_id", Varchar(80), NOT_NULL),
    Column("requesting_thread_id", ULonglong(), NOT_NULL),
    Column("blocking_thread_id", ULonglong(), NOT_NULL),
    Column("wait_ms", ULonglong(), NOT_NULL),
    CEnd()};

int fill_lock_waits(THD *thd, TABLE_LIST *tables, COND *) {
  if (!may_see(thd)) return 1;
  Report report;
  if (!report) return 0;
  for (const Wait &wait : all_waits()) {
    uint64_t waiter = number_of(wait.waiter), holder = number_of(wait.holder);
    Row row(thd, tables->table);
    row.number(waiter).text(wait.key.id(waiter, wait.wanted)).number(holder);
    row.text(wait.key.id(holder, wait.held));
    row.number(wait.waiter.tag).number(wait.holder.tag).number(wait.waited_ms);
    if (row.store()) return 1;
  }
  return 0;
}

// --- trees -----------------------------------------------------------------------------------------------

ST_FIELD_INFO trees_columns[] = {
    Column("TABLE_SCHEMA", Varchar(NAME_CHAR_LEN), NOT_NULL),
    Column("TABLE_NAME", Varchar(NAME_CHAR_LEN), NOT_NULL),
    Column("PARTITION_NAME", Varchar(2 * NAME_CHAR_LEN + 1), NULLABLE),
    Column("INDEX_NAME", Varchar(NAME_CHAR_LEN), NOT_NULL),
    Column("TREE_NAME", Varchar(64), NOT_NULL),
    Column("TREE_ID", ULong(), NOT_NULL),
    Column("PAGES", ULonglong(), NOT_NULL),
    Column("BYTES", ULonglong(), NOT_NULL),
    Column("LEAVES", ULonglong(), NULLABLE),
    Column("FRAGMENTED_PERCENT", Double(10), NULLABLE),
    Column("FILL_PERCENT", ULong(), NULLABLE),
    CEnd()};
const uint FIRST_MEASURED = 8, TREE_COLUMNS = 11;

/* Which columns a statement names. */
class Columns {
public:
  Columns() { my_bitmap_init(&m_map, m_buffer, sizeof m_buffer * 8); bitmap_clear_all(&m_map); }
  MY_BITMAP *map() { return &m_map; }
  bool measured() const {
    for (uint column = FIRST_MEASURED; column < TREE_COLUMNS; column++)
      if (bitmap_is_set(&m_map, column)) return true;
    return false;
  }

private:
  MY_BITMAP m_map;
  my_bitmap_map m_buffer[2] = {};
};

/* Whether the statement names a measured column, which is then measured. SELECT * names none or all columns, depending
   on the server's version, and has none measured. */
bool wants_measured(TABLE *table) {
  bool any = false, all = true;
  for (uint column = 0; column < TREE_COLUMNS; column++) {
    bool named = bitmap_is_set(table->read_set, column);
    any |= named && column >= FIRST_MEASURED;
    all &= named;
  }
  return any && !all;
}

/* Returns the condition on the rows, if it uses only columns that are known without measuring. */
COND *condition_on_names(TABLE_LIST *tables, COND *condition) {
  if (!condition || condition->used_tables() != tables->table->map || condition->with_subquery()) return nullptr;
  Columns used;
  condition->walk(&Item::register_field_in_bitmap, false, used.map());
  return used.measured() ? nullptr : condition;
}

int fill_trees(THD *thd, TABLE_LIST *tables, COND *condition) {
  if (!may_see(thd)) return 1;
  Report report;
  if (!report) return 0;
  const bool measure = wants_measured(tables->table);
  COND *filter = condition_on_names(tables, condition);
  int error = 0;
  for_each_table([&](seawall_tx *tx, const std::string &name, const Definition &definition) {
    Place place = place_of_table(name);
    auto add = [&](uint32_t number, const std::string &index) {
      std::string tree_text = tree_name(definition.number, number);
      Tree tree;
      seawall_tree_info_t info;
      /* The tree may have been dropped meanwhile. */
      if (seawall_open_tree(tx, tree_text.c_str(), tree.out()) != SEAWALL_STATUS_OK ||
          seawall_tree_info(db.get(), tree.get(), false, &info) != SEAWALL_STATUS_OK)
        return;
      for (bool measured : {false, true}) {
        Row row(thd, tables->table);
        row.text(place.schema).text(place.table).text_or_null(place.partition).text(index);
        row.text(tree_text).number(info.id).number(info.pages).number(info.bytes);
        if (measured) {
          row.number(info.leaves).real(info.leaves > 1 ? 100.0 * (double)info.apart / (double)(info.leaves - 1) : 0.0);
          row.number(info.fill_percent);
        } else {
          row.null().null().null();
          if (filter && !filter->val_bool()) return;
          if (measure && seawall_tree_info(db.get(), tree.get(), true, &info) == SEAWALL_STATUS_OK) continue;
        }
        error = row.store();
        return;
      }
    };
    add(0, "PRIMARY");
    for (const Definition::Index &index : definition.indexes)
      if (!error) add(index.number, index.name);
    if (!error && definition.has_long_columns) add(LONG_COLUMNS, "(long columns)");
    return !error && thd_kill_level(thd) == THD_IS_NOT_KILLED;
  });
  return error;
}

// --- numbers ---------------------------------------------------------------------------------------------

ST_FIELD_INFO metrics_columns[] = {
    Column("NAME", Varchar(NAME_CHAR_LEN), NOT_NULL),
    Column("SUBSYSTEM", Varchar(NAME_CHAR_LEN), NOT_NULL),
    Column("VALUE", ULonglong(), NOT_NULL),
    Column("TYPE", Varchar(16), NOT_NULL),
    Column("HELP", Varchar(255), NOT_NULL),
    CEnd()};

int fill_metrics(THD *thd, TABLE_LIST *tables, COND *) {
  if (!may_see(thd)) return 1;
  Report report;
  if (!report) return 0;
  for (const Metric &metric : all_metrics()) {
    Row row(thd, tables->table);
    row.text(metric.group + "_" + metric.name).text(metric.group).number(metric.value);
    row.text(metric.is_counter ? "counter" : "gauge").text(metric.help);
    if (row.store()) return 1;
  }
  return 0;
}

ST_FIELD_INFO io_columns[] = {
    Column("FILE_CLASS", Varchar(16), NOT_NULL),
    Column("OPERATION", Varchar(16), NOT_NULL),
    Column("CAUSE", Varchar(16), NOT_NULL),
    Column("COUNT", ULonglong(), NOT_NULL),
    Column("ERRORS", ULonglong(), NOT_NULL),
    Column("BYTES", ULonglong(), NOT_NULL),
    Column("TOTAL_US", ULonglong(), NOT_NULL),
    Column("P50_US", Double(20), NOT_NULL),
    Column("P95_US", Double(20), NOT_NULL),
    Column("P99_US", Double(20), NOT_NULL),
    Column("MAX_US", Double(20), NOT_NULL),
    CEnd()};

int fill_io(THD *thd, TABLE_LIST *tables, COND *) {
  if (!may_see(thd)) return 1;
  Report report;
  if (!report) return 0;
  for (const Io &io : all_io()) {
    Row row(thd, tables->table);
    row.text(io.file_class).text(io.operation).text(io.cause).number(io.count).number(io.errors).number(io.bytes);
    row.number(io.total_ns / 1000);
    for (uint64_t ns : {io.p50_ns, io.p95_ns, io.p99_ns, io.max_ns}) row.real((double)ns / 1000.0);
    if (row.store()) return 1;
  }
  return 0;
}

/* No exception leaves the library. */
template <int (*FILL)(THD *, TABLE_LIST *, COND *)> int filled(THD *thd, TABLE_LIST *tables, COND *condition) {
  try {
    return FILL(thd, tables, condition);
  } catch (const std::bad_alloc &) {
    my_error(ER_OUT_OF_RESOURCES, MYF(0));
    return 1;
  }
}

template <int (*FILL)(THD *, TABLE_LIST *, COND *)> int init_table(void *table, ST_FIELD_INFO *columns) {
  ST_SCHEMA_TABLE *schema = static_cast<ST_SCHEMA_TABLE *>(table);
  schema->fields_info = columns;
  schema->fill_table = filled<FILL>;
  return 0;
}

}

int init_trx(void *table) { return init_table<fill_trx>(table, trx_columns); }
int init_locks(void *table) { return init_table<fill_locks>(table, locks_columns); }
int init_lock_waits(void *table) { return init_table<fill_lock_waits>(table, lock_waits_columns); }
int init_trees(void *table) { return init_table<fill_trees>(table, trees_columns); }
int init_metrics(void *table) { return init_table<fill_metrics>(table, metrics_columns); }
int init_io(void *table) { return init_table<fill_io>(table, io_columns); }

}

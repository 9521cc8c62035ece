/* SPDX-License-Identifier: GPL-2.0-only */
#include "dictionary.h"
#include "crash_point.h"
#include <algorithm>
#include <cstring>
#include <map>
#include <unistd.h>

namespace seawall {

static Tree dictionary;
static const char *const DICTIONARY = "dictionary";
static const char LAST = 'n', TABLE = 't', TEMPORARY = 'T', COUNTERS = 'c', DROPPED = 'd', HALF_MADE = 'h', STATISTICS = 's', AUTO_LOCK = 'a';
static const char FORMAT = 6, FORMAT_WITHOUT_LEVELS = 5;
static const uint64_t ROW_BLOCK = 65536, AUTO_BLOCK_MAX = 1024;

/* Runs `change` in a separate transaction. `name`: the name of its crash points. */
template <typename F>
static seawall_status in_transaction(const char *name, F change, seawall_commit_level level = SEAWALL_COMMIT_LEVEL_FLUSHED) {
  Tx tx;
  seawall_tx_options options{};
  options.isolation = SEAWALL_ISOLATION_READ_COMMITTED;
  options.level = level;
  options.wait = SEAWALL_WAIT_MODE_WAIT;
  seawall_status status = seawall_begin(db.get(), &options, tx.out());
  if (status == SEAWALL_STATUS_OK) status = change(tx.get());
  if (status == SEAWALL_STATUS_OK) crash_point(name, "changed");
  if (status == SEAWALL_STATUS_OK) status = seawall_commit(tx.get());
  if (status == SEAWALL_STATUS_OK) crash_point(name, "committed");
  return status;
}

/* Changes the definition of the table `path`, or of those that are with it. It waits for a flush unless the table is
   temporary: the next start drops those. If it is unknown whether the change is committed, the server must not go on: it would
   take it for failed, and the next start could find it committed. */
static seawall_status define(const char *name, const char *path, const std::function<seawall_status(seawall_tx *)> &change) {
  seawall_status status = in_transaction(name, change, is_temporary(path) ? SEAWALL_COMMIT_LEVEL_DEFERRED : SEAWALL_COMMIT_LEVEL_FLUSHED);
  if (status != SEAWALL_STATUS_OUTCOME_UNKNOWN) return status;
  sql_print_error("Seawall: it is unknown whether a change of a table's definition is committed: %s. The server stops; its next start decides.",
                  seawall_error());
  abort();
}

// --- keys and values -------------------------------------------------------------------------------------

bool is_temporary(const char *path) { return path[0] == '/' || strstr(path, "/#sql-temptable-"); }

/* The key of a table, from the server's path: "./db/table", or one below the directory of temporary files. */
static std::string key_of(const char *path) {
  if (is_temporary(path)) return TEMPORARY + std::string(path);
  return TABLE + std::string(path[0] == '.' && (path[1] == '/' || path[1] == '\\') ? path + 2 : path);
}

std::string tree_name(uint64_t table, uint32_t index) {
  return "t" + std::to_string(table) + (index ? "." + std::to_string(index) : "");
}

static void put_number(uint64_t number, std::string *to) {
  for (int i = 56; i >= 0; i -= 8) to->push_back((char)(number >> i));
}
static uint64_t number_at(const uint8_t *from) {
  uint64_t number = 0;
  for (int i = 0; i < 8; i++) number = number << 8 | from[i];
  return number;
}
static void put_text(const std::string &text, std::string *to) {
  put_number(text.size(), to);
  *to += text;
}
static std::string key_of(char kind, uint64_t number) {
  std::string key(1, kind);
  put_number(number, &key);
  return key;
}

static std::string encode(const Definition &d) {
  std::string to(1, d.layouts.levels ? FORMAT : FORMAT_WITHOUT_LEVELS);
  put_number(d.number, &to);
  put_text(d.version, &to);
  put_number(d.indexes.size(), &to);
  for (const Definition::Index &index : d.indexes) {
    put_number(index.number, &to);
    put_text(index.name, &to);
  }
  put_number(d.has_long_columns, &to);
  put_number(d.layouts.last_column, &to);
  put_number(d.layouts.all.size(), &to);
  for (const std::vector<uint32_t> &columns : d.layouts.all) {
    put_number(columns.size(), &to);
    for (uint32_t column : columns) put_number(column, &to);
  }
  put_number(d.layouts.defaults.size(), &to);
  for (const auto &column : d.layouts.defaults) {
    put_number(column.first, &to);
    put_number(column.second.null, &to);
    put_text(column.second.bytes, &to);
  }
  put_number(d.layouts.dropped.size(), &to);
  for (const auto &column : d.layouts.dropped) {
    put_number(column.first, &to);
    put_number(column.second.nullable, &to);
    put_number(column.second.fixed, &to);
    put_number(column.second.prefix, &to);
    put_number(column.second.apart, &to);
  }
  put_number(d.created, &to);
  return to;
}

namespace {
/* Reads numbers and texts of a value. */
class Reader {
public:
  explicit Reader(seawall_slice from) : m_at(from.data), m_end(from.data + from.len) {}
  uint64_t number() {
    if (m_end - m_at < 8) return fail();
    m_at += 8;
    return number_at(m_at - 8);
  }
  std::string text() {
    uint64_t len = number();
    if (len > (uint64_t)(m_end - m_at)) len = fail();
    m_at += len;
    return std::string((const char *)m_at - len, len);
  }
  bool takes(char byte) { return m_at < m_end && *m_at++ == (uint8_t)byte; }
  bool done() const { return m_ok && m_at == m_end; }
  bool ok() const { return m_ok; }

private:
  uint64_t fail() {
    m_ok = false;
    m_at = m_end;
    return 0;
  }
  const uint8_t *m_at, *m_end;
  bool m_ok = true;
};
}

static bool decode(seawall_slice from, Definition *d) {
  Reader reader(from);
  bool levels = reader.takes(FORMAT);
  if (!levels && !Reader(from).takes(FORMAT_WITHOUT_LEVELS)) return false;
  d->number = reader.number();
  d->version = reader.text();
  d->indexes.clear();
  for (uint64_t count = reader.number(); count > 0 && reader.ok(); count--) {
    uint32_t number = (uint32_t)reader.number();
    d->indexes.push_back({reader.text(), number});
  }
  d->has_long_columns = reader.number() != 0;
  d->layouts = Layouts();
  d->layouts.levels = levels;
  d->layouts.last_column = (uint32_t)reader.number();
  for (uint64_t count = reader.number(); count > 0 && reader.ok(); count--) {
    d->layouts.all.emplace_back();
    for (uint64_t columns = reader.number(); columns > 0 && reader.ok(); columns--)
      d->layouts.all.back().push_back((uint32_t)reader.number());
  }
  for (uint64_t count = reader.number(); count > 0 && reader.ok(); count--) {
    uint32_t column = (uint32_t)reader.number();
    bool null = reader.number() != 0;
    d->layouts.defaults[column] = {null, reader.text()};
  }
  for (uint64_t count = reader.number(); count > 0 && reader.ok(); count--) {
    Layouts::Dropped &dropped = d->layouts.dropped[(uint32_t)reader.number()];
    dropped.nullable = reader.number() != 0;
    dropped.fixed = (uint32_t)reader.number();
    dropped.prefix = (uint32_t)reader.number();
    dropped.apart = reader.number() != 0;
  }
  d->created = reader.done() ? 0 : reader.number();
  return reader.done() && !d->layouts.all.empty();
}

uint32_t Definition::index(const char *name) const {
  for (const Index &index : indexes)
    if (seawall_same_name(index.name.c_str(), name)) return index.number;
  return 0;
}

// --- tables ----------------------------------------------------------------------------------------------

static seawall_status lock(seawall_tx *tx, const std::string &key, seawall_slice *value) {
  return seawall_lock_row(tx, dictionary.get(), slice(key), SEAWALL_LOCK_EXCLUSIVE, SEAWALL_WAIT_MODE_DEFAULT, 0, value, nullptr);
}

static seawall_status lock_table(seawall_tx *tx, const std::string &key, Definition *definition) {
  seawall_slice value;
  seawall_status status = lock(tx, key, &value);
  if (status == SEAWALL_STATUS_OK && !decode(value, definition)) return SEAWALL_STATUS_CORRUPT;
  return status;
}

seawall_status find_table(const char *path, Definition *definition) {
  return in_transaction("find", [&](seawall_tx *tx) {
    seawall_slice value;
    seawall_status status = seawall_get(tx, dictionary.get(), slice(key_of(path)), &value);
    if (status == SEAWALL_STATUS_OK && !decode(value, definition)) return SEAWALL_STATUS_CORRUPT;
    return status;
  });
}

/* The trees of a table other than that of its rows. */
static std::vector<uint32_t> trees_beside(const Definition &definition) {
  std::vector<uint32_t> trees;
  for (const Definition::Index &index : definition.indexes) trees.push_back(index.number);
  if (definition.has_long_columns) trees.push_back(LONG_COLUMNS);
  return trees;
}

/* Gives a table a new number, and makes its trees and its counters. */
static seawall_status make_trees(seawall_tx *tx, Definition *definition, uint64_t auto_from) {
  seawall_slice value;
  std::string last(1, LAST), number, counters;
  seawall_status status = lock(tx, last, &value);
  if (status != SEAWALL_STATUS_OK && status != SEAWALL_STATUS_NOT_FOUND) return status;
  definition->created = (uint64_t)time(nullptr);
  definition->number = 1 + (status == SEAWALL_STATUS_OK ? number_at(value.data) : 0);
  put_number(definition->number, &number);
  status = seawall_put(tx, dictionary.get(), slice(last), slice(number));
  put_number(1, &counters);
  put_number(std::max<uint64_t>(auto_from, 1), &counters);
  if (status == SEAWALL_STATUS_OK)
    status = seawall_put(tx, dictionary.get(), slice(key_of(COUNTERS, definition->number)), slice(counters));
  Tree tree;
  if (status == SEAWALL_STATUS_OK) status = seawall_create_tree(tx, tree_name(definition->number, 0).c_str(), tree.out());
  for (uint32_t index : trees_beside(*definition))
    if (status == SEAWALL_STATUS_OK) status = seawall_create_tree(tx, tree_name(definition->number, index).c_str(), tree.out());
  return status;
}

static std::mutex counters_mutex;
static std::map<uint64_t, std::shared_ptr<Counters>> all_counters;

/* Drops the trees, or notes that they are to be dropped. */
static seawall_status drop_trees(seawall_tx *tx, const Definition &definition, std::vector<uint64_t> *later) {
  if (later) {
    later->push_back(definition.number);
    return seawall_insert(tx, dictionary.get(), slice(key_of(DROPPED, definition.number)), slice(encode(definition)));
  }
  {
    std::lock_guard<std::mutex> guard(counters_mutex);
    all_counters.erase(definition.number);
  }
  seawall_status status = SEAWALL_STATUS_OK;
  for (char kind : {COUNTERS, STATISTICS, AUTO_LOCK})
    if (status == SEAWALL_STATUS_OK || status == SEAWALL_STATUS_NOT_FOUND)
      status = seawall_delete(tx, dictionary.get(), slice(key_of(kind, definition.number)));
  if (status == SEAWALL_STATUS_OK || status == SEAWALL_STATUS_NOT_FOUND)
    status = seawall_drop_tree(tx, tree_name(definition.number, 0).c_str());
  for (uint32_t index : trees_beside(definition))
    if (status == SEAWALL_STATUS_OK) status = seawall_drop_tree(tx, tree_name(definition.number, index).c_str());
  return status;
}

seawall_status create_table(const char *path, uint32_t columns, bool has_long_columns, const std::vector<std::string> &indexes,
                            const std::string &version, uint64_t auto_from) {
  return define("create", path, [&](seawall_tx *tx) {
    Definition definition;
    std::string key = key_of(path);
    seawall_status status = lock_table(tx, key, &definition);
    if (status == SEAWALL_STATUS_OK) return SEAWALL_STATUS_TREE_EXISTS;
    if (status != SEAWALL_STATUS_NOT_FOUND) return status;
    definition.version = version;
    definition.layouts = Layouts::of(columns);
    definition.has_long_columns = has_long_columns;
    for (const std::string &name : indexes) definition.indexes.push_back({name, (uint32_t)definition.indexes.size() + 1});
    status = make_trees(tx, &definition, auto_from);
    if (status == SEAWALL_STATUS_OK) status = seawall_insert(tx, dictionary.get(), slice(key), slice(encode(definition)));
    return status;
  });
}

static seawall_status drop_one(seawall_tx *tx, const std::string &key, std::vector<uint64_t> *later) {
  Definition definition;
  seawall_status status = lock_table(tx, key, &definition);
  if (status == SEAWALL_STATUS_OK) status = seawall_delete(tx, dictionary.get(), slice(key));
  return status == SEAWALL_STATUS_OK ? drop_trees(tx, definition, later) : status;
}

seawall_status drop_table(const char *path, std::vector<uint64_t> *later) {
  THD *thd = current_thd;
  int command = thd ? thd_sql_command(thd) : SQLCOM_END;
  /* Only for a table whose drop was requested, not for one that is dropped because a statement or a connection was
     killed. */
  bool asked = (command == SQLCOM_DROP_TABLE || command == SQLCOM_DROP_DB) && !is_temporary(path);
  Connection *connection = asked ? Connection::of(thd) : nullptr;
  return define("drop", path, [&](seawall_tx *tx) {
    /* The drop waits for prepared transactions that no connection has. */
    seawall_status status = connection ? connection->enter(tx) : SEAWALL_STATUS_OK;
    if (status == SEAWALL_STATUS_OK) status = drop_one(tx, key_of(path), later);
    if (connection) connection->leave();
    return status;
  });
}

seawall_status drop_trees_of(uint64_t table) {
  return in_transaction("drop-trees", [&](seawall_tx *tx) { return drop_one(tx, key_of(DROPPED, table), nullptr); },
                        SEAWALL_COMMIT_LEVEL_DEFERRED);
}

/* All keys with a prefix. */
static seawall_status keys_with(seawall_tx *tx, const std::string &prefix, std::vector<std::string> *keys) {
  std::string end = prefix;
  end.back()++;
  Cursor cursor;
  seawall_status status = seawall_cursor_new(cursor.out());
  if (status == SEAWALL_STATUS_OK)
    status = seawall_cursor_reset(cursor.get(), dictionary.get(), {slice(prefix), SEAWALL_BOUND_KIND_INCLUDED},
                                  {slice(end), SEAWALL_BOUND_KIND_EXCLUDED}, SEAWALL_LOCK_NONE, SEAWALL_WAIT_MODE_DEFAULT,
                                  0, 0);
  seawall_slice key;
  seawall_seek step = SEAWALL_SEEK_FIRST;
  while (status == SEAWALL_STATUS_OK) {
    status = seawall_cursor_seek(cursor.get(), tx, step, NOTHING, &key, nullptr);
    if (status == SEAWALL_STATUS_OK) keys->emplace_back((const char *)key.data, key.len);
    step = SEAWALL_SEEK_NEXT;
  }
  return status == SEAWALL_STATUS_NOT_FOUND ? SEAWALL_STATUS_OK : status;
}

seawall_status for_each_table(const std::function<bool(seawall_tx *tx, const std::string &name, const Definition &)> &told) {
  const std::string first(1, TABLE), end(1, TABLE + 1);
  return in_transaction("tables", [&](seawall_tx *tx) {
    Cursor cursor;
    seawall_status status = seawall_cursor_new(cursor.out());
    if (status == SEAWALL_STATUS_OK)
      status = seawall_cursor_reset(cursor.get(), dictionary.get(), {slice(first), SEAWALL_BOUND_KIND_INCLUDED},
                                    {slice(end), SEAWALL_BOUND_KIND_EXCLUDED}, SEAWALL_LOCK_NONE, SEAWALL_WAIT_MODE_DEFAULT, 0, 0);
    Definition definition;
    seawall_slice key, value;
    seawall_seek step = SEAWALL_SEEK_FIRST;
    while (status == SEAWALL_STATUS_OK) {
      status = seawall_cursor_seek(cursor.get(), tx, step, NOTHING, &key, &value);
      if (status != SEAWALL_STATUS_OK) break;
      std::string name((const char *)key.data + 1, key.len - 1);
      definition = Definition();
      if (decode(value, &definition) && !told(tx, name, definition)) break;
      step = SEAWALL_SEEK_NEXT;
    }
    return status == SEAWALL_STATUS_NOT_FOUND ? SEAWALL_STATUS_OK : status;
  });
}

seawall_status find_partition_of(const char *path, Definition *definition) {
  std::string first;
  seawall_status status = in_transaction("find", [&](seawall_tx *tx) {
    std::vector<std::string> keys;
    seawall_status found = keys_with(tx, key_of(path) + "#P#", &keys);
    if (found == SEAWALL_STATUS_OK && keys.empty()) found = SEAWALL_STATUS_NOT_FOUND;
    if (found == SEAWALL_STATUS_OK) first = keys.front();
    return found;
  });
  return status == SEAWALL_STATUS_OK ? find_table(("./" + first.substr(1)).c_str(), definition) : status;
}

seawall_status drop_database(const char *path) {
  std::string prefix = key_of(path);
  if (prefix.back() != '/') prefix += '/';
  return define("drop-database", path, [&](seawall_tx *tx) {
    std::vector<std::string> keys;
    seawall_status status = keys_with(tx, prefix, &keys);
    for (const std::string &key : keys)
      if (status == SEAWALL_STATUS_OK) status = drop_one(tx, key, nullptr);
    return status;
  });
}

seawall_status rename_table(const char *from, const char *to) {
  return define("rename", to, [&](seawall_tx *tx) {
    Definition definition, other;
    std::string old_key = key_of(from), new_key = key_of(to);
    seawall_status status = lock_table(tx, old_key, &definition);
    if (status != SEAWALL_STATUS_OK) return status;
    status = lock_table(tx, new_key, &other);
    if (status == SEAWALL_STATUS_OK) return SEAWALL_STATUS_TREE_EXISTS;
    if (status != SEAWALL_STATUS_NOT_FOUND) return status;
    status = seawall_delete(tx, dictionary.get(), slice(old_key));
    if (status == SEAWALL_STATUS_OK)
      status = seawall_insert(tx, dictionary.get(), slice(new_key), slice(encode(definition)));
    return status;
  });
}

seawall_status truncate_table(const char *path, std::vector<uint64_t> *later) {
  return define("truncate", path, [&](seawall_tx *tx) {
    Definition definition;
    std::string key = key_of(path);
    seawall_status status = lock_table(tx, key, &definition);
    if (status == SEAWALL_STATUS_OK) status = drop_trees(tx, definition, later);
    if (status == SEAWALL_STATUS_OK) status = make_trees(tx, &definition, 1);
    if (status == SEAWALL_STATUS_OK) status = seawall_update(tx, dictionary.get(), slice(key), slice(encode(definition)), true);
    return status;
  });
}

// --- indexes ---------------------------------------------------------------------------------------------

static std::string half_made(uint64_t table, uint32_t index) {
  std::string key = key_of(HALF_MADE, table);
  put_number(index, &key);
  return key;
}

seawall_status announce_indexes(const std::vector<std::string> &names, Changes *changes) {
  return in_transaction("announce", [&](seawall_tx *tx) {
    Definition definition;
    seawall_status status = lock_table(tx, key_of(changes->path.c_str()), &definition);
    uint32_t last = 0;
    for (const Definition::Index &index : definition.indexes) last = std::max(last, index.number);
    changes->added.clear();
    for (const std::string &name : names) {
      /* A number whose tree could not be dropped is skipped. */
      do {
        if (status == SEAWALL_STATUS_OK || status == SEAWALL_STATUS_KEY_EXISTS)
          status = seawall_insert(tx, dictionary.get(), slice(half_made(definition.number, ++last)), NOTHING);
      } while (status == SEAWALL_STATUS_KEY_EXISTS);
      changes->added.push_back({name, last});
    }
    return status;
  });
}

static seawall_status alter_table(seawall_tx *tx, const Changes &changes) {
  Definition definition;
  std::string key = key_of(changes.path.c_str());
  seawall_status status = lock_table(tx, key, &definition);
  if (status != SEAWALL_STATUS_OK) return status;
  auto drop = [&](const std::string &name) {
    auto is = [&](const Definition::Index &index) { return seawall_same_name(index.name.c_str(), name.c_str()); };
    auto found = std::find_if(definition.indexes.begin(), definition.indexes.end(), is);
    if (found == definition.indexes.end()) return;
    if (status == SEAWALL_STATUS_OK) status = seawall_drop_tree(tx, tree_name(definition.number, found->number).c_str());
    definition.indexes.erase(found);
  };
  for (const std::string &name : changes.dropped) drop(name);
  /* Two indexes may exchange their names. */
  for (Definition::Index &index : definition.indexes)
    for (const auto &names : changes.renamed)
      if (seawall_same_name(index.name.c_str(), names.first.c_str())) {
        index.name = names.second;
        break;
      }
  for (const Definition::Index &index : changes.added) {
    /* One that the server does not know: it could not replace its own file after an earlier ALTER was committed here. */
    drop(index.name);
    definition.indexes.push_back(index);
    if (status == SEAWALL_STATUS_OK) status = seawall_delete(tx, dictionary.get(), slice(half_made(definition.number, index.number)));
  }
  if (!changes.layouts.all.empty()) definition.layouts = changes.layouts;
  if (changes.has_long_columns && !definition.has_long_columns) {
    Tree tree;
    if (status == SEAWALL_STATUS_OK) status = seawall_create_tree(tx, tree_name(definition.number, LONG_COLUMNS).c_str(), tree.out());
    definition.has_long_columns = true;
  }
  definition.version = changes.version;
  if (status != SEAWALL_STATUS_OK) return status;
  status = seawall_delete(tx, dictionary.get(), slice(key_of(STATISTICS, definition.number)));
  if (status != SEAWALL_STATUS_OK && status != SEAWALL_STATUS_NOT_FOUND) return status;
  return seawall_update(tx, dictionary.get(), slice(key), slice(encode(definition)), true);
}

seawall_status alter_tables(const std::vector<const Changes *> &tables) {
  return define("alter", tables.front()->path.c_str(), [&](seawall_tx *tx) {
    seawall_status status = SEAWALL_STATUS_OK;
    for (const Changes *changes : tables)
      if (status == SEAWALL_STATUS_OK) status = alter_table(tx, *changes);
    return status;
  });
}

static seawall_status abandon_index(seawall_tx *tx, uint64_t table, uint32_t index) {
  seawall_status status = seawall_drop_tree(tx, tree_name(table, index).c_str());
  if (status == SEAWALL_STATUS_OK || status == SEAWALL_STATUS_NOT_FOUND)
    status = seawall_delete(tx, dictionary.get(), slice(half_made(table, index)));
  return status;
}

seawall_status abandon_indexes(uint64_t table, const Changes &changes) {
  return in_transaction("abandon", [&](seawall_tx *tx) {
    seawall_status status = SEAWALL_STATUS_OK;
    for (const Definition::Index &index : changes.added)
      if (status == SEAWALL_STATUS_OK || status == SEAWALL_STATUS_NOT_FOUND) status = abandon_index(tx, table, index.number);
    return status == SEAWALL_STATUS_NOT_FOUND ? SEAWALL_STATUS_OK : status;
  });
}

// --- statistics ------------------------------------------------------------------------------------------

ulong Statistics::rows_per_value(const char *name, uint part) const {
  for (const Index &index : indexes)
    if (rows > 0 && index.name == name && part < index.distinct.size())
      return (ulong)std::max(1.0, rows / std::max(1.0, index.distinct[part]));
  return 0;
}

seawall_status write_statistics(uint64_t table, const Statistics &statistics) {
  std::string value(1, FORMAT);
  put_number((uint64_t)statistics.rows, &value);
  put_number(statistics.indexes.size(), &value);
  for (const Statistics::Index &index : statistics.indexes) {
    put_text(index.name, &value);
    put_number(index.distinct.size(), &value);
    for (double distinct : index.distinct) put_number((uint64_t)distinct, &value);
  }
  return in_transaction("statistics",
      [&](seawall_tx *tx) { return seawall_put(tx, dictionary.get(), slice(key_of(STATISTICS, table)), slice(value)); });
}

seawall_status read_statistics(uint64_t table, Statistics *statistics) {
  return in_transaction("read-statistics", [&](seawall_tx *tx) {
    seawall_slice value;
    seawall_status status = seawall_get(tx, dictionary.get(), slice(key_of(STATISTICS, table)), &value);
    if (status != SEAWALL_STATUS_OK) return status;
    Reader reader(value);
    if (!reader.takes(FORMAT)) return SEAWALL_STATUS_NOT_FOUND;
    statistics->rows = (double)reader.number();
    statistics->indexes.clear();
    for (uint64_t count = reader.number(); count > 0 && reader.ok(); count--) {
      statistics->indexes.push_back({reader.text(), {}});
      for (uint64_t parts = reader.number(); parts > 0 && reader.ok(); parts--)
        statistics->indexes.back().distinct.push_back((double)reader.number());
    }
    return reader.done() ? SEAWALL_STATUS_OK : SEAWALL_STATUS_CORRUPT;
  });
}

// --- counters --------------------------------------------------------------------------------------------

seawall_status counters_of(uint64_t table, std::shared_ptr<Counters> *counters) {
  std::lock_guard<std::mutex> guard(counters_mutex);
  std::shared_ptr<Counters> &known = all_counters[table];
  seawall_status status = SEAWALL_STATUS_OK;
  if (!known)
    status = in_transaction("read-counters", [&](seawall_tx *tx) {
      seawall_slice value;
      seawall_status got = seawall_get(tx, dictionary.get(), slice(key_of(COUNTERS, table)), &value);
      if (got == SEAWALL_STATUS_OK && value.len != 16) return SEAWALL_STATUS_CORRUPT;
      if (got == SEAWALL_STATUS_OK) known = std::make_shared<Counters>(table, number_at(value.data), number_at(value.data + 8));
      return got;
    });
  *counters = known;
  if (!known) all_counters.erase(table);
  return status;
}

/* Not flushed: the change lies in the log before the commit of every row that has a number of the block. */
seawall_status Counters::write(uint64_t row_limit, uint64_t auto_limit) {
  std::string value;
  put_number(row_limit, &value);
  put_number(auto_limit, &value);
  seawall_status status = in_transaction("counters",
      [&](seawall_tx *tx) { return seawall_update(tx, dictionary.get(), slice(key_of(COUNTERS, m_table)), slice(value), true); },
      SEAWALL_COMMIT_LEVEL_DEFERRED);
  if (status == SEAWALL_STATUS_OK) {
    m_row_limit = row_limit;
    m_auto_limit = auto_limit;
  }
  return status;
}

seawall_status Counters::take_row(uint64_t *number) {
  std::lock_guard<std::mutex> guard(m_mutex);
  if (m_next_row >= m_row_limit)
    if (seawall_status status = write(m_next_row + ROW_BLOCK, m_auto_limit)) return status;
  *number = m_next_row++;
  return SEAWALL_STATUS_OK;
}

/* Reserves all numbers below `next`. A block is small compared with the numbers that a small column has left. */
seawall_status Counters::reserve_auto(uint64_t next, uint64_t most) {
  if (next > m_auto_limit) {
    uint64_t left = most > next ? most - next : 0;
    uint64_t limit = next + std::min(left / 1024, AUTO_BLOCK_MAX);
    if (seawall_status status = write(m_row_limit, limit)) return status;
  }
  m_next_auto = std::max(m_next_auto, next);
  return SEAWALL_STATUS_OK;
}

seawall_status Counters::take_auto(uint64_t offset, uint64_t increment, uint64_t wanted, uint64_t most, bool unless_locked,
                                   uint64_t *first) {
  std::lock_guard<std::mutex> guard(m_mutex);
  if (unless_locked && m_locked > 0) return SEAWALL_STATUS_LOCK_TIMEOUT;
  uint64_t next = m_next_auto;
  if (increment > 1) {
    uint64_t gap = next <= offset ? offset - next : (increment - (next - offset) % increment) % increment;
    next = gap > UINT64_MAX - next ? UINT64_MAX : next + gap; /* of which the server makes an error */
  }
  *first = next;
  increment = std::max<uint64_t>(increment, 1);
  return reserve_auto(wanted > (UINT64_MAX - next) / increment ? UINT64_MAX : next + wanted * increment, most);
}

seawall_status Counters::note_auto(uint64_t number, uint64_t most, bool unless_locked) {
  std::lock_guard<std::mutex> guard(m_mutex);
  if (unless_locked && m_locked > 0) return SEAWALL_STATUS_LOCK_TIMEOUT;
  uint64_t next = number == UINT64_MAX ? UINT64_MAX : number + 1;
  return next <= m_next_auto ? SEAWALL_STATUS_OK : reserve_auto(next, most);
}

seawall_status Counters::set_auto(uint64_t next) {
  std::lock_guard<std::mutex> guard(m_mutex);
  next = std::max<uint64_t>(next, 1);
  seawall_status status = write(m_row_limit, next);
  if (status == SEAWALL_STATUS_OK) m_next_auto = next;
  return status;
}

uint64_t Counters::next_auto() {
  std::lock_guard<std::mutex> guard(m_mutex);
  return m_next_auto;
}

seawall_status Counters::lock_auto(seawall_tx *tx) {
  /* There is no such row: a version that is later than the transaction's snapshot would be a conflict. (A table of an earlier
     version has one, which is older than every snapshot.) */
  seawall_slice value;
  seawall_status status = lock(tx, key_of(AUTO_LOCK, m_table), &value);
  if (status != SEAWALL_STATUS_OK && status != SEAWALL_STATUS_NOT_FOUND) return status;
  std::lock_guard<std::mutex> guard(m_mutex);
  m_locked++;
  return SEAWALL_STATUS_OK;
}

void Counters::unlock_auto(seawall_tx *tx) {
  {
    std::lock_guard<std::mutex> guard(m_mutex);
    m_locked--;
  }
  if (tx) seawall_release_row(tx, dictionary.get(), slice(key_of(AUTO_LOCK, m_table)));
}

// --- start and end ---------------------------------------------------------------------------------------

seawall_status open_dictionary() {
  std::vector<std::string> gone;
  seawall_status status = in_transaction("open", [&](seawall_tx *tx) {
    seawall_status opened = seawall_open_tree(tx, DICTIONARY, dictionary.out());
    if (opened == SEAWALL_STATUS_NOT_FOUND) return seawall_create_tree(tx, DICTIONARY, dictionary.out());
    for (char kind : {TEMPORARY, DROPPED, HALF_MADE})
      if (opened == SEAWALL_STATUS_OK) opened = keys_with(tx, std::string(1, kind), &gone);
    return opened;
  });
  if (status != SEAWALL_STATUS_OK) return status;
  for (const std::string &key : gone) {
    seawall_status swept = in_transaction("sweep", [&](seawall_tx *tx) {
      seawall_set_wait(tx, SEAWALL_WAIT_MODE_NO, 0);
      if (key[0] != HALF_MADE) return drop_one(tx, key, nullptr);
      const uint8_t *numbers = (const uint8_t *)key.data() + 1;
      return abandon_index(tx, number_at(numbers), (uint32_t)number_at(numbers + 8));
    });
    if (swept == SEAWALL_STATUS_LOCK_TIMEOUT)
      sql_print_warning("Seawall: a table that was being dropped is locked by a transaction that is prepared or being rolled "
                        "back; the next start drops it");
    else if (swept != SEAWALL_STATUS_OK)
      sql_print_warning("Seawall: a table that was being dropped is still there, and the next start drops it: %s", seawall_error());
  }
  return status;
}

static bool exists(const std::string &file) { return access((mysql_real_data_home + file).c_str(), F_OK) == 0; }

/* Whether the table is a copy that an ALTER TABLE was making, and the server does not know it. Not a table of another
   statement: it could have the only rows. */
static bool is_left(const std::string &key) {
  static const char COPY[] = "#sql-alter-";
  size_t name = key.rfind('/') + 1;
  if (key.compare(name, sizeof COPY - 1, COPY) != 0) return false;
  std::string table = key.substr(1, key.find("#P#", name) - 1);
  return !exists(table + ".frm") && !exists(table + ".par");
}

void drop_left_copies() {
  std::vector<std::string> keys;
  seawall_status status = in_transaction("left", [&](seawall_tx *tx) { return keys_with(tx, std::string(1, TABLE), &keys); });
  for (const std::string &key : keys) {
    if (status != SEAWALL_STATUS_OK || !is_left(key)) continue;
    status = in_transaction("left", [&](seawall_tx *tx) {
      seawall_set_wait(tx, SEAWALL_WAIT_MODE_NO, 0);
      return drop_one(tx, key, nullptr);
    });
    if (status == SEAWALL_STATUS_OK) sql_print_information("Seawall: dropped %s: an ALTER TABLE that did not end has left it", key.c_str() + 1);
  }
  if (status != SEAWALL_STATUS_OK) sql_print_warning("Seawall: a copy that an ALTER TABLE has left could not be dropped: %s", seawall_error());
}

void close_dictionary() {
  std::lock_guard<std::mutex> guard(counters_mutex);
  for (auto &entry : all_counters) {
    Counters &c = *entry.second;
    if (c.m_next_row != c.m_row_limit || c.m_next_auto != c.m_auto_limit) c.write(c.m_next_row, c.m_next_auto);
  }
  all_counters.clear();
  dictionary.out();
}

}

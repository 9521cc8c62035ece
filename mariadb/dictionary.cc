/* SPDX-License-Identifier: GPL-2.0-only */
#include "dictionary.h"
#include <cstring>

namespace seawall {

static Tree dictionary;
static const char *const DICTIONARY = "dictionary";
static const char LAST = 'n', TABLE_ROW = 't';
static const char FORMAT = 1;

static seawall_tx_options options() {
  seawall_tx_options o{};
  o.isolation = SEAWALL_ISOLATION_READ_COMMITTED;
  o.level = SEAWALL_COMMIT_LEVEL_FLUSHED;
  o.wait = SEAWALL_WAIT_MODE_WAIT;
  return o;
}

/* Runs `change` in a transaction of its own. */
template <typename F> static seawall_status in_transaction(F change) {
  Tx tx;
  seawall_tx_options o = options();
  seawall_status status = seawall_begin(db.get(), &o, tx.out());
  if (status == SEAWALL_STATUS_OK) status = change(tx.get());
  if (status == SEAWALL_STATUS_OK) status = seawall_commit(tx.get());
  return status;
}

std::string table_name(const char *path) {
  if (path[0] == '.' && (path[1] == '/' || path[1] == '\\')) return path + 2;
  /* An absolute path: of a temporary table, whose last two parts are enough. */
  const char *last = strrchr(path, '/');
  if (!last) return path;
  const char *before = last;
  while (before > path && before[-1] != '/') before--;
  return before;
}

std::string tree_name(uint64_t table, uint32_t index) {
  return "t" + std::to_string(table) + (index ? "." + std::to_string(index) : "");
}

static std::string row_key(const std::string &name) { return TABLE_ROW + name; }

static void put_number(uint64_t number, std::string *to) {
  for (int i = 56; i >= 0; i -= 8) to->push_back((char)(number >> i));
}
static uint64_t number_at(const uint8_t *from) {
  uint64_t number = 0;
  for (int i = 0; i < 8; i++) number = number << 8 | from[i];
  return number;
}

static std::string encode(const Definition &d) {
  std::string to(1, FORMAT);
  put_number(d.number, &to);
  put_number(d.indexes, &to);
  put_number(d.auto_from, &to);
  return to;
}
static bool decode(seawall_slice from, Definition *d) {
  if (from.len != 25 || from.data[0] != FORMAT) return false;
  d->number = number_at(from.data + 1);
  d->indexes = (uint32_t)number_at(from.data + 9);
  d->auto_from = number_at(from.data + 17);
  return true;
}

seawall_status open_dictionary() {
  return in_transaction([](seawall_tx *tx) {
    seawall_status status = seawall_open_tree(tx, DICTIONARY, dictionary.out());
    if (status == SEAWALL_STATUS_NOT_FOUND) status = seawall_create_tree(tx, DICTIONARY, dictionary.out());
    return status;
  });
}

void close_dictionary() { dictionary.out(); }

static seawall_status look(seawall_tx *tx, const std::string &name, bool lock, Definition *definition) {
  seawall_slice value;
  std::string key = row_key(name);
  seawall_status status =
      lock ? seawall_lock_row(tx, dictionary.get(), slice(key), SEAWALL_LOCK_EXCLUSIVE, SEAWALL_WAIT_MODE_DEFAULT, 0, &value, nullptr)
           : seawall_get(tx, dictionary.get(), slice(key), &value);
  if (status == SEAWALL_STATUS_OK && !decode(value, definition)) return SEAWALL_STATUS_CORRUPT;
  return status;
}

seawall_status find_table(const char *path, Definition *definition) {
  return in_transaction([&](seawall_tx *tx) { return look(tx, table_name(path), false, definition); });
}

/* Makes trees with a new number. */
static seawall_status make_trees(seawall_tx *tx, Definition *definition) {
  seawall_slice value;
  seawall_slice last = slice(&LAST, 1);
  seawall_status status = seawall_lock_row(tx, dictionary.get(), last, SEAWALL_LOCK_EXCLUSIVE, SEAWALL_WAIT_MODE_DEFAULT, 0, &value, nullptr);
  if (status != SEAWALL_STATUS_OK && status != SEAWALL_STATUS_NOT_FOUND) return status;
  definition->number = 1 + (status == SEAWALL_STATUS_OK ? number_at(value.data) : 0);
  std::string number;
  put_number(definition->number, &number);
  status = seawall_put(tx, dictionary.get(), last, slice(number));
  for (uint32_t index = 0; status == SEAWALL_STATUS_OK && index <= definition->indexes; index++) {
    Tree tree;
    status = seawall_create_tree(tx, tree_name(definition->number, index).c_str(), tree.out());
  }
  return status;
}

static seawall_status drop_trees(seawall_tx *tx, const Definition &definition) {
  seawall_status status = SEAWALL_STATUS_OK;
  for (uint32_t index = 0; status == SEAWALL_STATUS_OK && index <= definition.indexes; index++)
    status = seawall_drop_tree(tx, tree_name(definition.number, index).c_str());
  return status;
}

seawall_status create_table(const char *path, uint32_t indexes, uint64_t auto_from) {
  return in_transaction([&](seawall_tx *tx) {
    Definition definition;
    std::string name = table_name(path);
    seawall_status status = look(tx, name, true, &definition);
    if (status == SEAWALL_STATUS_OK) return SEAWALL_STATUS_TREE_EXISTS;
    if (status != SEAWALL_STATUS_NOT_FOUND) return status;
    definition.indexes = indexes;
    definition.auto_from = auto_from;
    status = make_trees(tx, &definition);
    if (status == SEAWALL_STATUS_OK)
      status = seawall_insert(tx, dictionary.get(), slice(row_key(name)), slice(encode(definition)));
    return status;
  });
}

static seawall_status drop_one(seawall_tx *tx, const std::string &name) {
  Definition definition;
  seawall_status status = look(tx, name, true, &definition);
  if (status == SEAWALL_STATUS_OK) status = drop_trees(tx, definition);
  if (status == SEAWALL_STATUS_OK) status = seawall_delete(tx, dictionary.get(), slice(row_key(name)));
  return status;
}

seawall_status drop_table(const char *path) {
  return in_transaction([&](seawall_tx *tx) { return drop_one(tx, table_name(path)); });
}

seawall_status drop_database(const char *path) {
  std::string prefix = table_name(path);
  if (prefix.empty() || prefix.back() != '/') prefix += '/';
  return in_transaction([&](seawall_tx *tx) {
    std::string from = row_key(prefix), to = from;
    to.back()++;
    std::vector<std::string> names;
    Cursor cursor;
    seawall_status status = seawall_cursor_new(cursor.out());
    if (status == SEAWALL_STATUS_OK)
      status = seawall_cursor_reset(cursor.get(), dictionary.get(), {slice(from), SEAWALL_BOUND_KIND_INCLUDED},
                                    {slice(to), SEAWALL_BOUND_KIND_EXCLUDED}, SEAWALL_LOCK_NONE,
                                    SEAWALL_WAIT_MODE_DEFAULT, 0, 0);
    seawall_slice key;
    seawall_seek step = SEAWALL_SEEK_FIRST;
    while (status == SEAWALL_STATUS_OK) {
      status = seawall_cursor_seek(cursor.get(), tx, step, NOTHING, &key, nullptr);
      if (status == SEAWALL_STATUS_OK) names.emplace_back((const char *)key.data + 1, key.len - 1);
      step = SEAWALL_SEEK_NEXT;
    }
    if (status == SEAWALL_STATUS_NOT_FOUND) status = SEAWALL_STATUS_OK;
    for (const std::string &name : names)
      if (status == SEAWALL_STATUS_OK) status = drop_one(tx, name);
    return status;
  });
}

seawall_status rename_table(const char *from, const char *to) {
  return in_transaction([&](seawall_tx *tx) {
    Definition definition, other;
    std::string old_name = table_name(from), new_name = table_name(to);
    seawall_status status = look(tx, old_name, true, &definition);
    if (status != SEAWALL_STATUS_OK) return status;
    status = look(tx, new_name, true, &other);
    if (status == SEAWALL_STATUS_OK) return SEAWALL_STATUS_TREE_EXISTS;
    if (status != SEAWALL_STATUS_NOT_FOUND) return status;
    status = seawall_delete(tx, dictionary.get(), slice(row_key(old_name)));
    if (status == SEAWALL_STATUS_OK)
      status = seawall_insert(tx, dictionary.get(), slice(row_key(new_name)), slice(encode(definition)));
    return status;
  });
}

seawall_status truncate_table(const char *path, uint64_t auto_from) {
  return in_transaction([&](seawall_tx *tx) {
    Definition definition;
    std::string name = table_name(path);
    seawall_status status = look(tx, name, true, &definition);
    if (status == SEAWALL_STATUS_OK) status = drop_trees(tx, definition);
    definition.auto_from = auto_from;
    if (status == SEAWALL_STATUS_OK) status = make_trees(tx, &definition);
    if (status == SEAWALL_STATUS_OK)
      status = seawall_update(tx, dictionary.get(), slice(row_key(name)), slice(encode(definition)));
    return status;
  });
}

}

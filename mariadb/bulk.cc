/* SPDX-License-Identifier: GPL-2.0-only */
/* LOAD DATA, INSERT ... SELECT and long INSERT ... VALUES: rows are collected, and inserted in the order of their keys.

     write_row() ──> collected ──full, or the statement ends──> the rows in key order, then each index in key order
                                                                       (the pages of the next keys requested)

   So pages are read in parallel, each only once for the collected rows, and rows in one range of keys share an undo
   record, because no index entry comes between them.

   1. Rows are collected only if their order cannot be noticed (can_collect): a refused row ends the statement, and
      until then nothing reads the table.
   2. The server rolls the statement back after a refused row, so the rows of the batch that are inserted already are not
      undone here.
   3. The server ends every bulk insertion. A commit fails nevertheless if collected rows were not all inserted
      (Connection::note_incomplete).
   4. A row that is refused later, and the rows collected after it, have raised the AUTO_INCREMENT counter: no later row
      may get the same number. */
#include "ha_seawall.h"
#include <algorithm>
#include <cstring>
#include <numeric>

using namespace seawall;

static const ha_rows ROWS_MIN = 64;
static const size_t REQUESTED = 64; /* keys whose pages are requested at once */
static const size_t BYTES_MAX = 256 << 20; /* of collected rows; any user may set bulk_insert_buffer_size */

void Batch::Keys::add(const Bytes &key, const Bytes &value, size_t unique) {
  entries.push_back({bytes.size(), (uint32_t)key.size(), (uint32_t)value.size(), (uint32_t)unique});
  bytes += key;
  bytes += value;
}

std::vector<uint32_t> Batch::Keys::in_order() const {
  std::vector<uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0);
  auto before = [&](uint32_t a, uint32_t b) {
    seawall_slice x = key(a), y = key(b);
    int compared = memcmp(x.data, y.data, std::min(x.len, y.len));
    return compared ? compared < 0 : x.len < y.len;
  };
  if (!std::is_sorted(order.begin(), order.end(), before)) std::stable_sort(order.begin(), order.end(), before);
  return order;
}

/* `rows`: how many are inserted; 0: unknown. */
bool ha_seawall::can_collect(ha_rows rows) const {
  THD *thd = ha_thd();
  LEX *lex = thd->lex;
  int command = thd_sql_command(thd);
  if (command != SQLCOM_LOAD && command != SQLCOM_INSERT_SELECT && !(command == SQLCOM_INSERT && rows >= ROWS_MIN)) return false;
  /* After a handled error, the server does not roll a function's statement back (2). */
  if (thd->in_sub_stmt) return false;
  if (lex->ignore || lex->duplicates != DUP_ERROR || m_ignores_duplicates || m_replaces) return false;
  /* What could read the table meanwhile: a subquery, or a view's condition, opens it a second time. */
  if (table->triggers || lex->sroutines_list.elements || lex->has_returning()) return false;
  for (const TABLE_LIST *other = lex->query_tables; other; other = other->next_global)
    if (other->table && other->table != table && other->table->s == table->s) return false;
  for (uint at = 0; at < table->s->keys; at++)
    if (table->key_info[at].algorithm == HA_KEY_ALG_LONG_HASH) return false;
  /* The server names a duplicate's index by the partition that was written last. */
  return !is_partition() && !table->s->period.unique_keys && !table->s->sequence && !m_share->long_columns && !m_copy.on;
}

void ha_seawall::start_bulk_insert(ha_rows rows, uint) {
  m_batch = Batch();
  m_batch.bytes_max = std::min((size_t)ha_thd()->variables.bulk_insert_buff_size, BYTES_MAX);
  m_batch.on = m_batch.bytes_max > 0 && can_collect(rows);
}

/* Whether the row with the key `m_key` is collected. It need not be if the rows of a table without indexes come in order. */
bool ha_seawall::collects() {
  if (!m_batch.on) return false;
  bool in_order = only_rows() && m_batch.trees.empty() && m_batch.last < m_key;
  m_batch.last = m_key;
  return !in_order;
}

/* Collects the row in `record`, whose key is `m_key`. */
int ha_seawall::collect(const uchar *record) {
  if (m_batch.trees.empty()) {
    m_batch.trees.resize(1 + table->s->keys);
    m_connection->note_incomplete(1);
  }
  m_value.clear();
  m_row.encode(record, &m_value);
  m_batch.trees[0].add(m_key, m_value, m_key.size());
  m_batch.numbers.push_back((uint32_t)ha_thd()->get_stmt_da()->current_row_for_warning());
  size_t bytes = m_batch.trees[0].memory() + m_batch.numbers.size() * sizeof(uint32_t);
  for (uint at = 0; at < table->s->keys; at++) {
    if (is_primary(at)) continue;
    size_t unique_len;
    entry_of(at, record, &m_new_key, &m_value, &unique_len);
    m_batch.trees[1 + at].add(m_new_key, m_value, unique_len);
    bytes += m_batch.trees[1 + at].memory();
  }
  if (int error = note_auto_increment(record)) return error;
  return bytes < m_batch.bytes_max ? 0 : insert_collected();
}

int ha_seawall::insert_collected() {
  if (m_batch.trees.empty()) return 0;
  const seawall_savepoint_t *before;
  bool first;
  int error = failed(m_connection->before_change(&before, &first));
  const size_t count = m_batch.trees[0].entries.size();
  for (uint tree = 0; !error && tree < m_batch.trees.size(); tree++)
    if (tree == 0 || !is_primary(tree - 1)) error = insert_in_order(tree);
  m_batch.trees.clear();
  m_batch.numbers.clear();
  if (error) return error;
  m_connection->note_incomplete(-1);
  note_changes(count);
  m_share->grown.fetch_add((int64_t)count, std::memory_order_relaxed);
  return 0;
}

/* Inserts the collected rows, or with `number` > 0 their entries in index `number` - 1. */
int ha_seawall::insert_in_order(uint number) {
  const Batch::Keys &keys = m_batch.trees[number];
  const seawall_tree *tree = number == 0 ? rows() : index_tree(number - 1);
  const std::vector<uint32_t> order = keys.in_order();
  std::vector<seawall_slice> next;
  for (size_t at = 0; at < order.size(); at++) {
    if (at % REQUESTED == 0 && seawall_is_killed(ha_thd())) return HA_ERR_ABORTED_BY_USER;
    if (at % REQUESTED == 0 && !m_change_pace.rests()) {
      next.clear();
      for (size_t i = at; i < std::min(at + REQUESTED, order.size()); i++) next.push_back(keys.key(order[i]));
      size_t absent = 0;
      /* An error occurs again with the insertion. */
      bool failed = seawall_prefetch(tx(), tree, next.data(), next.size(), &absent) != SEAWALL_STATUS_OK;
      m_change_pace.note(failed || absent > 0);
    }
    const uint32_t row = order[at];
    const size_t unique = number == 0 ? 0 : keys.entries[row].unique;
    seawall_status status = unique ? seawall_insert_unique(tx(), tree, keys.key(row), unique, keys.value(row))
                                   : seawall_insert(tx(), tree, keys.key(row), keys.value(row));
    if (status == SEAWALL_STATUS_OK) continue;
    if (status == SEAWALL_STATUS_KEY_EXISTS) {
      /* The server prints the duplicate from the record. */
      m_connection->note_duplicate(number == 0 ? table->s->primary_key : number - 1);
      ha_thd()->get_stmt_da()->set_current_row_for_warning(m_batch.numbers[row]);
      seawall_slice value = m_batch.trees[0].value(row);
      m_blobs.assign((const char *)value.data, value.len);
      if (!m_row.decode((const uchar *)m_blobs.data(), m_blobs.size(), table->record[0])) return damaged_entry();
      if (table->vfield) table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
    }
    return failed(status);
  }
  return 0;
}

int ha_seawall::end_bulk_insert() {
  /* After an error, the server rolls the statement back, and with it what is collected. */
  int error = ha_thd()->is_error() ? 0 : insert_collected();
  m_batch = Batch();
  if (!error) error = finish_copy();
  if (error) my_errno = error;
  return error;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/* A scan of a secondary index looks ahead: while it reads the row of one entry, the pages of the next entries' rows are
   read in parallel. (multi_range.cc does this for statements that name one range or several.)

   1. The entries ahead are a hint, read without locks: when the scan reaches them, they may have changed.
   2. A locking scan must not take its transaction's snapshot, and at SERIALIZABLE nothing may be locked ahead: both
      look ahead in a separate transaction.
   3. A scan of few rows does not look ahead. The window doubles from 4 to 64 rows, and half of it is requested at a time.
   4. While all pages are found in memory, a scan looks ahead less and less (Pace). */
#include "ha_seawall.h"
#include <algorithm>

using namespace seawall;

static const size_t WINDOW_MIN = 4, WINDOW_MAX = 64;

/* Called before the row of the entry `m_entry` is read. */
void ha_seawall::look_ahead(bool backward) {
  Look &look = m_look;
  if (backward != look.backward) look = Look();
  look.backward = backward;
  if (look.rows < WINDOW_MIN) {
    look.rows++;
    return;
  }
  if (look.ahead > 0) look.ahead--;
  if (look.ended || look.ahead > look.window / 2) return;
  if (m_ahead.pace.rests()) {
    look.ahead = look.window;
    look.last.clear();
    return;
  }
  look.window = std::min(std::max(2 * look.window, WINDOW_MIN), WINDOW_MAX);
  if (look.last.empty()) {
    look.last = m_entry;
    look.ahead = 0;
  }
  std::vector<Bytes> keys;
  /* An error occurs again when the rows are read. */
  if (entries_after(look.window - look.ahead, &keys) != SEAWALL_STATUS_OK) look.ended = true;
  look.ahead += keys.size();
  std::vector<seawall_slice> slices;
  for (const Bytes &key : keys) slices.push_back(slice(key));
  request(rows(), slices);
}

/* Gets the primary keys of the next `count` entries after the last one that was looked at. */
seawall_status ha_seawall::entries_after(size_t count, std::vector<Bytes> *keys) {
  Look &look = m_look;
  Tx own;
  seawall_tx *tx = this->tx();
  seawall_status status = SEAWALL_STATUS_OK;
  if (m_lock != SEAWALL_LOCK_NONE || thd_tx_isolation(ha_thd()) == ISO_SERIALIZABLE) {
    seawall_tx_options options{};
    options.isolation = SEAWALL_ISOLATION_READ_COMMITTED;
    status = seawall_begin(db.get(), &options, own.out());
    tx = own.get();
  }
  const Bytes from = look.last;
  seawall_bound lower = UNBOUNDED, upper = UNBOUNDED;
  if (m_exact) lower = {slice(m_search), SEAWALL_BOUND_KIND_INCLUDED};
  if (m_has_upper) upper = {slice(m_upper), SEAWALL_BOUND_KIND_EXCLUDED};
  const seawall_bound next = {slice(from), SEAWALL_BOUND_KIND_EXCLUDED};
  if (look.backward) upper = next;
  else lower = next;
  Cursor cursor;
  if (status == SEAWALL_STATUS_OK) status = seawall_cursor_new(cursor.out());
  if (status == SEAWALL_STATUS_OK)
    status = seawall_cursor_reset(cursor.get(), index_tree(active_index), lower, upper, SEAWALL_LOCK_NONE, SEAWALL_WAIT_MODE_DEFAULT, 0, count);
  seawall_seek step = look.backward ? SEAWALL_SEEK_LAST : SEAWALL_SEEK_FIRST;
  while (status == SEAWALL_STATUS_OK && keys->size() < count) {
    seawall_slice key;
    Bytes row;
    status = seawall_cursor_seek(cursor.get(), tx, step, NOTHING, &key, nullptr);
    if (status != SEAWALL_STATUS_OK) break;
    if (!m_entries[active_index].row_of(key.data, key.len, nullptr, 0, &row)) return SEAWALL_STATUS_CORRUPT;
    look.last.assign((const char *)key.data, key.len);
    keys->push_back(std::move(row)); /* empty if the entry is cut: then it does not help */
    step = look.backward ? SEAWALL_SEEK_PREV : SEAWALL_SEEK_NEXT;
  }
  if (status != SEAWALL_STATUS_NOT_FOUND) return status;
  look.ended = true;
  return SEAWALL_STATUS_OK;
}

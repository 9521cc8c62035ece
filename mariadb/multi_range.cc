/* SPDX-License-Identifier: GPL-2.0-only */
/* Multi-range read: reads the rows of an index range scan, or of a batched key access join, in parallel.

     ranges ──next_range()──> ranges ahead ──read_entries()──> rows ahead ──> the record
               (pages of the index requested)       (pages of the rows requested)

   1. Rows of a scan are returned in the order of the ranges and of the index, as without reading ahead. Rows of a join,
      whose order is free, are collected up to mrr_buffer_size and returned in the order of the primary key: no page is
      read twice.
   2. Only snapshot reads read ahead: a locking read would lock rows that the statement may never reach.
   3. The read-ahead is small at first, because of statements with a LIMIT, and doubles with each batch. For a join,
      this holds only for the pages (1).
   4. While all requested pages are found in memory, requests are made for fewer and fewer batches (Pace). */
#include "ha_seawall.h"
#include <algorithm>

using namespace seawall;

static const size_t AHEAD_MIN = 4, AHEAD_MAX = 64;

void Ahead::clear() {
  on = exhausted = in_range = ended = entries = sorts = false;
  ranges.clear();
  rows.clear();
  requested = 0;
  window = AHEAD_MIN;
  pace = Pace();
}

/* Whether rows of the index can be read ahead: its columns can be read from an entry, and no column is computed from
   others. */
bool ha_seawall::can_read_ahead(uint index, uint mode) const {
  return !(mode & HA_MRR_INDEX_ONLY) && !table->vfield && m_lock == SEAWALL_LOCK_NONE && thd_tx_isolation(ha_thd()) != ISO_SERIALIZABLE &&
         (is_primary(index) || (index_flags(index, table->key_info[index].user_defined_key_parts - 1, true) & HA_KEYREAD_ONLY));
}

ha_rows ha_seawall::multi_range_read_info(uint index, uint ranges, uint rows, uint parts, uint *buffer, uint *mode,
                                          Cost_estimate *cost) {
  ha_rows result = handler::multi_range_read_info(index, ranges, rows, parts, buffer, mode, cost);
  if (can_read_ahead(index, *mode)) *mode &= ~HA_MRR_USE_DEFAULT_IMPL;
  return result;
}

int ha_seawall::multi_range_read_explain_info(uint mode, char *to, size_t size) {
  const char TEXT[] = "Rows read ahead";
  if (mode & HA_MRR_USE_DEFAULT_IMPL || size < sizeof TEXT) return 0;
  memcpy(to, TEXT, sizeof TEXT);
  return sizeof TEXT - 1;
}

int ha_seawall::multi_range_read_init(RANGE_SEQ_IF *sequence, void *parameter, uint ranges, uint mode, HANDLER_BUFFER *buffer) {
  m_ahead.clear();
  m_ahead.on = !m_keyread && can_read_ahead(active_index, mode) && (ranges > 1 || !is_primary(active_index));
  /* Only a join asks which range a row belongs to. */
  m_ahead.sorts = m_ahead.on && !is_primary(active_index) && !(mode & (HA_MRR_SORTED | HA_MRR_NO_ASSOCIATION));
  return handler::multi_range_read_init(sequence, parameter, ranges, mode, buffer);
}

/* Requests the pages of rows or entries. */
void ha_seawall::request(const seawall_tree *tree, const std::vector<seawall_slice> &keys) {
  if (keys.empty() || m_ahead.pace.rests()) return;
  size_t absent = 0;
  /* An error occurs again when the rows are read. */
  bool failed = seawall_prefetch(tx(), tree, keys.data(), keys.size(), &absent) != SEAWALL_STATUS_OK;
  m_ahead.pace.note(failed || absent > 0);
}

/* Moves to the next range; false if there is none. */
bool ha_seawall::next_range() {
  if (m_ahead.ranges.size() <= m_ahead.window / 4 && !m_ahead.exhausted) {
    std::vector<Bytes> starts;
    while (m_ahead.ranges.size() < m_ahead.window) {
      Ahead::Range next;
      if (mrr_funcs.next(mrr_iter, &next.range)) {
        m_ahead.exhausted = true;
        break;
      }
      const key_range &start = next.range.start_key, &end = next.range.end_key;
      if (start.keypart_map) next.start.assign((const char *)start.key, start.length);
      if (end.keypart_map) next.end.assign((const char *)end.key, end.length);
      if (start.keypart_map && next.range.range_flag & EQ_RANGE) {
        starts.emplace_back();
        encode_search(active_index, start.key, start.keypart_map, &starts.back());
      }
      m_ahead.ranges.push_back(std::move(next));
    }
    std::vector<seawall_slice> keys;
    for (const Bytes &start : starts) keys.push_back(slice(start));
    if (keys.size() > 1) request(index_tree(active_index), keys);
    m_ahead.window = std::min(2 * m_ahead.window, AHEAD_MAX);
  }
  if (m_ahead.ranges.empty()) return false;
  m_ahead.current = std::move(m_ahead.ranges.front());
  m_ahead.ranges.pop_front();
  KEY_MULTI_RANGE &range = m_ahead.current.range;
  range.start_key.key = (const uchar *)m_ahead.current.start.data();
  range.end_key.key = (const uchar *)m_ahead.current.end.data();
  mrr_cur_range = range;
  return true;
}

/* Reads the next row of the ranges, or the next entry, like handler::multi_range_read_next, but from the ranges
   ahead. */
int ha_seawall::next_in_ranges() {
  const uint POINT = UNIQUE_RANGE | EQ_RANGE;
  if (m_ahead.in_range && (mrr_cur_range.range_flag & POINT) != POINT) {
    int error = read_range_next();
    if (error != HA_ERR_END_OF_FILE) return error;
  }
  while (next_range()) {
    const key_range &start = mrr_cur_range.start_key, &end = mrr_cur_range.end_key;
    m_ahead.in_range = true;
    int error = read_range_first(start.keypart_map ? &start : nullptr, end.keypart_map ? &end : nullptr,
                                 mrr_cur_range.range_flag & EQ_RANGE, mrr_is_output_sorted);
    if (error != HA_ERR_END_OF_FILE) return error;
  }
  m_ahead.in_range = false;
  return HA_ERR_END_OF_FILE;
}

/* Reads entries until `window` rows are ahead, or as many as are sorted at once. */
int ha_seawall::read_entries() {
  size_t bytes = 0, bytes_max = m_ahead.sorts ? ha_thd()->variables.mrr_buff_size : SIZE_MAX;
  int error = 0;
  m_ahead.entries = true;
  while (bytes < bytes_max && (m_ahead.sorts || m_ahead.rows.size() < m_ahead.window)) {
    if ((error = next_in_ranges())) break;
    if (mrr_funcs.skip_index_tuple && mrr_funcs.skip_index_tuple(mrr_iter, mrr_cur_range.ptr)) continue;
    m_ahead.rows.push_back({mrr_cur_range.ptr, m_primary});
    bytes += m_primary.size();
  }
  m_ahead.entries = false;
  if (m_ahead.sorts)
    std::stable_sort(m_ahead.rows.begin(), m_ahead.rows.end(),
                     [](const Ahead::Row &a, const Ahead::Row &b) { return a.primary < b.primary; });
  if (error != HA_ERR_END_OF_FILE) return error;
  m_ahead.ended = true;
  return 0;
}

/* Requests the pages of the first `window` rows ahead. */
void ha_seawall::request_rows() {
  std::vector<seawall_slice> keys;
  size_t end = std::min(m_ahead.rows.size(), m_ahead.window);
  for (size_t at = m_ahead.requested; at < end; at++) keys.push_back(slice(m_ahead.rows[at].primary));
  if (m_ahead.rows.size() > 1) request(rows(), keys);
  m_ahead.requested = end;
  m_ahead.window = std::min(2 * m_ahead.window, AHEAD_MAX);
}

int ha_seawall::multi_range_read_next(range_id_t *id) {
  if (!m_ahead.on) return handler::multi_range_read_next(id);
  if (is_primary(active_index)) {
    int error = next_in_ranges();
    *id = mrr_cur_range.ptr;
    return error;
  }
  for (;;) {
    if (!m_ahead.ended && m_ahead.rows.size() <= (m_ahead.sorts ? 0 : m_ahead.window / 2))
      if (int error = read_entries()) return error;
    if (m_ahead.rows.empty()) return HA_ERR_END_OF_FILE;
    if (m_ahead.requested <= m_ahead.window / 2) request_rows();
    Ahead::Row row = std::move(m_ahead.rows.front());
    m_ahead.rows.pop_front();
    m_ahead.requested -= m_ahead.requested > 0;
    if (mrr_funcs.skip_record && mrr_funcs.skip_record(mrr_iter, row.range, nullptr)) continue;
    *id = row.range;
    m_primary = std::move(row.primary);
    int error = fetch(table->record[0]);
    if (error != HA_ERR_KEY_NOT_FOUND) return error;
  }
}

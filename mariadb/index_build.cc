/* SPDX-License-Identifier: GPL-2.0-only */
#include "index_build.h"
#include <malloc.h>

namespace seawall {

seawall_status Index_build::begin(const seawall_tree *rows, uint fill_percent, uint keep_percent) {
  m_base = rows;
  m_fill_percent = fill_percent;
  m_keep_percent = keep_percent;
  seawall_status status = seawall_begin_index_build(db.get(), rows, m_build.out());
  return status != SEAWALL_STATUS_OK ? status : seawall_index_build_interrupt(m_build.get(), m_interrupt.out());
}

static std::unique_ptr<Key_codec> codec_of(TABLE *altered, const Layouts &layouts, uint key) {
  auto codec = std::make_unique<Key_codec>();
  codec->init(altered, altered->key_info + key, layouts.levels);
  return codec;
}

Index_build::Index::Index(TABLE *altered, const Layouts &layouts, uint key, const Key_codec *primary, std::string name)
    : key(key), unique(altered->key_info[key].flags & HA_NOSAME), columns(codec_of(altered, layouts, key)),
      entries(columns.get(), primary, unique, seawall_key_bytes_max(db.get())), name(std::move(name)) {}

void Index_build::add(TABLE *altered, const Layouts &layouts, uint key, std::string name) {
  m_altered = altered;
  m_row.init(altered, layouts);
  if (!m_primary && altered->s->primary_key < MAX_KEY) m_primary = codec_of(altered, layouts, altered->s->primary_key);
  m_indexes.emplace_back(altered, layouts, key, m_primary.get(), std::move(name));
}

bool Index_build::add_entry(void *context, size_t at, seawall_slice key, seawall_slice value, seawall_index_entries *entries) {
  Index_build *build = static_cast<Index_build *>(context);
  if (build->m_abandoned) return false;
  try {
    return build->add_entry(at, key, value, entries);
  } catch (const std::bad_alloc &) { /* no exception may reach the engine */
    build->m_no_memory = true;
    return false;
  }
}

bool Index_build::add_entry(size_t at, seawall_slice key, seawall_slice value, seawall_index_entries *entries) {
  uchar *record = m_altered->record[0];
  if (at == 0) { /* the row stays in the record for the other indexes */
    m_rows++;
    const uchar *from = value.data;
    if (m_row.has_blobs()) { /* they point into the row */
      m_bytes.assign((const char *)value.data, value.len);
      from = (const uchar *)m_bytes.data();
    }
    if (!m_row.decode(from, value.len, record, m_columns)) {
      m_damaged = true;
      return false;
    }
  }
  m_row_key.assign((const char *)key.data, key.len);
  size_t unique_len = m_indexes[at].entries.encode(record, m_row_key, &m_entry, &m_value);
  return seawall_index_entry(entries, slice(m_entry), unique_len, slice(m_value)) == SEAWALL_STATUS_OK;
}

void Index_build::move_to(State state) {
  std::lock_guard<std::mutex> guard(m_mutex);
  m_state = state;
  m_changed.notify_all();
}

bool Index_build::is_nearly_complete(void *context) {
  Index_build *build = static_cast<Index_build *>(context);
  std::unique_lock<std::mutex> lock(build->m_mutex);
  build->m_state = NEARLY;
  build->m_changed.notify_all();
  build->m_changed.wait(lock, [&] { return build->m_state == FINISHING || build->m_abandoned; });
  return !build->m_abandoned;
}

/* Reads the row of the existing entry: only the row can tell which index the entry belongs to. */
void Index_build::find_duplicate() {
  seawall_slice key = seawall_error_key();
  std::string of_error((const char *)key.data, key.len);
  for (const Index &index : m_indexes) {
    size_t len;
    if (!index.unique || !index.columns->length_in((const uchar *)of_error.data(), of_error.size(), MAX_KEY, &len)) continue;
    m_duplicate = index.key;
    Tx tx;
    seawall_tx_options options{};
    seawall_slice value;
    std::string primary = of_error.substr(len);
    if (seawall_begin(db.get(), &options, tx.out()) || seawall_get(tx.get(), m_base, slice(primary), &value)) continue;
    m_bytes.assign((const char *)value.data, value.len);
    if (!m_row.decode((const uchar *)m_bytes.data(), m_bytes.size(), m_altered->record[0])) continue;
    m_entry.clear();
    index.columns->encode(m_altered->record[0], MAX_KEY, &m_entry);
    if (m_entry + primary == of_error) return;
  }
}

void Index_build::build() {
  my_thread_init();
  std::vector<const char *> names;
  for (const Index &index : m_indexes) names.push_back(index.name.c_str());
  m_status = seawall_build_indexes(m_build.get(), names.data(), names.size(), m_fill_percent, m_keep_percent, add_entry, is_nearly_complete, this);
  m_build.out();
  if (m_damaged) {
    m_status = SEAWALL_STATUS_CORRUPT;
    m_error = "a row does not have the columns of its table: CHECK TABLE, and restore from a backup";
  } else if (m_no_memory) {
    m_status = SEAWALL_STATUS_OTHER;
    m_error = "no memory for a row and its entries";
  } else if (m_status != SEAWALL_STATUS_OK) {
    m_error = seawall_error();
  }
  if (m_status == SEAWALL_STATUS_KEY_EXISTS) find_duplicate();
  /* This thread's arena would keep the memory that was freed. */
  malloc_trim(0);
  move_to(ENDED);
  my_thread_end();
}

seawall_status Index_build::ended() {
  {
    std::lock_guard<std::mutex> guard(m_mutex);
    if (m_state != ENDED) return SEAWALL_STATUS_OK;
  }
  if (m_thread.joinable()) m_thread.join();
  return m_status;
}

seawall_status Index_build::finish() {
  {
    std::lock_guard<std::mutex> guard(m_mutex);
    if (m_state == NEARLY) m_state = FINISHING;
    m_changed.notify_all();
  }
  if (m_thread.joinable()) m_thread.join();
  return m_status;
}

void Index_build::abandon() {
  {
    std::lock_guard<std::mutex> guard(m_mutex);
    m_abandoned = true;
    m_changed.notify_all();
  }
  if (m_interrupt) seawall_interrupt(m_interrupt.get());
  if (m_thread.joinable()) m_thread.join();
}

}

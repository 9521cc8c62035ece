/* SPDX-License-Identifier: GPL-2.0-only */
/* Builds indexes in a background thread, while other transactions read and change the table.

     BUILDING ──nearly complete──> NEARLY ──finish()──> FINISHING ──> ENDED
        └───────────an error, or abandon()──────────────────────────────^

   begin() is called under the server's exclusive lock of the table: from then on changes of rows are logged. NEARLY:
   the entries of all rows exist, and changes are applied as they come. The server waits for the table's writers to end
   before it calls finish(); statements that begin later maintain the indexes themselves. */
#ifndef SEAWALL_INDEX_BUILD_H
#define SEAWALL_INDEX_BUILD_H

#include "codec.h"
#include "connection.h"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

namespace seawall {

class Index_build {
public:
  /* Begins a build of indexes over the rows of `rows`, whose writers keep `keep_percent` of their rate. `fill_percent`: of
     the leaves. */
  seawall_status begin(const seawall_tree *rows, uint fill_percent, uint keep_percent);
  /* Adds index `key` of `altered`, to be built as tree `name`. The build uses the record of `altered` until it is
     NEARLY, and during finish(). */
  void add(TABLE *altered, const Layouts &layouts, uint key, std::string name);
  /* Makes the build decode only these columns of a row, which include those of the indexes and of the primary key.
     `columns` must outlive the build. */
  void reads(const MY_BITMAP *columns) { m_columns = columns; }
  ~Index_build() { abandon(); }
  /* Runs the build, and waits until it is NEARLY, or ENDED with an error. Calls `ticks` every 100 ms with the number of
     rows so far; it ends the build by returning false. */
  template <typename F> seawall_status run(F ticks) {
    std::unique_lock<std::mutex> lock(m_mutex);
    try {
      m_thread = std::thread(&Index_build::build, this);
    } catch (const std::system_error &error) {
      m_error = std::string("no thread for the index build: ") + error.what();
      m_state = ENDED;
      return m_status = SEAWALL_STATUS_OTHER;
    }
    while (!m_changed.wait_for(lock, std::chrono::milliseconds(100), [&] { return m_state != BUILDING; })) {
      lock.unlock();
      if (!ticks(m_rows.load())) abandon();
      lock.lock();
    }
    lock.unlock();
    return ended();
  }
  /* When it returns OK, the indexes are complete and visible. */
  seawall_status finish();
  void abandon();
  /* The text of an error, and after KEY_EXISTS the index, whose columns are in the record. */
  const std::string &error() const { return m_error; }
  uint duplicate() const { return m_duplicate; }

private:
  enum State { BUILDING, NEARLY, FINISHING, ENDED };
  struct Index {
    Index(TABLE *altered, const Layouts &layouts, uint key, const Key_codec *primary, std::string name);
    uint key;
    bool unique;
    std::unique_ptr<Key_codec> columns;
    Entry_codec entries;
    std::string name;
  };
  static bool add_entry(void *build, size_t index, seawall_slice key, seawall_slice value, seawall_index_entries *entries);
  bool add_entry(size_t index, seawall_slice key, seawall_slice value, seawall_index_entries *entries);
  static bool is_nearly_complete(void *build);
  void build();
  void find_duplicate();
  seawall_status ended();
  void move_to(State state);

  Build m_build;
  Interrupt m_interrupt;
  const seawall_tree *m_base = nullptr;
  uint m_fill_percent = 0, m_keep_percent = 0;
  TABLE *m_altered = nullptr;
  std::vector<Index> m_indexes;
  std::unique_ptr<Key_codec> m_primary; /* null without a primary key */
  Row_codec m_row;
  const MY_BITMAP *m_columns = nullptr; /* null: all */
  std::string m_bytes, m_row_key, m_entry, m_value;

  std::thread m_thread;
  std::mutex m_mutex;
  std::condition_variable m_changed;
  State m_state = BUILDING;
  std::atomic<bool> m_abandoned{false};
  std::atomic<ulonglong> m_rows{0};
  bool m_damaged = false, m_no_memory = false;
  seawall_status m_status = SEAWALL_STATUS_OK;
  std::string m_error;
  uint m_duplicate = MAX_KEY;
};

}
#endif

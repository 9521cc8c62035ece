/* SPDX-License-Identifier: GPL-2.0-only */
/* One connection's transaction, and the handles of the engine. */
#ifndef SEAWALL_CONNECTION_H
#define SEAWALL_CONNECTION_H

#include "compat.h"
#include "seawall.h"
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace seawall {

/* Owns a handle of the engine. */
template <typename T, void (*FREE)(T *)> class Owned {
public:
  Owned() = default;
  Owned(Owned &&other) noexcept : m_handle(std::exchange(other.m_handle, nullptr)) {}
  Owned &operator=(Owned &&other) noexcept {
    if (this != &other) {
      FREE(m_handle);
      m_handle = std::exchange(other.m_handle, nullptr);
    }
    return *this;
  }
  ~Owned() { FREE(m_handle); }
  T *get() const { return m_handle; }
  T **out() {
    FREE(m_handle);
    m_handle = nullptr;
    return &m_handle;
  }
  explicit operator bool() const { return m_handle != nullptr; }

private:
  T *m_handle = nullptr;
};

using Db = Owned<seawall_db, seawall_free>;
using Tree = Owned<seawall_tree, seawall_tree_free>;
using Tx = Owned<seawall_tx, seawall_transaction_free>;
using Cursor = Owned<seawall_cursor, seawall_cursor_free>;
using Savepoint = Owned<seawall_savepoint_t, seawall_savepoint_free>;
using Build = Owned<seawall_index_build, seawall_index_build_free>;
using Interrupt = Owned<seawall_interrupt_t, seawall_interrupt_free>;

extern handlerton *hton;
extern Db db;

inline seawall_slice slice(const std::string &bytes) { return {(const uint8_t *)bytes.data(), bytes.size()}; }
inline seawall_slice slice(const void *data, size_t len) { return {(const uint8_t *)data, len}; }
const seawall_slice NOTHING = {nullptr, 0};
const seawall_bound UNBOUNDED = {NOTHING, SEAWALL_BOUND_KIND_UNBOUNDED};

class Counters;

/* A connection. One transaction object serves all its transactions. */
class Connection {
public:
  /* Returns the connection of the thread, and makes it if there is none; null if that fails. */
  static Connection *of(THD *thd);
  static Connection *known(THD *thd);

  /* Called for each table that a statement uses: begins the transaction and the statement as needed. `locks`: it may lock or
     change rows there. */
  int use(THD *thd, bool locks);
  /* Whether the transaction may have locked or changed rows. */
  bool has_locked() const { return m_active && m_has_locked; }
  seawall_tx *tx() const { return m_tx.get(); }
  /* Called before a change of a row. `*before`: the savepoint to which the statement is rolled back. `*first`: this is
     the statement's first change. */
  seawall_status before_change(const seawall_savepoint_t **before, bool *first);
  /* Notes a change of a row. If only temporary tables are changed, the commit waits for no flush. */
  void note_change(bool temporary) { (temporary ? m_changed_temporary : m_changed_lasting) = true; }
  /* Grows with each change and each rollback of this connection. */
  uint64_t changes() const { return m_changes; }
  /* Notes that a table lacks rows or index entries that the statement must still make (1), or has them (-1): until then
     a commit fails. */
  void note_incomplete(int tables) { m_incomplete += tables; }
  /* Locks a table's automatic numbers until the statement ends. */
  seawall_status lock_auto(const std::shared_ptr<Counters> &counters);
  THD *thd() const { return m_thd; }
  /* The index in which a change of the last statement met a duplicate. Not kept by the handler: after a row could not
     move to another partition, the server asks the partition that it is in. */
  void note_duplicate(uint index) { m_duplicate = index; }
  uint duplicate() const { return m_duplicate; }

  int commit(bool all);
  int rollback(bool all);
  int prepare(bool all);
  void commit_ordered(bool all);
  int take_snapshot();
  void interrupt();
  /* Makes `other` a transaction of the statement until leave(): it waits for locks as long as the statement may, and
     KILL interrupts it. */
  seawall_status enter(seawall_tx *other);
  void leave();
  bool is_active() const { return m_active; }
  /* The tables whose trees are dropped when the transaction, which may have locked them, has ended; null when there is
     no transaction, or when it is not this connection that ends it. */
  std::vector<uint64_t> *to_drop(bool temporary) { return m_active && (m_xid.empty() || temporary) ? &m_to_drop : nullptr; }

  /* The numbers of the tables that the statement copies (ALTER TABLE). */
  void note_copied(uint64_t table);
  const std::vector<uint64_t> &copied();

  /* Savepoints of the server, by a number that is not 0. The server does not release all of them. */
  int set_savepoint(uint64_t *number);
  int rollback_to(uint64_t number);
  void release_savepoint(uint64_t number) { m_savepoints.erase(number); }
  ~Connection();
  /* A connection with a transaction, for reports. */
  struct Open {
    uint64_t thread = 0;
    uint64_t begun_us = 0; /* by microsecond_interval_timer() */
    seawall_isolation isolation = SEAWALL_ISOLATION_REPEATABLE_READ;
    std::string query;     /* its beginning only */
    CHARSET_INFO *cs = nullptr;
  };
  /* The connections that have a transaction, in the order of their numbers. */
  static std::vector<Open> open();
  /* A connection, with the statement that it runs. */
  static Open find(uint64_t thread);
  /* Called when a transaction waits for another one; both are given by their tags. */
  static void waits(void *context, uint64_t waiter, uint64_t holder);
  /* Called by a thread that is about to wait for a lock, the log or a page, and when it has waited. */
  static void blocks(seawall_blocking on);
  static void goes_on();

private:
  int begin();
  void end_statement();
  void unlock_auto(seawall_tx *tx);
  void clear_interrupt();
  void ended();
  void release_tx();
  void detach();
  int failed_end(const char *what, seawall_status status);
  int check_complete(bool all);
  bool needs_no_flush() const { return m_changed_temporary && !m_changed_lasting; }
  seawall_status roll_back_to(const seawall_savepoint_t *savepoint);
  Open describe() const;

  THD *m_thd = nullptr;
  uint64_t m_number = 0;     /* the thread's number */
  /* The connection of the same thread that the server has set aside to read a system table. */
  Connection *m_outer = nullptr;
  Tx m_tx;
  std::mutex m_interrupt_mutex;
  Interrupt m_interrupt, m_of_other;
  std::atomic<bool> m_interrupted{false};
  std::atomic<seawall_isolation> m_isolation{SEAWALL_ISOLATION_REPEATABLE_READ}; /* the transaction's */
  std::atomic<uint64_t> m_begun_us{0}; /* 0: no transaction */
  ulong m_wait_seconds = 0;
  bool m_active = false;     /* a transaction has begun */
  bool m_statement = false;
  uint64_t m_changes = 0;
  bool m_changed_temporary = false, m_changed_lasting = false; /* tables, by the transaction */
  uint m_duplicate = MAX_KEY;
  int m_incomplete = 0;      /* note_incomplete */
  query_id_t m_copying = 0;  /* the statement that m_copied belongs to */
  std::vector<uint64_t> m_copied;
  bool m_prepared = false;
  bool m_has_locked = false;
  bool m_committed = false;  /* by commit_ordered */
  Savepoint m_before;        /* before the statement's first change */
  std::map<uint64_t, Savepoint> m_savepoints;
  uint64_t m_last_savepoint = 0;
  std::vector<uint64_t> m_to_drop;
  std::vector<std::shared_ptr<Counters>> m_auto_locked;
  std::string m_xid;         /* the name, after XA PREPARE */
};

/* Returns the server's error for a status, and tells the server to roll back the statement or transaction if the status
   requires it. */
int error_of(THD *thd, seawall_status status, std::string *text);

/* The variable seawall_durability; for a statement that copies a table, a flush. */
seawall_commit_level durability_of(THD *thd);
/* Whether the statement copies a table: a crash after it may leave only the copy. */
bool copies_a_table(THD *thd);
/* The variable seawall_index_build_keep_percent. */
uint index_build_keep_percent(THD *thd);
/* The variable seawall_snapshot_isolation. */
bool fails_on_conflict(THD *thd);

/* Sets the transaction hooks of the handlerton. */
void set_hooks(handlerton *hton);

}
#endif

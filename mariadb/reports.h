/* SPDX-License-Identifier: GPL-2.0-only */
/* The data of information_schema and SHOW ENGINE: transactions, waits, deadlocks, names of trees, numbers. Each is a
   copy that shows one moment; no mutex is held while it is used. */
#ifndef SEAWALL_REPORTS_H
#define SEAWALL_REPORTS_H

#include "connection.h"
#include <shared_mutex>
#include <ctime>

namespace seawall {

inline std::string text_of(seawall_slice text) { return std::string((const char *)text.data, text.len); }
/* The seconds since `us`, a time of microsecond_interval_timer(). */
uint64_t seconds_since(uint64_t us);
/* The wall-clock time at `us`. */
time_t time_of(uint64_t us);

/* A report keeps the database open while it exists; without a database there is nothing to report. */
class Report {
public:
  Report();
  explicit operator bool() const { return m_open; }

private:
  std::shared_lock<std::shared_mutex> m_lock;
  bool m_open;
};
void permit_reports();
/* Permits no more reports, and returns when none is being made. */
void end_reports();

/* The number by which reports name a transaction: its id, or, before its first change, a number above all ids. */
uint64_t number_of(const seawall_party &party);
const char *name_of(seawall_isolation isolation);

struct Transaction {
  uint64_t number = 0;
  Connection::Open connection; /* its thread is 0 if there is none: prepared, or rolled back after a restart */
  uint64_t changes = 0, locked_keys = 0;
  bool waits = false, is_victim = false, is_prepared = false;
  const char *state() const;
};
/* The transactions of connections, and those without a connection. */
std::vector<Transaction> all_transactions();

/* A lock that is waited for. */
struct Lock_key {
  uint32_t tree = 0;
  uint64_t hash = 0;
  std::string text; /* in hexadecimal, at most 256 bytes of the key */
  Lock_key() = default;
  Lock_key(uint32_t tree, seawall_slice key);
  /* The name of a transaction's lock on the key, in mode S or X. */
  std::string id(uint64_t transaction, uint32_t lock) const;
};
struct Wait {
  seawall_party waiter{}, holder{};
  Lock_key key;
  uint32_t wanted = 0;
  uint32_t held = 0;    /* the holder's lock; if the holder is only ahead in the queue, the lock that it wants */
  bool queued = false;  /* the holder is only ahead in the queue, or uses a tree that is to be locked whole */
  uint64_t waited_ms = 0;
};
std::vector<Wait> all_waits();

/* The last deadlock, with the statements that its connections ran. */
struct Deadlock {
  struct Party {
    seawall_party who{};
    Connection::Open connection;
    Lock_key key;
    uint32_t wanted = 0;
    bool is_victim = false;
  };
  time_t at = 0;
  std::vector<Party> parties;
};
/* Called by the victim's thread before it rolls back: the others still wait. */
void remember_deadlock(THD *thd);
Deadlock last_deadlock();

/* The table and index that a tree belongs to. */
struct Place {
  std::string schema, table, partition, index, tree;
  /* As InnoDB's reports write it: `db`.`table`, with the partition. */
  std::string quoted() const;
};
/* `name` is "db/table", as the dictionary has it. */
Place place_of_table(const std::string &name);
/* The places of some trees, found in one pass over the dictionary. */
std::map<uint32_t, Place> places_of(const std::vector<uint32_t> &trees);

struct Metric {
  std::string group, name, help;
  bool is_counter;
  uint64_t value;
};
std::vector<Metric> all_metrics();

struct Io {
  std::string file_class, operation, cause;
  uint64_t count, errors, bytes, total_ns, p50_ns, p95_ns, p99_ns, max_ns;
};
std::vector<Io> all_io();

struct File_class {
  std::string name, mode;
  uint64_t page_cache_bytes; /* UINT64_MAX: unknown */
};
std::vector<File_class> all_files(std::string *backend);

}
#endif

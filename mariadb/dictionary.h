/* SPDX-License-Identifier: GPL-2.0-only */
/* The dictionary: one tree that maps the server's table names to trees. Its keys begin with what they are:

     t, name      a table ("db/table", partitions with their suffix): a Definition
     T, path      a temporary table, by its whole path: a Definition. Dropped when the server starts.
     c, number    a table's counters, up to which numbers are given out (Counters)
     d, number    a table that is gone and whose trees are not yet: a Definition. Dropped when the server starts.
     h, number, i an index that is being built. Dropped when the server starts.
     s, number    statistics of a table
     a, number    nothing: the lock of a table's automatic numbers
     n            the last number given to a table

   A table's trees are named by its number, and its indexes have names and numbers of their own in the
   Definition: a rename changes one row. */
#ifndef SEAWALL_DICTIONARY_H
#define SEAWALL_DICTIONARY_H

#include "connection.h"
#include "layout.h"
#include <functional>
#include <memory>

namespace seawall {

struct Definition {
  struct Index {
    std::string name;
    uint32_t number;
  };
  uint64_t number = 0;        /* of the table */
  std::vector<Index> indexes; /* secondary ones */
  Layouts layouts;            /* of its rows */
  bool has_long_columns = false; /* a tree of them */
  std::string version;        /* the server's, of the definition that indexes and layouts belong to */
  uint64_t created = 0;       /* seconds since 1970; 0: by an earlier version */
  /* The number of an index; 0 if there is none of the name. */
  uint32_t index(const char *name) const;
};

/* What the optimizer is told of a table's indexes, from a sample. */
struct Statistics {
  struct Index {
    std::string name;
    std::vector<double> distinct; /* values of the first column, of the first two ... */
  };
  double rows = 0;
  std::vector<Index> indexes;
  /* Rows for a value of the first `part + 1` columns; 0: unknown. */
  ulong rows_per_value(const char *index, uint part) const;
};

/* The tree of a table's rows (0), of a secondary index (from 1), or of its long columns. */
const uint32_t LONG_COLUMNS = UINT32_MAX;
std::string tree_name(uint64_t table, uint32_t index);

/* Makes the dictionary if there is none; drops what an earlier server left half-dropped, and its temporary
   tables. */
seawall_status open_dictionary();
/* Writes the counters as they are. */
void close_dictionary();

seawall_status find_table(const char *path, Definition *definition);
/* Of one of the partitions of this table. */
seawall_status find_partition_of(const char *path, Definition *definition);
/* Calls `told` with each table that is not temporary, "db/table" in the server's encoding of file names, as one
   snapshot has them, until it returns false. */
seawall_status for_each_table(const std::function<bool(seawall_tx *tx, const std::string &name, const Definition &)> &told);
/* Each is one transaction, and durable when it returns. `auto_from`: the first automatic number. */
seawall_status create_table(const char *path, uint32_t columns, bool has_long_columns, const std::vector<std::string> &indexes,
                            const std::string &version, uint64_t auto_from);
seawall_status rename_table(const char *from, const char *to);
/* The name is gone, or has new trees, when it returns. With `later` the trees are still there, as the caller's transaction may
   have locked them: drop_trees_of() is to drop those of the numbers in it. */
seawall_status drop_table(const char *path, std::vector<uint64_t> *later);
seawall_status truncate_table(const char *path, std::vector<uint64_t> *later);
seawall_status drop_trees_of(uint64_t table);
seawall_status drop_database(const char *path);

/* Changes of a table's indexes and layouts. A new index is announced, built by the caller as a tree of its number, and
   becomes the table's with alter_tables(); abandon_indexes() drops what was announced. */
struct Changes {
  std::string path;
  std::vector<Definition::Index> added;
  std::vector<std::string> dropped;
  std::vector<std::pair<std::string, std::string>> renamed;
  Layouts layouts; /* those that there are, and the new one; empty: no change */
  bool has_long_columns = false; /* the new layout has */
  std::string version;
};
seawall_status announce_indexes(const std::vector<std::string> &names, Changes *changes);
/* All tables in one transaction: the partitions of a table. */
seawall_status alter_tables(const std::vector<const Changes *> &tables);
seawall_status abandon_indexes(uint64_t table, const Changes &changes);

/* NOT_FOUND: there are none. */
seawall_status read_statistics(uint64_t table, Statistics *statistics);
seawall_status write_statistics(uint64_t table, const Statistics &statistics);

/* The numbers that a table gives out: to rows without a primary key, and for AUTO_INCREMENT. They are kept in
   the dictionary in blocks, in a transaction of their own that is in the log before any row that has one of
   the numbers: after a crash the rest of a block is skipped, and no number is given twice. A clean shutdown
   writes them as they are. They belong to the process, not to an open table: rows that are not committed
   count. */
class Counters {
public:
  Counters(uint64_t table, uint64_t next_row, uint64_t next_auto)
      : m_table(table), m_next_row(next_row), m_row_limit(next_row), m_next_auto(next_auto), m_auto_limit(next_auto) {}
  seawall_status take_row(uint64_t *number);
  /* The first of `wanted` numbers of the row `offset`, `offset + increment` ...; `most`: the column's largest. */
  seawall_status take_auto(uint64_t offset, uint64_t increment, uint64_t wanted, uint64_t most, uint64_t *first);
  /* A row has come with a number of its own. */
  seawall_status note_auto(uint64_t number, uint64_t most);
  seawall_status set_auto(uint64_t next);
  uint64_t next_auto();
  /* The lock of the automatic numbers, which a transaction holds until its statement ends (seawall_autoinc_lock_mode). */
  seawall_status lock_auto(seawall_tx *tx);
  void unlock_auto(seawall_tx *tx);
  bool is_auto_locked() const { return m_locked.load() > 0; }

private:
  friend void close_dictionary();
  seawall_status reserve_auto(uint64_t next, uint64_t most);
  seawall_status write(uint64_t row_limit, uint64_t auto_limit);
  std::mutex m_mutex;
  const uint64_t m_table;
  std::atomic<int> m_locked{0};
  uint64_t m_next_row, m_row_limit, m_next_auto, m_auto_limit;
};

/* The counters of a table, read when they are asked for the first time. */
seawall_status counters_of(uint64_t table, std::shared_ptr<Counters> *counters);

}
#endif

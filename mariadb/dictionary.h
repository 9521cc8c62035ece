/* SPDX-License-Identifier: GPL-2.0-only */
/* The dictionary: one tree that maps the server's table names to trees. The first byte of a key says what it is:

     t, name      a table ("db/table", partitions with their suffix): a Definition
     T, path      a temporary table, by its whole path: a Definition. Dropped when the server starts.
     c, number    a table's counters: the limits up to which numbers are reserved (Counters)
     d, number    a dropped table whose trees still exist: a Definition. Dropped when the server starts.
     h, number, i an index that is being built. Dropped when the server starts.
     s, number    statistics of a table
     a, number    no value: the key is the lock of a table's automatic numbers
     n            the last number given to a table

   A table's trees are named by its number, and the Definition has the names and numbers of its indexes: so a rename
   changes one row. */
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
  uint64_t number = 0;        /* the table's number */
  std::vector<Index> indexes; /* the secondary indexes */
  Layouts layouts;            /* the layouts of its rows */
  bool has_long_columns = false; /* there is a tree of them */
  std::string version;        /* the server's version of the definition that indexes and layouts belong to */
  uint64_t created = 0;       /* seconds since 1970; 0: created by an earlier version */
  /* Returns the number of an index; 0 if no index has the name. */
  uint32_t index(const char *name) const;
};

/* Statistics of a table's indexes for the optimizer, from a sample. */
struct Statistics {
  struct Index {
    std::string name;
    std::vector<double> distinct; /* distinct values of the first column, of the first two ... */
  };
  double rows = 0;
  std::vector<Index> indexes;
  /* Returns the number of rows for each value of the first `part + 1` columns; 0 if unknown. */
  ulong rows_per_value(const char *index, uint part) const;
};

/* Whether the server's path is that of a temporary table. */
bool is_temporary(const char *path);
/* The tree of a table's rows (0), of a secondary index (from 1), or of its long columns. */
const uint32_t LONG_COLUMNS = UINT32_MAX;
std::string tree_name(uint64_t table, uint32_t index);

/* Opens the dictionary, and makes it if there is none. Drops what an earlier server left half-dropped or half-made, and
   its temporary tables. */
seawall_status open_dictionary();
/* Drops the copies of tables that an ALTER TABLE was making and that the server does not know. After a crash, its log of
   definitions has dropped them; a restored backup does not have that log. */
void drop_left_copies();
/* Writes the current values of the counters, and closes the dictionary. */
void close_dictionary();

seawall_status find_table(const char *path, Definition *definition);
/* Finds one of the partitions of this table. */
seawall_status find_partition_of(const char *path, Definition *definition);
/* Calls `told` with each table that is not temporary, as one snapshot has them, until it returns false. A name is
   "db/table" in the server's encoding of file names. */
seawall_status for_each_table(const std::function<bool(seawall_tx *tx, const std::string &name, const Definition &)> &told);
/* Each of these functions is one transaction, which is durable when it returns unless the table is temporary.
   `auto_from`: the first automatic number. */
seawall_status create_table(const char *path, uint32_t columns, bool has_long_columns, const std::vector<std::string> &indexes,
                            const std::string &version, uint64_t auto_from);
seawall_status rename_table(const char *from, const char *to);
/* When it returns, the name is gone, or has new trees. With `later`, the old trees still exist, because the caller's
   transaction may have locked them: the caller must drop them with drop_trees_of() for each number in `later`. */
seawall_status drop_table(const char *path, std::vector<uint64_t> *later);
seawall_status truncate_table(const char *path, std::vector<uint64_t> *later);
seawall_status drop_trees_of(uint64_t table);
seawall_status drop_database(const char *path);

/* Changes of a table's indexes and layouts. announce_indexes() announces a new index, the caller builds it as a tree of
   its number, and alter_tables() makes it the table's; abandon_indexes() drops announced indexes. */
struct Changes {
  std::string path;
  std::vector<Definition::Index> added;
  std::vector<std::string> dropped;
  std::vector<std::pair<std::string, std::string>> renamed;
  Layouts layouts; /* the existing ones, and the new one; empty: no change */
  bool has_long_columns = false; /* the new layout has them */
  std::string version;
};
seawall_status announce_indexes(const std::vector<std::string> &names, Changes *changes);
/* Changes all tables, which are the partitions of one table, in one transaction. */
seawall_status alter_tables(const std::vector<const Changes *> &tables);
seawall_status abandon_indexes(uint64_t table, const Changes &changes);

/* Returns NOT_FOUND if there are none. */
seawall_status read_statistics(uint64_t table, Statistics *statistics);
seawall_status write_statistics(uint64_t table, const Statistics &statistics);

/* The numbers that a table assigns: to rows without a primary key, and for AUTO_INCREMENT. The dictionary reserves them
   in blocks, in a separate transaction that is in the log before any row that has one of the numbers. After a crash the
   rest of a block is skipped, and no number is assigned twice. A clean shutdown writes the current values. The counters
   belong to the process, not to an open table: numbers of uncommitted rows are used, too. */
class Counters {
public:
  Counters(uint64_t table, uint64_t next_row, uint64_t next_auto)
      : m_table(table), m_next_row(next_row), m_row_limit(next_row), m_next_auto(next_auto), m_auto_limit(next_auto) {}
  seawall_status take_row(uint64_t *number);
  /* Takes `wanted` numbers of the series `offset`, `offset + increment` ...; stores the first. `most`: the column's
     largest number. With `unless_locked`, returns LOCK_TIMEOUT if a transaction has the lock of the numbers. */
  seawall_status take_auto(uint64_t offset, uint64_t increment, uint64_t wanted, uint64_t most, bool unless_locked, uint64_t *first);
  /* Notes that a row has this number. `unless_locked`: as before. */
  seawall_status note_auto(uint64_t number, uint64_t most, bool unless_locked);
  seawall_status set_auto(uint64_t next);
  uint64_t next_auto();
  /* Takes the lock of the automatic numbers, which a transaction holds until its statement ends
     (seawall_autoinc_lock_mode). */
  seawall_status lock_auto(seawall_tx *tx);
  void unlock_auto(seawall_tx *tx);

private:
  friend void close_dictionary();
  seawall_status reserve_auto(uint64_t next, uint64_t most);
  seawall_status write(uint64_t row_limit, uint64_t auto_limit);
  std::mutex m_mutex;
  const uint64_t m_table;
  /* The transactions that have the lock of the numbers: under the mutex that guards the numbers. */
  int m_locked = 0;
  uint64_t m_next_row, m_row_limit, m_next_auto, m_auto_limit;
};

/* Gets the counters of a table; the first call reads them. */
seawall_status counters_of(uint64_t table, std::shared_ptr<Counters> *counters);

}
#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* The dictionary: one tree that maps the server's table names to trees.

   The key is "t" and the table's name ("db/table", partitions with their suffix); the value is a Definition. The key "n" holds the last
   number given to a table. A table's trees are named by its number, so that a rename changes one row. */
#ifndef SEAWALL_DICTIONARY_H
#define SEAWALL_DICTIONARY_H

#include "connection.h"

namespace seawall {

struct Definition {
  uint64_t number = 0;      /* of the table */
  uint32_t indexes = 0;     /* secondary ones */
  uint64_t auto_from = 0;   /* the first automatic number, from AUTO_INCREMENT= */
};

/* Names as the dictionary has them, from the server's path. */
std::string table_name(const char *path);
/* The tree of a table's rows (0), or of a secondary index (from 1). */
std::string tree_name(uint64_t table, uint32_t index);

/* Makes the dictionary if there is none. */
seawall_status open_dictionary();
void close_dictionary();

seawall_status find_table(const char *path, Definition *definition);
/* Each is one transaction, and durable when it returns. */
seawall_status create_table(const char *path, uint32_t indexes, uint64_t auto_from);
seawall_status drop_table(const char *path);
seawall_status drop_database(const char *path);
seawall_status rename_table(const char *from, const char *to);
seawall_status truncate_table(const char *path, uint64_t auto_from);

}
#endif

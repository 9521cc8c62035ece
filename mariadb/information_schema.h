/* SPDX-License-Identifier: GPL-2.0-only */
/* Tables of information_schema, each a plugin in the same library. Columns have the names of InnoDB's where they mean the
   same. */
#ifndef SEAWALL_INFORMATION_SCHEMA_H
#define SEAWALL_INFORMATION_SCHEMA_H

#include "compat.h"

namespace seawall {

extern struct st_mysql_information_schema information_schema;
int init_trx(void *table);
int init_locks(void *table);
int init_lock_waits(void *table);
int init_trees(void *table);
int init_metrics(void *table);
int init_io(void *table);

}

#define SEAWALL_TABLE(name, init, text)                                                                                          \
  {MYSQL_INFORMATION_SCHEMA_PLUGIN, &seawall::information_schema, name, "The Seawall authors", text, PLUGIN_LICENSE_GPL, init,       \
   nullptr, 0x0001, nullptr, nullptr, "0.1", MariaDB_PLUGIN_MATURITY_STABLE}

#endif

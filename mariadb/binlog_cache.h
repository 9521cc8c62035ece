/* SPDX-License-Identifier: GPL-2.0-only */
/* Keeps the server's binary logs out of the page cache: with seawall_drop_binlog_cache, a thread drops their pages,
   except a little before the end, which replicas that keep up read. Pages that are not on disk yet are written
   early. */
#ifndef SEAWALL_BINLOG_CACHE_H
#define SEAWALL_BINLOG_CACHE_H

#include "connection.h"

namespace seawall {

void begin_dropping_binlogs();
void end_dropping_binlogs();
/* The variable seawall_drop_binlog_cache. */
extern my_bool drop_binlog_cache;

}
#endif

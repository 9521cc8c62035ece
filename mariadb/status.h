/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SEAWALL_STATUS_H
#define SEAWALL_STATUS_H

#include "compat.h"

namespace seawall {

/* SHOW STATUS LIKE 'seawall%': the numbers of the engine's statistics. */
extern struct st_mysql_show_var status_variables[];
/* SHOW ENGINE SEAWALL STATUS. */
bool show_engine_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type type);

}
#endif

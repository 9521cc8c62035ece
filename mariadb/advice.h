/* SPDX-License-Identifier: GPL-2.0-only */
/* What the error log says without being asked: messages of the engine, findings with advice, failures of the disk, and
   deadlocks if they are wanted. Nothing is repeated faster than its limit. */
#ifndef SEAWALL_ADVICE_H
#define SEAWALL_ADVICE_H

#include "connection.h"

namespace seawall {

/* Messages of the engine go to the error log, from here to end_advice(). */
void hear_messages();
/* From here to end_advice() a thread looks at the database every seawall_advice_interval seconds. */
void begin_advice();
void end_advice();
/* Called with the status of each call that failed. A deadlock is remembered with the statements of its connections; a
   failure of the disk is logged. */
void note_failure(THD *thd, seawall_status status);

/* The variables. */
extern ulong advice_interval; /* seconds; 0: never */
extern my_bool print_all_deadlocks;

}
#endif

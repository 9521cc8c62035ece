/* SPDX-License-Identifier: GPL-2.0-only */
/* What the engine writes to the server's error log: its messages, findings with advice, disk failures, and deadlocks if
   they are wanted. Each kind has a rate limit. */
#ifndef SEAWALL_ADVICE_H
#define SEAWALL_ADVICE_H

#include "connection.h"

namespace seawall {

/* Sends the engine's messages to the error log until end_advice(). */
void hear_messages();
/* Starts a thread that checks the database every seawall_advice_interval seconds until end_advice(). */
void begin_advice();
void end_advice();
/* Called with the status of each call that failed. Remembers a deadlock with the statements of its connections; logs a
   disk failure. */
void note_failure(THD *thd, seawall_status status);

/* The variables. */
extern ulong advice_interval; /* seconds; 0: never */
extern my_bool print_all_deadlocks;

}
#endif

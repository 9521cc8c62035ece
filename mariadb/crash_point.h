/* SPDX-License-Identifier: GPL-2.0-only */
/* Places where a test kills the server: SEAWALL_CRASH_AT=PLACE.MOMENT in its environment, or PLACE.MOMENT:N for the Nth
   time that the server gets there. mariadb/crash-points has the list. */
#ifndef SEAWALL_CRASH_POINT_H
#define SEAWALL_CRASH_POINT_H

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>

namespace seawall {

inline void crash_point(const char *place, const char *moment) {
  static const char *const at = getenv("SEAWALL_CRASH_AT");
  if (!at) return;
  static std::atomic<long> left{strchr(at, ':') ? atol(strchr(at, ':') + 1) : 1};
  if (std::string(at, strcspn(at, ":")) == std::string(place) + "." + moment && --left == 0) kill(getpid(), SIGKILL);
}

}
#endif

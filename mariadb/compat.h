/* SPDX-License-Identifier: GPL-2.0-only */
/* The differences between the server versions that the plugin is built for: 10.11 and 11.8. */
#ifndef SEAWALL_COMPAT_H
#define SEAWALL_COMPAT_H

#define MYSQL_SERVER 1
#include <my_global.h>
#include <mysql_version.h>
#include <sql_class.h>
#include <sql_plugin.h>
#include <handler.h>
#include <field.h>
#include <key.h>
#include <log.h>
#include <table.h>
#include <my_base.h>
#include <mysql/plugin.h>
#include <mysql/service_thd_wait.h>

#if MYSQL_VERSION_ID >= 110000
/* The hooks of a connection lost their leading handlerton*. */
template <auto F> struct without_hton;
template <typename R, typename... Args, R (*F)(handlerton *, Args...)>
struct without_hton<F> {
  static R call(Args... args) { return F(nullptr, args...); }
};
#define SEAWALL_HOOK(f) without_hton<f>::call
#else
#define SEAWALL_HOOK(f) f
#endif

/* The default of seawall_snapshot_isolation: the same as innodb_snapshot_isolation's in the same server. */
#define SEAWALL_SNAPSHOT_ISOLATION (MYSQL_VERSION_ID >= 110602)

/* Whether an index is not an ordered index: FULLTEXT or SPATIAL. The server makes VECTOR indexes from ordinary
   tables. */
static inline bool seawall_is_special(const KEY *key) {
#if MYSQL_VERSION_ID >= 110800
  return key->algorithm == HA_KEY_ALG_FULLTEXT || key->algorithm == HA_KEY_ALG_RTREE;
#else
  return key->algorithm == HA_KEY_ALG_FULLTEXT || key->algorithm == HA_KEY_ALG_RTREE || key->flags & (HA_FULLTEXT | HA_SPATIAL);
#endif
}

#if MYSQL_VERSION_ID >= 110800
static inline size_t seawall_weights(CHARSET_INFO *cs, uchar *to, size_t room, uint chars, const uchar *from,
                                     size_t len, uint flags) {
  return cs->strnxfrm(to, room, chars, from, len, flags).m_result_length;
}
#else
static inline size_t seawall_weights(CHARSET_INFO *cs, uchar *to, size_t room, uint chars, const uchar *from,
                                     size_t len, uint flags) {
  return cs->strnxfrm((char *)to, room, chars, (const char *)from, len, flags);
}
#endif

/* Whether the statement was killed. One that has examined its LIMIT of rows is not: it ends well. Not thd_kill_level(),
   which takes a mutex that KILL holds when it calls kill_query. */
static inline bool seawall_is_killed(const THD *thd) {
  return thd->killed != NOT_KILLED && (thd->killed | KILL_HARD_BIT) != ABORT_QUERY_HARD;
}

/* Whether the server treats these as the same index name: it ignores case, but not accents. */
static inline bool seawall_same_name(const char *a, const char *b) {
#if MYSQL_VERSION_ID >= 110800
  return my_charset_utf8mb3_general1400_as_ci.strnncoll(a, strlen(a), b, strlen(b)) == 0;
#else
  return my_strcasecmp(system_charset_info, a, b) == 0;
#endif
}

/* Whether the table has a VECTOR index: it stores references to rows, padded to the handler's ref_length. */
static inline bool seawall_stores_references(const TABLE *table) {
#if MYSQL_VERSION_ID >= 110800
  return table->s->hlindexes() > 0;
#else
  (void)table;
  return false;
#endif
}

/* Whether the server can copy a table while others write it. */
#ifdef HA_NO_ONLINE_ALTER
const bool HAS_ONLINE_ALTER = true;
#else
const bool HAS_ONLINE_ALTER = false;
#endif

/* mariadb/build checks for the newer names, which came with releases of several versions. */
#ifdef SEAWALL_EXTRA_COPY
const ha_extra_function SEAWALL_BEGIN_COPY = HA_EXTRA_BEGIN_COPY, SEAWALL_END_COPY = HA_EXTRA_END_COPY, SEAWALL_ABORT_COPY = HA_EXTRA_ABORT_COPY;
#else
const ha_extra_function SEAWALL_BEGIN_COPY = HA_EXTRA_BEGIN_ALTER_COPY, SEAWALL_END_COPY = HA_EXTRA_END_ALTER_COPY,
                        SEAWALL_ABORT_COPY = HA_EXTRA_ABORT_ALTER_COPY;
#endif

#endif

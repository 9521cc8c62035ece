/* SPDX-License-Identifier: GPL-2.0-only */
/* The plugin: its variables, its start and its end. */
#include "ha_seawall.h"
#include "advice.h"
#include "binlog_cache.h"
#include "information_schema.h"
#include "reports.h"
#include "status.h"
#include <cstring>
#include <list>

using namespace seawall;

static MYSQL_THDVAR_BOOL(ignore_foreign_keys, PLUGIN_VAR_OPCMDARG,
                         "Let tables be made without the foreign keys that their statement has, with a warning", nullptr,
                         nullptr, false);

static MYSQL_THDVAR_UINT(index_build_keep_percent, PLUGIN_VAR_RQCMDARG,
                         "The share of their rate that writers of a table keep while ALTER TABLE or CREATE INDEX adds indexes to it, percent; "
                         "the build pauses for them, 0: it does not",
                         nullptr, nullptr, 88, 0, 95, 0);
uint seawall::index_build_keep_percent(THD *thd) { return THDVAR(thd, index_build_keep_percent); }

static MYSQL_THDVAR_BOOL(snapshot_isolation, PLUGIN_VAR_OPCMDARG,
                         "At REPEATABLE READ, error 1020 for a change of a row that was changed after the transaction's snapshot", nullptr,
                         nullptr, SEAWALL_SNAPSHOT_ISOLATION);

static ulong value_of_autoinc_lock_mode;
static MYSQL_SYSVAR_ULONG(autoinc_lock_mode, value_of_autoinc_lock_mode, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                          "As innodb_autoinc_lock_mode: 0: statements that insert follow each other; 1: those whose number of rows is not known do, "
                          "as statement-based replication needs; 2: none waits",
                          nullptr, nullptr, 1, 0, 2, 0);

ulong seawall::autoinc_lock_mode() { return value_of_autoinc_lock_mode; }
static MYSQL_SYSVAR_ULONG(advice_interval, advice_interval, PLUGIN_VAR_RQCMDARG,
                          "How often the engine looks for what the error log should say, seconds; 0 for never", nullptr, nullptr, 60, 0, 86400, 0);
static MYSQL_SYSVAR_BOOL(print_all_deadlocks, print_all_deadlocks, PLUGIN_VAR_OPCMDARG,
                         "Write each deadlock with its statements to the error log", nullptr, nullptr, false);

static MYSQL_SYSVAR_BOOL(drop_binlog_cache, drop_binlog_cache, PLUGIN_VAR_OPCMDARG,
                         "Keep the server's binary logs out of the page cache: five times a second they are written and dropped from it, except the "
                         "last 256 KiB; logs before the two newest, every ten seconds. A replica that lags behind then reads from the disk",
                         nullptr, nullptr, false);

bool seawall::fails_on_conflict(THD *thd) { return THDVAR(thd, snapshot_isolation); }
bool seawall::ignores_foreign_keys(THD *thd) { return THDVAR(thd, ignore_foreign_keys); }

static handler *create_handler(handlerton *h, TABLE_SHARE *share, MEM_ROOT *root) {
  return new (root) ha_seawall(h, share);
}
static void drop_database_hook(handlerton *, char *path) {
  if (drop_database(path) != SEAWALL_STATUS_OK)
    sql_print_error("Seawall: the tables of %s could not be dropped: %s", path, seawall_error());
}
static int drop_table_hook(handlerton *, const char *path) {
  int error = drop_by_path(path, nullptr);
  return error == HA_ERR_NO_SUCH_TABLE ? ENOENT : error;
}

/* Called after a crash. Returns 0 if the engine has the definition of this version: then an ALTER TABLE is done. */
static int check_version(handlerton *, const char *path, const LEX_CUSTRING *version, ulonglong) {
  Definition definition;
  /* Of a partitioned table, only the partitions are tables of the engine, and they commit together. */
  if (find_table(path, &definition) != SEAWALL_STATUS_OK && find_partition_of(path, &definition) != SEAWALL_STATUS_OK) return 2;
  return definition.version == std::string((const char *)version->str, version->length) ? 0 : 1;
}

// --- variables -------------------------------------------------------------------------------------------

namespace {
/* An option of the database, with the text of its variable. */
struct Option {
  const char *name;
  char **value;
  bool running;
};
}

/* SET GLOBAL: the engine changes the option, or says why not. */
static int set_option(THD *thd, const char *name, void *to, st_mysql_value *from) {
  char buffer[512];
  int len = sizeof buffer;
  const char *text = from->val_str(from, buffer, &len);
  if (!text) return 1;
  *static_cast<const char **>(to) = text = thd_strmake(thd, text, (size_t)len);
  if (!db || seawall_set_option(db.get(), name, text) == SEAWALL_STATUS_OK) return 0;
  my_printf_error(ER_WRONG_VALUE_FOR_VAR, "Seawall: %s", MYF(0), seawall_error());
  return 1;
}

static std::string option_of_database(const char *name) {
  seawall_slice value{};
  if (!db || seawall_option(db.get(), name, &value) != SEAWALL_STATUS_OK) return "";
  return std::string((const char *)value.data, value.len);
}

static void show_running_options();

/* Shows the options as the engine has them after SET GLOBAL of one, which others may follow. A default did not go through
   set_option(): it is set here. Called under the server's lock of the variables. */
static void show_option(const char *name, const char *standard, const void *from) {
  const char *text = *static_cast<const char *const *>(from);
  if (!db) return;
  if (!text && seawall_set_option(db.get(), name, standard) != SEAWALL_STATUS_OK)
    sql_print_warning("Seawall: %s keeps its value: %s", name, seawall_error());
  show_running_options();
}

#define SEAWALL_OPTION(name, standard, running, text)                                                                            \
  static char *value_of_##name;                                                                                                  \
  static int check_##name(THD *thd, st_mysql_sys_var *, void *to, st_mysql_value *from) { return set_option(thd, #name, to, from); } \
  static void update_##name(THD *, st_mysql_sys_var *, void *, const void *from) { show_option(#name, standard, from); }              \
  static MYSQL_SYSVAR_STR(name, value_of_##name, PLUGIN_VAR_RQCMDARG | (running ? PLUGIN_VAR_MEMALLOC : PLUGIN_VAR_READONLY), text,    \
                          check_##name, update_##name, nullptr);
#include "options.inc"
#undef SEAWALL_OPTION

#define SEAWALL_OPTION(name, standard, running, text) {#name, &value_of_##name, running},
static const Option options[] = {
#include "options.inc"
};
#undef SEAWALL_OPTION

static void show_running_options() {
  for (const Option &option : options) {
    if (!option.running) continue;
    my_free(*option.value);
    *option.value = my_strdup(PSI_NOT_INSTRUMENTED, option_of_database(option.name).c_str(), MYF(0));
  }
}

static const char *durability_names[] = {"deferred", "written", "flushed", NullS};
static TYPELIB durabilities = [] { /* its members differ between versions */
  TYPELIB made{};
  made.count = 3;
  made.name = "";
  made.type_names = durability_names;
  return made;
}();
static MYSQL_THDVAR_ENUM(durability, PLUGIN_VAR_RQCMDARG,
                         "What a commit waits for: flushed (2) survives power loss; written (1) a crash of the server; deferred (0) loses at most "
                         "the commits of the last seawall_flush_interval on either",
                         nullptr, nullptr, 2, &durabilities);
seawall_commit_level seawall::durability_of(THD *thd) {
  const seawall_commit_level levels[] = {SEAWALL_COMMIT_LEVEL_DEFERRED, SEAWALL_COMMIT_LEVEL_WRITTEN, SEAWALL_COMMIT_LEVEL_FLUSHED};
  return copies_a_table(thd) ? SEAWALL_COMMIT_LEVEL_FLUSHED : levels[THDVAR(thd, durability)];
}

#define SEAWALL_OPTION(name, standard, running, text) MYSQL_SYSVAR(name),
static struct st_mysql_sys_var *variables[] = {
#include "options.inc"
    MYSQL_SYSVAR(advice_interval), MYSQL_SYSVAR(autoinc_lock_mode), MYSQL_SYSVAR(drop_binlog_cache),
    MYSQL_SYSVAR(durability), MYSQL_SYSVAR(ignore_foreign_keys),
    MYSQL_SYSVAR(index_build_keep_percent),
    MYSQL_SYSVAR(print_all_deadlocks), MYSQL_SYSVAR(snapshot_isolation), nullptr};
#undef SEAWALL_OPTION

/* The given options are for the database; its other options are those of its file seawall.toml, or its own. */
static std::vector<std::string> given_options() {
  std::vector<std::string> given;
  for (const Option &option : options)
    if (*option.value) given.push_back(std::string(option.name) + "=" + *option.value);
  return given;
}

/* Makes the variables show the options of the open database. */
static void show_options() {
  static std::list<std::string> texts; /* those that never change */
  show_running_options();
  for (const Option &option : options) {
    if (option.running) continue;
    texts.push_back(option_of_database(option.name));
    *option.value = &texts.back()[0];
  }
}

/* A function of the server: names directories below the data directory that are not databases. */
extern bool ignore_db_dirs_append(const char *name);

static int init(void *p) {
  hton = static_cast<handlerton *>(p);
  std::vector<std::string> given = given_options();
  std::vector<const char *> texts;
  for (const std::string &option : given) texts.push_back(option.c_str());
  ignore_db_dirs_append("#seawall");
  std::string path = std::string(mysql_real_data_home) + "#seawall";
  hear_messages();
  seawall_status status = seawall_open(path.c_str(), texts.data(), texts.size(), db.out());
  if (status == SEAWALL_STATUS_OK) status = seawall_on_wait(db.get(), Connection::waits, nullptr);
  if (status == SEAWALL_STATUS_OK) {
    seawall_on_block(Connection::blocks, Connection::goes_on); /* after UNINSTALL and INSTALL it is set already */
    status = open_dictionary();
  }
  if (status != SEAWALL_STATUS_OK) {
    sql_print_error("Seawall: %s", seawall_error());
    sql_print_error("Seawall: its tables cannot be used. With seawall=FORCE the server does not start, else it goes on without the engine.");
    db.out();
    return 1;
  }
  show_options();
  /* The entries of an index end with the primary key, by which the optimizer may search, too. */
  hton->flags = HTON_SUPPORTS_EXTENDED_KEYS;
  hton->create = create_handler;
  hton->drop_database = drop_database_hook;
  hton->drop_table = drop_table_hook;
  hton->check_version = check_version;
  hton->show_status = show_engine_status;
  static const char *no_files[] = {nullptr};
  hton->tablefile_extensions = no_files;
  hton->table_options = table_options;
  set_hooks(hton);
  permit_reports();
  begin_advice();
  begin_dropping_binlogs();
  sql_print_information("Seawall %s has opened %s", seawall_version(), path.c_str());
  return 0;
}

static int deinit(void *) {
  end_dropping_binlogs();
  end_advice();
  end_reports();
  close_dictionary();
  seawall_status status = seawall_shutdown(db.get(), 60000);
  if (status != SEAWALL_STATUS_OK) sql_print_error("Seawall: %s", seawall_error());
  db.out();
  return 0;
}

static struct st_mysql_storage_engine engine = {MYSQL_HANDLERTON_INTERFACE_VERSION};

maria_declare_plugin(seawall){
    MYSQL_STORAGE_ENGINE_PLUGIN,
    &engine,
    "SEAWALL",
    "The Seawall authors",
    "Transactions, row locks and direct I/O: the Seawall storage engine",
    PLUGIN_LICENSE_GPL,
    init,
    deinit,
    0x0001,
    status_variables,
    variables,
    "0.1",
    MariaDB_PLUGIN_MATURITY_GAMMA},
    SEAWALL_TABLE("SEAWALL_TRX", init_trx, "The transactions of Seawall"),
    SEAWALL_TABLE("SEAWALL_LOCKS", init_locks, "The locks of Seawall that are waited for"),
    SEAWALL_TABLE("SEAWALL_LOCK_WAITS", init_lock_waits, "Which transaction of Seawall waits for which"),
    SEAWALL_TABLE("SEAWALL_TREES", init_trees, "The trees of Seawall's tables and indexes"),
    SEAWALL_TABLE("SEAWALL_METRICS", init_metrics, "The numbers of Seawall"),
    SEAWALL_TABLE("SEAWALL_IO", init_io, "The I/O of Seawall by class of files, operation and cause") maria_declare_plugin_end;

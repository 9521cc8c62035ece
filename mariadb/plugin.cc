/* SPDX-License-Identifier: GPL-2.0-only */
/* The plugin: its variables, its start and its end. */
#include "ha_seawall.h"
#include "status.h"
#include <algorithm>

using namespace seawall;

static MYSQL_THDVAR_BOOL(ignore_foreign_keys, PLUGIN_VAR_OPCMDARG,
                         "Let tables be made without the foreign keys that their statement has, with a warning", nullptr,
                         nullptr, false);

static MYSQL_THDVAR_BOOL(snapshot_isolation, PLUGIN_VAR_OPCMDARG,
                         "At REPEATABLE READ, error 1020 for a change of a row that was changed after the transaction's snapshot", nullptr,
                         nullptr, SEAWALL_SNAPSHOT_ISOLATION);

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

/* After a crash: 0 if the engine has the definition of this version, so that an ALTER TABLE is done. */
static int check_version(handlerton *, const char *path, const LEX_CUSTRING *version, ulonglong) {
  Definition definition;
  if (find_table(path, &definition) != SEAWALL_STATUS_OK) return 2;
  return definition.version == std::string((const char *)version->str, version->length) ? 0 : 1;
}

static char *pool_size_text, *options_text;
static MYSQL_SYSVAR_STR(pool_size, pool_size_text, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                        "Memory for pages, for example 4G", nullptr, nullptr, "128M");
static MYSQL_SYSVAR_STR(options, options_text, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                        "More options of the engine: name=value, separated by commas", nullptr, nullptr, "");
static struct st_mysql_sys_var *variables[] = {MYSQL_SYSVAR(pool_size), MYSQL_SYSVAR(options), MYSQL_SYSVAR(ignore_foreign_keys),
                                              MYSQL_SYSVAR(snapshot_isolation),
                                              nullptr};

/* The server's: directories below the data directory that are no databases. */
extern bool ignore_db_dirs_append(const char *name);

static int init(void *p) {
  hton = static_cast<handlerton *>(p);
  std::vector<std::string> options{std::string("pool_size=") + pool_size_text};
  std::string more = options_text ? options_text : "";
  for (size_t begin = 0; begin < more.size();) {
    size_t end = std::min(more.find(',', begin), more.size());
    if (end > begin) options.push_back(more.substr(begin, end - begin));
    begin = end + 1;
  }
  std::vector<const char *> texts;
  for (const std::string &option : options) texts.push_back(option.c_str());
  ignore_db_dirs_append("#seawall");
  std::string path = std::string(mysql_real_data_home) + "#seawall";
  seawall_status status = seawall_open(path.c_str(), texts.data(), texts.size(), db.out());
  if (status == SEAWALL_STATUS_OK) status = seawall_on_wait(db.get(), Connection::waits, nullptr);
  if (status == SEAWALL_STATUS_OK) status = open_dictionary();
  if (status != SEAWALL_STATUS_OK) {
    sql_print_error("Seawall: %s", seawall_error());
    sql_print_error("Seawall: the server goes on without the engine; its tables cannot be used.");
    db.out();
    return 1;
  }
  hton->create = create_handler;
  hton->drop_database = drop_database_hook;
  hton->drop_table = drop_table_hook;
  hton->check_version = check_version;
  hton->show_status = show_engine_status;
  static const char *no_files[] = {nullptr};
  hton->tablefile_extensions = no_files;
  set_hooks(hton);
  sql_print_information("Seawall %s has opened %s", seawall_version(), path.c_str());
  return 0;
}

static int deinit(void *) {
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
    MariaDB_PLUGIN_MATURITY_GAMMA} maria_declare_plugin_end;

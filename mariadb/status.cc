/* SPDX-License-Identifier: GPL-2.0-only */
/* SHOW STATUS LIKE 'seawall%' and SHOW ENGINE SEAWALL STATUS. */
#include "connection.h"
#include "status.h"
#include <memory>

namespace seawall {

namespace {

struct Metric {
  std::string name;
  uint64_t value;
};

extern "C" void add_metric(void *context, seawall_slice group, seawall_slice name, seawall_slice, uint64_t value) {
  std::string text((const char *)group.data, group.len);
  text += "_" + std::string((const char *)name.data, name.len);
  static_cast<std::vector<Metric> *>(context)->push_back({text, value});
}

extern "C" void add_line(void *context, seawall_slice line) {
  std::string *text = static_cast<std::string *>(context);
  text->append((const char *)line.data, line.len);
  *text += '\n';
}

}

/* Fills the array of the variables; the memory is that of the statement. */
static int show_metrics(THD *thd, SHOW_VAR *var, void *, struct system_status_var *, enum enum_var_type) {
  std::vector<Metric> metrics;
  if (db) seawall_metrics(db.get(), add_metric, &metrics);
  SHOW_VAR *vars = static_cast<SHOW_VAR *>(thd_alloc(thd, (metrics.size() + 1) * sizeof(SHOW_VAR)));
  ulonglong *values = static_cast<ulonglong *>(thd_alloc(thd, (metrics.size() + 1) * sizeof(ulonglong)));
  if (!vars || !values) return 1;
  size_t at = 0;
  for (const Metric &metric : metrics) {
    values[at] = metric.value;
    vars[at].name = thd_strmake(thd, metric.name.data(), metric.name.size());
    vars[at].value = values + at;
    vars[at].type = SHOW_ULONGLONG;
    at++;
  }
  vars[at].name = nullptr;
  vars[at].value = nullptr;
  vars[at].type = SHOW_UNDEF;
  var->type = SHOW_ARRAY;
  var->value = vars;
  return 0;
}

struct st_mysql_show_var status_variables[] = {SHOW_FUNC_ENTRY("Seawall", show_metrics), {nullptr, nullptr, SHOW_UNDEF}};

bool show_engine_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type type) {
  if (type != HA_ENGINE_STATUS) return false;
  std::string text = "TRANSACTIONS AND LOCKS (the tag is the connection's id)\n";
  seawall_describe_locks(db.get(), add_line, &text);
  text += "STATISTICS\n";
  std::vector<Metric> metrics;
  seawall_metrics(db.get(), add_metric, &metrics);
  for (const Metric &metric : metrics) text += metric.name + " " + std::to_string(metric.value) + "\n";
  return print(thd, "SEAWALL", 7, "", 0, text.data(), text.size());
}

}

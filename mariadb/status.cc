/* SPDX-License-Identifier: GPL-2.0-only */
/* SHOW STATUS LIKE 'seawall%' and SHOW ENGINE SEAWALL STATUS. */
#include "status.h"
#include "reports.h"
#include <cstdarg>
#include <memory>

namespace seawall {

// --- SHOW STATUS -----------------------------------------------------------------------------------------

/* Adds the I/O of all classes of files, as InnoDB counts its own. */
static void add_io_totals(std::vector<Metric> *metrics) {
  uint64_t reads = 0, read_bytes = 0, writes = 0, written_bytes = 0, flushes = 0, errors = 0;
  for (const Io &io : all_io()) {
    if (io.operation == "read") {
      reads += io.count;
      read_bytes += io.bytes;
    } else if (io.operation == "write" || io.operation == "durable-write") {
      writes += io.count;
      written_bytes += io.bytes;
    }
    if (io.operation == "sync" || io.operation == "durable-write") flushes += io.count;
    if (io.operation == "read" || io.operation == "write" || io.operation == "durable-write" || io.operation == "sync") errors += io.errors;
  }
  auto add = [&](const char *name, uint64_t value) { metrics->push_back({"io", name, "", true, value}); };
  add("reads", reads);
  add("read_bytes", read_bytes);
  add("writes", writes);
  add("written_bytes", written_bytes);
  add("flushes", flushes);
  add("errors", errors);
}

/* Fills the array of the variables, in the statement's memory. */
static int show_metrics(THD *thd, SHOW_VAR *var, void *, struct system_status_var *, enum enum_var_type) {
  std::vector<Metric> metrics;
  try {
    if (Report report{}) {
      metrics = all_metrics();
      add_io_totals(&metrics);
    }
  } catch (const std::bad_alloc &) {
    return 1;
  }
  SHOW_VAR *vars = static_cast<SHOW_VAR *>(thd_alloc(thd, (metrics.size() + 2) * sizeof(SHOW_VAR)));
  ulonglong *values = static_cast<ulonglong *>(thd_alloc(thd, (metrics.size() + 1) * sizeof(ulonglong)));
  if (!vars || !values) return 1;
  size_t at = 0;
  for (const Metric &metric : metrics) {
    std::string name = metric.group + "_" + metric.name;
    values[at] = metric.value;
    vars[at].name = thd_strmake(thd, name.data(), name.size());
    vars[at].value = values + at;
    vars[at].type = SHOW_ULONGLONG;
    at++;
  }
  vars[at].name = "version";
  vars[at].value = const_cast<char *>(seawall_version());
  vars[at].type = SHOW_CHAR;
  at++;
  vars[at].name = nullptr;
  vars[at].value = nullptr;
  vars[at].type = SHOW_UNDEF;
  var->type = SHOW_ARRAY;
  var->value = vars;
  return 0;
}

struct st_mysql_show_var status_variables[] = {SHOW_FUNC_ENTRY("Seawall", show_metrics), {nullptr, nullptr, SHOW_UNDEF}};

// --- SHOW ENGINE SEAWALL STATUS --------------------------------------------------------------------------

namespace {

/* Longer text is cut off, as InnoDB's is. */
const size_t TEXT_MAX = 1 << 20;

/* The numbers of one moment, by name, and those of the last report. */
class Numbers {
public:
  Numbers() {
    static std::mutex mutex;
    static std::map<std::string, uint64_t> last;
    static uint64_t last_us = 0;
    for (const Metric &metric : all_metrics()) m_now[metric.group + "_" + metric.name] = metric.value;
    uint64_t now_us = microsecond_interval_timer();
    std::lock_guard<std::mutex> guard(mutex);
    m_seconds = last_us ? (double)(now_us - last_us) / 1e6 : 0;
    m_before = std::exchange(last, m_now);
    last_us = now_us;
  }
  uint64_t operator[](const char *name) const { return get(m_now, name); }
  /* The rate per second since the last report. */
  double rate(const char *name) const {
    uint64_t now = get(m_now, name), before = get(m_before, name);
    return m_seconds > 0 && now > before ? (double)(now - before) / m_seconds : 0;
  }
  double seconds() const { return m_seconds; }

private:
  static uint64_t get(const std::map<std::string, uint64_t> &numbers, const char *name) {
    auto found = numbers.find(name);
    return found == numbers.end() ? 0 : found->second;
  }
  std::map<std::string, uint64_t> m_now, m_before;
  double m_seconds;
};

class Text {
public:
  void line(const char *format, ...) __attribute__((format(printf, 2, 3))) {
    char buffer[2048];
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    if (len < 0 || m_text.size() > TEXT_MAX) return;
    m_text.append(buffer, std::min((size_t)len, sizeof buffer - 1));
    m_text += '\n';
    if (m_text.size() > TEXT_MAX) m_text += "... truncated ...\n";
  }
  void section(const char *name) {
    std::string rule(strlen(name), '-');
    line("%s\n%s\n%s", rule.c_str(), name, rule.c_str());
  }
  const std::string &text() const { return m_text; }

private:
  std::string m_text;
};

using ull = unsigned long long;

const char *mode_name(uint32_t lock) { return lock == SEAWALL_LOCK_SHARED ? "S" : "X"; }

std::string clock_time(time_t at) {
  char text[32];
  struct tm local;
  localtime_r(&at, &local);
  strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

std::string lock_text(const Lock_key &key, uint32_t mode, std::map<uint32_t, Place> &places) {
  const Place &place = places[key.tree];
  std::string text = std::string("RECORD LOCK of ") + place.quoted();
  if (!place.index.empty()) text += ", index " + place.index;
  return text + ", key " + key.text + ", lock mode " + mode_name(mode);
}

void print_deadlock(const Deadlock &deadlock, std::map<uint32_t, Place> &places, Text *text) {
  text->section("LATEST DETECTED DEADLOCK");
  text->line("%s", clock_time(deadlock.at).c_str());
  int number = 0, victim = 0;
  for (const Deadlock::Party &party : deadlock.parties) {
    if (party.is_victim) victim = number + 1;
    number++;
    text->line("*** (%d) TRANSACTION:", number);
    text->line("TRANSACTION %llu\nMariaDB thread id %llu", (ull)number_of(party.who), (ull)party.who.tag);
    if (!party.connection.query.empty()) text->line("%s", party.connection.query.c_str());
    text->line("*** (%d) WAITING FOR THIS LOCK TO BE GRANTED:\n%s", number, lock_text(party.key, party.wanted, places).c_str());
  }
  text->line("*** EACH WAITS FOR THE NEXT ONE, THE LAST FOR THE FIRST\n*** WE ROLL BACK TRANSACTION (%d)", victim);
}

void print_transactions(const Numbers &numbers, const std::vector<Wait> &waits, std::map<uint32_t, Place> &places, Text *text) {
  text->section("TRANSACTIONS");
  text->line("History list length %llu", (ull)numbers["purge_history"]);
  text->line("%llu writing, %llu prepared, %llu of an earlier run being rolled back, %llu snapshots", (ull)numbers["txn_active"],
             (ull)numbers["txn_prepared"], (ull)numbers["txn_losers"], (ull)numbers["txn_views"]);
  text->line("%llu locks held, %llu transactions waiting; %llu waits, %llu taken over before a flush, %llu time-outs, %llu deadlocks",
             (ull)numbers["locks_held"], (ull)numbers["locks_waiting"], (ull)numbers["locks_waits"], (ull)numbers["locks_taken_over"],
             (ull)numbers["locks_timeouts"], (ull)numbers["locks_deadlocks"]);
  text->line("LIST OF TRANSACTIONS FOR EACH SESSION:");
  std::map<uint64_t, std::vector<const Wait *>> of_waiter;
  for (const Wait &wait : waits) of_waiter[number_of(wait.waiter)].push_back(&wait);
  for (const Transaction &one : all_transactions()) {
    auto found = of_waiter.find(one.number);
    const char *state = found != of_waiter.end() ? "ACTIVE" : one.is_prepared ? "PREPARED" : one.is_victim ? "ROLLING BACK" : "ACTIVE";
    if (one.connection.thread)
      text->line("---TRANSACTION %llu, %s %llu sec, %s", (ull)one.number, state, (ull)seconds_since(one.connection.begun_us),
                 name_of(one.connection.isolation));
    else text->line("---TRANSACTION %llu, %s, without a connection", (ull)one.number, state);
    text->line("%s%llu row lock(s), %llu row change(s)", found != of_waiter.end() ? "LOCK WAIT " : "", (ull)one.locked_keys, (ull)one.changes);
    if (one.connection.thread) text->line("MariaDB thread id %llu", (ull)one.connection.thread);
    if (!one.connection.query.empty()) text->line("%s", one.connection.query.c_str());
    if (found == of_waiter.end()) continue;
    const Wait &first = *found->second.front();
    text->line("------- TRX HAS BEEN WAITING %llu SEC FOR THIS LOCK TO BE GRANTED:\n%s waiting", (ull)(first.waited_ms / 1000),
               lock_text(first.key, first.wanted, places).c_str());
    for (const Wait *wait : found->second)
      text->line("%s transaction %llu, MariaDB thread id %llu, lock mode %s", wait->queued ? "behind the request of" : "held by",
                 (ull)number_of(wait->holder), (ull)wait->holder.tag, mode_name(wait->held));
    text->line("------------------");
  }
}

void print_io(const Numbers &numbers, Text *text) {
  text->section("FILE I/O");
  std::string backend;
  std::vector<File_class> files = all_files(&backend);
  text->line("I/O through %s", backend.c_str());
  for (const File_class &file : files) {
    if (file.page_cache_bytes == UINT64_MAX) text->line("%s files: %s", file.name.c_str(), file.mode.c_str());
    else text->line("%s files: %s, %llu bytes in the page cache", file.name.c_str(), file.mode.c_str(), (ull)file.page_cache_bytes);
  }
  text->line("%.2f pages read/s, %.2f pages written/s, %.2f log writes/s, %.2f log flushes/s", numbers.rate("pool_reads"),
             numbers.rate("pool_pages_written"), numbers.rate("log_groups"), numbers.rate("log_flushes"));
  text->line("%-12s %-14s %-12s %12s %16s %8s %10s %10s %10s %10s", "class", "operation", "cause", "count", "bytes", "errors", "p50 us",
             "p95 us", "p99 us", "max us");
  for (const Io &io : all_io())
    text->line("%-12s %-14s %-12s %12llu %16llu %8llu %10.1f %10.1f %10.1f %10.1f", io.file_class.c_str(), io.operation.c_str(),
               io.cause.c_str(), (ull)io.count, (ull)io.bytes, (ull)io.errors, (double)io.p50_ns / 1e3, (double)io.p95_ns / 1e3,
               (double)io.p99_ns / 1e3, (double)io.max_ns / 1e3);
}

void print_log(const Numbers &numbers, Text *text) {
  auto per = [](uint64_t a, uint64_t b) { return b ? (double)a / (double)b : 0.0; };
  text->section("LOG");
  text->line("Log sequence number          %llu", (ull)numbers["log_head_lsn"]);
  text->line("Log flushed up to            %llu", (ull)numbers["log_durable_lsn"]);
  text->line("Log not yet flushed          %llu bytes", (ull)numbers["log_unflushed_bytes"]);
  text->line("%llu log files, at most %llu bytes", (ull)numbers["log_segments"], (ull)numbers["log_capacity_bytes"]);
  text->line("%llu log writes, %llu flushes, %llu commits, %.2f commits a write, %.1f us of waiting a commit", (ull)numbers["log_groups"],
             (ull)numbers["log_flushes"], (ull)numbers["log_commits"], per(numbers["log_commits"], numbers["log_groups"]),
             per(numbers["log_commit_wait_ns"], numbers["log_commit_waits"]) / 1e3);
  text->line("%.2f commits/s, %.0f bytes/s", numbers.rate("log_commits"), numbers.rate("log_bytes"));
  text->section("CHECKPOINT");
  text->line("Last checkpoint at           %llu", (ull)(numbers["log_head_lsn"] - std::min(numbers["log_head_lsn"], numbers["log_checkpoint_age_bytes"])));
  text->line("Checkpoint age               %llu bytes, %.1f%% of the log", (ull)numbers["log_checkpoint_age_bytes"],
             100 * per(numbers["log_checkpoint_age_bytes"], numbers["log_capacity_bytes"]));
  text->line("%llu checkpoints; changes waited %llu times for one (the log was full), and %llu times for the log buffer",
             (ull)numbers["log_checkpoints"], (ull)numbers["log_checkpoint_waits"], (ull)numbers["log_buffer_waits"]);
}

void print_pool(const Numbers &numbers, Text *text) {
  text->section("BUFFER POOL AND MEMORY");
  text->line("Buffer pool size   %llu", (ull)numbers["pool_frames"]);
  text->line("Buffer pool size, bytes %llu, and %llu of tables of pages", (ull)(numbers["pool_frames"] * numbers["pool_page_bytes"]),
             (ull)numbers["pool_metadata_bytes"]);
  text->line("Free buffers       %llu", (ull)numbers["pool_frames_free"]);
  text->line("Database pages     %llu", (ull)(numbers["pool_frames"] - std::min(numbers["pool_frames"], numbers["pool_frames_free"])));
  text->line("Modified db pages  %llu, at most %llu", (ull)numbers["pool_frames_dirty"], (ull)numbers["pool_frames_dirty_max"]);
  text->line("Pages read %llu (%llu waited for), written %llu (%llu to the doublewrite file first), evicted %llu", (ull)numbers["pool_reads"],
             (ull)numbers["pool_misses"], (ull)numbers["pool_pages_written"], (ull)numbers["pool_doublewrite_pages"], (ull)numbers["pool_evictions"]);
  text->line("%.2f reads/s, %.2f waited for/s, %.2f writes/s, %.2f evictions/s", numbers.rate("pool_reads"), numbers.rate("pool_misses"),
             numbers.rate("pool_pages_written"), numbers.rate("pool_evictions"));
  text->line("Pages read ahead %llu, evicted without access %llu, waited for %llu times", (ull)numbers["pool_prefetched"],
             (ull)numbers["pool_prefetch_wasted"], (ull)numbers["pool_prefetch_waits"]);
  text->line("Threads waited %llu times for a free buffer", (ull)numbers["pool_evict_waits"]);
}

void print_purge(const Numbers &numbers, Text *text) {
  text->section("PURGE");
  text->line("Undo of %llu committed transactions is kept: %llu bytes; purged %llu, %.2f/s", (ull)numbers["purge_history"],
             (ull)numbers["purge_undo_bytes"], (ull)numbers["purge_purged"], numbers.rate("purge_purged"));
  text->line("Oldest snapshot %.1f sec", (double)numbers["purge_oldest_view_age_ns"] / 1e9);
  text->line("Data file %llu bytes, %llu of them free; %llu bytes free on its file system", (ull)numbers["space_data_bytes"],
             (ull)numbers["space_free_bytes"], (ull)numbers["space_disk_free_bytes"]);
}

std::string status_text() {
  Numbers numbers;
  Deadlock deadlock = last_deadlock();
  std::vector<Wait> waits = all_waits();
  std::vector<uint32_t> trees;
  for (const Wait &wait : waits) trees.push_back(wait.key.tree);
  for (const Deadlock::Party &party : deadlock.parties) trees.push_back(party.key.tree);
  std::map<uint32_t, Place> places = places_of(trees);
  Text text;
  text.line("\n=====================================\n%s SEAWALL MONITOR OUTPUT\n=====================================",
            clock_time(time(nullptr)).c_str());
  text.line("Per second averages calculated from the last %.0f seconds", numbers.seconds());
  if (!deadlock.parties.empty()) print_deadlock(deadlock, places, &text);
  print_transactions(numbers, waits, places, &text);
  print_io(numbers, &text);
  print_log(numbers, &text);
  print_pool(numbers, &text);
  print_purge(numbers, &text);
  return text.text() + "----------------------------\nEND OF SEAWALL MONITOR OUTPUT\n============================\n";
}

}

bool show_engine_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type type) {
  if (type != HA_ENGINE_STATUS) return false;
  std::string text;
  try {
    Report report;
    if (!report) return false;
    text = status_text();
  } catch (const std::bad_alloc &) {
    my_error(ER_OUT_OF_RESOURCES, MYF(0));
    return true;
  }
  return print(thd, "SEAWALL", 7, "", 0, text.data(), text.size());
}

}

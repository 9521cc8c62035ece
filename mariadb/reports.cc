/* SPDX-License-Identifier: GPL-2.0-only */
#include "reports.h"
#include "advice.h"
#include "dictionary.h"
#include <algorithm>
#include <sql_table.h>

namespace seawall {

/* Longer lists are cut off. */
static const size_t ROWS_MAX = 100000;

uint64_t seconds_since(uint64_t us) {
  uint64_t now = microsecond_interval_timer();
  return now > us ? (now - us) / 1000000 : 0;
}
time_t time_of(uint64_t us) { return time(nullptr) - (time_t)seconds_since(us); }

// --- the database stays open -----------------------------------------------------------------------------

static std::shared_mutex reports_mutex;
static bool reports_permitted = false;

Report::Report() : m_lock(reports_mutex), m_open(reports_permitted) {}
void permit_reports() {
  std::unique_lock<std::shared_mutex> lock(reports_mutex);
  reports_permitted = true;
}
void end_reports() {
  std::unique_lock<std::shared_mutex> lock(reports_mutex);
  reports_permitted = false;
}

// --- transactions ----------------------------------------------------------------------------------------

/* Ids never reach this. */
static const uint64_t WITHOUT_ID = 1ULL << 48, READS_ONLY = 1ULL << 49;

uint64_t number_of(const seawall_party &party) { return party.id ? party.id : WITHOUT_ID + party.serial; }

const char *name_of(seawall_isolation isolation) {
  switch (isolation) {
  case SEAWALL_ISOLATION_READ_COMMITTED: return "READ COMMITTED";
  case SEAWALL_ISOLATION_SERIALIZABLE: return "SERIALIZABLE";
  default: return "REPEATABLE READ";
  }
}

const char *Transaction::state() const {
  return waits ? "LOCK WAIT" : is_victim ? "ROLLING BACK" : is_prepared ? "PREPARED" : "RUNNING";
}

/* Appends what `make` returns. No exception may reach the engine: a list without memory is cut off. */
template <typename T, typename F> static void append(std::vector<T> *list, F make) {
  if (list->size() >= ROWS_MAX) return;
  try {
    list->push_back(make());
  } catch (const std::bad_alloc &) {
  }
}

extern "C" {
static void add_transaction(void *list, const seawall_transaction_info *one) {
  append(static_cast<std::vector<seawall_transaction_info> *>(list), [&] { return *one; });
}
static void add_wait(void *list, const seawall_lock_wait_info *one) {
  append(static_cast<std::vector<Wait> *>(list), [&] {
    return Wait{one->waiter, one->holder, Lock_key(one->tree, one->key), one->wanted, one->held,
                one->held == SEAWALL_LOCK_NONE, one->waited_ms};
  });
}
static void add_party(void *list, const seawall_deadlock_party *one) {
  append(static_cast<std::vector<Deadlock::Party> *>(list), [&] {
    Deadlock::Party party;
    party.who = one->who;
    party.key = Lock_key(one->tree, one->key);
    party.wanted = one->wanted;
    party.is_victim = one->is_victim;
    return party;
  });
}
static void add_io(void *list, const seawall_io_info *one) {
  append(static_cast<std::vector<Io> *>(list), [&] {
    return Io{text_of(one->file_class), text_of(one->operation), text_of(one->cause), one->count, one->errors, one->bytes,
              one->total_ns, one->p50_ns, one->p95_ns, one->p99_ns, one->max_ns};
  });
}
static void add_file(void *list, const seawall_file_info *one) {
  append(static_cast<std::vector<File_class> *>(list),
         [&] { return File_class{text_of(one->file_class), text_of(one->mode), one->page_cache_bytes}; });
}
static void add_metric(void *list, seawall_slice group, seawall_slice name, seawall_slice help, bool is_counter, uint64_t value) {
  append(static_cast<std::vector<Metric> *>(list),
         [&] { return Metric{text_of(group), text_of(name), text_of(help), is_counter, value}; });
}
}

std::vector<Transaction> all_transactions() {
  std::vector<Connection::Open> open = Connection::open();
  std::vector<seawall_transaction_info> infos;
  seawall_transactions(db.get(), add_transaction, &infos);
  std::vector<Transaction> all;
  /* A connection's transaction is the youngest with its tag: an earlier one may be prepared. */
  std::map<uint64_t, size_t> of_tag;
  for (const seawall_transaction_info &info : infos) {
    Transaction one;
    one.number = number_of(info.who);
    one.changes = info.changes;
    one.locked_keys = info.locked_keys;
    one.waits = info.waits;
    one.is_victim = info.is_victim;
    one.is_prepared = info.is_prepared;
    if (info.who.tag != 0 && !info.is_prepared) of_tag[info.who.tag] = all.size();
    all.push_back(std::move(one));
  }
  for (Connection::Open &connection : open) {
    auto found = of_tag.find(connection.thread);
    if (found == of_tag.end()) {
      all.emplace_back();
      all.back().number = READS_ONLY + connection.thread;
    }
    Transaction &one = found == of_tag.end() ? all.back() : all[found->second];
    one.connection = std::move(connection);
  }
  /* Leaves out a transaction without changes and waits whose connection is not listed: it began after the connections
     were listed. */
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](const Transaction &one) { return one.connection.thread == 0 && !one.is_prepared && one.changes == 0 && !one.waits; }),
            all.end());
  return all;
}

Lock_key::Lock_key(uint32_t tree, seawall_slice key) : tree(tree), hash(14695981039346656037ULL) {
  static const char digits[] = "0123456789abcdef";
  text = "0x";
  for (size_t i = 0; i < key.len; i++) {
    hash = (hash ^ key.data[i]) * 1099511628211ULL;
    if (i >= 256) continue;
    text += digits[key.data[i] >> 4];
    text += digits[key.data[i] & 15];
  }
}

std::string Lock_key::id(uint64_t transaction, uint32_t lock) const {
  char id[80];
  snprintf(id, sizeof id, "%llu:%u:%016llx:%c", (ulonglong)transaction, tree, (ulonglong)hash,
           lock == SEAWALL_LOCK_SHARED ? 'S' : 'X');
  return id;
}

std::vector<Wait> all_waits() {
  std::vector<Wait> all;
  seawall_lock_waits(db.get(), add_wait, &all);
  std::map<uint64_t, uint32_t> wanted;
  for (const Wait &wait : all) wanted[wait.waiter.serial] = wait.wanted;
  for (Wait &wait : all)
    if (wait.queued) {
      auto found = wanted.find(wait.holder.serial);
      wait.held = found == wanted.end() ? (uint32_t)SEAWALL_LOCK_EXCLUSIVE : found->second;
    }
  return all;
}

// --- deadlocks -------------------------------------------------------------------------------------------

static std::mutex deadlock_mutex;
static Deadlock deadlock;

static void log_deadlock(const Deadlock &found) {
  std::vector<uint32_t> trees;
  for (const Deadlock::Party &party : found.parties) trees.push_back(party.key.tree);
  std::map<uint32_t, Place> places = places_of(trees);
  std::string text = "deadlock:";
  for (const Deadlock::Party &party : found.parties) {
    const Place &place = places[party.key.tree];
    text += "\n  connection " + std::to_string(party.connection.thread) + ", transaction " + std::to_string(number_of(party.who)) +
            (party.is_victim ? ", rolled back" : "") + ", waited for lock mode " + (party.wanted == SEAWALL_LOCK_SHARED ? "S" : "X") +
            " of " + place.quoted() + ", index " + place.index + ", key " + party.key.text + ": " + party.connection.query;
  }
  sql_print_information("Seawall: %s", text.c_str());
}

void remember_deadlock(THD *thd) {
  Deadlock found;
  if (seawall_last_deadlock(db.get(), add_party, &found.parties) != SEAWALL_STATUS_OK) return;
  uint64_t thread = thd_get_thread_id(thd);
  /* A later deadlock has come in between: its victim remembers it. */
  if (std::none_of(found.parties.begin(), found.parties.end(),
                   [&](const Deadlock::Party &party) { return party.is_victim && party.who.tag == thread; }))
    return;
  found.at = time(nullptr);
  for (Deadlock::Party &party : found.parties)
    if (party.who.tag != 0) party.connection = Connection::find(party.who.tag);
  if (print_all_deadlocks) log_deadlock(found);
  std::lock_guard<std::mutex> guard(deadlock_mutex);
  deadlock = std::move(found);
}

Deadlock last_deadlock() {
  std::lock_guard<std::mutex> guard(deadlock_mutex);
  return deadlock;
}

// --- names of trees --------------------------------------------------------------------------------------

static std::string decoded(const std::string &name) {
  char text[NAME_LEN + 1];
  size_t len = filename_to_tablename(name.c_str(), text, sizeof text, true);
  return std::string(text, len);
}

Place place_of_table(const std::string &name) {
  Place place;
  size_t slash = name.find('/');
  std::string table = slash == std::string::npos ? name : name.substr(slash + 1);
  if (slash != std::string::npos) place.schema = decoded(name.substr(0, slash));
  size_t part = table.find("#P#");
  if (part == std::string::npos) part = table.find("#p#");
  if (part != std::string::npos) {
    std::string partition = table.substr(part + 3);
    size_t sub = partition.find("#SP#");
    if (sub == std::string::npos) sub = partition.find("#sp#");
    place.partition = decoded(partition.substr(0, sub));
    if (sub != std::string::npos) place.partition += "/" + decoded(partition.substr(sub + 4));
    table = table.substr(0, part);
  }
  place.table = decoded(table);
  return place;
}

std::string Place::quoted() const {
  if (table.empty()) return "tree " + tree;
  std::string text = "`" + schema + "`.`" + table + "`";
  if (!partition.empty()) text += " /* Partition `" + partition + "` */";
  return text;
}

std::map<uint32_t, Place> places_of(const std::vector<uint32_t> &trees) {
  std::map<uint32_t, Place> places;
  /* For each table that is looked for: its trees, and the numbers of their indexes. */
  std::map<uint64_t, std::vector<std::pair<uint32_t, uint32_t>>> tables;
  for (uint32_t tree : trees) {
    if (places.count(tree)) continue;
    Place &place = places[tree];
    seawall_slice name;
    if (seawall_tree_name(db.get(), tree, &name) != SEAWALL_STATUS_OK) {
      place.tree = std::to_string(tree);
      continue;
    }
    place.tree = text_of(name);
    unsigned long long table = 0;
    unsigned index = 0;
    if (sscanf(place.tree.c_str(), "t%llu.%u", &table, &index) >= 1) tables[table].emplace_back(tree, index);
  }
  if (!tables.empty())
    for_each_table([&](seawall_tx *, const std::string &name, const Definition &definition) {
      auto found = tables.find(definition.number);
      if (found == tables.end()) return true;
      for (auto [tree, number] : found->second) {
        Place place = place_of_table(name);
        place.tree = places[tree].tree;
        place.index = number == 0 ? "PRIMARY" : number == LONG_COLUMNS ? "(long columns)" : "";
        for (const Definition::Index &index : definition.indexes)
          if (index.number == number) place.index = index.name;
        places[tree] = std::move(place);
      }
      tables.erase(found);
      return !tables.empty();
    });
  return places;
}

// --- numbers ---------------------------------------------------------------------------------------------

std::vector<Metric> all_metrics() {
  std::vector<Metric> all;
  seawall_metrics(db.get(), add_metric, &all);
  return all;
}

std::vector<Io> all_io() {
  std::vector<Io> all;
  seawall_io(db.get(), add_io, &all);
  return all;
}

std::vector<File_class> all_files(std::string *backend) {
  std::vector<File_class> all;
  seawall_slice text = NOTHING;
  if (seawall_files(db.get(), add_file, &all, &text) == SEAWALL_STATUS_OK) *backend = text_of(text);
  return all;
}

}

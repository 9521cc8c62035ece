/* SPDX-License-Identifier: GPL-2.0-only */
#include "advice.h"
#include "repeated.h"
#include "reports.h"
#include <algorithm>
#include <chrono>

namespace seawall {

ulong advice_interval = 60;
my_bool print_all_deadlocks = 0;

using Advice = Owned<seawall_advice, seawall_advice_free>;

namespace {

/* Lets `most` messages per minute through, and counts the others. */
class Limit {
public:
  explicit Limit(unsigned most) : m_most(most) {}
  /* `*left_out`: how many were left out since the last message that was let through. */
  bool lets_through(uint64_t *left_out) {
    std::lock_guard<std::mutex> guard(m_mutex);
    auto now = std::chrono::steady_clock::now();
    if (m_count == 0 || now - m_begun >= std::chrono::minutes(1)) {
      m_begun = now;
      m_count = 0;
    }
    if (m_count >= m_most) {
      m_left_out++;
      return false;
    }
    m_count++;
    *left_out = std::exchange(m_left_out, 0);
    return true;
  }

private:
  const unsigned m_most;
  std::mutex m_mutex;
  std::chrono::steady_clock::time_point m_begun;
  unsigned m_count = 0;
  uint64_t m_left_out = 0;
};

std::string more(uint64_t left_out) {
  return left_out == 0 ? "" : " (" + std::to_string(left_out) + " more such messages were left out)";
}

void log(seawall_importance importance, const std::string &text) {
  switch (importance) {
  case SEAWALL_IMPORTANCE_ERROR: sql_print_error("Seawall: %s", text.c_str()); break;
  case SEAWALL_IMPORTANCE_WARNING: sql_print_warning("Seawall: %s", text.c_str()); break;
  default: sql_print_information("Seawall: %s", text.c_str());
  }
}

/* The oldest transaction that can have a snapshot. */
std::string oldest_transaction() {
  std::vector<Connection::Open> open = Connection::open();
  /* Below REPEATABLE READ a statement's snapshot ends with it. */
  auto has_none = [](const Connection::Open &one) { return one.isolation < SEAWALL_ISOLATION_REPEATABLE_READ && one.query.empty(); };
  open.erase(std::remove_if(open.begin(), open.end(), has_none), open.end());
  auto oldest = std::min_element(open.begin(), open.end(), [](const auto &a, const auto &b) { return a.begun_us < b.begun_us; });
  if (oldest == open.end()) return "";
  std::string thread = std::to_string(oldest->thread);
  return " The oldest transaction that can have it is that of connection " + thread + ", begun " +
         std::to_string(seconds_since(oldest->begun_us)) + " seconds ago (KILL " + thread + " ends it).";
}

Repeated adviser;

}

extern "C" {

static void message(void *, seawall_importance importance, seawall_slice text) {
  /* Notes, such as the progress of recovery, take no warning's place. */
  static Limit notes(10), others(10);
  Limit &limit = importance == SEAWALL_IMPORTANCE_NOTE ? notes : others;
  uint64_t left_out;
  try {
    if (limit.lets_through(&left_out)) log(importance, text_of(text) + more(left_out));
  } catch (const std::bad_alloc &) { /* no exception may reach the engine */
  }
}

static void advise(void *, seawall_importance importance, seawall_slice id, seawall_slice sentence, seawall_slice advice) {
  try {
    std::string text = text_of(sentence) + " " + text_of(advice);
    if (text_of(id) == "purge-held-by-snapshot") text += oldest_transaction();
    log(importance, text);
  } catch (const std::bad_alloc &) {
  }
}

}

void hear_messages() { seawall_on_message(message, nullptr); }

void begin_advice() {
  std::shared_ptr<Advice> advice = std::make_shared<Advice>();
  if (seawall_advice_new(advice->out()) != SEAWALL_STATUS_OK) return;
  auto looked = std::chrono::steady_clock::now() - std::chrono::hours(24);
  adviser.begin("advice in this log", [advice, looked]() mutable {
    /* The variable can change at any time: it is checked every second. */
    ulong interval = advice_interval;
    auto now = std::chrono::steady_clock::now();
    if (interval != 0 && now - looked >= std::chrono::seconds(interval)) {
      looked = now;
      seawall_advice_look(advice->get(), db.get(), advise, nullptr);
    }
    return std::chrono::seconds(1);
  });
}

void end_advice() {
  adviser.end();
  seawall_on_message(nullptr, nullptr);
}

/* Logs what the operator must know although a statement has failed with it: once a minute for each kind of failure. */
static void log_failure(Limit *limit, const char *advice) {
  uint64_t left_out;
  std::string text = seawall_error();
  if (!limit->lets_through(&left_out)) return;
  log(SEAWALL_IMPORTANCE_ERROR, text + (*advice ? ". " : "") + advice + more(left_out));
}

void note_failure(THD *thd, seawall_status status) {
  static Limit full(1), damaged(1), poisoned(1), panicked(1);
  switch (status) {
  case SEAWALL_STATUS_DEADLOCK:
    if (thd) remember_deadlock(thd);
    break;
  case SEAWALL_STATUS_NO_SPACE:
    log_failure(&full, "Until then statements that add data fail; reads, deletes and commits go on");
    break;
  case SEAWALL_STATUS_IO:
  case SEAWALL_STATUS_CORRUPT:
    log_failure(&damaged, "See the kernel log (dmesg) and the device; CHECK TABLE, or `seawall check` on the stopped server, names what is damaged");
    break;
  case SEAWALL_STATUS_POISONED:
  case SEAWALL_STATUS_OUTCOME_UNKNOWN:
    log_failure(&poisoned, "The engine takes no more changes: see the kernel log (dmesg) and the device, and restart the server");
    break;
  case SEAWALL_STATUS_PANIC: log_failure(&panicked, ""); break;
  default: break;
  }
}

}

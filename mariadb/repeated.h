/* SPDX-License-Identifier: GPL-2.0-only */
/* A background thread that repeats a task until it is ended. */
#ifndef SEAWALL_REPEATED_H
#define SEAWALL_REPEATED_H

#include "connection.h"
#include <chrono>
#include <condition_variable>
#include <functional>
#include <log.h>
#include <system_error>
#include <thread>

namespace seawall {

class Repeated {
public:
  /* Starts the thread. `turn` does the task once, and returns how long to wait before the next time. If no thread can
     be started, logs a warning that names `what`. */
  void begin(const char *what, std::function<std::chrono::milliseconds()> turn) {
    m_ended = false;
    try {
      m_thread = std::thread([this, turn = std::move(turn)] { run(turn); });
    } catch (const std::system_error &error) {
      sql_print_warning("Seawall: no thread for %s: %s", what, error.what());
    }
  }
  /* Ends the thread, after a `turn` that is running. */
  void end() {
    {
      std::lock_guard<std::mutex> guard(m_mutex);
      m_ended = true;
    }
    m_ends.notify_all();
    if (m_thread.joinable()) m_thread.join();
  }

private:
  void run(const std::function<std::chrono::milliseconds()> &turn) {
    std::unique_lock<std::mutex> lock(m_mutex);
    while (!m_ended) {
      lock.unlock();
      std::chrono::milliseconds wait(1000);
      try {
        wait = turn();
      } catch (const std::bad_alloc &) { /* tried again the next time */
      }
      lock.lock();
      m_ends.wait_for(lock, wait, [this] { return m_ended; });
    }
  }

  std::mutex m_mutex;
  std::condition_variable m_ends;
  bool m_ended = false;
  std::thread m_thread;
};

}
#endif

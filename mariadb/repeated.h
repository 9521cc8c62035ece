/* SPDX-License-Identifier: GPL-2.0-only */
/* A thread that does something again and again until it is ended. */
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
  /* `turn` returns how long to wait before the next one. Without a thread there is a warning that `what` is missing. */
  void begin(const char *what, std::function<std::chrono::milliseconds()> turn) {
    m_ended = false;
    try {
      m_thread = std::thread([this, turn = std::move(turn)] { run(turn); });
    } catch (const std::system_error &error) {
      sql_print_warning("Seawall: no thread for %s: %s", what, error.what());
    }
  }
  /* Waits for the turn that runs. */
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
      } catch (const std::bad_alloc &) { /* the next time */
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

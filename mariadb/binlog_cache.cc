/* SPDX-License-Identifier: GPL-2.0-only */
#include "binlog_cache.h"
#include "repeated.h"
#include <algorithm>
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

namespace seawall {

my_bool drop_binlog_cache = 0;

namespace {

/* How much of the newest log stays in the page cache, bytes. */
const off_t TAIL = 256 << 10;
/* The older logs are visited once in this many turns. */
const unsigned TURNS_OF_OLD_LOGS = 50;
Repeated dropper;

/* The binary logs, the newest first. */
std::vector<std::string> binary_logs() {
  /* The path of a log without its number; null without binary logs. */
  std::string path = log_bin_basename ? log_bin_basename : "";
  size_t slash = path.rfind('/');
  std::string dir = slash == std::string::npos ? "." : path.substr(0, slash);
  std::string prefix = (slash == std::string::npos ? path : path.substr(slash + 1)) + ".";
  std::vector<std::pair<unsigned long, std::string>> found;
  std::unique_ptr<DIR, int (*)(DIR *)> listing(path.empty() ? nullptr : opendir(dir.c_str()), closedir);
  if (!listing) return {};
  while (const dirent *entry = readdir(listing.get())) {
    std::string name = entry->d_name;
    if (name.compare(0, prefix.size(), prefix) || name.size() == prefix.size()) continue;
    std::string number = name.substr(prefix.size());
    if (number.find_first_not_of("0123456789") == std::string::npos) found.emplace_back(strtoul(number.c_str(), nullptr, 10), dir + "/" + name);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> logs;
  for (auto &log : found) logs.push_back(std::move(log.second));
  return logs;
}

/* The kernel begins to write pages that are not on disk yet, and keeps them: a later call drops them. */
void drop(const std::string &log, off_t keep) {
  int file = open(log.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return; /* purged meanwhile */
  off_t end = lseek(file, 0, SEEK_END);
  /* A length of 0 would mean the whole file. */
  if (end > keep) posix_fadvise(file, 0, end - keep, POSIX_FADV_DONTNEED);
  close(file);
}

/* Returns how long to wait before the next time. */
std::chrono::milliseconds drop_logs(unsigned *turns) {
  /* The variable can change at any time. */
  if (!drop_binlog_cache) {
    *turns = 0;
    return std::chrono::seconds(1);
  }
  /* Only the two newest change; a replica that lags behind, or a copy, reads the others. */
  std::vector<std::string> logs = binary_logs();
  size_t count = (*turns)++ % TURNS_OF_OLD_LOGS == 0 ? logs.size() : std::min<size_t>(logs.size(), 2);
  for (size_t at = 0; at < count; at++) drop(logs[at], at == 0 ? TAIL : 0);
  return std::chrono::milliseconds(200);
}

}

void begin_dropping_binlogs() {
  dropper.begin("seawall_drop_binlog_cache", [turns = 0u]() mutable { return drop_logs(&turns); });
}

void end_dropping_binlogs() { dropper.end(); }

}

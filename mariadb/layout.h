/* SPDX-License-Identifier: GPL-2.0-only */
/* Which columns a row has, in which order. A row begins with the number of its layout. Columns that are added, dropped
   or moved at once make a new layout; rows of earlier ones stay as they are until they are changed. */
#ifndef SEAWALL_LAYOUT_H
#define SEAWALL_LAYOUT_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace seawall {

struct Layouts {
  /* Of a column that rows of earlier layouts do not have. */
  struct Default {
    bool null;
    std::string bytes;
  };
  /* Of a column that was dropped: how its bytes are passed over. */
  struct Dropped {
    bool nullable;
    uint32_t fixed;  /* bytes, or, if it is 0: */
    uint32_t prefix; /* bytes of the length that precedes them */
    bool apart;      /* its value may be stored apart */
  };
  static const size_t MOST = 200;

  /* Numbers of the columns that are stored, which they keep for ever. Layout 1 is the first; the last is the table's. */
  std::vector<std::vector<uint32_t>> all;
  std::map<uint32_t, Default> defaults;
  std::map<uint32_t, Dropped> dropped;
  uint32_t last_column = 0;

  static Layouts of(uint32_t columns) {
    Layouts layouts;
    layouts.all.emplace_back();
    while (layouts.last_column < columns) layouts.all[0].push_back(++layouts.last_column);
    return layouts;
  }
};

}
#endif

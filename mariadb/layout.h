/* SPDX-License-Identifier: GPL-2.0-only */
/* A table's row layouts: which columns a row has, in which order. A row begins with the number of its layout. Adding,
   dropping or moving columns instantly makes a new layout; rows of earlier layouts stay as they are until they are
   changed. */
#ifndef SEAWALL_LAYOUT_H
#define SEAWALL_LAYOUT_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace seawall {

struct Layouts {
  /* The value of a column in rows of earlier layouts, which do not have it. */
  struct Default {
    bool null;
    std::string bytes;
  };
  /* How to skip the bytes of a dropped column. */
  struct Dropped {
    bool nullable;
    uint32_t fixed;  /* bytes of a value; 0: a length precedes them */
    uint32_t prefix; /* bytes of that length */
    bool apart;      /* its value may be stored apart */
  };
  static const size_t MOST = 200;

  /* For each layout, the numbers of its stored columns. A column keeps its number for ever. Layout 1 is the first; the
     last is the table's current layout. */
  std::vector<std::vector<uint32_t>> all;
  std::map<uint32_t, Default> defaults;
  std::map<uint32_t, Dropped> dropped;
  uint32_t last_column = 0;
  /* Keys of texts are encoded as codec.h says. false: the table was created by a version that encoded those of several
     levels, of wide characters and of big5_chinese_ci otherwise. */
  bool levels = true;

  static Layouts of(uint32_t columns) {
    Layouts layouts;
    layouts.all.emplace_back();
    while (layouts.last_column < columns) layouts.all[0].push_back(++layouts.last_column);
    return layouts;
  }
};

}
#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* How rows and keys of SQL become values and keys of the engine.

   Keys compare as bytes in the order of the server's comparison, and each part ends itself: the encoding of
   the first parts of a key is a prefix of the encoding of all. A part is
     [nullable: 0 for NULL, 1 otherwise] then, unless it is NULL,
     a number, time, enum, bit ...: Field::sort_string, of fixed length;
     a binary string: groups of 8 bytes, filled with zeroes, each followed by 9 if more follow, otherwise by
       the number of its bytes that count;
     a text: its weights (strnxfrm) in one of the ways of `Text`.
   A part in descending order has all its bytes inverted.

   A row is [1: the format], a bit for each column that may be NULL, then Field::pack of each column that is
   stored and not NULL. */
#ifndef SEAWALL_CODEC_H
#define SEAWALL_CODEC_H

#include "compat.h"
#include <string>
#include <vector>

namespace seawall {

using Bytes = std::string;

/* How the weights of a text are made to compare as bytes, and to end themselves. */
enum class Text {
  /* One level, PAD SPACE. A text ends where only spaces follow. Let s be the weight of a space; weights are
     units of 1, 2 or 3 bytes. The end is s+1; a space is s if the next other weight is smaller than s,
     otherwise s+2; weights above s are 2 more, with an escape at the top. So a text is compared as if it
     went on with spaces, without having them. */
  Pad,
  /* NO PAD: as a binary string, of the weights. */
  NoPad,
  /* Several levels, PAD SPACE: all weights up to the longest value, padded. */
  Full,
};

struct Part {
  Field *field;         /* of table->field: its offset in a record is known */
  uint key_field;       /* number of the column */
  uint length;          /* bytes of the column that count */
  bool nullable;
  bool descending;
  enum { Fixed, Binary, Weights } kind;
  Text text;
  uint unit;            /* bytes of a weight */
  uint32 space;         /* the weight of a space */
  uint chars;           /* characters that count */
  uint fixed;           /* bytes, with Fixed, and with Text::Full */
};

class Key_codec {
public:
  /* `info` belongs to `table`. */
  void init(TABLE *table, const KEY *info);
  /* The longest encoding of all parts, bytes. */
  size_t max_bytes() const;
  /* Appends the encoding of the first `parts` parts of the row in `record`. */
  void encode(const uchar *record, uint parts, Bytes *to) const;
  /* Whether one of the parts is NULL. */
  bool has_null(const uchar *record) const;
  /* The length of the encoding of all parts, with which `key` begins; false if it is damaged. */
  bool length_in(const Bytes &key, size_t *len) const;
  uint parts() const { return (uint)m_parts.size(); }

private:
  void encode_part(const Part &part, const uchar *record, Bytes *to) const;
  TABLE *m_table = nullptr;
  std::vector<Part> m_parts;
};

class Row_codec {
public:
  void init(TABLE *table);
  void encode(const uchar *record, Bytes *to) const;
  /* Returns false if the bytes are not a row of this table. Long columns in `record` point into `from`. */
  bool decode(const uchar *from, size_t len, uchar *record) const;
  bool has_blobs() const { return m_blobs; }

private:
  TABLE *m_table = nullptr;
  std::vector<Field *> m_fields;
  std::vector<int> m_null_bit; /* -1: never NULL */
  uint m_null_bytes = 0;
  bool m_blobs = false;
};

/* The least key that is larger than all keys with this prefix; false if there is none. */
bool successor(Bytes *prefix);

}
#endif

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

   An index entry is enough to read its columns: what cannot be had from the key (a text, a float) is in the
   entry's value, as Field::pack of each such column that is not NULL: first those of the index, then those of
   the primary key. A part that is a prefix of its column, or of a BLOB, is in neither.

   A row is [1: the number of its layout], a bit for each column that may be NULL and one for each that may be stored
   apart, then Field::pack of each column that is stored and not NULL. Of a value that is stored apart the row has only
   the length (long_columns.cc). */
#ifndef SEAWALL_CODEC_H
#define SEAWALL_CODEC_H

#include "compat.h"
#include "layout.h"
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
  /* How the column is had from an entry. */
  enum Source { Nowhere, Integer, Copy, Reversed, Groups, Value } source;
  Text text;
  uint unit;            /* bytes of a weight */
  uint32 space;         /* the weight of a space */
  uint chars;           /* characters that count */
  uint weights;         /* of them, with Text::Full: of each level */
  uint fixed;           /* bytes, with Fixed, and with Text::Full */
};

class Key_codec {
public:
  /* `info` belongs to `table`. */
  void init(TABLE *table, const KEY *info);
  /* The longest encoding of all parts, bytes; and without the escapes of weights, which are rare. */
  size_t max_bytes() const { return bytes(true); }
  size_t usual_bytes() const { return bytes(false); }
  /* Whether the entries of `other`, an index over the same columns of which some are longer there, are the same. */
  bool encodes_as(const Key_codec &other) const;
  /* Appends the encoding of the first `parts` parts of the row in `record`. */
  void encode(const uchar *record, uint parts, Bytes *to) const;
  /* Whether one of the parts is NULL. */
  bool has_null(const uchar *record) const;
  /* The length of the encoding of the first `parts` parts, with which `key` begins; false if it is damaged.
     `null`: whether one of them is NULL. */
  bool length_in(const uchar *key, size_t key_len, uint parts, size_t *len, bool *null = nullptr) const;
  uint parts() const { return (uint)m_parts.size(); }
  /* Appends the columns that cannot be had from the key. */
  void encode_value(const uchar *record, Bytes *to) const;
  /* Sets the columns of the key at `*key` and `*value`, and moves both behind what is theirs; false if they are
     damaged. */
  bool decode(const uchar **key, const uchar *key_end, const uchar **value, const uchar *value_end, uchar *record) const;

private:
  size_t bytes(bool escapes) const;
  bool part_length(const Part &part, const uchar *key, const uchar *end, size_t *len, bool *null) const;
  bool decode_part(const Part &part, const uchar *key, size_t len, uchar *record) const;
  void encode_part(const Part &part, const uchar *record, Bytes *to) const;
  TABLE *m_table = nullptr;
  std::vector<Part> m_parts;
};

/* Whether the server's sort keys of the column's collation order and equal as its comparison does: for some they do not
   (tests/collations.proc), and no key can be made. */
bool has_sort_keys(const Field *field);
/* Whether a key's part of this column and length can be had from an index entry. */
bool is_readable(const Field *field, uint length);

/* A value of more bytes is stored apart, if its column may be. */
const size_t APART_FROM = 4000;
/* Its key is the row's and these. */
const size_t LONG_KEY_BYTES = 4;
/* Whether long values of the column are stored apart: TEXT, BLOB, JSON, geometries. */
bool may_be_apart(const Field *field);
/* Whether this one is. */
bool is_apart(const Field *field, const uchar *record);
/* Whether the record has only the length of a value that is stored apart: the statement does not read the column. */
bool is_unread(const Field *field, const uchar *record);

/* A column that may be stored apart. */
struct Long_column {
  Field_blob *field;
  uint32_t number;
  bool indexed; /* a part of it */
};

class Row_codec {
public:
  /* False if the table has other columns than the layouts. */
  bool init(TABLE *table, const Layouts &layouts);
  void encode(const uchar *record, Bytes *to) const;
  /* Returns false if the bytes are not a row of this table. BLOBs in `record` point into `from`, or into the codec;
     those that are stored apart are unread. Columns that are neither `wanted` nor in an index may be left as they are;
     null: all are wanted. */
  bool decode(const uchar *from, size_t len, uchar *record, const MY_BITMAP *wanted = nullptr) const;
  bool has_blobs() const { return m_blobs; }
  const std::vector<Long_column> &long_columns() const { return m_long; }

private:
  struct Column {
    Field *field; /* null: it was dropped */
    int null_bit;  /* -1: never NULL */
    int apart_bit; /* -1: never stored apart */
    Layouts::Dropped dropped; /* how it is passed over */
    bool optional; /* it may be left as it is in a record that does not want it */
    bool same;     /* a row has the bytes of the record, as many as a value has */
    uint index, at, room; /* its number, its place in a record, and its bytes there */
  };
  struct Layout {
    std::vector<Column> columns;
    size_t bit_bytes = 0;
    std::vector<std::pair<Field *, Layouts::Default>> missing;
  };
  bool read_column(Field *field, const uchar **from, const uchar *end, my_ptrdiff_t offset) const;
  TABLE *m_table = nullptr;
  std::vector<Layout> m_layouts;
  std::vector<Long_column> m_long;
  bool m_blobs = false;
};

/* How the bytes of a column in a row are passed over; false if that is not known for its type. */
bool how_to_pass_over(const Field *field, Layouts::Dropped *how);
/* A column's bytes in a row. */
void pack_field(Field *field, const uchar *record, my_ptrdiff_t offset, Bytes *to);

/* The least key that is larger than all keys with this prefix; false if there is none. */
bool successor(Bytes *prefix);

}
#endif

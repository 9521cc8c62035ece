/* SPDX-License-Identifier: GPL-2.0-only */
/* The encoding of SQL rows and keys as values and keys of the engine.

   Encoded keys compare as bytes in the order of the server's comparison, and each part is self-terminating: the
   encoding of the first parts of a key is a prefix of the encoding of all. A part is
     [nullable: 0 for NULL, 1 otherwise] then, unless it is NULL,
     a number, time, enum, bit ...: Field::sort_string, of fixed length;
     a binary string: groups of 8 bytes, padded with zeroes, each followed by 9 if more follow, otherwise by
       the number of its bytes that are not padding;
     a text: its weights (strnxfrm) in one of the ways of `Text`.
   All bytes of a part in descending order are inverted.

   The columns of an index can be read from its entry alone: a column that cannot be decoded from the key (a text, a
   float) is in the entry's value, as Field::pack if it is not NULL: first those of the index, then those of the primary
   key. A part that is a prefix of its column, or belongs to a BLOB, is in neither.

   A row is [1 byte: the number of its layout], a bit for each column that may be NULL and one for each that may be
   stored apart, then Field::pack of each column that is stored and not NULL. For a value that is stored apart, the row
   has only the length (long_columns.cc). */
#ifndef SEAWALL_CODEC_H
#define SEAWALL_CODEC_H

#include "compat.h"
#include "layout.h"
#include <string>
#include <vector>

namespace seawall {

using Bytes = std::string;

/* How the weights of a text are encoded to compare as bytes and to be self-terminating. */
enum class Text {
  /* One level, PAD SPACE. Trailing spaces are left out. Let s be the weight of a space; weights are units of 1, 2 or 3
     bytes. The end is s+1; a space is s if the next other weight is smaller than s, otherwise s+2; weights above s are
     increased by 2, with an escape at the top. So a text compares as if spaces followed it, without storing them. */
  Pad,
  /* A collation that compares like C (codec.cc): the weights up to the first zero, and this zero. */
  ToZero,
  /* NO PAD: the weights, encoded as a binary string. */
  NoPad,
  /* Several levels of UCA weights. The server compares level after level: the first with PAD SPACE or NO PAD, the others
     with PAD SPACE. So is the encoding: the first level as `Pad`, or with NO PAD its weights of 2 bytes and a weight 0;
     then each other level as `Pad`, with 1 byte for the usual small weights and 3 for others. */
  Levels,
  /* Other collations of several levels, PAD SPACE: all weights, padded to as many as the longest value has. */
  Full,
};

struct Part {
  Field *field;         /* of table->field: its offset in a record is known */
  uint key_field;       /* number of the column */
  uint length;          /* bytes of the column that count */
  bool nullable;
  bool descending;
  enum { Fixed, Binary, Weights } kind;
  /* How the column is read from an entry. */
  enum Source { Nowhere, Integer, Copy, Reversed, Groups, Value } source;
  Text text;
  uint unit;            /* bytes of a weight */
  uint32 space;         /* the weight of a space; 0 with Text::Levels and NO PAD */
  struct Level {
    uint flag;          /* MY_STRXFRM_LEVEL... */
    uint32 space;
  };
  std::vector<Level> levels; /* those after the first */
  bool codes;           /* the server's sort keys are not in the order of its comparison: weights are character codes */
  uint chars;           /* characters that count */
  uint weights;         /* with Text::Full: weights of each level */
  uint fixed;           /* with Fixed and Text::Full: bytes */
};

class Key_codec {
public:
  /* `info` belongs to `table`. `levels`: Layouts::levels. */
  void init(TABLE *table, const KEY *info, bool levels) { init(table, table->field, info, levels); }
  /* With the fields of a share, and without a table, only the lengths are known. */
  void init(TABLE *table, Field **fields, const KEY *info, bool levels);
  /* The maximum length of the encoding of all parts, bytes; usual_bytes() leaves out the escapes of weights, which are
     rare. */
  size_t max_bytes() const { return bytes(true); }
  size_t usual_bytes() const { return bytes(false); }
  /* Whether `other`, an index over the same columns, some of which may be longer, has the same entries. */
  bool encodes_as(const Key_codec &other) const;
  /* Appends the encoding of the first `parts` parts of the row in `record`. */
  void encode(const uchar *record, uint parts, Bytes *to) const;
  /* Whether one of the parts is NULL. */
  bool has_null(const uchar *record) const;
  /* Gets the length of the encoding of the first `parts` parts, with which `key` begins; false if it is damaged.
     `null`: whether one of the parts is NULL. */
  bool length_in(const uchar *key, size_t key_len, uint parts, size_t *len, bool *null = nullptr) const;
  uint parts() const { return (uint)m_parts.size(); }
  /* Appends the columns that cannot be decoded from the key. */
  void encode_value(const uchar *record, Bytes *to) const;
  /* Sets the columns from the bytes at `*key` and `*value`, and moves both pointers past these bytes; false if the
     bytes are damaged. */
  bool decode(const uchar **key, const uchar *key_end, const uchar **value, const uchar *value_end, uchar *record) const;

private:
  size_t bytes(bool escapes) const;
  bool part_length(const Part &part, const uchar *key, const uchar *end, size_t *len, bool *null) const;
  bool decode_part(const Part &part, const uchar *key, size_t len, uchar *record) const;
  void encode_part(const Part &part, const uchar *record, Bytes *to) const;
  TABLE *m_table = nullptr;
  std::vector<Part> m_parts;
};

/* Whether the column can be in an index. In tables without `levels` (Layouts::levels), those of some collations cannot. */
bool has_sort_keys(const Field *field, bool levels);
/* Whether a key part of this column and length can be read from an index entry. */
bool is_readable(const Field *field, uint length);

/* The entries of a secondary index. An entry's key is the encoding of the index's columns, then the row's key. If both are
   longer than a key may be, the row's key is cut, and a digest of the whole of it follows, so that the entry has the
   maximum length; the whole key of the row is then at the end of the value, followed by its length (2 bytes). Entries with
   equal columns are ordered by the row's key, unless they may be cut. */
class Entry_codec {
public:
  static const size_t DIGEST_BYTES = 32;
  /* `primary`: null without a primary key. The codecs must outlive this one. `key_bytes_max`: of the engine. */
  Entry_codec(const Key_codec *columns, const Key_codec *primary, bool unique, size_t key_bytes_max);
  /* Whether entries can be longer than a key, not counting rare escapes. */
  bool may_be_cut() const { return m_may_be_cut; }
  /* Encodes the entry of the row in `record`, whose key is `row`. Returns how many of the key's first bytes no other entry
     may have; 0 for none. */
  size_t encode(const uchar *record, const Bytes &row, Bytes *key, Bytes *value) const;
  /* Gets the key of the entry's row; false if the entry is damaged. Without the value, it is not found for an entry that
     is cut: `row` is empty then. */
  bool row_of(const uchar *key, size_t key_len, const uchar *value, size_t value_len, Bytes *row) const;
  /* Sets the columns of the index and of the primary key, and gets the key of the row; false if the entry is damaged. */
  bool decode(const uchar *key, size_t key_len, const uchar *value, size_t value_len, uchar *record, Bytes *row) const;

private:
  const Key_codec *m_columns, *m_primary;
  bool m_unique, m_may_be_cut;
  size_t m_key_bytes_max;
};

/* A value of more bytes than this is stored apart, if its column may be. */
const size_t APART_FROM = 4000;
/* The key of such a value is the row's key and this many bytes. */
const size_t LONG_KEY_BYTES = 4;
/* Whether long values of the column are stored apart: TEXT, BLOB, JSON, geometries. */
bool may_be_apart(const Field *field);
/* Whether the column's value in `record` is stored apart. */
bool is_apart(const Field *field, const uchar *record);
/* Whether the record has only the length of a value that is stored apart: the statement does not read the column. */
bool is_unread(const Field *field, const uchar *record);

/* A column that may be stored apart. */
struct Long_column {
  Field_blob *field;
  uint32_t number;
  bool indexed; /* a part of it is in an index */
};

class Row_codec {
public:
  /* Returns false if the table has other columns than the layouts. */
  bool init(TABLE *table, const Layouts &layouts);
  void encode(const uchar *record, Bytes *to) const;
  /* Returns false if the bytes are not a row of this table. BLOBs in `record` point into `from`, or into the codec;
     those that are stored apart are unread. Columns that are neither `wanted` nor in an index may be left as they are;
     with null, all are wanted. */
  bool decode(const uchar *from, size_t len, uchar *record, const MY_BITMAP *wanted = nullptr) const;
  bool has_blobs() const { return m_blobs; }
  const std::vector<Long_column> &long_columns() const { return m_long; }

private:
  struct Column {
    Field *field; /* null: it was dropped */
    int null_bit;  /* -1: never NULL */
    int apart_bit; /* -1: never stored apart */
    Layouts::Dropped dropped; /* how it is skipped */
    bool optional; /* it may be left as it is in the record if it is not wanted */
    bool same;     /* a row has the same bytes as the record, as many as the value has */
    bool padded;   /* a CHAR: a row has the length and the bytes without what fills the column, which is `pad` */
    uchar pad;
    uint index, at, room; /* its number, its offset in a record, and its bytes there */
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

/* Gets how to skip the bytes of a column in a row; false if that is not known for its type. */
bool how_to_pass_over(const Field *field, Layouts::Dropped *how);
/* Appends a column's bytes as a row has them. */
void pack_field(Field *field, const uchar *record, my_ptrdiff_t offset, Bytes *to);

/* Replaces the prefix by the smallest key that is larger than all keys with it; false if there is none. */
bool successor(Bytes *prefix);

}
#endif

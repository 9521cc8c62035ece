/* SPDX-License-Identifier: GPL-2.0-only */
#include "codec.h"
#include <algorithm>
#include <cstring>
#include <mysql/service_sha2.h>

namespace seawall {

static const uint GROUP = 8;
static const uint UCA_WEIGHT = 2; /* bytes */
/* Weights of further levels are encoded in 1 byte below this, and in CODE_MAX from this on. */
static const uint32 CODE_FROM = 0xc0;
static const size_t CODE_MAX = 3;

static bool is_text(const Field *field) {
  switch (field->real_type()) {
  case MYSQL_TYPE_STRING:
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_VAR_STRING:
  case MYSQL_TYPE_TINY_BLOB:
  case MYSQL_TYPE_MEDIUM_BLOB:
  case MYSQL_TYPE_LONG_BLOB:
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_GEOMETRY:
    /* INET6 and UUID are strings of fixed length with their own order. */
    return dynamic_cast<const Field_longstr *>(field) != nullptr;
  default:
    return false;
  }
}

/* How a column can be decoded from a key. */
static Part::Source source_of(const Field *field) {
  switch (field->real_type()) {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
  case MYSQL_TYPE_YEAR: return Part::Integer;
  case MYSQL_TYPE_NEWDECIMAL:
  case MYSQL_TYPE_TIMESTAMP2:
  case MYSQL_TYPE_DATETIME2:
  case MYSQL_TYPE_TIME2: return Part::Copy;
  case MYSQL_TYPE_NEWDATE:
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_SET: return Part::Reversed;
  default: return is_text(field) && field->charset() == &my_charset_bin ? Part::Groups : Part::Value;
  }
}

/* A space in the character set; returns its length. */
static size_t put_space(CHARSET_INFO *cs, uchar *to, size_t room) {
  int len = cs->wc_mb(' ', to, to + room);
  return len > 0 ? (size_t)len : 0;
}

/* The weight of a space, or on one level of several; `len`: its bytes. */
static uint32 space_weight(CHARSET_INFO *cs, uint flags, size_t *len) {
  uchar space[8], weights[16];
  *len = seawall_weights(cs, weights, sizeof weights, 1, space, put_space(cs, space, sizeof space), flags);
  uint32 weight = 0;
  for (size_t i = 0; i < *len && i < sizeof weight; i++) weight = weight << 8 | weights[i];
  return weight;
}

/* big5_chinese_ci and its NO PAD form: the server compares codes, but its sort keys are in the order of strokes. */
static bool is_sorted_by_strokes(CHARSET_INFO *cs) { return strncmp(cs->coll_name.str, "big5_chinese_", 13) == 0; }

/* The weights with which big5_chinese_ci compares; returns the number of bytes, at most `len`, plus one for each byte that
   is no character. */
static size_t code_weights(CHARSET_INFO *cs, const uchar *from, size_t len, uchar *to) {
  const uchar *end = from + len;
  uchar *at = to;
  while (from < end) {
    uint chars = my_ismbchar(cs, (const char *)from, (const char *)end);
    if (chars == 2) *at++ = *from++;
    else if (*from >= 0x80) *at++ = 0xff;
    *at++ = chars == 2 || *from >= 0x80 ? *from : cs->sort_order[*from];
    from++;
  }
  return (size_t)(at - to);
}

/* cp1250_czech_cs, which leaves out the spaces at the end, and tis620_thai_nopad_ci: the server compares their weights as
   strings of C, and what follows a zero does not count. */
static bool is_czech(CHARSET_INFO *cs) { return strcmp(cs->coll_name.str, "cp1250_czech_cs") == 0; }
static bool ends_at_zero(CHARSET_INFO *cs) { return is_czech(cs) || strcmp(cs->coll_name.str, "tis620_thai_nopad_ci") == 0; }

/* Whether the collation compares several levels of UCA weights. */
static bool has_levels(CHARSET_INFO *cs) { return cs->uca && cs->levels_for_order > 1; }

void Key_codec::init(TABLE *table, Field **fields, const KEY *info, bool levels) {
  m_table = table;
  m_parts.clear();
  for (uint at = 0; at < info->user_defined_key_parts; at++) {
    const KEY_PART_INFO &part = info->key_part[at];
    Field *field = fields[part.fieldnr - 1];
    Part p{};
    p.field = field;
    p.key_field = part.fieldnr - 1;
    p.length = part.length;
    p.nullable = field->real_maybe_null();
    p.descending = part.key_part_flag & HA_REVERSE_SORT;
    p.kind = Part::Fixed;
    p.fixed = field->sort_length();
    if (is_text(field)) {
      CHARSET_INFO *cs = field->charset();
      p.chars = part.length / cs->mbmaxlen;
      if (cs == &my_charset_bin && field->real_type() != MYSQL_TYPE_STRING) {
        p.kind = Part::Binary;
      } else if (cs == &my_charset_bin) {
        p.kind = Part::Binary; /* BINARY(n): its zeroes count */
      } else {
        p.kind = Part::Weights;
        size_t len;
        p.space = space_weight(cs, 0, &len);
        p.unit = (uint)len;
        p.codes = levels && is_sorted_by_strokes(cs);
        if (ends_at_zero(cs)) {
          p.text = Text::ToZero;
        } else if (levels && has_levels(cs)) {
          p.text = Text::Levels;
          p.space = cs->state & MY_CS_NOPAD ? 0 : space_weight(cs, MY_STRXFRM_LEVEL1, &len);
          p.unit = UCA_WEIGHT;
          for (uint level = 1; cs->levels_for_order >> level; level++) {
            uint flag = MY_STRXFRM_LEVEL1 << level;
            if (cs->levels_for_order >> level & 1) p.levels.push_back({flag, space_weight(cs, flag, &len)});
          }
        } else if (cs->state & MY_CS_NOPAD) {
          p.text = Text::NoPad;
        } else if (cs->levels_for_order > 1 || len < 1 || len > 3 || (cs->mbminlen > 1 && !levels)) {
          p.text = Text::Full;
          p.fixed = (uint)cs->strnxfrmlen(part.length);
          p.weights = std::max(p.chars, p.fixed / std::max<uint>(cs->levels_for_order, 1) / 2);
        } else {
          p.text = Text::Pad;
        }
      }
    }
    p.source = is_readable(field, part.length) ? source_of(field) : Part::Nowhere;
    m_parts.push_back(p);
  }
}

size_t Key_codec::bytes(bool escapes) const {
  size_t all = 0;
  for (const Part &p : m_parts) {
    all += p.nullable;
    if (p.kind == Part::Fixed || (p.kind == Part::Weights && p.text == Text::Full)) {
      all += p.fixed;
    } else if (p.kind == Part::Binary) {
      all += (p.length / GROUP + 1) * (GROUP + 1);
    } else if (p.text == Text::ToZero) {
      all += (is_czech(p.field->charset()) ? 2 : 1) * (size_t)p.length + 1; /* two levels; one */
    } else if (p.text == Text::NoPad) {
      CHARSET_INFO *cs = p.field->charset();
      size_t len = cs->uca && !escapes ? p.chars * UCA_WEIGHT : cs->strnxfrmlen(p.length);
      all += (len / GROUP + 1) * (GROUP + 1);
    } else {
      /* A character may have several weights; with weights of 1 byte, as many as it has bytes. */
      CHARSET_INFO *cs = p.field->charset();
      size_t weights = std::max<size_t>(cs->strnxfrmlen(p.length) / p.unit / (p.levels.size() + 1), p.chars);
      size_t usual = p.unit == 1 && cs->mbmaxlen > 1 ? weights : p.chars;
      all += p.unit * (escapes ? 2 * weights + 1 : usual + 1);
      /* On further levels, most characters weigh as much as a space, which at the end is left out. */
      all += p.levels.size() * (escapes ? CODE_MAX * (weights + 1) : p.chars / 2 + CODE_MAX);
    }
  }
  return all;
}

bool Key_codec::encodes_as(const Key_codec &other) const {
  return std::equal(m_parts.begin(), m_parts.end(), other.m_parts.begin(), other.m_parts.end(), [](const Part &a, const Part &b) {
    bool by_length = a.kind == Part::Fixed || (a.kind == Part::Weights && a.text == Text::Full);
    return a.nullable == b.nullable && a.descending == b.descending && a.kind == b.kind && a.source == b.source && a.text == b.text &&
           a.unit == b.unit && a.space == b.space && a.levels.size() == b.levels.size() && a.codes == b.codes &&
           (!by_length || (a.fixed == b.fixed && a.weights == b.weights && a.chars == b.chars));
  });
}

bool Key_codec::has_null(const uchar *record) const {
  for (const Part &p : m_parts)
    if (p.nullable && p.field->is_null_in_record(record)) return true;
  return false;
}

static void groups(const uchar *from, size_t len, Bytes *to) {
  for (;;) {
    size_t here = len < GROUP ? len : GROUP;
    to->append((const char *)from, here);
    to->append(GROUP - here, '\0');
    if (len <= GROUP) {
      to->push_back((char)here);
      return;
    }
    to->push_back((char)(GROUP + 1));
    from += here;
    len -= here;
  }
}

static void put_unit(uint32 weight, uint unit, Bytes *to) {
  for (uint i = unit; i-- > 0;) to->push_back((char)(weight >> (8 * i)));
}

/* Encodes weights of `unit` bytes as `Text::Pad`, by calls of `put`. */
template <typename F> static void padded(const uchar *from, size_t len, uint unit, uint32 space, F put) {
  auto at = [&](size_t i) {
    uint32 weight = 0;
    for (uint b = 0; b < unit; b++) weight = weight << 8 | from[i * unit + b];
    return weight;
  };
  size_t count = len / unit;
  while (count > 0 && at(count - 1) == space) count--;
  for (size_t i = 0; i < count; i++) {
    uint32 weight = at(i);
    if (weight == space) {
      size_t next = i + 1;
      while (at(next) == space) next++; /* the last weight is no space */
      put(at(next) < space ? space : space + 2);
    } else {
      put(weight < space ? weight : weight + 2);
    }
  }
  put(space + 1);
}

static uint32 top_of(uint unit) { return (uint32)((1ULL << (8 * unit)) - 1); }

/* One level of weights, or the first of several. */
static void put_weights(const Part &p, const uchar *weights, size_t len, Bytes *to) {
  const uint32 top = top_of(p.unit);
  padded(weights, len, p.unit, p.space, [&](uint32 weight) {
    if (weight >= top) put_unit(top, p.unit, to);
    put_unit(weight < top ? weight : weight - 2, p.unit, to);
  });
}

static void put_level(const uchar *weights, size_t len, uint32 space, Bytes *to) {
  padded(weights, len, UCA_WEIGHT, space, [&](uint32 weight) {
    if (weight < CODE_FROM) to->push_back((char)weight);
    else put_unit((CODE_FROM << 16) + (weight - CODE_FROM), CODE_MAX, to);
  });
}

/* The bytes of a text or binary column. */
static const uchar *bytes_of(const Field *field, const uchar *ptr, size_t *len) {
  switch (field->real_type()) {
  case MYSQL_TYPE_STRING:
    *len = field->field_length;
    return ptr;
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_VAR_STRING: {
    uint prefix = static_cast<const Field_varstring *>(field)->length_bytes;
    *len = prefix == 1 ? *ptr : uint2korr(ptr);
    return ptr + prefix;
  }
  default: {
    const Field_blob *blob = static_cast<const Field_blob *>(field);
    *len = blob->get_length(ptr);
    const uchar *data;
    memcpy(&data, ptr + blob->pack_length_no_ptr(), sizeof data);
    return data;
  }
  }
}

void Key_codec::encode_part(const Part &p, const uchar *record, Bytes *to) const {
  Field *field = p.field;
  size_t begin = to->size();
  if (p.nullable) {
    bool null = field->is_null_in_record(record);
    to->push_back(null ? 0 : 1);
    if (null) {
      if (p.descending) (*to)[begin] = (char)~(*to)[begin];
      return;
    }
  }
  my_ptrdiff_t offset = record - m_table->record[0];
  if (p.kind == Part::Fixed) {
    size_t at = to->size();
    to->resize(at + p.fixed);
    /* The record has the column, whether the statement reads it or not. */
    MY_BITMAP *reads = dbug_tmp_use_all_columns(m_table, &m_table->read_set);
    field->move_field_offset(offset);
    field->sort_string((uchar *)&(*to)[at], p.fixed);
    field->move_field_offset(-offset);
    dbug_tmp_restore_column_map(&m_table->read_set, reads);
  } else {
    size_t len;
    const uchar *from = bytes_of(field, field->ptr_in_record(record), &len);
    CHARSET_INFO *cs = field->charset();
    size_t most = p.length;
    if (cs->mbmaxlen > 1 && len > 0) most = cs->charpos((const char *)from, (const char *)from + len, p.chars);
    if (len > most) len = most;
    if (p.text == Text::ToZero && is_czech(cs))
      while (len > 0 && from[len - 1] == ' ') len--;
    if (p.kind == Part::Binary) {
      groups(from, len, to);
    } else {
      uchar small[512];
      size_t room = std::max(cs->strnxfrmlen(len > p.length ? len : p.length), p.codes ? 2 * len : 0);
      std::vector<uchar> large;
      uchar *weights = small;
      if (room > sizeof small) {
        large.resize(room);
        weights = large.data();
      }
      if (p.text == Text::Levels) {
        size_t made = seawall_weights(cs, weights, room, (uint)room, from, len, MY_STRXFRM_LEVEL1);
        if (p.space) {
          put_weights(p, weights, made, to);
        } else {
          to->append((const char *)weights, made);
          put_unit(0, p.unit, to);
        }
        for (const Part::Level &level : p.levels) {
          made = seawall_weights(cs, weights, room, (uint)room, from, len, level.flag);
          put_level(weights, made, level.space, to);
        }
      } else if (p.text == Text::Full) {
        size_t made = seawall_weights(cs, weights, p.fixed, p.weights, from, len,
                                      MY_STRXFRM_PAD_WITH_SPACE | MY_STRXFRM_PAD_TO_MAXLEN);
        to->append((const char *)weights, made);
        if (made < p.fixed) to->append(p.fixed - made, '\0');
      } else {
        size_t made = p.codes ? code_weights(cs, from, len, weights) : seawall_weights(cs, weights, room, (uint)room, from, len, 0);
        if (p.text == Text::ToZero) to->append((const char *)weights, strnlen((const char *)weights, made)).push_back('\0');
        else if (p.text == Text::NoPad) groups(weights, made, to);
        else put_weights(p, weights, made, to);
      }
    }
  }
  if (p.descending)
    for (size_t i = begin; i < to->size(); i++) (*to)[i] = (char)~(*to)[i];
}

void Key_codec::encode(const uchar *record, uint parts, Bytes *to) const {
  for (uint at = 0; at < parts && at < m_parts.size(); at++) encode_part(m_parts[at], record, to);
}

/* Gets the length of one part, with its byte for NULL. */
bool Key_codec::part_length(const Part &p, const uchar *key, const uchar *end, size_t *len, bool *null) const {
  uchar flip = p.descending ? 0xff : 0;
  size_t at = 0, size = (size_t)(end - key);
  auto byte = [&](size_t i) { return (uchar)(key[i] ^ flip); };
  *null = false;
  if (p.nullable) {
    if (size == 0) return false;
    if (byte(at++) == 0) {
      *null = true;
      *len = at;
      return true;
    }
  }
  if (p.kind == Part::Fixed || (p.kind == Part::Weights && p.text == Text::Full)) {
    at += p.fixed;
  } else if (p.kind == Part::Binary || p.text == Text::NoPad) {
    do {
      at += GROUP + 1;
      if (at > size) return false;
    } while (byte(at - 1) > GROUP);
  } else if (p.text == Text::ToZero) {
    do {
      if (at == size) return false;
    } while (byte(at++) != 0);
  } else {
    const uint32 top = top_of(p.unit), end_of_weights = p.space ? p.space + 1 : 0;
    bool ended = false;
    auto pass = [&](auto bytes) {
      while (!ended && at + bytes <= size) {
        uint32 unit = 0;
        for (uint i = 0; i < bytes; i++) unit = unit << 8 | byte(at + i);
        at += bytes;
        ended = unit == end_of_weights;
        if (unit == top && p.space) at += bytes;
      }
    };
    switch (p.unit) { /* constants, for which the loop is fast */
    case 1: pass(std::integral_constant<uint, 1>()); break;
    case 2: pass(std::integral_constant<uint, 2>()); break;
    default: pass(p.unit);
    }
    if (!ended) return false;
    for (const Part::Level &level : p.levels) {
      for (uint32 weight = 0; weight != level.space + 1;) {
        if (at >= size) return false;
        weight = byte(at);
        if (weight >= CODE_FROM) {
          if (at + CODE_MAX > size) return false;
          weight = ((weight - CODE_FROM) << 16 | (uint32)byte(at + 1) << 8 | byte(at + 2)) + CODE_FROM;
          at += CODE_MAX - 1;
        }
        at++;
      }
    }
  }
  *len = at;
  return at <= size;
}

bool Key_codec::length_in(const uchar *key, size_t key_len, uint parts, size_t *len, bool *null) const {
  size_t at = 0;
  bool any = false;
  for (uint i = 0; i < parts && i < m_parts.size(); i++) {
    size_t here;
    bool is_null;
    if (!part_length(m_parts[i], key + at, key + key_len, &here, &is_null)) return false;
    at += here;
    any |= is_null;
  }
  *len = at;
  if (null) *null = any;
  return true;
}

bool has_sort_keys(const Field *field, bool levels) {
  if (levels || !is_text(field)) return true;
  /* NO PAD, and levels are left out: the server's sort keys of all levels together cannot be compared. */
  CHARSET_INFO *cs = field->charset();
  bool gap = cs->levels_for_order & (cs->levels_for_order + 1);
  return !(cs->uca && cs->state & MY_CS_NOPAD && gap);
}

bool is_readable(const Field *field, uint length) {
  return !(field->flags & BLOB_FLAG) && (!is_text(field) || length == field->key_length());
}

void pack_field(Field *field, const uchar *record, my_ptrdiff_t offset, Bytes *to) {
  size_t at = to->size();
  size_t room = field->pack_length() + 8;
  if (field->flags & BLOB_FLAG) room += static_cast<Field_blob *>(field)->get_length(field->ptr_in_record(record));
  uchar small[512]; /* `resize` fills with zeroes */
  bool is_small = room <= sizeof small;
  if (!is_small) to->resize(at + room);
  uchar *begin = is_small ? small : (uchar *)&(*to)[at];
  field->move_field_offset(offset);
  uchar *end = field->pack(begin, field->ptr);
  field->move_field_offset(-offset);
  if (is_small) to->append((const char *)small, end - begin);
  else to->resize(at + (end - begin));
}

void Key_codec::encode_value(const uchar *record, Bytes *to) const {
  for (const Part &p : m_parts)
    if (p.source == Part::Value && !(p.nullable && p.field->is_null_in_record(record)))
      pack_field(p.field, record, record - m_table->record[0], to);
}

/* Sets a column from the bytes of its part, without the byte for NULL. */
bool Key_codec::decode_part(const Part &p, const uchar *key, size_t len, uchar *record) const {
  uchar flip = p.descending ? 0xff : 0;
  uchar *to = p.field->ptr + (record - m_table->record[0]);
  switch (p.source) {
  case Part::Integer:
    for (size_t i = 0; i < len; i++) to[i] = (uchar)(key[len - 1 - i] ^ flip);
    if (!(p.field->flags & UNSIGNED_FLAG)) to[len - 1] ^= 0x80;
    return true;
  case Part::Reversed:
    for (size_t i = 0; i < len; i++) to[i] = (uchar)(key[len - 1 - i] ^ flip);
    return true;
  case Part::Copy:
    for (size_t i = 0; i < len; i++) to[i] = (uchar)(key[i] ^ flip);
    return true;
  case Part::Groups: {
    bool variable = p.field->real_type() != MYSQL_TYPE_STRING;
    uint prefix = variable ? static_cast<Field_varstring *>(p.field)->length_bytes : 0;
    size_t total = 0;
    for (size_t at = 0; at + GROUP < len; at += GROUP + 1) {
      uchar count = (uchar)(key[at + GROUP] ^ flip);
      size_t here = count > GROUP ? GROUP : count;
      if (total + here > p.length) return false;
      for (size_t i = 0; i < here; i++) to[prefix + total + i] = (uchar)(key[at + i] ^ flip);
      total += here;
    }
    if (prefix == 1) *to = (uchar)total;
    else if (prefix == 2) int2store(to, total);
    return variable || total == p.length;
  }
  default: return true;
  }
}

bool Key_codec::decode(const uchar **key, const uchar *key_end, const uchar **value, const uchar *value_end,
                       uchar *record) const {
  my_ptrdiff_t offset = record - m_table->record[0];
  for (const Part &p : m_parts) {
    size_t len;
    bool null;
    if (!part_length(p, *key, key_end, &len, &null)) return false;
    if (p.nullable) {
      if (null) p.field->set_null(offset);
      else p.field->set_notnull(offset);
    }
    if (!null && p.source == Part::Value) {
      p.field->move_field_offset(offset);
      const uchar *next = p.field->unpack(p.field->ptr, *value, value_end);
      p.field->move_field_offset(-offset);
      if (!next || next > value_end) return false;
      *value = next;
    } else if (!null && !decode_part(p, *key + p.nullable, len - p.nullable, record)) {
      return false;
    }
    *key += len;
  }
  return true;
}

// --- index entries ----------------------------------------------------------------------------------

Entry_codec::Entry_codec(const Key_codec *columns, const Key_codec *primary, bool unique, size_t key_bytes_max)
    : m_columns(columns), m_primary(primary), m_unique(unique),
      m_may_be_cut(columns->usual_bytes() + (primary ? primary->usual_bytes() : 8) > key_bytes_max), m_key_bytes_max(key_bytes_max) {}

size_t Entry_codec::encode(const uchar *record, const Bytes &row, Bytes *key, Bytes *value) const {
  key->clear();
  value->clear();
  m_columns->encode_value(record, value);
  if (m_primary) m_primary->encode_value(record, value);
  m_columns->encode(record, MAX_KEY, key);
  size_t unique_len = m_unique && !m_columns->has_null(record) ? key->size() : 0;
  size_t len = key->size() + row.size();
  key->append(row);
  /* The engine refuses columns that are too long by themselves. */
  if (!m_may_be_cut || len <= m_key_bytes_max || len - row.size() + DIGEST_BYTES > m_key_bytes_max) return unique_len;
  uchar digest[DIGEST_BYTES];
  my_sha256(digest, row.data(), row.size());
  key->resize(m_key_bytes_max - DIGEST_BYTES);
  key->append((const char *)digest, DIGEST_BYTES);
  value->append(row);
  value->push_back((char)row.size());
  value->push_back((char)(row.size() >> 8));
  return unique_len;
}

bool Entry_codec::row_of(const uchar *key, size_t key_len, const uchar *value, size_t value_len, Bytes *row) const {
  size_t at = 0;
  if (!m_columns->length_in(key, key_len, MAX_KEY, &at)) return false;
  row->assign((const char *)key + at, key_len - at);
  if (!m_may_be_cut || key_len != m_key_bytes_max) return true;
  row->clear();
  if (!value) return true;
  /* An entry that has the maximum length without being cut lacks the digest. */
  size_t len = value_len >= 2 ? uint2korr(value + value_len - 2) : 0;
  if (len > 0 && len + 2 <= value_len) {
    uchar digest[DIGEST_BYTES];
    row->assign((const char *)value + value_len - 2 - len, len);
    my_sha256(digest, row->data(), row->size());
    if (!memcmp(digest, key + key_len - DIGEST_BYTES, DIGEST_BYTES)) return true;
  }
  row->assign((const char *)key + at, key_len - at);
  return true;
}

bool Entry_codec::decode(const uchar *key, size_t key_len, const uchar *value, size_t value_len, uchar *record, Bytes *row) const {
  const uchar *value_end = value + value_len, *end = key + key_len;
  if (m_may_be_cut && !row_of(key, key_len, value, value_len, row)) return false;
  if (!m_columns->decode(&key, end, &value, value_end, record)) return false;
  if (!m_may_be_cut) row->assign((const char *)key, end - key);
  if (!m_primary) return true;
  key = (const uchar *)row->data();
  return m_primary->decode(&key, key + row->size(), &value, value_end, record);
}

// --- rows -----------------------------------------------------------------------------------------------

/* An unread BLOB points to this. */
static const uchar UNREAD = 0;

static const uchar *data_of(const Field_blob *blob, const uchar *record) {
  const uchar *data;
  memcpy(&data, blob->ptr_in_record(record) + blob->pack_length_no_ptr(), sizeof data);
  return data;
}

bool may_be_apart(const Field *field) {
  return field->stored_in_db() && field->flags & BLOB_FLAG && static_cast<const Field_blob *>(field)->pack_length_no_ptr() > 1;
}

bool is_apart(const Field *field, const uchar *record) {
  if (!may_be_apart(field) || (field->real_maybe_null() && field->is_null_in_record(record))) return false;
  return static_cast<const Field_blob *>(field)->get_length(field->ptr_in_record(record)) > APART_FROM;
}

bool is_unread(const Field *field, const uchar *record) {
  return is_apart(field, record) && data_of(static_cast<const Field_blob *>(field), record) == &UNREAD;
}

static bool is_indexed(const TABLE *table, const Field *field) {
  for (uint key = 0; key < table->s->keys; key++)
    for (uint part = 0; part < table->key_info[key].user_defined_key_parts; part++)
      if (table->key_info[key].key_part[part].fieldnr == field->field_index + 1u) return true;
  return false;
}

bool Row_codec::init(TABLE *table, const Layouts &layouts) {
  m_table = table;
  m_layouts.clear();
  m_long.clear();
  m_blobs = false;
  std::map<uint32_t, Field *> fields;
  size_t at = 0;
  for (Field **f = table->field; *f; f++) {
    if (!(*f)->stored_in_db()) continue;
    if (at == layouts.all.back().size()) return false;
    uint32_t number = layouts.all.back()[at++];
    fields[number] = *f;
    if (may_be_apart(*f)) m_long.push_back({static_cast<Field_blob *>(*f), number, is_indexed(table, *f)});
    m_blobs |= ((*f)->flags & BLOB_FLAG) != 0;
  }
  for (const std::vector<uint32_t> &columns : layouts.all) {
    Layout layout;
    std::map<uint32_t, Field *> missing = fields;
    int bits = 0;
    for (uint32_t number : columns) {
      auto field = fields.find(number);
      Column column{};
      if (field != fields.end()) {
        Field *is = column.field = field->second;
        missing.erase(number);
        bool is_blob = is->flags & BLOB_FLAG;
        column.optional = how_to_pass_over(is, &column.dropped) && !is_blob && !is_indexed(table, is);
        column.same = !is_blob && (column.dropped.fixed || is->real_type() == MYSQL_TYPE_VARCHAR);
        column.padded = is_text(is) && is->real_type() == MYSQL_TYPE_STRING && is->charset()->mbminlen == 1;
        column.pad = column.padded ? is->charset()->pad_char : 0;
        column.index = is->field_index;
        column.at = is->offset(table->record[0]);
        column.room = is->pack_length();
      } else {
        auto dropped = layouts.dropped.find(number);
        if (dropped == layouts.dropped.end()) return false;
        column.dropped = dropped->second;
      }
      column.null_bit = (column.field ? column.field->real_maybe_null() : column.dropped.nullable) ? bits++ : -1;
      column.apart_bit = (column.field ? may_be_apart(column.field) : column.dropped.apart) ? bits++ : -1;
      layout.columns.push_back(column);
    }
    layout.bit_bytes = (bits + 7) / 8;
    for (const auto &field : missing) {
      auto value = layouts.defaults.find(field.first);
      if (value == layouts.defaults.end()) return false;
      layout.missing.emplace_back(field.second, value->second);
    }
    m_layouts.push_back(std::move(layout));
  }
  return true;
}

/* Returns how many bytes the column at `from` has; SIZE_MAX if the row is too short. */
static inline size_t bytes_of(const Layouts::Dropped &how, bool apart, const uchar *from, const uchar *end) {
  size_t left = end - from, len = how.fixed;
  if (len == 0) {
    if (left < how.prefix) return SIZE_MAX;
    for (uint32_t i = 0; i < how.prefix && !apart; i++) len |= (size_t)from[i] << (8 * i);
    len += how.prefix;
  }
  return len <= left ? len : SIZE_MAX;
}

void Row_codec::encode(const uchar *record, Bytes *to) const {
  my_ptrdiff_t offset = record - m_table->record[0];
  const Layout &layout = m_layouts.back();
  to->push_back((char)m_layouts.size());
  size_t bits = to->size();
  to->append(layout.bit_bytes, '\0');
  auto set = [&](int bit) { (*to)[bits + bit / 8] |= (char)(1 << (bit % 8)); };
  for (const Column &column : layout.columns) {
    if (column.null_bit >= 0 && column.field->is_null_in_record(record)) {
      set(column.null_bit);
    } else if (column.apart_bit >= 0 && is_apart(column.field, record)) {
      set(column.apart_bit);
      to->append((const char *)column.field->ptr_in_record(record), static_cast<Field_blob *>(column.field)->pack_length_no_ptr());
    } else if (const uchar *from = record + column.at; column.same && bytes_of(column.dropped, false, from, from + column.room) <= column.room) {
      to->append((const char *)from, bytes_of(column.dropped, false, from, from + column.room));
    } else {
      pack_field(column.field, record, offset, to);
    }
  }
}

/* Reads a column, and moves `*from` past it. */
bool Row_codec::read_column(Field *field, const uchar **from, const uchar *end, my_ptrdiff_t offset) const {
  if (field->real_maybe_null()) field->set_notnull(offset);
  field->move_field_offset(offset);
  const uchar *next = field->unpack(field->ptr, *from, end);
  field->move_field_offset(-offset);
  if (!next || next > end) return false;
  *from = next;
  return true;
}

/* Sets the length of a value that is stored apart. */
static bool read_length(Field_blob *field, const uchar **from, const uchar *end, my_ptrdiff_t offset) {
  uint prefix = field->pack_length_no_ptr();
  if ((size_t)(end - *from) < prefix) return false;
  if (field->real_maybe_null()) field->set_notnull(offset);
  uchar *to = field->ptr + offset;
  const uchar *data = &UNREAD;
  memcpy(to, *from, prefix);
  memcpy(to + prefix, &data, sizeof data);
  *from += prefix;
  return field->get_length(to) > APART_FROM;
}

bool Row_codec::decode(const uchar *from, size_t len, uchar *record, const MY_BITMAP *wanted) const {
  my_ptrdiff_t offset = record - m_table->record[0];
  const uchar *end = from + len;
  if (len < 1 || *from == 0 || *from > m_layouts.size()) return false;
  const Layout &layout = m_layouts[*from - 1];
  if (len < 1 + layout.bit_bytes) return false;
  const uchar *bits = from + 1;
  from = bits + layout.bit_bytes;
  auto is_set = [&](int bit) { return bit >= 0 && bits[bit / 8] & (1 << (bit % 8)); };
  memcpy(record, m_table->s->default_values, m_table->s->null_bytes);
  auto set_null = [&](Field *field) {
    field->set_null(offset);
    uint at = field->offset(m_table->record[0]);
    memcpy(record + at, m_table->s->default_values + at, field->pack_length_in_rec());
  };
  for (const Column &column : layout.columns) {
    bool passed = !column.field || (column.optional && wanted && !bitmap_is_set(wanted, column.index));
    if (is_set(column.null_bit)) {
      if (!passed) set_null(column.field);
      continue;
    }
    bool apart = is_set(column.apart_bit);
    if (passed || column.same || column.padded) {
      size_t bytes = bytes_of(column.dropped, apart, from, end);
      if (bytes == SIZE_MAX) return false;
      if (!passed) {
        size_t prefix = column.padded ? column.dropped.prefix : 0, len = bytes - prefix;
        if (len > column.room) return false;
        if (column.null_bit >= 0) column.field->set_notnull(offset);
        uchar *to = record + column.at;
        if (len == 4) memcpy(to, from + prefix, 4); /* without a call, for INT */
        else memcpy(to, from + prefix, len);
        if (column.padded) memset(to + len, column.pad, column.room - len);
      }
      from += bytes;
    } else if (!(apart ? read_length(static_cast<Field_blob *>(column.field), &from, end, offset) : read_column(column.field, &from, end, offset))) {
      return false;
    }
  }
  for (const auto &missing : layout.missing) {
    const std::string &bytes = missing.second.bytes;
    const uchar *at = (const uchar *)bytes.data();
    if (missing.second.null) set_null(missing.first);
    else if (!read_column(missing.first, &at, at + bytes.size(), offset)) return false;
  }
  return from == end;
}

bool how_to_pass_over(const Field *field, Layouts::Dropped *how) {
  how->nullable = field->real_maybe_null();
  how->apart = may_be_apart(field);
  how->fixed = how->prefix = 0;
  switch (field->real_type()) {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
  case MYSQL_TYPE_YEAR:
  case MYSQL_TYPE_FLOAT:
  case MYSQL_TYPE_DOUBLE:
  case MYSQL_TYPE_NEWDECIMAL:
  case MYSQL_TYPE_NEWDATE:
  case MYSQL_TYPE_TIMESTAMP2:
  case MYSQL_TYPE_DATETIME2:
  case MYSQL_TYPE_TIME2:
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_SET: how->fixed = field->pack_length(); return true;
  case MYSQL_TYPE_VARCHAR: how->prefix = static_cast<const Field_varstring *>(field)->length_bytes; return true;
  case MYSQL_TYPE_STRING: how->prefix = field->field_length > 255 ? 2 : 1; return true;
  case MYSQL_TYPE_TINY_BLOB:
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_MEDIUM_BLOB:
  case MYSQL_TYPE_LONG_BLOB: how->prefix = static_cast<const Field_blob *>(field)->pack_length_no_ptr(); return true;
  default: return false;
  }
}

bool successor(Bytes *prefix) {
  while (!prefix->empty()) {
    uchar last = (uchar)prefix->back();
    if (last != 0xff) {
      prefix->back() = (char)(last + 1);
      return true;
    }
    prefix->pop_back();
  }
  return false;
}

}

/* SPDX-License-Identifier: GPL-2.0-only */
/* A table of the engine, as the server sees it. */
#ifndef HA_SEAWALL_H
#define HA_SEAWALL_H

#include "codec.h"
#include "connection.h"
#include "dictionary.h"
#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>

namespace seawall {

class Index_build;

/* State that all handlers of one table share. */
class Share : public Handler_share {
public:
  std::mutex mutex;                   /* held while the table is opened */
  bool open = false;
  std::vector<Tree> trees;            /* the rows, then one for each secondary index */
  std::shared_ptr<Counters> counters;
  uint64_t number = 0;                /* the table's number */
  time_t created = 0;
  std::atomic<time_t> updated{0};     /* the last change since the table was opened */
  Layouts layouts;
  Tree long_columns;                  /* null if no column is stored apart */
  bool long_values_of_dropped = false; /* there may be values of dropped columns */
  /* The estimated size of the table, when it had seen `changes` and had `grown` by this many rows. */
  struct Size {
    uint64_t rows = 0, bytes = 0, index_bytes = 0, changes = 0;
    int64_t grown = 0;
    bool known = false;
  };
  std::mutex size_mutex;
  Size size;
  std::atomic<uint64_t> changes{0};
  std::atomic<int64_t> grown{0}; /* rows inserted minus rows deleted, including those rolled back */
  std::mutex statistics_mutex;
  std::shared_ptr<const Statistics> statistics; /* null: not read yet */
  uint64_t sampled_at = 0;                      /* the value of `changes` then */
  /* While indexes are being built (`building`): the columns of these indexes and of the primary key. Set while the
     server excludes writers. */
  std::vector<uint> built_on;
  std::atomic<bool> building{false};
};

/* Prefetch requests are made for fewer and fewer batches while all requested pages are found in memory. */
struct Pace {
  uint calm = 0, pause = 0;
  /* Whether to leave out the requests of this batch. */
  bool rests() { return pause > 0 && pause-- > 0; }
  void note(bool absent) {
    const uint PAUSE_MAX = 64;
    calm = absent ? 0 : std::min(PAUSE_MAX, 2 * calm + 1);
    pause = calm;
  }
};

/* The read-ahead state of a multi-range read (multi_range.cc). */
struct Ahead {
  struct Range {
    KEY_MULTI_RANGE range; /* its keys are `start` and `end` */
    Bytes start, end;
  };
  struct Row {
    range_id_t range;
    Bytes primary;
  };
  bool on = false;
  bool entries = false;   /* entries are being read, without their rows */
  bool in_range = false;
  bool exhausted = false; /* no more ranges */
  bool ended = false;     /* no more entries */
  Range current;
  std::deque<Range> ranges;
  std::deque<Row> rows;
  bool sorts = false;     /* the rows are returned in the order of the primary key */
  size_t window = 0;      /* ranges to read ahead, or rows whose pages to request */
  size_t requested = 0;   /* how many of the first rows ahead are requested */
  Pace pace;
  void clear();
};

/* How far a scan of an index has looked ahead (look_ahead.cc). */
struct Look {
  Bytes last;       /* the last entry that was looked at */
  size_t rows = 0;  /* rows that the scan has read before it looks ahead */
  size_t ahead = 0; /* entries between the scan and `last` */
  size_t window = 0;
  bool backward = false;
  bool ended = false; /* no more entries */
};

/* The next rows of a scan without locks, which are prefetched from the cursor in one call. */
struct Prefetched {
  static const size_t ROWS_MIN = 8, ROWS_MAX = 32;
  static const uint STEPS = 3; /* single steps before the first call */
  bool stopped = false;        /* no more calls in this scan */
  seawall_seek to = SEAWALL_SEEK_NEXT;
  uint steps = 0;              /* single steps in that direction */
  size_t most = ROWS_MIN;
  size_t at = 0, count = 0;    /* the scan has still to return the rows from `at` on; the cursor is ahead of it */
  uint64_t changes = 0;        /* Connection::changes() when they were read */
  seawall_slice keys[ROWS_MAX], values[ROWS_MAX];

  void clear() {
    stopped = false;
    steps = 0;
    most = ROWS_MIN;
    at = count = 0;
  }
};

/* The copying of rows by ALTER TABLE and CREATE TABLE ... SELECT (copy.cc). */
struct Copy {
  bool on = false;               /* the server asked for it; it begins with the first row */
  uint64_t rows = 0, piece = 0;  /* in total; not committed yet */
  std::vector<bool> sorted;      /* the indexes that are built at the end */
  bool replays = false;          /* the rows are copied, and what others have changed meanwhile is changed again */
};

/* Rows to insert (bulk.cc). */
struct Batch {
  struct Keys {
    struct Entry {
      size_t at;
      uint32_t key, value; /* bytes */
      uint32_t unique;     /* how many of the key's first bytes no other entry may have; 0 for none */
    };
    Bytes bytes;
    std::vector<Entry> entries; /* one for each row */
    void add(const Bytes &key, const Bytes &value, size_t unique);
    seawall_slice key(uint32_t row) const { return slice(bytes.data() + entries[row].at, entries[row].key); }
    seawall_slice value(uint32_t row) const {
      return slice(bytes.data() + entries[row].at + entries[row].key, entries[row].value);
    }
    size_t memory() const { return bytes.size() + entries.size() * sizeof(Entry); }
    std::vector<uint32_t> in_order() const;
  };
  bool on = false;
  size_t bytes_max = 0;
  std::vector<Keys> trees; /* the rows, then each index by its number; empty without rows */
  std::vector<uint32_t> numbers; /* the statement's number of each row */
  Bytes last;              /* the key of the last row */
};

/* Drops a table, now or when the connection's transaction ends. */
int drop_by_path(const char *path, Bytes *error);
/* The server's version of a table's definition. */
std::string version_of(const TABLE *form);
/* The table's option FILL_PERCENT: how full OPTIMIZE and the build of an index make its leaves; 0: it has none. */
uint fill_percent_of(const TABLE *table);
extern ha_create_table_option table_options[];
/* How long the keys of an index may be, not counting escapes, which are rare. `levels`: Layouts::levels. */
struct Lengths {
  size_t bytes;     /* of the columns, with what must follow them */
  bool too_long;    /* for the engine */
  bool may_be_cut;  /* Entry_codec */
};
Lengths lengths_of(TABLE *form, uint index, bool levels);
/* Whether the index can be built from the existing rows (index_build.h). `levels`: Layouts::levels. */
bool can_be_built(TABLE *form, uint index, bool levels);
/* The variable seawall_ignore_foreign_keys. */
bool ignores_foreign_keys(THD *thd);
/* The variable seawall_autoinc_lock_mode. */
ulong autoinc_lock_mode();

}

class ha_seawall final : public handler {
public:
  ha_seawall(handlerton *hton, TABLE_SHARE *share);
  ~ha_seawall() override;

  Table_flags table_flags() const override;
  ulong index_flags(uint index, uint part, bool all_parts) const override;
  const char *index_type(uint) override { return "BTREE"; }
  row_type get_row_type() const override { return ROW_TYPE_DYNAMIC; }
  /* The server would forget a result when a row changes, not when the change is committed. */
  uint8 table_cache_type() override { return HA_CACHE_TBL_NOCACHE; }
  bool autoinc_lock_mode_stmt_unsafe() const override { return seawall::autoinc_lock_mode() == 2; }
  uint max_supported_keys() const override { return MAX_INDEXES; }
  uint max_supported_key_parts() const override { return MAX_REF_PARTS; }
  uint max_supported_key_length() const override { return 3072; }
  uint max_supported_key_part_length() const override { return 3072; }

  int open(const char *name, int mode, uint test_if_locked) override;
  int close() override;
  int create(const char *name, TABLE *form, HA_CREATE_INFO *info) override;
  int delete_table(const char *name) override;
  int rename_table(const char *from, const char *to) override;
  int truncate() override;
  handler *clone(const char *name, MEM_ROOT *root) override;

  int write_row(const uchar *record) override;
  int update_row(const uchar *old_record, const uchar *new_record) override;
  int delete_row(const uchar *record) override;

  void start_bulk_insert(ha_rows rows, uint flags) override;
  int end_bulk_insert() override;

  int rnd_init(bool scan) override;
  int rnd_end() override;
  int rnd_next(uchar *record) override;
  int rnd_pos(uchar *record, uchar *position) override;
  void position(const uchar *record) override;
  int cmp_ref(const uchar *a, const uchar *b) override;

  int index_init(uint index, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar *record, const uchar *key, key_part_map parts, ha_rkey_function find) override;
  int index_read_last_map(uchar *record, const uchar *key, key_part_map parts) override {
    return index_read_map(record, key, parts, HA_READ_PREFIX_LAST);
  }
  int index_next(uchar *record) override;
  int index_prev(uchar *record) override;
  int index_first(uchar *record) override;
  int index_last(uchar *record) override;
  int index_next_same(uchar *record, const uchar *key, uint len) override;
  int read_range_first(const key_range *start, const key_range *end, bool equal, bool sorted) override {
    m_in_range = true;
    int error = handler::read_range_first(start, end, equal, sorted);
    m_in_range = false;
    return error;
  }

  int info(uint flags) override;
  int extra(enum ha_extra_function operation) override;
  int reset() override;
#if MYSQL_VERSION_ID < 110000
  double read_time(uint index, uint ranges, ha_rows rows) override; /* later versions know what a clustered index costs */
#endif
  ha_rows records_in_range(uint index, const key_range *min, const key_range *max, page_range *pages) override;
  ha_rows multi_range_read_info(uint index, uint ranges, uint rows, uint parts, uint *buffer, uint *mode,
                                Cost_estimate *cost) override;
  int multi_range_read_init(RANGE_SEQ_IF *sequence, void *parameter, uint ranges, uint mode, HANDLER_BUFFER *buffer) override;
  int multi_range_read_next(range_id_t *id) override;
  int multi_range_read_explain_info(uint mode, char *to, size_t size) override;
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                          ulonglong *reserved) override;
  int reset_auto_increment(ulonglong value) override;
  void update_create_info(HA_CREATE_INFO *info) override;

  int external_lock(THD *thd, int type) override;
  int start_stmt(THD *thd, thr_lock_type type) override;
  THR_LOCK_DATA **store_lock(THD *thd, THR_LOCK_DATA **to, thr_lock_type type) override;
  uint lock_count() const override { return 0; } /* LOCK TABLES ... READ takes a metadata lock that excludes writers */
  void unlock_row() override;
  void try_semi_consistent_read(bool yes) override;
  bool was_semi_consistent_read() override { return m_waits_for_row; }
  bool get_error_message(int error, String *text) override;
  /* EXCHANGE PARTITION: each table keeps its own layouts. */
  bool check_if_incompatible_data(HA_CREATE_INFO *, uint changes) override {
    return changes == IS_EQUAL_YES ? COMPATIBLE_DATA_YES : COMPATIBLE_DATA_NO;
  }
  Item *idx_cond_push(uint index, Item *condition) override;
  bool rowid_filter_push(Rowid_filter *filter) override;
  int analyze(THD *thd, HA_CHECK_OPT *options) override;
  int check(THD *thd, HA_CHECK_OPT *options) override;
  Compare_keys compare_key_parts(const Field &old_field, const Column_definition &new_field, const KEY_PART_INFO &old_part,
                                 const KEY_PART_INFO &new_part) const override;
  bool can_convert_nocopy(const Field &field, const Column_definition &wanted) const override;
  int optimize(THD *thd, HA_CHECK_OPT *options) override;

  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info) override;
  bool prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) override;

private:
  using Bytes = seawall::Bytes;
  int failed(seawall_status status);
  int open_trees(const char *name);
  /* Indexes are given by the server's numbers. The key of the rows' tree is the primary key, or a hidden number. */
  const seawall_tree *rows() const { return m_share->trees[0].get(); }
  const seawall_tree *index_tree(uint index) const;
  seawall_tx *tx() const { return m_own ? m_own.get() : m_connection->tx(); }
  /* A change of a row changes nothing else: there are no secondary indexes and no long columns. */
  bool only_rows() const { return table->s->keys == (table->s->primary_key < MAX_KEY) && !m_share->long_columns; }
  bool is_primary(uint index) const { return index == table->s->primary_key; }
  void primary_key_of(const uchar *record, Bytes *key) const;
  void entry_of(uint index, const uchar *record, Bytes *key, Bytes *value, size_t *unique_len) const;
  size_t init_keys();
  bool is_partition() const { return m_name.find("#P#") != Bytes::npos; }
  bool may_be_cut(uint index) const;
  bool read_entry(uchar *record, seawall_slice key, seawall_slice value);
  seawall::Share::Size size_of_table();
  bool are_statistics_old();
  int read_statistics(bool again, std::shared_ptr<const seawall::Statistics> *known);
  bool keeps_entries(TABLE *altered) const;
  bool report(TABLE *altered, const seawall::Index_build &build, seawall_status status);
  std::vector<const seawall_tree *> all_trees() const;
  int read_checked(THD *thd, seawall_tx *tx, seawall_slice key, seawall_slice value);
  int find_wrong_entry(THD *thd, seawall_tx *tx, uint index, uint64_t entries);
  int check_rows(THD *thd, seawall_tx *tx);
  void note_changes(uint64_t rows);
  bool can_collect(ha_rows rows) const;
  bool collects();
  int collect(const uchar *record);
  int insert_collected();
  int insert_in_order(uint number);
  int insert_entry(uint index, const uchar *record);
  int change_entries(const uchar *old_record, const uchar *new_record);
  bool changes_built(const uchar *old_record, const uchar *new_record) const;
  void note_built_columns(const TABLE *altered, const Alter_inplace_info *info);
  int read_row(seawall_tx *tx, uchar *record, seawall_slice value);
  int fetch(uchar *record);
  bool may_prefetch() const;
  seawall_status step(seawall_seek to, const Bytes &key, seawall_slice *found, seawall_slice *value);
  int move(uchar *record, seawall_seek to, const Bytes &key);
  void encode_search(uint index, const uchar *key, key_part_map parts, Bytes *to);
  void reset_cursor(const seawall_tree *tree);
  uint64_t auto_number(const uchar *record);
  int note_auto_increment(const uchar *record);
  template <typename F> seawall_status take_auto_increment(bool simple, F take);
  int lock_constraint(const uchar *key, key_part_map parts);
  static seawall_status open_prefix(const seawall_tree *tree, const Bytes &prefix, seawall_lock lock, uint64_t limit, seawall::Cursor *cursor);
  seawall_lock duplicate_lock() const;
  seawall_status insert_key(const seawall_tree *tree, const Bytes &key, size_t unique_len, const Bytes &value);
  int check_readable();
  int begin_own(seawall_commit_level level);
  int commit_own();
  bool can_copy() const;
  int begin_copy();
  int begin_original();
  int check_original();
  template <typename F> int check_originals(F is_meant);
  int wait_for_prepared(const seawall_tree *rows);
  int largest_auto(uint64_t *largest);
  int finish_copy();
  int finish_replay();
  void abandon_copy();
  int build_sorted_indexes();
  bool reads_semi_consistently() const;
  int leave_key(uchar *record, seawall_seek to);
  int damaged_entry();
  void set_lock(THD *thd, thr_lock_type type);
  int read_point(uchar *record);
  bool long_columns_changed(const uchar *old_record, const uchar *new_record);
  seawall_status get_long(seawall_tx *tx, const Bytes &key, seawall_slice *value) const;
  int read_long_columns(seawall_tx *tx, uchar *record);
  int write_long_columns(const uchar *record);
  seawall_status change_long_columns(const uchar *old_record, const uchar *new_record);
  seawall_status delete_long_columns(const uchar *record, const Bytes &primary);
  bool can_read_ahead(uint index, uint mode) const;
  void request_entries(const uchar *record, const uchar *other);
  void request(const seawall_tree *tree, const std::vector<seawall_slice> &keys);
  bool next_range();
  int next_in_ranges();
  int read_entries();
  void request_rows();
  void look_ahead(bool backward);
  seawall_status entries_after(size_t count, std::vector<Bytes> *keys);

  Bytes m_name; /* the table's path; a partition's has its suffix */
  bool m_is_temporary = false;
  seawall::Share *m_share = nullptr;
  seawall_lock m_lock = SEAWALL_LOCK_NONE;
  seawall_lock m_stored_lock = SEAWALL_LOCK_NONE; /* that of the statement which a function or trigger is a part of */
  seawall_wait_mode m_wait = SEAWALL_WAIT_MODE_DEFAULT;
  seawall::Connection *m_connection = nullptr;
  seawall::Tx m_own;                 /* for a sequence or a copy: its commits are not rolled back */
  seawall::Cursor m_cursor;
  bool m_positioned = false;
  bool m_point = false;              /* the row was read by its whole primary key, without the cursor */
  bool m_keyread = false;
  bool m_semi_consistent = false;
  bool m_reads_rows = true;          /* the last row was read itself, and not only its index entry */
  bool m_waits_for_row = false;      /* the row that was read is locked by another transaction */
  std::vector<seawall::Key_codec> m_keys;
  std::vector<seawall::Entry_codec> m_entries; /* of the secondary indexes; that of the primary key is not used */
  std::vector<bool> m_may_be_cut;    /* may_be_cut(), by index */
  std::vector<bool> m_covers;        /* all columns of the index and of the primary key can be read from its entries */
  seawall::Row_codec m_row;
  std::vector<uchar> m_scratch;      /* a record for search keys */
  Bytes m_search, m_upper;           /* the search key, and the end of its range */
  bool m_has_upper = false;
  bool m_exact = false;
  bool m_in_range = false;           /* read_range_first() runs: `end_range` is the end of its range */
  Bytes m_key, m_value, m_old_key, m_new_key;
  Bytes m_primary;                   /* the primary key of the row that was read last */
  Bytes m_entry;                     /* and the key of its index entry, from which scans continue */
  Bytes m_blobs;                     /* the bytes that its BLOBs point to */
  std::vector<Bytes> m_long_values;  /* the BLOBs that are stored apart */
  std::vector<Bytes> m_long_keys;    /* the keys of the values that were read, and locked */
  seawall::Ahead m_ahead;
  seawall::Look m_look;
  seawall::Prefetched m_prefetched;
  seawall::Pace m_change_pace;       /* kept over statements, because each may change only one row */
  seawall::Copy m_copy;
  seawall::Batch m_batch;
  int m_auto_error = 0;              /* the error of get_auto_increment() */
  bool m_ignores_duplicates = false; /* INSERT IGNORE, LOAD DATA LOCAL */
  bool m_replaces = false;           /* REPLACE, INSERT ... ON DUPLICATE KEY UPDATE */
  Bytes m_error;
};

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* ENGINE=NULL_ROWS: what the server costs without a storage engine. For mariadb/goals alone; it is in no package, and what is
   written to it is gone.

   1. A table has the rows 1 to N. N is the greatest key that was written, and at least null_rows. A row is computed from its
      key: its columns have their defaults, numbers are the key, texts are groups of digits, as long as sysbench's, and begin
      with digits made from the key. So ORDER BY, DISTINCT and the network have as much to do as with the other engines.
   2. Changes and deletes succeed and change nothing. There are no locks and no rollback.
   3. A transaction that wrote is committed by a flush of the device that began after its commit: one write of a block and one
      fdatasync for all that wait (null_flush = 1). With 2 there is only a write to the page cache, as at level 2 of the others.
   4. With the binary log the flush is in prepare(), as theirs is. There is nothing to recover.
   5. The primary key is one integer column. Another index exists in the definition only: the optimizer is told that it costs too
      much, and reading it finds no row. */
#include "../compat.h"
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <fcntl.h>
#include <mutex>
#include <string>
#include <unistd.h>

static handlerton *null_hton;
static ulonglong null_rows;
static ulong null_flush;

static MYSQL_SYSVAR_ULONGLONG(rows, null_rows, PLUGIN_VAR_RQCMDARG, "Rows that each table has from the beginning", nullptr, nullptr, 0, 0,
                              ULONGLONG_MAX, 0);
static MYSQL_SYSVAR_ULONG(flush, null_flush, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY, "What a commit waits for: 1 a flush of the device, 2 a write, 0 nothing",
                          nullptr, nullptr, 1, 0, 2, 0);
static struct st_mysql_sys_var *variables[] = {MYSQL_SYSVAR(rows), MYSQL_SYSVAR(flush), nullptr};

// --- commits -----------------------------------------------------------------------------------------------

namespace {

/* Group commit: the first that waits writes for all that have come until it begins. */
class Log {
public:
  bool open() {
    m_block = static_cast<char *>(aligned_alloc(BLOCK, BLOCK));
    if (null_flush == 1) m_fd = ::open("null_rows.log", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
    if (m_fd < 0) m_fd = ::open("null_rows.log", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (!m_block || m_fd < 0) return false;
    memset(m_block, 0, BLOCK);
    /* Written before: a commit changes no metadata of the file. */
    for (off_t at = 0; at < SIZE; at += BLOCK)
      if (pwrite(m_fd, m_block, BLOCK, at) != BLOCK) return false;
    return fsync(m_fd) == 0;
  }
  void close() {
    if (m_fd >= 0) ::close(m_fd);
    free(m_block);
  }
  bool commit() {
    if (null_flush == 0) return true;
    std::unique_lock<std::mutex> lock(m_mutex);
    const uint64_t mine = m_next; /* the group that has not begun */
    while (m_done <= mine) {
      if (m_writing) {
        m_changed[mine % 2].wait(lock);
        continue;
      }
      m_writing = true;
      const uint64_t group = m_next++;
      lock.unlock();
      bool good = pwrite(m_fd, m_block, BLOCK, (off_t)(group % (SIZE / BLOCK)) * BLOCK) == BLOCK && (null_flush == 2 || fdatasync(m_fd) == 0);
      lock.lock();
      m_writing = false;
      m_done = group + 1;
      m_failed |= !good;
      m_changed[group % 2].notify_all();
      m_changed[m_next % 2].notify_one(); /* it writes for the next group */
    }
    return !m_failed;
  }

private:
  static const off_t BLOCK = 4096, SIZE = 16 << 20;
  int m_fd = -1;
  char *m_block = nullptr;
  std::mutex m_mutex;
  std::condition_variable m_changed[2]; /* of this group, and of the one that has not begun */
  uint64_t m_next = 0, m_done = 0;
  bool m_writing = false, m_failed = false;
};

enum { READ = 1, WROTE = 2, PREPARED = 3 }; /* a connection's transaction: thd_get_ha_data() */

}

static Log commit_log;

static intptr state_of(THD *thd) { return (intptr)thd_get_ha_data(thd, null_hton); }
static void set_state(THD *thd, intptr state) { thd_set_ha_data(thd, null_hton, (void *)state); }
static bool ends(THD *thd, bool all) { return all || !thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN); }

static int prepare(handlerton *, THD *thd, bool all) {
  if (!ends(thd, all) || state_of(thd) != WROTE) return 0;
  set_state(thd, PREPARED);
  return commit_log.commit() ? 0 : HA_ERR_INTERNAL_ERROR;
}
static int commit(handlerton *, THD *thd, bool all) {
  if (!ends(thd, all)) return 0;
  intptr state = state_of(thd);
  set_state(thd, 0);
  return state != WROTE || commit_log.commit() ? 0 : HA_ERR_INTERNAL_ERROR;
}
static int rollback(handlerton *, THD *thd, bool all) {
  if (ends(thd, all)) set_state(thd, 0);
  return 0;
}
static void commit_ordered(handlerton *, THD *, bool) {}
static void commit_checkpoint_request(void *cookie) { commit_checkpoint_notify_ha(cookie); }
static int recover(handlerton *, XID *, uint) { return 0; }
static int end_by_xid(handlerton *, XID *) { return 0; }
static int close_connection(handlerton *, THD *) { return 0; }
static int drop_table(handlerton *, const char *) { return 0; }

// --- tables ------------------------------------------------------------------------------------------------

namespace {

class Share : public Handler_share {
public:
  Share() { thr_lock_init(&lock); }
  ~Share() override { thr_lock_delete(&lock); }
  THR_LOCK lock;
  std::atomic<ulonglong> last{0};
};

class ha_null final : public handler {
public:
  ha_null(handlerton *hton, TABLE_SHARE *share) : handler(hton, share) { ref_length = sizeof(ulonglong); }

  Table_flags table_flags() const override {
    return HA_REC_NOT_IN_SEQ | HA_NULL_IN_KEY | HA_PRIMARY_KEY_IN_READ_INDEX | HA_PRIMARY_KEY_REQUIRED_FOR_POSITION | HA_BINLOG_ROW_CAPABLE |
           HA_BINLOG_STMT_CAPABLE | HA_REQUIRE_PRIMARY_KEY | HA_NO_BLOBS;
  }
  ulong index_flags(uint, uint, bool) const override { return HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE; }
  uint max_supported_keys() const override { return 16; }
  uint max_supported_key_parts() const override { return 4; }
  uint max_supported_key_length() const override { return 255; }

  int open(const char *, int, uint) override {
    lock_shared_ha_data();
    m_share = static_cast<Share *>(get_ha_share_ptr());
    if (!m_share) {
      m_share = new Share;
      m_share->last = null_rows;
      set_ha_share_ptr(m_share);
    }
    unlock_shared_ha_data();
    thr_lock_data_init(&m_share->lock, &m_lock, nullptr);
    m_key = table->key_info[0].key_part[0].field;
    return 0;
  }
  int close() override { return 0; }
  int create(const char *, TABLE *form, HA_CREATE_INFO *) override {
    const KEY &key = form->key_info[0];
    return key.user_defined_key_parts == 1 && key.key_part[0].field->result_type() == INT_RESULT ? 0 : HA_ERR_UNSUPPORTED;
  }
  int delete_table(const char *) override { return 0; }
  int rename_table(const char *, const char *) override { return 0; }
  int truncate() override { return 0; }

  int write_row(const uchar *record) override {
    if (table->next_number_field && record == table->record[0])
      if (int error = update_auto_increment()) return error;
    ulonglong key = (ulonglong)m_key->val_int(), last = m_share->last;
    while (key > last && !m_share->last.compare_exchange_weak(last, key)) {
    }
    return wrote();
  }
  int update_row(const uchar *, const uchar *) override { return wrote(); }
  int delete_row(const uchar *) override { return wrote(); }

  int rnd_init(bool) override { return m_at = 0; }
  int rnd_next(uchar *record) override { return give(record, m_at + 1); }
  int rnd_pos(uchar *record, uchar *position) override {
    memcpy(&m_at, position, sizeof m_at);
    return give(record, m_at);
  }
  void position(const uchar *) override { memcpy(ref, &m_at, sizeof m_at); }

  int index_read_map(uchar *record, const uchar *key, key_part_map, ha_rkey_function find) override {
    if (active_index != 0) return HA_ERR_KEY_NOT_FOUND;
    ulonglong at = number_of(key);
    if (find == HA_READ_AFTER_KEY) at++;
    if (find == HA_READ_BEFORE_KEY) at--;
    if (find == HA_READ_KEY_OR_PREV || find == HA_READ_PREFIX_LAST_OR_PREV || find == HA_READ_BEFORE_KEY)
      at = std::min<ulonglong>(at, m_share->last);
    if (find == HA_READ_KEY_OR_NEXT) at = std::max<ulonglong>(at, 1);
    return give(record, at) ? HA_ERR_KEY_NOT_FOUND : 0;
  }
  int index_next(uchar *record) override { return give(record, m_at + 1); }
  int index_prev(uchar *record) override { return give(record, m_at - 1); }
  int index_first(uchar *record) override { return active_index ? HA_ERR_END_OF_FILE : give(record, 1); }
  int index_last(uchar *record) override { return active_index ? HA_ERR_END_OF_FILE : give(record, m_share->last); }

  int info(uint flags) override {
    if (flags & HA_STATUS_VARIABLE) {
      stats.records = std::max<ulonglong>(m_share->last, 2);
      stats.mean_rec_length = table->s->reclength;
      stats.data_file_length = stats.records * stats.mean_rec_length;
      stats.block_size = 16384;
    }
    if (flags & HA_STATUS_CONST)
      for (uint i = 0; i < table->s->keys; i++)
        for (uint part = 0; part < table->key_info[i].ext_key_parts; part++) table->key_info[i].rec_per_key[part] = i ? stats.records : 1;
    if (flags & HA_STATUS_AUTO) stats.auto_increment_value = m_share->last + 1;
    return 0;
  }
  ha_rows records_in_range(uint index, const key_range *min, const key_range *max, page_range *) override {
    if (index != 0) return stats.records;
    ulonglong from = min ? number_of(min->key) : 1, to = max ? number_of(max->key) : m_share->last.load();
    return to < from ? 1 : to - from + 1;
  }
  void get_auto_increment(ulonglong, ulonglong, ulonglong wanted, ulonglong *first, ulonglong *reserved) override {
    *first = m_share->last.fetch_add(wanted) + 1;
    *reserved = wanted;
  }

  int external_lock(THD *thd, int type) override {
    if (type == F_UNLCK) return 0;
    if (!state_of(thd)) set_state(thd, READ);
    trans_register_ha(thd, false, null_hton, 0);
    if (!ends(thd, false)) trans_register_ha(thd, true, null_hton, 0);
    return 0;
  }
  THR_LOCK_DATA **store_lock(THD *, THR_LOCK_DATA **to, thr_lock_type type) override {
    if (type != TL_IGNORE && m_lock.type == TL_UNLOCK) m_lock.type = type >= TL_WRITE_CONCURRENT_INSERT && type <= TL_WRITE ? TL_WRITE_ALLOW_WRITE : type;
    *to++ = &m_lock;
    return to;
  }
  bool get_error_message(int, String *) override { return false; }

private:
  Share *m_share = nullptr;
  THR_LOCK_DATA m_lock;
  Field *m_key = nullptr;
  ulonglong m_at = 0; /* the row that was read last */

  int wrote() {
    set_state(ha_thd(), WROTE);
    return 0;
  }
  /* The number in a key image of the primary key. */
  ulonglong number_of(const uchar *key) {
    MY_BITMAP *before = dbug_tmp_use_all_columns(table, &table->read_set);
    my_ptrdiff_t offset = key - m_key->ptr;
    m_key->move_field_offset(offset);
    longlong number = m_key->val_int();
    m_key->move_field_offset(-offset);
    dbug_tmp_restore_column_map(&table->read_set, before);
    return number < 0 ? 0 : (ulonglong)number;
  }
  int give(uchar *record, ulonglong number) {
    if (number == 0 || number > m_share->last) return HA_ERR_END_OF_FILE;
    m_at = number;
    memcpy(record, table->s->default_values, table->s->reclength);
    MY_BITMAP *before = dbug_tmp_use_all_columns(table, &table->write_set);
    my_ptrdiff_t offset = record - table->record[0];
    for (Field **field = table->field; *field; field++) {
      (*field)->move_field_offset(offset);
      (*field)->set_notnull();
      if ((*field)->result_type() == INT_RESULT) (*field)->store((longlong)number, true);
      else if ((*field)->type() == MYSQL_TYPE_STRING && (*field)->char_length() >= 12)
        put_text(*field, number * 2654435761 % 10000000000);
      (*field)->move_field_offset(-offset);
    }
    dbug_tmp_restore_column_map(&table->write_set, before);
    return 0;
  }
  static void put_text(Field *field, ulonglong number) {
    static const std::string groups = [] {
      std::string all;
      while (all.size() < 1200) all += "01234567890-";
      return all;
    }();
    uchar *to = field->ptr;
    memcpy(to, groups.data(), std::min<size_t>(field->char_length() / 12 * 12 - 1, groups.size()));
    for (int i = 10; i-- > 0; number /= 10) to[i] = (uchar)('0' + number % 10);
  }
};

}

static handler *create_handler(handlerton *hton, TABLE_SHARE *share, MEM_ROOT *root) { return new (root) ha_null(hton, share); }

static int init(void *p) {
  null_hton = static_cast<handlerton *>(p);
  if (!commit_log.open()) {
    sql_print_error("null_rows: its file null_rows.log cannot be made: errno %d", errno);
    return 1;
  }
  static const char *no_files[] = {nullptr};
  null_hton->tablefile_extensions = no_files;
  null_hton->create = create_handler;
  null_hton->drop_table = drop_table;
  null_hton->close_connection = SEAWALL_HOOK(close_connection);
  null_hton->prepare = SEAWALL_HOOK(prepare);
  null_hton->commit = SEAWALL_HOOK(commit);
  null_hton->rollback = SEAWALL_HOOK(rollback);
  null_hton->commit_ordered = SEAWALL_HOOK(commit_ordered);
  null_hton->recover = SEAWALL_HOOK(recover);
  null_hton->commit_by_xid = SEAWALL_HOOK(end_by_xid);
  null_hton->rollback_by_xid = SEAWALL_HOOK(end_by_xid);
  null_hton->commit_checkpoint_request = commit_checkpoint_request;
  sql_print_warning("null_rows: this engine stores nothing; it is for measurements");
  return 0;
}
static int deinit(void *) {
  commit_log.close();
  return 0;
}

static struct st_mysql_storage_engine engine = {MYSQL_HANDLERTON_INTERFACE_VERSION};

maria_declare_plugin(null_rows){
    MYSQL_STORAGE_ENGINE_PLUGIN,
    &engine,
    "NULL_ROWS",
    "The Seawall authors",
    "Stores nothing: shows what the server itself costs",
    PLUGIN_LICENSE_GPL,
    init,
    deinit,
    0x0001,
    nullptr,
    variables,
    "0.1",
    MariaDB_PLUGIN_MATURITY_GAMMA} maria_declare_plugin_end;

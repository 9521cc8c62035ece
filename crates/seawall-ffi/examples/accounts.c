/* Moves an amount between two accounts, and reads the result. Errors are printed with what to do.

   cc accounts.c -I../include -L../../../target/release -lseawall_ffi -lpthread -ldl -lm -o accounts && ./accounts DIR */
#include "seawall.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(seawall_status status, const char *what) {
  if (status == SEAWALL_STATUS_OK) return;
  fprintf(stderr, "%s: %s\n", what, seawall_error());
  exit(1);
}

static seawall_slice slice(const char *text) {
  seawall_slice bytes = {(const uint8_t *)text, strlen(text)};
  return bytes;
}

static int64_t locked_balance(seawall_tx *tx, const seawall_tree *accounts, const char *name) {
  seawall_slice value;
  int64_t balance = 0;
  seawall_status status = seawall_lock_row(tx, accounts, slice(name), SEAWALL_LOCK_EXCLUSIVE, SEAWALL_WAIT_MODE_DEFAULT, 0, &value, NULL);
  if (status == SEAWALL_STATUS_NOT_FOUND) return 0;
  check(status, name);
  if (value.len == sizeof balance) memcpy(&balance, value.data, sizeof balance);
  return balance;
}

static void set_balance(seawall_tx *tx, const seawall_tree *accounts, const char *name, int64_t balance) {
  seawall_slice value = {(const uint8_t *)&balance, sizeof balance};
  check(seawall_put(tx, accounts, slice(name), value), name);
}

int main(int argc, char **argv) {
  seawall_db *db;
  seawall_tx *tx;
  seawall_tree *accounts;
  seawall_cursor *cursor;
  const char *options[] = {"pool_size=16M"};
  seawall_tx_options how;
  seawall_bound all = {{NULL, 0}, SEAWALL_BOUND_KIND_UNBOUNDED};
  seawall_slice none = {NULL, 0}, key, value;
  seawall_seek to = SEAWALL_SEEK_FIRST;
  seawall_status status;

  if (argc != 2) return fprintf(stderr, "usage: %s DIR\n", argv[0]), 2;
  check(seawall_open(argv[1], options, 1, &db), "open");
  memset(&how, 0, sizeof how);
  how.isolation = SEAWALL_ISOLATION_REPEATABLE_READ;
  check(seawall_begin(db, &how, &tx), "begin");
  status = seawall_open_tree(tx, "accounts", &accounts);
  if (status == SEAWALL_STATUS_NOT_FOUND) status = seawall_create_tree(tx, "accounts", &accounts);
  check(status, "accounts");
  set_balance(tx, accounts, "ada", 100);
  check(seawall_commit(tx), "commit");

  set_balance(tx, accounts, "ada", locked_balance(tx, accounts, "ada") - 30);
  set_balance(tx, accounts, "charles", locked_balance(tx, accounts, "charles") + 30);
  check(seawall_commit(tx), "commit"); /* flushed when this returns */

  set_balance(tx, accounts, "ada", 1000000);
  check(seawall_rollback(tx), "rollback");

  /* A wrong number is refused with a text. */
  if (seawall_lock_row(tx, accounts, slice("ada"), 77, 0, 0, NULL, NULL) != SEAWALL_STATUS_USAGE) return 1;
  printf("refused: %s\n", seawall_error());

  check(seawall_cursor_new(&cursor), "cursor");
  check(seawall_cursor_reset(cursor, accounts, all, all, SEAWALL_LOCK_NONE, SEAWALL_WAIT_MODE_DEFAULT, 0, 0), "reset");
  while ((status = seawall_cursor_seek(cursor, tx, to, none, &key, &value)) == SEAWALL_STATUS_OK) {
    int64_t balance;
    memcpy(&balance, value.data, sizeof balance);
    printf("%.*s %" PRId64 "\n", (int)key.len, (const char *)key.data, balance);
    to = SEAWALL_SEEK_NEXT;
  }
  if (status != SEAWALL_STATUS_NOT_FOUND) check(status, "next");

  seawall_cursor_free(cursor);
  seawall_tree_free(accounts);
  seawall_transaction_free(tx);
  check(seawall_shutdown(db, 10000), "shutdown");
  seawall_free(db);
  return 0;
}

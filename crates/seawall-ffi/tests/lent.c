/* Bytes that a handle lent are arguments of its next call: each row's value is the next row's key, one byte longer. */
#include "seawall.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 300

static void check(seawall_status status, const char *what) {
  if (status == SEAWALL_STATUS_OK) return;
  fprintf(stderr, "%s: %s\n", what, seawall_error());
  exit(1);
}

/* Writes the key of row `row`, of 4 + `row` bytes, to `to`. */
static seawall_slice name(int row, char *to) {
  seawall_slice bytes = {(const uint8_t *)to, 4 + (size_t)row};
  memset(to, 'x', bytes.len);
  sprintf(to, "%03d", row);
  to[3] = '-';
  return bytes;
}

int main(int argc, char **argv) {
  seawall_db *db;
  seawall_tx *tx;
  seawall_tree *tree;
  seawall_cursor *cursor;
  seawall_tx_options how;
  seawall_bound all = {{NULL, 0}, SEAWALL_BOUND_KIND_UNBOUNDED};
  seawall_slice at, value, keys[7], values[7];
  size_t count, i;
  char key[ROWS + 8], next[ROWS + 8];
  int row;

  if (argc != 2) return 2;
  check(seawall_open(argv[1], NULL, 0, &db), "open");
  memset(&how, 0, sizeof how);
  check(seawall_begin(db, &how, &tx), "begin");
  check(seawall_create_tree(tx, "rows", &tree), "tree");
  for (row = 0; row < ROWS; row++) check(seawall_put(tx, tree, name(row, key), name(row + 1, next)), "put");

  /* The value of a row is the key of the next one. */
  at = name(0, key);
  for (row = 1; row < ROWS; row++) {
    check(seawall_get(tx, tree, at, &at), "get");
    if (at.len != name(row, key).len || memcmp(at.data, key, at.len) != 0) return fprintf(stderr, "get: row %d\n", row), 1;
  }
  check(seawall_put(tx, tree, at, at), "put what was lent");
  check(seawall_get(tx, tree, name(ROWS - 1, key), &value), "get it again");
  if (value.len != name(ROWS - 1, key).len || memcmp(value.data, key, value.len) != 0) return fprintf(stderr, "put: other bytes\n"), 1;

  check(seawall_cursor_new(&cursor), "cursor");
  check(seawall_cursor_reset(cursor, tree, all, all, SEAWALL_LOCK_NONE, SEAWALL_WAIT_MODE_DEFAULT, 0, 0), "reset");
  check(seawall_cursor_seek(cursor, tx, SEAWALL_SEEK_FIRST, at, &at, &value), "first");
  for (row = 1; row < ROWS; row++) {
    /* Seeks by the lent key, then by the lent value. */
    check(row % 2 ? seawall_cursor_seek(cursor, tx, SEAWALL_SEEK_AFTER, at, &at, &value)
                  : seawall_cursor_seek(cursor, tx, SEAWALL_SEEK_AT_LEAST, value, &at, &value), "seek");
    if (at.len != name(row, key).len || memcmp(at.data, key, at.len) != 0) return fprintf(stderr, "seek: row %d\n", row), 1;
  }

  /* Back from the last row, several rows a call. */
  for (row = ROWS - 1; row > 0;) {
    check(seawall_cursor_next_rows(cursor, tx, true, 7, keys, values, &count), "rows");
    if (count == 0 || count > 7) return fprintf(stderr, "%zu rows\n", count), 1;
    for (i = 0; i < count; i++) {
      seawall_slice want = name(--row, key), behind = name(row + 1, next);
      if (keys[i].len != want.len || memcmp(keys[i].data, key, want.len) != 0 || values[i].len != behind.len ||
          memcmp(values[i].data, next, behind.len) != 0)
        return fprintf(stderr, "rows: row %d\n", row), 1;
    }
  }
  if (seawall_cursor_next_rows(cursor, tx, true, 7, keys, values, &count) != SEAWALL_STATUS_NOT_FOUND)
    return fprintf(stderr, "rows before the first\n"), 1;

  seawall_cursor_free(cursor);
  seawall_tree_free(tree);
  seawall_transaction_free(tx);
  check(seawall_shutdown(db, 10000), "shutdown");
  seawall_free(db);
  return 0;
}

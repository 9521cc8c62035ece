/*
 * WiredTiger's methods as plain functions: they are function pointers in structures, and those that take keys and values are variadic.
 * They contain no logic. Each function returns WiredTiger's code; keys and values are raw bytes ("u").
 */
#include <stdio.h>
#include <string.h>
#include <wiredtiger.h>

/* WiredTiger's message for the last error on this thread: its codes alone do not name the setting or file. */
static _Thread_local char last_message[512];

static int on_error(WT_EVENT_HANDLER *handler, WT_SESSION *session, int code, const char *message)
{
	(void)handler;
	(void)session;
	(void)code;
	snprintf(last_message, sizeof(last_message), "%s", message);
	return 0;
}

/* The default is standard output, which carries results. */
static int on_message(WT_EVENT_HANDLER *handler, WT_SESSION *session, const char *message)
{
	(void)handler;
	(void)session;
	return fprintf(stderr, "wiredtiger: %s\n", message) < 0 ? -1 : 0;
}

static WT_EVENT_HANDLER events = { on_error, on_message, NULL, NULL };

/* Copies the last message of this thread, forgets it, and returns its length; 0 when there is none. */
size_t sw_take_message(char *out, size_t size)
{
	size_t length = strlen(last_message);
	if (length > size)
		length = size;
	memcpy(out, last_message, length);
	last_message[0] = '\0';
	return length;
}

int sw_open(const char *dir, const char *config, WT_CONNECTION **connection)
{
	return wiredtiger_open(dir, &events, config, connection);
}

int sw_close(WT_CONNECTION *connection)
{
	return connection->close(connection, NULL);
}

int sw_session(WT_CONNECTION *connection, WT_SESSION **session)
{
	return connection->open_session(connection, NULL, "isolation=snapshot", session);
}

int sw_session_close(WT_SESSION *session)
{
	return session->close(session, NULL);
}

int sw_create(WT_SESSION *session, const char *uri, const char *config)
{
	return session->create(session, uri, config);
}

int sw_checkpoint(WT_SESSION *session)
{
	return session->checkpoint(session, NULL);
}

int sw_log_flush(WT_SESSION *session)
{
	return session->log_flush(session, "sync=on");
}

int sw_begin(WT_SESSION *session)
{
	return session->begin_transaction(session, "isolation=snapshot");
}

int sw_commit(WT_SESSION *session, const char *config)
{
	return session->commit_transaction(session, config);
}

int sw_rollback(WT_SESSION *session)
{
	return session->rollback_transaction(session, NULL);
}

int sw_cursor(WT_SESSION *session, const char *uri, WT_CURSOR **cursor)
{
	return session->open_cursor(session, uri, NULL, NULL, cursor);
}

static void set_key(WT_CURSOR *cursor, const void *key, size_t key_length)
{
	WT_ITEM item;
	memset(&item, 0, sizeof(item));
	item.data = key;
	item.size = key_length;
	cursor->set_key(cursor, &item);
}

static int value_of(WT_CURSOR *cursor, const void **value, size_t *value_length)
{
	WT_ITEM item;
	int code = cursor->get_value(cursor, &item);
	if (code == 0) {
		*value = item.data;
		*value_length = item.size;
	}
	return code;
}

/* The value is valid until the cursor moves or is reset. */
int sw_get(WT_CURSOR *cursor, const void *key, size_t key_length, const void **value, size_t *value_length)
{
	int code;
	set_key(cursor, key, key_length);
	code = cursor->search(cursor);
	return code == 0 ? value_of(cursor, value, value_length) : code;
}

int sw_reserve(WT_CURSOR *cursor, const void *key, size_t key_length)
{
	set_key(cursor, key, key_length);
	return cursor->reserve(cursor);
}

int sw_put(WT_CURSOR *cursor, const void *key, size_t key_length, const void *value, size_t value_length)
{
	WT_ITEM item;
	memset(&item, 0, sizeof(item));
	item.data = value;
	item.size = value_length;
	set_key(cursor, key, key_length);
	cursor->set_value(cursor, &item);
	return cursor->insert(cursor);
}

int sw_remove(WT_CURSOR *cursor, const void *key, size_t key_length)
{
	set_key(cursor, key, key_length);
	return cursor->remove(cursor);
}

/* Moves to the entry of the key or a neighbour; `exact` is below, equal to or above 0 if the entry is before, at or after the key. */
int sw_seek(WT_CURSOR *cursor, const void *key, size_t key_length, int *exact)
{
	set_key(cursor, key, key_length);
	return cursor->search_near(cursor, exact);
}

int sw_step(WT_CURSOR *cursor, int backward)
{
	return backward ? cursor->prev(cursor) : cursor->next(cursor);
}

int sw_entry(WT_CURSOR *cursor, const void **key, size_t *key_length, const void **value, size_t *value_length)
{
	WT_ITEM item;
	int code = cursor->get_key(cursor, &item);
	if (code != 0)
		return code;
	*key = item.data;
	*key_length = item.size;
	return value_of(cursor, value, value_length);
}

int sw_reset(WT_CURSOR *cursor)
{
	return cursor->reset(cursor);
}

/*
 * What RocksDB's C interface (7.8) leaves out of ReadOptions.
 *
 * The C handle is a structure private to rocksdb/c.h; in db/c.cc its first member is the ReadOptions. That is not promised, so the layout
 * is verified before use: a value set by a C function must be found at its place. A library with another layout is refused.
 */
#include <rocksdb/c.h>
#include <rocksdb/options.h>

namespace {

bool reads_back(rocksdb_readoptions_t *handle, rocksdb::ReadOptions *options, size_t readahead, unsigned char flag)
{
	rocksdb_readoptions_set_readahead_size(handle, readahead);
	rocksdb_readoptions_set_fill_cache(handle, flag);
	rocksdb_readoptions_set_total_order_seek(handle, flag);
	rocksdb_readoptions_set_deadline(handle, readahead + 1);
	return options->readahead_size == readahead && options->fill_cache == (flag != 0) &&
	       options->total_order_seek == (flag != 0) && static_cast<size_t>(options->deadline.count()) == readahead + 1;
}

} // namespace

/* 1: set. 0: this library's handle has another layout, and nothing was changed. */
extern "C" int sw_readoptions_set_async_io(rocksdb_readoptions_t *handle, unsigned char async)
{
	rocksdb_readoptions_t *trial = rocksdb_readoptions_create();
	auto *options = reinterpret_cast<rocksdb::ReadOptions *>(trial);
	const bool first = reads_back(trial, options, 0x5ea3a11, 1) && reads_back(trial, options, 0x11a3ae5, 0);
	rocksdb_readoptions_destroy(trial);
	if (!first)
		return 0;
	reinterpret_cast<rocksdb::ReadOptions *>(handle)->async_io = async != 0;
	return 1;
}

/* A RocksDB built with io_uring asks the program whether to use it. Debian's 7.8 was not, and never calls this. */
extern "C" bool RocksDbIOUringEnable()
{
	return true;
}

"""How much is measured: the sizes of the goals, or with QUICK=1 those that finish the whole table in about an hour on two cores.

Each can be given in the environment by its name, e.g. ROUNDS=5 WINDOW=30 QUICK=1 mariadb/goals.
"""

import os

QUICK = os.environ.get("QUICK", "0") not in ("", "0")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _number(name, full, quick):
    text = str(os.environ.get(name, quick if QUICK else full))
    unit = UNITS.get(text[-1].upper(), 0)
    return int(text[:-1]) * unit if unit else int(text)


# name: [full, quick]
_TABLE = {
    # Time, in seconds. A load that writes begins its window when the log has wrapped, or when STEADY is over.
    "ROUNDS": [3, 2],
    "WINDOW": [60, 6],
    "WARM_UP": [5, 2],
    "STEADY": [300, 8],
    "SETTLE": [30, 2],
    # At most, until what making the data left in the pools is written.
    "SETTLE_DATA": [300, 30],
    # What has not ended by then hangs: the measuring goes on with the next cell.
    "HANG": [7200, 900],
    # sysbench's tables: the log has two to four times their size, which decides how often a page is written.
    "TABLES": [4, 4],
    "ROWS": [250_000, 40_000],
    "POOL": ["2G", "1G"],
    "LOG": ["1G", "64M"],
    # The tables of the cold ranges, 200 bytes a row.
    "COLD_ROWS": [10_000_000, 2_000_000],
    "COLD_POOL": ["256M", "64M"],
    # The slow disks: sysbench's tables and the cold table there.
    "SLOW_ROWS": [100_000, 40_000],
    "SLOW_COLD_ROWS": [2_000_000, 700_000],
    "SLOW_DISK_MIB": [8192, 3072],
    # TPC-C: about 100 MB a warehouse. The pool, and a tenth of the data.
    "WAREHOUSES": [20, 5],
    "TPCC_POOL": ["4G", "1G"],
    "TPCC_SMALL_POOL": ["200M", "50M"],
    "TPCC_WINDOW": [300, 15],
    # The insert benchmark: rows until its second part, and the seconds of that.
    "INSERT_ROWS": [20_000_000, 1_200_000],
    "INSERT_POOL": ["1G", "64M"],
    "INSERT_WINDOW": [300, 20],
    # LOAD DATA and CREATE INDEX.
    "LOAD_ROWS": [16_700_000, 1_500_000],
    "LOAD_POOL": ["2G", "256M"],
    "INDEX_WRITERS_WINDOW": [60, 8],
    # Updates beyond the pool: 4 tables of this many rows, about 220 bytes each.
    "BEYOND_ROWS": [5_000_000, 500_000],
    "BEYOND_POOL": ["1G", "80M"],
    "BEYOND_WINDOW": [600, 45],
    # A restart with this much log to replay, or what was written in RESTART_SECONDS.
    "RESTART_LOG": ["2G", "512M"],
    "RESTART_SECONDS": [120, 20],
    # The memory group; the pool is nine tenths of it, and the rows of 1,000 bytes are more. In a smaller
    # group a tenth is too little for the server itself.
    "GROUP_MEMORY": ["4G", "2G"],
    "GROUP_ROWS": [4_500_000, 2_200_000],
    "GROUP_WINDOW": [300, 30],
}

SIZES = {name: _number(name, *values) for name, values in _TABLE.items()}
globals().update(SIZES)


def text(size):
    """Bytes as the server's options take them."""
    return f"{size >> 20}M"

"""The engines that are compared: their SQL name, options, files, and where they say how far their log is."""

from dataclasses import dataclass

from . import sizes


@dataclass(frozen=True)
class Engine:
    name: str
    sql: str  # ENGINE=...
    database: str
    files: tuple  # below the data directory: patterns of its files
    extra: tuple = ()  # options of the server, only for this variant
    log_head: str = None  # status variables, in bytes
    log_age: str = None


_INNODB_FILES = ("ibdata*", "ib_logfile*", "undo*", "sb_innodb/*.ibd")


def _innodb(name, *extra):
    return Engine(name, "InnoDB", "sb_innodb", _INNODB_FILES, extra, "Innodb_lsn_current", "Innodb_checkpoint_age")


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("seawall", "SEAWALL", "sb_seawall", ("#seawall/*", "#seawall/*/*"), (), "Seawall_log_head_lsn", "Seawall_log_checkpoint_age_bytes"),
        _innodb("innodb"),
        _innodb("innodb-buffered", "--innodb-flush-method=fsync"),
        _innodb("innodb-log-buffered", "--innodb-log-file-buffering=1"),
        Engine("null", "NULL_ROWS", "sb_null", ("null_rows.log",)),
        Engine("rocksdb", "ROCKSDB", "sb_rocksdb", ("#rocksdb/*",)),
        # In a server of its own; its age of the checkpoint is known to server.py.
        Engine("mysql", "InnoDB", "sb_mysql", (), (), "Innodb_redo_log_current_lsn"),
    )
}


def options(pool, log=None, level=1, binlog=None, capacity=10000, peers=(), innodb_pool=None, seawall_pool=None):
    """The server's options: the same memory, log and I/O limits for all; InnoDB with direct and asynchronous I/O and its doublewrite."""
    size, log = sizes.text, log or sizes.LOG
    given = [
        f"--innodb-buffer-pool-size={size(innodb_pool or pool)}",
        f"--innodb-log-file-size={size(log)}",
        "--innodb-flush-method=O_DIRECT",
        "--innodb-use-native-aio=1",
        "--innodb-doublewrite=1",
        "--innodb-flush-neighbors=0",
        f"--innodb-flush-log-at-trx-commit={level}",
        f"--innodb-io-capacity={capacity}",
        f"--innodb-io-capacity-max={2 * capacity}",
        f"--seawall-pool-size={size(seawall_pool or pool)}",
        f"--seawall-log-capacity={size(log)}",
        f"--seawall-io-capacity={capacity}",
        f"--seawall-durability={'flushed' if level == 1 else 'written'}",
        "--max-connections=200",
        "--max-prepared-stmt-count=100000",
        "--performance-schema=0",
        "--skip-name-resolve",
    ]
    if level == 2:
        # A commit survives the death of the server on a tmpfs as it does in InnoDB's page cache.
        given.append("--seawall-log-ring-dir=/dev/shm")
    if binlog:
        given += [f"--log-bin={binlog}", "--sync-binlog=1", "--server-id=1", "--binlog-format=ROW", "--expire-logs-days=1"]
    if "null" in peers:
        given += ["--plugin-load-add=ha_null", f"--null-rows-rows={sizes.ROWS}", f"--null-rows-flush={level}"]
    if "rocksdb" in peers:
        given += [
            "--plugin-load-add=ha_rocksdb",
            f"--rocksdb-block-cache-size={size(pool)}",
            f"--rocksdb-flush-log-at-trx-commit={level}",
            "--rocksdb-use-direct-reads=1",
            "--rocksdb-use-direct-io-for-flush-and-compaction=1",
        ]
    return given


def mysql_options(pool, level=1, binlog=None, capacity=10000):
    """The same for MySQL's InnoDB. sysbench's tables get the character set that they have in MariaDB."""
    size = sizes.text
    given = [
        f"--innodb-buffer-pool-size={size(pool)}",
        f"--innodb-redo-log-capacity={size(sizes.LOG)}",
        "--innodb-flush-method=O_DIRECT",
        "--innodb-doublewrite=ON",
        "--innodb-flush-neighbors=0",
        f"--innodb-flush-log-at-trx-commit={level}",
        f"--innodb-io-capacity={capacity}",
        f"--innodb-io-capacity-max={2 * capacity}",
        "--character-set-server=latin1",
        "--collation-server=latin1_swedish_ci",
        "--mysqlx=0",
        "--max-connections=200",
        "--max-prepared-stmt-count=100000",
        "--performance-schema=0",
        "--skip-name-resolve",
    ]
    return given + ([f"--log-bin={binlog}", "--sync-binlog=1", "--server-id=1"] if binlog else ["--disable-log-bin"])

"""The table of goals: what is measured, and what it is compared with.

A cell is a measurement of one engine; a goal compares a figure of a cell between two engines, or with a bound. Engines are those of
engines.py: a variant of InnoDB is one too. "null", "rocksdb" and "mysql" are shown beside the goals and have none; MySQL has a server and
a stage of its own.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    name: str
    stage: str  # a module of loads/, which makes the data and measures
    mode: str = "plain"  # how the server is started; the stage knows
    load: str = ""
    threads: int = 1
    engines: tuple = ("seawall", "innodb")


@dataclass(frozen=True)
class Goal:
    cell: str
    figure: str = "tps"
    at_least: float = None  # seawall's figure / that of `against`; without `against` the figure itself
    at_most: float = None
    against: str = "innodb"
    half_way: bool = False  # and at least half of the way from `against` to the null engine
    or_device: bool = False  # or 0.85 of what fio reads at depth 32, where that is not 3 times as much as at depth 1
    bench: bool = False  # of the short run, make mariadb-bench

    def bounded(self):
        """A goal without a bound is shown, and not counted."""
        return self.at_least is not None or self.at_most is not None


CELLS = {}
GOALS = []
ALL = ("seawall", "innodb", "null", "rocksdb", "mysql")


def row(name, stage, *goals, **cell):
    CELLS[name] = Cell(name, stage, **cell)
    for goal in goals or (Goal(name),):
        GOALS.append(Goal(**{**goal.__dict__, "cell": name}))


def ratio(at_least, **more):
    return Goal("", at_least=at_least, **more)


def at_most(bound, figure, **more):
    return Goal("", at_most=bound, figure=figure, **more)


# ---- sysbench, the pool holds the data -------------------------------------------------------------------------------
for threads in (1, 4, 16):
    row(f"point-select-{threads}", "oltp", ratio(1.0, half_way=True, bench=threads == 16), load="point_select", threads=threads, engines=ALL)
for threads in (1, 4, 16):
    row(f"read-only-{threads}", "oltp", ratio(1.0, half_way=True, bench=threads == 4), load="read_only", threads=threads, engines=ALL)
for threads, goal in ((1, 1.15), (16, 1.3), (64, 1.3)):
    row(f"update-non-index-{threads}", "oltp", ratio(goal, bench=threads == 16), load="update_non_index", threads=threads, engines=ALL)
row("update-index-16", "oltp", ratio(1.2), load="update_index", threads=16, engines=ALL)
for threads, goal in ((1, 1.1), (16, 1.2), (64, 1.15)):
    row(f"write-only-{threads}", "oltp", ratio(goal, bench=threads == 16), load="write_only", threads=threads, engines=ALL)
for threads, goal in ((1, 1.03), (16, 1.1), (64, 1.1)):
    row(f"read-write-{threads}", "oltp", ratio(goal, bench=threads == 16), load="read_write", threads=threads, engines=ALL)
row("insert-16", "oltp", ratio(1.2), load="insert", threads=16, engines=ALL)
row("delete-16", "oltp", ratio(1.2), load="delete", threads=16, engines=ALL)
# Against InnoDB's better mode of the log: both are goals.
row("update-non-index-level-2-16", "oltp", ratio(1.0), ratio(1.0, against="innodb-log-buffered"), mode="level-2", load="update_non_index",
    threads=16, engines=("seawall", "innodb", "innodb-log-buffered", "null", "rocksdb", "mysql"))
for threads, goal in ((1, 1.1), (16, 1.15)):
    row(f"write-only-binlog-{threads}", "oltp", ratio(goal, bench=threads == 16), mode="binlog", load="write_only", threads=threads, engines=ALL)

# ---- ranges and joins of tables beyond the pool, cold ------------------------------------------------------------------
row("range-fragmented-1", "cold", ratio(3.0, or_device=True, bench=True), load="fragmented")
row("range-fragmented-16", "cold", ratio(1.0), load="fragmented", threads=16)
row("range-in-order-1", "cold", ratio(2.0), ratio(1.0, against="innodb-buffered"), load="in_order",
    engines=("seawall", "innodb", "innodb-buffered"))
row("join-cold-1", "cold", ratio(3.0), load="join")

# ---- behind a flush of 8 ms, and with 3,000 operations a second --------------------------------------------------------
row("slow-flush-update-non-index-16", "slow_flush", load="update_non_index", threads=16)
row("slow-flush-write-only-1", "slow_flush", load="write_only")
row("slow-flush-write-only-16", "slow_flush", load="write_only", threads=16)
row("slow-flush-write-only-binlog-1", "slow_flush", ratio(1.3), mode="binlog", load="write_only")
row("slow-flush-write-only-binlog-16", "slow_flush", ratio(1.3), mode="binlog", load="write_only", threads=16)
row("few-iops-write-only-16", "few_iops", load="write_only", threads=16)
row("few-iops-write-only-binlog-16", "few_iops", ratio(1.3), mode="binlog", load="write_only", threads=16)
row("few-iops-range-fragmented-1", "few_iops", ratio(3.0), mode="cold", load="fragmented")

# ---- TPC-C and the insert benchmark ------------------------------------------------------------------------------------
row("tpcc-in-pool-8", "tpcc", ratio(1.2), mode="in-pool", threads=8)
row("tpcc-tenth-8", "tpcc", ratio(2.0), mode="tenth", threads=8)
row("insert-benchmark", "inserts", ratio(1.5, figure="rows_s"), ratio(1.5, figure="churn_rows_s"), at_most(1.0, "query_p99_ms"))

# ---- loading, indexes --------------------------------------------------------------------------------------------------
for order in ("key", "random"):
    row(f"load-data-{order}-order", "load_data", ratio(1.3, figure="rows_s"), at_most(1.05, "disk_bytes"), load=order)
row("create-index-idle", "create_index", ratio(1.2, figure="rows_s"), load="idle")
row("create-index-beside-writers", "create_index", ratio(1.2, figure="rows_s"), Goal("", figure="writers_keep", at_least=0.8, against=None),
    load="writers", threads=16)

# ---- endurance, restart, memory ----------------------------------------------------------------------------------------
row("update-beyond-pool-16", "beyond_pool", Goal(""), at_most(1.0, "written_per_tx"), at_most(1.0, "p99_ms"), at_most(1.0, "max_ms"), threads=16)
row("restart-after-kill", "restart", at_most(0.5, "s_per_gb"), threads=16)
row("memory-group", "memory_group", Goal(""), at_most(0, "killed_or_swapped", against=None), at_most(1 << 20, "binlog_cached_bytes", against=None), threads=8)
# Measured at the end of every stage; the greatest counts.
row("page-cache", "", at_most(0, "cached_bytes", against=None))

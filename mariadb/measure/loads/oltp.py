"""sysbench's oltp_* loads on tables that the pool holds."""

from .. import machine, sizes
from ..engines import ENGINES, options
from ..stage import BaseStage

READS = ("point_select", "read_only")


class Stage(BaseStage):
    peers = True
    rows = sizes.ROWS

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.used = set()  # engines whose tables have grown or been emptied

    def options(self, mode):
        return options(sizes.POOL, level=2 if mode == "level-2" else 1, binlog=self.dir / "binlog" if mode == "binlog" else None,
                       peers=[peer for peer in self.tree.peers if peer in self.engines])

    def prepare(self):
        self.enter("plain")
        self.make_databases()
        for engine in self.databases:
            self.fresh(engine.name, clean=False)

    def bench(self, engine, load, **more):
        # The null engine computes its rows.
        size = self.rows if load != "common" or engine != "null" else 1
        return self.sysbench(engine, f"oltp_{load}", tables=sizes.TABLES, table_size=size, mysql_storage_engine=ENGINES[engine].sql, **more)

    def fresh(self, engine, clean=True):
        bench = self.bench(engine, "common")
        if clean:
            bench.run("cleanup")
        bench.run("prepare", threads=2)
        self.used.discard(ENGINES[engine].database)

    def rounds(self, cell, engine):
        shown_only = engine in ("rocksdb", "mysql") or (engine == "null" and cell.load not in READS)
        return 1 if shown_only else sizes.ROUNDS

    def measure(self, cell, engine):
        database, changes_size = ENGINES[engine].database, cell.load in ("insert", "delete")
        if database in self.used or changes_size:
            self.fresh(engine)
        if changes_size:
            self.used.add(database)
        writes = cell.load not in READS and engine != "null"
        if cell.load == "delete":
            return self.measure_deletes(engine, cell.threads)
        return self.measure_sysbench(engine, self.bench(engine, cell.load), cell.threads, writes)

    def measure_deletes(self, engine, threads):
        """As many as half of the rows, whatever the time: later ones would find less and less to delete."""
        bench = self.bench(engine, "delete", events=self.rows * sizes.TABLES // 2)
        machine.settle(self.server, self.device, sizes.SETTLE)
        head = self.server.log_head(engine)

        def load():
            outcome = bench.run(threads=threads)
            return outcome.figures(), outcome.transactions

        return self.window(engine, load, head)

"""TPC-C (tpcc.lua): the pool holds the data, or a tenth of it. After each window the conditions of consistency must hold."""

from .. import sizes
from ..engines import ENGINES, options
from ..stage import BaseStage


class Stage(BaseStage):
    def options(self, mode):
        return options(sizes.TPCC_SMALL_POOL if mode == "tenth" else sizes.TPCC_POOL)

    def bench(self, engine):
        return self.sysbench(engine, "tpcc", warehouses=sizes.WAREHOUSES, storage_engine=ENGINES[engine].sql)

    def prepare(self):
        self.enter("in-pool")
        self.make_databases()
        for engine in self.databases:
            bench = self.bench(engine.name)
            bench.run("create")
            bench.run("prepare", threads=2)
            tables = ", ".join(row[0] for row in self.server.sql("show tables", engine.database))
            self.server.sql(f"analyze table {tables}", engine.database)

    def measure(self, cell, engine):
        bench = self.bench(engine)
        figures = self.measure_sysbench(engine, bench, cell.threads, True, seconds=sizes.TPCC_WINDOW)
        bench.run("check")
        return figures

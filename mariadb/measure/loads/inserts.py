"""The insert benchmark (inserts.lua): a table with three random secondary keys is filled to five times the pool; then rows are deleted at the
tail as fast as they are inserted at the head, while others read the tail."""

from .. import machine, sizes
from ..engines import ENGINES, options
from ..stage import BaseStage
from ..sysbench import Sysbench

BATCH = 100


class Stage(BaseStage):
    def options(self, mode):
        return options(sizes.INSERT_POOL)

    def rounds(self, cell, engine):
        return 1

    def prepare(self):
        self.enter("plain")
        self.make_databases()

    def measure(self, cell, engine):
        self.server.sql(
            f"""drop table if exists events;
            create table events (id bigint auto_increment primary key, a int, b int, c int, data char(100), key (a), key (b), key (c))
              engine={ENGINES[engine].sql} charset=latin1""", ENGINES[engine].database)
        machine.settle(self.server, self.device, sizes.SETTLE)
        head = self.server.log_head(engine)

        def fill():
            bench = self.sysbench(engine, "inserts", role="head", events=sizes.INSERT_ROWS // BATCH)
            outcome = bench.run(threads=4)
            # The bytes of a transaction are here those of a row.
            return {"rows_s": outcome.tps * BATCH, "p99_ms": outcome.p99_ms, "max_ms": outcome.max_ms}, outcome.transactions * BATCH

        figures = self.window(engine, fill, head)
        # Two processes: the percentiles are of the queries alone. They arrive at a rate, and wait for nothing else.
        reader = self.sysbench(engine, "inserts", role="tail", rate=100).start("run", threads=2, seconds=sizes.INSERT_WINDOW)
        try:
            churn = self.sysbench(engine, "inserts", role="churn").run(threads=1, seconds=sizes.INSERT_WINDOW)
            output, _ = reader.communicate(timeout=600)
        finally:
            if reader.poll() is None:
                reader.kill()
        queries = Sysbench.read(reader, output)
        figures.update(churn_rows_s=churn.tps * BATCH, query_p99_ms=queries.p99_ms, query_max_ms=queries.max_ms, queries_s=queries.tps)
        self.server.sql("drop table events", ENGINES[engine].database)
        return figures

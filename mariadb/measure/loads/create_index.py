"""An index of the table of load_data is added, alone and while 16 writers change rows (writers.lua)."""

import time

from .. import machine, sizes
from ..engines import ENGINES, options
from ..server import Failure
from ..stage import BaseStage


class Stage(BaseStage):
    def options(self, mode):
        return options(sizes.LOAD_POOL) + ["--innodb-online-alter-log-max-size=4G", f"--tmpdir={self.dir}"]

    def rounds(self, cell, engine):
        return 1

    def prepare(self):
        self.enter("plain")
        self.make_databases()
        for engine in self.databases:
            self.server.sql(
                f"""set unique_checks=0, foreign_key_checks=0;
                create table t (id int primary key, k int not null, pad char(190) not null) engine={engine.sql} charset=latin1;
                insert into t select seq, 1 + (seq * 2654435761) % {sizes.LOAD_ROWS}, repeat(char(97 + seq % 26), 190) from seq_1_to_{sizes.LOAD_ROWS};
                analyze table t""", engine.database)

    def add_index(self, engine):
        began = time.monotonic()
        self.server.sql("alter table t add index k (k), algorithm=inplace, lock=none", ENGINES[engine].database)
        return sizes.LOAD_ROWS / (time.monotonic() - began)

    def measure(self, cell, engine):
        machine.settle(self.server, self.device, sizes.SETTLE)
        measured = self.beside_writers if cell.load == "writers" else self.idle
        try:
            return self.window(engine, lambda: (measured(cell, engine), 0))
        finally:
            self.server.sql("alter table t drop index if exists k", ENGINES[engine].database)

    def idle(self, cell, engine):
        return {"rows_s": self.add_index(engine)}

    def beside_writers(self, cell, engine):
        writers = self.sysbench(engine, "writers", rows=sizes.LOAD_ROWS).start("run", threads=cell.threads, seconds=36000)
        try:
            time.sleep(sizes.WARM_UP + sizes.INDEX_WRITERS_WINDOW)
            before, beside, after = (self.updates_s(work) for work in (self.alone, lambda: self.add_index(engine), self.alone))
            if writers.poll() is not None:
                raise Failure(f"the writers ended: {writers.stdout.read()[-300:]}")
        finally:
            writers.kill()
            writers.wait()
        # Before and after: their rate falls, the more of the pool is dirty.
        alone = (before[0] + after[0]) / 2
        return {"rows_s": beside[1], "writers_alone_s": alone, "writers_beside_s": beside[0], "writers_keep": beside[0] / alone if alone else 0}

    def alone(self):
        time.sleep(sizes.INDEX_WRITERS_WINDOW)

    def updates_s(self, work):
        """Updates a second while `work` runs, and its result."""
        before, began = self.server.status("Com_update"), time.monotonic()
        result = work()
        return (self.server.status("Com_update") - before) / (time.monotonic() - began), result

"""Sums over ranges of 30,000 rows and joins of 10,000 rows of tables larger than the pool (cold.lua).

The server runs in a memory group of the pools and 256 MiB more: InnoDB with buffered I/O cannot keep the tables in the page cache.
Without unique_checks and foreign_key_checks InnoDB would sort the rows that fill an empty table: it would not be fragmented.
"""

import json
import subprocess

from .. import machine, sizes
from ..engines import ENGINES, options
from ..server import Failure
from ..stage import BaseStage


class Stage(BaseStage):
    starts_servers = True
    rows = sizes.COLD_ROWS
    pool = sizes.COLD_POOL

    def options(self, mode):
        return options(sizes.POOL if mode == "load" else self.pool)

    def prepare(self):
        self.enter("load")
        self.make_databases()
        self.make_tables()
        self.leave()
        self.group = machine.MemoryGroup(2 * self.pool + (256 << 20))

    def make_tables(self, orders=(("in_order", "seq"), ("fragmented", "crc32(seq), seq"))):
        for engine in self.databases:
            for name, order in orders:
                self.server.sql(
                    f"""set default_storage_engine={engine.sql};
                    create table {name} (id int primary key, k int not null, pad char(180) not null{', key (k)' if name == 'fragmented' else ''}) charset latin1;
                    insert into {name} select seq, 1 + (seq * 2654435761) % {self.rows}, repeat(char(97 + seq % 26), 180)
                      from seq_1_to_{self.rows} order by {order};
                    analyze table {name}""", engine.database)
            numbers = min(self.rows, 1_000_000)
            self.server.sql(
                f"""create table numbers (id int primary key, n int not null) engine={engine.sql};
                insert into numbers select seq, 1 + (seq * 40503) % {self.rows} from seq_1_to_{numbers};
                analyze table numbers""", engine.database)

    def close(self):
        super().close()
        if self.group:
            self.group.remove()

    def measure(self, cell, engine):
        # Each begins with an empty pool.
        self.enter(cell.mode, engine, fresh=True)
        machine.drop_cached(machine.files_of(self.server.data, ENGINES[engine].files, 1 << 20))
        bench = self.sysbench(engine, "cold", rows=self.rows, load=cell.load)
        # A join takes up to a second.
        seconds = 2 * sizes.WINDOW if cell.load == "join" else sizes.WINDOW
        figures = self.measure_sysbench(engine, bench, cell.threads, False, seconds=seconds)
        if engine == "seawall" and cell.load == "fragmented" and cell.threads == 1:
            figures.update(self.of_device())
        return figures

    def of_device(self):
        """What fio reads at random from InnoDB's file, MB/s of 16K reads."""
        names = machine.files_of(self.server.data, ("sb_innodb/fragmented.ibd",))
        found = {}
        for depth in (1, 32):
            command = ["fio", "--name=read", f"--filename={names[0] if names else ''}", "--rw=randread", "--bs=16k", "--direct=1", "--readonly",
                       "--ioengine=libaio", f"--iodepth={depth}", "--runtime=3", "--time_based", "--output-format=json"]
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found[f"device_mb_s_{depth}"] = json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"] / 1e6
            except (OSError, subprocess.CalledProcessError, ValueError, KeyError) as why:
                raise Failure(f"fio: {why}") from None
        return found

"""LOAD DATA of rows of 210 bytes into a fresh table without other indexes, in the order of the key and in random order."""

import shutil
import time

from .. import machine, sizes
from ..engines import ENGINES, options
from ..stage import BaseStage

ORDERS = {"key": "seq", "random": "crc32(seq), seq"}
# The files that hold rows.
ROW_FILES = {"seawall": ("#seawall/*data*", "#seawall/*/*data*"), "innodb": ("sb_innodb/t.ibd",)}


class Stage(BaseStage):
    starts_servers = True
    def options(self, mode):
        # InnoDB's table grows by 4 MiB at a time; so that the sizes can be compared Seawall's does too.
        return options(sizes.LOAD_POOL) + ["--seawall-data-growth-step=4M", f"--tmpdir={self.dir}"]

    def rounds(self, cell, engine):
        return 1

    def prepare(self):
        self.text = self.dir.with_name(self.dir.name + "-rows")
        shutil.rmtree(self.text, ignore_errors=True)
        self.enter("plain")

    def rows_file(self, order):
        """Made when it is needed, and the other one removed: at full size each has 3.5 GB."""
        path = self.text / order
        if not path.exists():
            shutil.rmtree(self.text, ignore_errors=True)
            self.text.mkdir()
            self.text.chmod(0o777)
            self.enter("plain")
            self.server.sql(
                f"""select seq, 1 + (seq * 2654435761) % {sizes.LOAD_ROWS}, repeat(char(97 + seq % 26), 190) into outfile '{path}'
                from seq_1_to_{sizes.LOAD_ROWS} order by {ORDERS[order]}""", "mysql")
        return path

    def close(self):
        super().close()
        shutil.rmtree(self.text, ignore_errors=True)

    def size(self, engine):
        return machine.disk_bytes(machine.files_of(self.server.data, ROW_FILES[engine]))

    def measure(self, cell, engine):
        rows = self.rows_file(cell.load)
        # A fresh server: no space of an earlier table is used again.
        self.leave()
        shutil.rmtree(self.dir, ignore_errors=True)
        self.enter("plain")
        database = ENGINES[engine].database
        self.server.sql(f"create database {database}")
        self.server.sql(f"create table t (id int primary key, k int not null, pad char(190) not null) engine={ENGINES[engine].sql} charset=latin1", database)
        machine.settle(self.server, self.device, sizes.SETTLE)

        def load():
            began = time.monotonic()
            self.server.sql(f"set unique_checks=0, foreign_key_checks=0; load data infile '{rows}' into table t", database)
            return {"rows_s": sizes.LOAD_ROWS / (time.monotonic() - began)}, sizes.LOAD_ROWS

        figures = self.window(engine, load)
        # What is still in the pool reaches the files.
        self.leave()
        figures["disk_bytes"] = self.size(engine)
        self.enter("plain")
        return figures

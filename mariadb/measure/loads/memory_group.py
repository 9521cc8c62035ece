"""A server in a memory group whose pool has nine tenths of it, with the binary log on: is it killed, does it swap, and how much of the binary
logs stays in the page cache. Beside the load a table that is larger than the pool is read, and changed by one transaction."""

import os
import threading
import time

from .. import machine, sizes
from ..engines import ENGINES, options
from ..server import Failure
from . import oltp


class Stage(oltp.Stage):
    starts_servers = True
    peers = False

    def options(self, mode):
        # `mode` is the engine in the group; the other one gets little. Tables are made outside.
        pool, small = sizes.GROUP_MEMORY // 10 * 9, 16 << 20
        if mode == "plain":
            return options(pool // 2)
        given = options(pool, binlog=self.dir / "binlog", innodb_pool=pool if mode == "innodb" else small, seawall_pool=pool if mode == "seawall" else small)
        return given + ["--seawall-drop-binlog-cache"] if mode == "seawall" else given

    def rounds(self, cell, engine):
        return 1

    def prepare(self):
        super().prepare()
        for engine in self.databases:
            self.server.sql(
                f"""set unique_checks=0, foreign_key_checks=0;
                create table large (id int primary key, pad varchar(1000) not null) engine={engine.sql} charset=latin1;
                insert into large select seq, repeat(char(97 + seq % 26), 1000) from seq_1_to_{sizes.GROUP_ROWS}""", engine.database)

    def measure(self, cell, engine):
        self.leave()
        for name in machine.files_of(self.dir, ("binlog.*",)):
            os.remove(name)
        self.group = machine.MemoryGroup(sizes.GROUP_MEMORY)
        large = threading.Thread(target=self.use_large, args=(engine,), daemon=True)
        try:
            self.enter(engine)
            bench = self.bench(engine, "read_write")
            large.start()
            try:
                figures = self.window(engine, lambda: self.run(bench, cell.threads), self.server.log_head(engine))
            except Exception:
                if self.group.killed() == 0:
                    raise
                figures = {"tps": 0.0}
            large.join(60)
            time.sleep(1)  # the option drops five times a second what is on disk
            binlogs = machine.files_of(self.dir, ("binlog.*",))
            figures["binlog_bytes"] = machine.disk_bytes(binlogs)
            figures["binlog_cached_bytes"] = machine.cached_bytes(binlogs)
            if not self.server.alive() and self.group.killed() == 0:
                raise Failure(f"the server has ended: {self.server.last_words()}")
            figures["killed_or_swapped"] = self.group.killed() + self.group.swapped()
            figures["group_peak_bytes"] = self.group.peak()
            return figures
        finally:
            self.leave()
            if large.ident:
                large.join(60)
            self.group.remove()
            self.group = None

    def run(self, bench, threads):
        outcome = bench.run(threads=threads, seconds=sizes.GROUP_WINDOW)
        return outcome.figures(), outcome.transactions

    def use_large(self, engine):
        try:
            self.server.sql("select sum(length(pad)) from large; update large set pad = reverse(pad) where id % 20 = 0", ENGINES[engine].database)
        except Failure:
            pass  # the server was killed or has been stopped: the window tells

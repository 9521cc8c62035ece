"""A server in a memory group whose pool has nine tenths of it, with the binary log on: is it killed, does it swap, and how much of the binary
logs stays in the page cache. Large transactions, which copy and change a whole table, run beside the load."""

import threading

from .. import machine, sizes
from ..engines import ENGINES, options
from ..server import Failure
from . import oltp


class Stage(oltp.Stage):
    starts_servers = True
    peers = False
    rows = sizes.GROUP_ROWS // sizes.TABLES

    def options(self, mode):
        # `mode` is the engine in the group; the other one gets little. Tables are made outside.
        pool, small = sizes.GROUP_MEMORY // 10 * 9, 16 << 20
        if mode == "plain":
            return options(pool // 2)
        return options(pool, binlog=self.dir / "binlog", innodb_pool=pool if mode == "innodb" else small, seawall_pool=pool if mode == "seawall" else small)

    def rounds(self, cell, engine):
        return 1

    def measure(self, cell, engine):
        self.leave()
        self.group = machine.MemoryGroup(sizes.GROUP_MEMORY)
        try:
            self.enter(engine)
            bench = self.bench(engine, "read_write")
            large = threading.Thread(target=self.change_all, args=(engine,), daemon=True)
            large.start()
            try:
                figures = self.window(engine, lambda: self.run(bench, cell.threads), self.server.log_head(engine))
            except Failure:
                if self.group.killed() == 0:
                    raise
                figures = {"tps": 0.0}
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
            self.group.remove()
            self.group = None

    def run(self, bench, threads):
        outcome = bench.run(threads=threads, seconds=sizes.GROUP_WINDOW)
        return outcome.figures(), outcome.transactions

    def change_all(self, engine):
        try:
            self.server.sql(
                f"""drop table if exists large;
                create table large (primary key (id)) engine={ENGINES[engine].sql} select * from sbtest1;
                update large set pad = reverse(pad)""", ENGINES[engine].database)
        except Failure:
            pass  # the server was killed or has been stopped: the window tells

"""The loads of oltp and of cold on a disk of 3,000 reads and 3,000 writes a second: scripts/slow-disk."""

import subprocess

from .. import machine, sizes
from ..engines import options
from ..server import ROOT, Failure
from . import cold, oltp

IOPS = 3000


class Stage(oltp.Stage):
    starts_servers = True
    peers = False
    rows = sizes.SLOW_ROWS

    def __init__(self, tree, directory, engines):
        super().__init__(tree, directory / "server", engines)
        self.disk = directory
        # The cold table is made and read as in its own stage, by the same server.
        self.cold = cold.Stage(tree, self.dir, engines)
        self.cold.rows = sizes.SLOW_COLD_ROWS

    def options(self, mode):
        if mode == "cold":
            return options(sizes.COLD_POOL)
        return super().options(mode)

    def slow_disk(self, verb, *arguments):
        done = subprocess.run([ROOT / "scripts/slow-disk", verb, self.disk, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(done.stderr.strip()[-300:])
        if verb == "limit" and done.stdout.strip():
            raise Failure("cgroup v2 limits a group that the server would have to enter, so nothing is limited: not measured here")

    def prepare(self):
        self.slow_disk("down")  # one that a killed run left
        self.slow_disk("up", sizes.SLOW_DISK_MIB)
        super().prepare()
        self.cold.server = self.server
        self.cold.make_tables(orders=(("fragmented", "crc32(seq), seq"),))
        machine.settle(self.server, self.device, 60)
        self.slow_disk("limit", IOPS)

    def close(self):
        self.leave()
        subprocess.run([ROOT / "scripts/slow-disk", "down", self.disk], capture_output=True)

    def measure(self, cell, engine):
        if cell.mode != "cold":
            self.enter(cell.mode, engine)
            return super().measure(cell, engine)
        self.enter("cold", engine, fresh=True)
        return self.measure_sysbench(engine, self.sysbench(engine, "cold", rows=self.cold.rows, load=cell.load), cell.threads, False)

"""The loads of oltp behind a flush that takes 8 ms longer: scripts/flush_delay.c is loaded into the server before libc.

The plugin is built so that its system calls go through libc, and its asynchronous I/O is done by threads: a flush through io_uring could not
be delayed.
"""

import subprocess

from .. import sizes
from ..server import ROOT, Failure
from . import oltp

DELAY_US = 8000


class Stage(oltp.Stage):
    peers = False
    rows = sizes.SLOW_ROWS

    def options(self, mode):
        return super().options(mode) + ["--seawall-io-backend=threads"]

    def prepare(self):
        self.tree.build_through_libc()
        library = self.tree.plugins_through_libc / "flush_delay.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, ROOT / "scripts/flush_delay.c", "-ldl", "-pthread"], check=True)
        super().prepare()
        self.environment = {"LD_PRELOAD": str(library), "FLUSH_DELAY_US": str(DELAY_US)}
        self.plugins = self.tree.plugins_through_libc
        self.leave()

    def measure(self, cell, engine):
        figures = super().measure(cell, engine)
        # A commit waits for at least one flush.
        if cell.threads == 1 and figures["tps"] > 1e6 / DELAY_US:
            raise Failure(f"{figures['tps']:.0f} commits a second by one thread: flushes of {engine} were not delayed")
        return figures

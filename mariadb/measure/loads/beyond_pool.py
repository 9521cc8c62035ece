"""Updates of tables that are five times the pool: bytes at the device, percentile, longest stall."""

from .. import sizes
from ..engines import options
from . import oltp


class Stage(oltp.Stage):
    peers = False
    rows = sizes.BEYOND_ROWS

    def options(self, mode):
        return options(sizes.BEYOND_POOL)

    def rounds(self, cell, engine):
        return 1

    def measure(self, cell, engine):
        return self.measure_sysbench(engine, self.bench(engine, "update_non_index"), cell.threads, True, seconds=sizes.BEYOND_WINDOW)

"""The server is killed under a load that writes, and started again: seconds until a statement is answered, beyond those of a start that
has nothing to recover, for each GB of log behind the checkpoint. Background writing is slow, so that the checkpoint stays behind."""

import time

from .. import sizes
from ..engines import ENGINES, options
from ..server import Failure
from . import oltp


class Stage(oltp.Stage):
    starts_servers = True
    peers = False

    def options(self, mode):
        return options(sizes.POOL, log=sizes.RESTART_LOG, capacity=100) + ["--innodb-max-dirty-pages-pct-lwm=90", "--innodb-max-dirty-pages-pct=95"]

    def rounds(self, cell, engine):
        return 1

    def measure(self, cell, engine):
        # The other engine has nothing to recover.
        self.enter("plain", fresh=True)
        # More than one checkpoint's worth is never there.
        enough, end = sizes.RESTART_LOG * 2 // 5, time.monotonic() + sizes.RESTART_SECONDS
        load = self.bench(engine, "write_only").start("run", threads=cell.threads, seconds=36000)
        try:
            while self.server.log_age(engine) < enough and time.monotonic() < end and load.poll() is None:
                time.sleep(0.5)
            if load.poll() is not None:
                raise Failure(f"the load ended: {load.stdout.read()[-300:]}")
            age = self.server.log_age(engine)
            self.server.kill()
        finally:
            load.kill()
            load.wait()
        seconds = self.server.start()
        self.server.sql("select count(*) from sbtest1 where id between 1 and 100", ENGINES[engine].database)
        self.server.stop()
        plain = self.server.start()
        return {"restart_s": seconds, "start_s": plain, "log_gb": age / 1e9, "s_per_gb": max(seconds - plain, 0) / max(age / 1e9, 0.001)}

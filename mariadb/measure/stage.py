"""A stage: data that several cells share, and how they are measured. Each module of loads/ has a class Stage(BaseStage).

    prepare() -> for each cell and round: enter(mode, variant), measure(cell, engine) -> close()

A stage has a directory of its own, which close() removes. Its server is started again when a cell needs other options.
"""

import shutil
import time

from . import machine, sizes
from .engines import ENGINES, options
from .server import Failure, Server
from .sysbench import Sysbench


class BaseStage:
    peers = False  # whether the server loads the null engine and MyRocks
    starts_servers = False  # measure() starts the server that it needs
    environment = {}
    group = None
    plugins = None
    server_class = Server

    def __init__(self, tree, directory, engines):
        self.tree, self.dir = tree, directory
        self.engines = engines  # names, variants too
        self.databases = sorted({ENGINES[name].database: ENGINES[name] for name in engines}.values(), key=lambda engine: engine.name)
        self.server = self.entered = None
        self.device = None

    # ---- what a stage overrides

    def prepare(self):
        raise NotImplementedError

    def options(self, mode):
        return options(sizes.POOL)

    def measure(self, cell, engine):
        """Figures of one engine, by name."""
        raise NotImplementedError

    def rounds(self, cell, engine):
        """The null engine has no steady state, and MyRocks and MySQL are only shown: one round, unless a goal needs the null engine's."""
        return sizes.ROUNDS

    def settle_data(self):
        """What making the data left in the pools is written: it belongs to no cell."""
        if self.server and self.server.alive():
            machine.settle(self.server, self.device, sizes.SETTLE_DATA)

    # ---- the server

    def enter(self, mode, variant=None, fresh=False):
        """Starts the server as the mode and the engine's variant need it. It stays if it already runs so."""
        given = self.options(mode) + list(ENGINES[variant].extra if variant else ())
        if not fresh and self.entered == given and self.server.alive():
            return
        self.leave()
        self.dir.mkdir(parents=True, exist_ok=True)
        self.device = machine.Device(self.dir)
        self.server = self.server_class(self.tree, self.dir, given, self.environment, self.group, self.plugins)
        self.server.start()
        self.entered = given

    def leave(self):
        if self.server:
            self.server.stop()
        self.entered = None

    def close(self):
        self.leave()
        shutil.rmtree(self.dir, ignore_errors=True)

    def make_databases(self):
        for engine in self.databases:
            self.server.sql(f"create database if not exists {engine.database}")

    def cached(self):
        """Bytes of each engine's larger files that are in the page cache now."""
        return {name: machine.cached_bytes(machine.files_of(self.server.data, ENGINES[name].files, 1 << 20)) for name in ("seawall", "innodb")}

    # ---- measuring

    def sysbench(self, engine, script, **more):
        return Sysbench(self.server, ENGINES[engine], script, **more)

    def warm_up(self, engine, bench, threads, writes):
        """A load that writes runs until the engine's log has wrapped, or for STEADY seconds. Returns the log's bytes at the beginning."""
        head = self.server.log_head(engine)
        if not writes:
            bench.run(threads=threads, seconds=sizes.WARM_UP)
            return head
        end = time.monotonic() + (sizes.STEADY if ENGINES[engine].log_head else sizes.WARM_UP)
        while time.monotonic() < end and self.server.log_head(engine) - head < self.log_size():
            bench.run(threads=threads, seconds=max(1, min(5, round(end - time.monotonic()))))
        return head

    def log_size(self):
        return sizes.LOG

    def window(self, engine, load, head=None):
        """Runs `load`, which returns figures and the transactions that wrote, and adds what the machine did meanwhile."""
        server = self.server
        if not server.alive():
            raise Failure(f"the server has ended: {server.last_words()}")
        began = time.monotonic()
        busy, own, used, (read, written) = machine.busy_seconds(), machine.own_seconds(), server.cpu_seconds(), server.bytes()
        figures, transactions = load()
        took = time.monotonic() - began
        if not server.alive():
            raise Failure(f"the server has ended: {server.last_words()}")
        ours = machine.own_seconds() - own + server.cpu_seconds() - used
        figures["others_cpu"] = max(0.0, (machine.busy_seconds() - busy - ours) / took)
        figures["server_cpu"] = (server.cpu_seconds() - used) / took
        now_read, now_written = server.bytes()
        figures["read_mb_s"] = (now_read - read) / took / 1e6
        if transactions:
            figures["written_per_tx"] = (now_written - written) / transactions
        if head is not None and ENGINES[engine].log_head:
            figures["log_wraps"] = (server.log_head(engine) - head) / self.log_size()
            figures["checkpoint_age"] = server.log_age(engine)
        return figures

    def measure_sysbench(self, engine, bench, threads, writes, seconds=None):
        """Settle, warm up, and a window."""
        machine.settle(self.server, self.device, sizes.SETTLE)
        head = self.warm_up(engine, bench, threads, writes)

        def load():
            outcome = bench.run(threads=threads, seconds=seconds or sizes.WINDOW)
            if outcome.transactions == 0:
                raise Failure("no transaction ended in the window")
            return outcome.figures(), outcome.transactions if writes else 0

        return self.window(engine, load, head if writes else None)

"""sysbench against a private server: its own oltp_* loads, and those of loads/ and of the lab."""

import os
import pathlib
import re
import subprocess

from . import sizes
from .server import Failure

LOADS = pathlib.Path(__file__).parent / "loads"
LAB = pathlib.Path(__file__).parents[2] / "crates/seawall-lab/src/sql"


def _batch():
    """sysbench runs in the scheduler's batch class: its threads do not take the processor from the thread of the server that wakes
    them. Otherwise, with four threads on two processors, a window is by chance in one of two states: client and server on one
    processor (4,300 read-only transactions a second), or each wakes the other on another processor (2,400).
    """
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


class Sysbench:
    def __init__(self, server, engine, script, **options):
        own = [path for path in (LOADS / f"{script}.lua", LAB / f"{script}.lua") if path.exists()]
        self.command = ["sysbench", str(own[0] if own else script), f"--mysql-socket={server.socket}", "--mysql-user=root",
                        f"--mysql-db={engine.database}", "--rand-type=uniform", "--percentile=99"]
        self.command += [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        self.environment = server.tree.environment

    def start(self, verb, threads=1, seconds=0, every=0):
        command = [*self.command, f"--threads={threads}", f"--time={seconds}", f"--report-interval={every}", verb]
        return subprocess.Popen(command, env={k: v for k, v in self.environment.items() if k != "LD_LIBRARY_PATH"}, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, preexec_fn=_batch)

    def run(self, verb="run", threads=1, seconds=0, every=0):
        process = self.start(verb, threads, seconds, every)
        try:
            output, _ = process.communicate(timeout=sizes.HANG + 5 * seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"sysbench hangs: {' '.join(self.command[1:2])} {verb}") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        return self.read(process, output)

    @staticmethod
    def read(process, output):
        if process.returncode != 0:
            fatal = [line for line in output.splitlines() if "FATAL" in line or "error" in line.lower()]
            raise Failure(f"sysbench: {(fatal or output.splitlines() or ['no output'])[0][:300]}")
        return Outcome(output)


class Outcome:
    """What a run printed."""

    def __init__(self, output):
        self.output = output

        def number(pattern):
            found = re.search(pattern, output)
            return float(found.group(1)) if found else 0.0

        self.transactions = number(r"transactions: +(\d+)")
        self.tps = number(r"transactions: .*\(([0-9.]+) per sec")
        self.seconds = number(r"total time: +([0-9.]+)s")
        self.p99_ms = number(r"99th percentile: +([0-9.]+)")
        self.max_ms = number(r"max: +([0-9.]+)")
        self.ignored_errors = number(r"ignored errors: +(\d+)")

    def per_second(self):
        """Transactions of each reported second."""
        return [float(tps) for tps in re.findall(r"^\[ \d+s \].* tps: ([0-9.]+)", self.output, re.M)]

    def figures(self):
        return {"tps": self.tps, "p99_ms": self.p99_ms, "max_ms": self.max_ms}

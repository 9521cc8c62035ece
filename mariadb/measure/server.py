"""A private server on a scratch directory: a socket and no network."""

import ctypes
import getpass
import os
import pathlib
import signal
import socket
import subprocess
import time

from . import sizes
from .engines import ENGINES
from .machine import bytes_of, seconds_of

PR_SET_PDEATHSIG = 1
ROOT = pathlib.Path(__file__).resolve().parents[2]


class Failure(Exception):
    """A measurement that could not be made; the text says why."""


class Tree:
    """The programs and plugins: what mariadb/fetch, mariadb/build and their likes print."""

    def __init__(self, build):
        self.path = pathlib.Path(self._run("mariadb/fetch", ROOT / "target/mariadb"))
        self.base = pathlib.Path("/usr") if (self.path / "root").is_symlink() else self.path / "root/usr"
        self.libraries = str(self.path / "root/usr/lib/x86_64-linux-gnu")
        self.environment = {**os.environ, "LD_LIBRARY_PATH": self.libraries}
        self.mysql = self.path.parent / "mysql"
        self.plugins = self.path / "plugin"
        # Its system calls go through libc, where a preloaded library can delay them.
        self.plugins_through_libc = self.path / "plugin-through-libc"
        if build:
            self._run("mariadb/build", self.path)
            for peer, script in (("null", "mariadb/null/build"), ("rocksdb", "mariadb/measure/fetch-rocksdb")):
                try:
                    built = pathlib.Path(self._run(script, self.path))
                    link = self.plugins / built.name
                    if built != link and not link.exists():
                        link.symlink_to(built)
                except Failure as why:
                    print(f"mariadb/goals: without {peer}: {why}", flush=True)
            try:
                self._run("mariadb/measure/fetch-mysql", self.path.parent)
            except Failure as why:
                print(f"mariadb/goals: without mysql: {why}", flush=True)
        self.peers = [peer for peer in ("null", "rocksdb") if (self.plugins / f"ha_{peer}.so").exists()]
        if (self.mysql / "complete").exists():
            self.peers.append("mysql")
        self.commit = self._run("git", "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*", cwd=ROOT)

    def build_through_libc(self):
        self._run("mariadb/build", self.path, environment={**os.environ, "THROUGH_LIBC": "1"})

    @staticmethod
    def _run(program, *arguments, environment=None, **more):
        path = ROOT / program if "/" in program else program
        done = subprocess.run([str(path), *map(str, arguments)], capture_output=True, text=True, env=environment, **more)
        if done.returncode != 0:
            raise Failure(f"{program}: {done.stderr.strip()[-500:]}")
        return done.stdout.strip().splitlines()[-1]


class Server:
    def __init__(self, tree, directory, options, environment=None, group=None, plugins=None):
        self.tree, self.dir, self.options = tree, pathlib.Path(directory), list(options)
        self.environment = {**tree.environment, **(environment or {})}
        self.group, self.plugins = group, plugins or tree.plugins
        self.data, self.socket, self.log = self.dir / "data", self.dir / "socket", self.dir / "log"
        self.process = None

    def install(self):
        """The command that makes the server's own tables."""
        base = self.tree.base
        return [base / "bin/mariadb-install-db", "--no-defaults", f"--user={getpass.getuser()}", f"--basedir={base}", f"--datadir={self.data}",
                "--auth-root-authentication-method=normal"]

    def command(self):
        """The command that starts the server, with the options of its programs."""
        base = self.tree.base
        texts = base / "share/mysql" if (base / "share/mysql/charsets").exists() else base / "share/mariadb"
        return [base / "sbin/mariadbd", "--no-defaults", f"--basedir={base}", f"--lc-messages-dir={texts}", f"--character-sets-dir={texts}/charsets",
                f"--plugin-dir={self.plugins}", "--plugin-load-add=ha_seawall"]

    def start(self, seconds=600):
        """Returns how long it took until a statement was answered."""
        self.dir.mkdir(parents=True, exist_ok=True)
        if not (self.data / "mysql").exists():
            done = subprocess.run(list(map(str, self.install())), env=self.environment, capture_output=True, text=True)
            if done.returncode != 0:
                raise Failure(f"the server's own tables were not made: {done.stdout[-300:]} {done.stderr[-300:]}")
        command = [*self.command(), f"--user={getpass.getuser()}", f"--datadir={self.data}", f"--socket={self.socket}", "--skip-networking",
                   f"--pid-file={self.dir}/pid", *self.options]
        before = time.monotonic()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(list(map(str, command)), env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            preexec_fn=self._in_child)
        while time.monotonic() < before + seconds:
            if self.process.poll() is not None:
                break
            # A client for each try would take a tenth of the processors from the recovery that is measured.
            if not self._listens():
                time.sleep(0.005)
                continue
            try:
                self.sql("select 1")
                return time.monotonic() - before
            except Failure:
                time.sleep(0.02)
        self.kill()
        raise Failure(f"the server did not start: {self.last_words()}")

    def _listens(self):
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self.socket))
            except OSError:
                return False
        return True

    def _in_child(self):
        """Before the server is executed: Ctrl-C is for this program alone, and the server does not outlive it."""
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if self.group:
            self.group.enter()

    def last_words(self):
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return " | ".join([line for line in lines if "ERROR" in line or "error" in line][-3:] or lines[-3:])

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(600)
            except subprocess.TimeoutExpired:
                self.kill()
        self.process = None

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.process = None

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def sql(self, statements, database=None):
        """The rows of all answers, each a list of texts."""
        command = [self.tree.base / "bin/mariadb", "--no-defaults", "-uroot", "-S", self.socket, "-sN", *([database] if database else [])]
        try:
            done = subprocess.run(list(map(str, command)), env=self.tree.environment, input=statements, capture_output=True, text=True,
                                  timeout=sizes.HANG)
        except subprocess.TimeoutExpired:
            raise Failure(f"no answer in {sizes.HANG} s: {' '.join(statements.split())[:80]}") from None
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise Failure(f"{(errors or [done.stderr.strip()])[-1][:300]} ({' '.join(statements.split())[:80]})")
        return [line.split("\t") for line in done.stdout.splitlines()]

    def status(self, name):
        """A number of SHOW GLOBAL STATUS, or 0."""
        rows = self.sql(f"show global status like '{name}'")
        return int(rows[0][1]) if rows else 0

    def log_head(self, engine):
        name = ENGINES[engine].log_head
        return self.status(name) if name else 0

    def log_age(self, engine):
        name = ENGINES[engine].log_age
        return self.status(name) if name else 0

    def cpu_seconds(self):
        return seconds_of(self.process.pid) if self.alive() else 0.0

    def bytes(self):
        """Read from and written to devices by the server since its start."""
        return bytes_of(self.process.pid) if self.alive() else (0, 0)


class MysqlServer(Server):
    """A MySQL server, which brings its own libraries."""

    def command(self):
        root = self.tree.mysql / "root"
        share, plugins = root / "usr/share/mysql", root / "usr/lib/mysql"
        return [root / "lib64/ld-linux-x86-64.so.2", "--library-path", f"{root}/usr/lib/x86_64-linux-gnu:{plugins}/private", root / "usr/sbin/mysqld",
                "--no-defaults", f"--basedir={root}/usr", f"--lc-messages-dir={share}", f"--character-sets-dir={share}/charsets",
                f"--plugin-dir={plugins}/plugin", "--secure-file-priv="]

    def install(self):
        return [*self.command(), "--initialize-insecure", f"--user={getpass.getuser()}", f"--datadir={self.data}"]

    def log_age(self, engine):
        return self.log_head(engine) - self.status("Innodb_redo_log_checkpoint_lsn")

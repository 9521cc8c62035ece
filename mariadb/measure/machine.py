"""The machine: processor time of others, what the device wrote, pages in the page cache, memory groups."""

import glob
import os
import pathlib
import resource
import subprocess
import time

HZ = os.sysconf("SC_CLK_TCK")


def busy_seconds():
    """Processor time of everything since the machine's start."""
    with open("/proc/stat") as file:
        numbers = [int(word) for word in file.readline().split()[1:9]]
    user, nice, system, _idle, _wait, irq, softirq, steal = numbers
    return (user + nice + system + irq + softirq + steal) / HZ


def seconds_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        after = file.read().rpartition(")")[2].split()
    return (int(after[11]) + int(after[12])) / HZ


def bytes_of(pid):
    """Read from and written to devices by a process: the page cache counts when it is made dirty."""
    with open(f"/proc/{pid}/io") as file:
        numbers = dict(line.split(": ") for line in file.read().splitlines())
    return int(numbers["read_bytes"]), int(numbers["write_bytes"])


def own_seconds():
    """Of this process and its children that have ended."""
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


class Device:
    """The block device below a directory."""

    def __init__(self, path):
        number = os.stat(path).st_dev
        self.stat = pathlib.Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat")

    def written(self):
        """Bytes since the machine's start; 0 if there is no such device."""
        try:
            return int(self.stat.read_text().split()[6]) * 512
        except OSError:
            return 0


def settle(server, device, seconds):
    """Waits until what ran before is written and the server is at rest, at most so long."""
    end = time.monotonic() + seconds
    calm = 0
    while calm < 2 and time.monotonic() < end:
        written, used = device.written(), server.cpu_seconds()
        time.sleep(0.5)
        quiet = device.written() - written < 1 << 20 and server.cpu_seconds() - used < 0.05
        calm = calm + 1 if quiet else 0


def files_of(directory, patterns, least=0):
    names = {name for pattern in patterns for name in glob.glob(os.path.join(glob.escape(str(directory)), pattern))}
    return [name for name in sorted(names) if os.path.isfile(name) and os.path.getsize(name) >= least]


def cached_bytes(names):
    """Of these files, in the page cache."""
    total = 0
    for at in range(0, len(names), 200):
        answer = subprocess.run(["fincore", "-b", "-n", "-r", "-o", "RES", *names[at : at + 200]], capture_output=True, text=True)
        total += sum(int(line) for line in answer.stdout.split() if line.isdigit())
    return total


def disk_bytes(names):
    return sum(os.stat(name).st_blocks * 512 for name in names)


def drop_cached(names):
    for name in names:
        with open(name, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class MemoryGroup:
    """A memory cgroup, version 1 or 2, whose memory includes the page cache of its processes. Needs root, or a delegated group."""

    def __init__(self, memory):
        root = pathlib.Path("/sys/fs/cgroup")
        self.version = 1 if (root / "memory/memory.limit_in_bytes").exists() else 2
        parent = root / "memory" if self.version == 1 else root
        if self.version == 2 and "memory" not in (root / "cgroup.controllers").read_text().split():
            raise OSError("there is no memory controller of cgroups")
        if self.version == 2 and "memory" not in (root / "cgroup.subtree_control").read_text().split():
            (root / "cgroup.subtree_control").write_text("+memory")
        self.dir = parent / f"seawall-goals-{os.getpid()}"
        self.dir.mkdir()
        try:
            (self.dir / ("memory.limit_in_bytes" if self.version == 1 else "memory.max")).write_text(str(memory))
        except OSError:
            self.dir.rmdir()
            raise

    def enter(self):
        """In the child, before it executes the server."""
        (self.dir / "cgroup.procs").write_text(str(os.getpid()))

    def killed(self):
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        return int(dict(line.split() for line in (self.dir / name).read_text().splitlines()).get("oom_kill", 0))

    def swapped(self):
        """The most bytes that were swapped, as far as the kernel tells."""
        def number(name):
            try:
                return int((self.dir / name).read_text())
            except OSError:
                return 0

        if "SwapTotal:             0 kB" in pathlib.Path("/proc/meminfo").read_text():
            return 0
        if self.version == 2:
            return number("memory.swap.peak") or number("memory.swap.current")
        # The two peaks are counted in batches, not at the same moment.
        more = number("memory.memsw.max_usage_in_bytes") - number("memory.max_usage_in_bytes")
        return more if more > 1 << 20 else 0

    def peak(self):
        try:
            return int((self.dir / ("memory.max_usage_in_bytes" if self.version == 1 else "memory.peak")).read_text())
        except OSError:
            return 0

    def remove(self):
        for _ in range(50):
            try:
                self.dir.rmdir()
                return
            except OSError:
                time.sleep(0.1)

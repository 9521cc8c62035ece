"""The table of the goals, as docs/benchmarks.md has it, and the line that closes it."""

import os

from .rows import CELLS
from .sizes import SIZES

NOISE_LEAST = 0.03  # rounds that agree by chance do not make smaller gaps real
OTHERS_MAX = 0.15  # of a processor, by other programs


def _format(value):
    if value is None:
        return "-"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


class Verdict:
    """A goal, evaluated."""

    def __init__(self, goal, results):
        self.goal, self.results = goal, results
        self.counted = goal.bounded()
        self.ours = self._median("seawall")
        self.theirs = self._median(goal.against) if goal.against else None
        self.ratio = self.ours / self.theirs if self.ours is not None and self.theirs else None
        self.met, self.text = self._judge()

    def _median(self, engine, figure=None):
        if self.goal.cell == "page-cache":  # at the end of each stage: the worst counts
            return max(self.results.values(self.goal.cell, engine, figure or self.goal.figure), default=None)
        return self.results.median(self.goal.cell, engine, figure or self.goal.figure)

    def _noise(self):
        spreads = [NOISE_LEAST]
        for engine in ("seawall", self.goal.against, "null"):
            values = self.results.values(self.goal.cell, engine, self.goal.figure)
            if values and min(values) > 0:
                spreads.append(max(values) / min(values) - 1)
        return max(spreads)

    def _judge(self):
        goal = self.goal
        bound = goal.at_least if goal.at_least is not None else goal.at_most
        if not self.counted:
            return False, ""
        sign = ">=" if goal.at_least is not None else "<="
        text = f"{sign} {_format(bound)}{' x' if goal.against else ''}"
        value = self.ratio if goal.against else self.ours
        # Nothing where the other has nothing, such as no stall, is as good as it gets.
        if value is None and goal.at_most is not None and self.ours == 0 and self.theirs == 0:
            value = 0
        if value is None:
            return False, text
        met = value >= bound if goal.at_least is not None else value <= bound
        if goal.half_way:
            ceiling = self._median("null")
            if ceiling is None:
                return False, f"{text}; the null engine is missing"
            if ceiling / self.theirs - 1 > self._noise():
                half = (self.theirs + ceiling) / 2
                text += f" and half of the way, {_format(half)}"
                met = met and self.ours >= half
        if goal.or_device and not met:
            one, deep, read = (self._median("seawall", figure) for figure in ("device_mb_s_1", "device_mb_s_32", "read_mb_s"))
            if one and deep and read and deep < 3 * one:
                text += f", or {_format(0.85 * deep)} MB/s of the device"
                met = read >= 0.85 * deep
        return met, text

    def state(self):
        if not self.counted:
            return "not measured" if self.ours is None else ""
        if self.ours is None or (self.goal.against and self.theirs is None):
            return "**not measured**"
        return "met" if self.met else "**short**"


def evaluate(goals, results):
    return [Verdict(goal, results) for goal in goals]


def closing_line(verdicts):
    counted = [verdict for verdict in verdicts if verdict.counted]
    return sum(verdict.met for verdict in counted), len(counted), f"{sum(verdict.met for verdict in counted)} of {len(counted)} goals met"


def _pair(results, cell, against, figure, scale=1.0):
    values = [results.median(cell, engine, figure) for engine in ("seawall", against or "innodb")]
    if all(value is None for value in values):
        return ""
    return " / ".join(_format(value * scale if value is not None else None) for value in values)


def _disturbed(results, cell):
    values = [value for engine in CELLS[cell].engines for value in results.values(cell, engine, "others_cpu")]
    return max(values, default=0.0)


FIGURES = {
    "tps": "a second",
    "rows_s": "rows a second",
    "p99_ms": "p99, ms",
    "max_ms": "longest stall, ms",
    "written_per_tx": "bytes written a transaction",
    "churn_rows_s": "rows a second, each deletes one at the tail",
    "query_p99_ms": "p99 of the tail's queries, ms",
    "disk_bytes": "bytes on disk",
    "writers_keep": "writers' share of their rate alone",
    "s_per_gb": "seconds per GB of log",
    "killed_or_swapped": "kills, and bytes swapped",
    "binlog_cached_bytes": "bytes of binary logs in the page cache",
    "cached_bytes": "bytes of the engine's files in the page cache",
}
HEAD = ("row", "figure", "Seawall", "InnoDB", "ratio", "goal", "", "null engine", "MyRocks", "MySQL", "p99, ms", "bytes written a transaction",
        "log wrapped", "others' CPU")


def line(verdict):
    """The columns of a row."""
    goal, results = verdict.goal, verdict.results
    against, main = goal.against, goal.figure in ("tps", "rows_s")
    figure = FIGURES[goal.figure]
    theirs = _format(verdict.theirs if against else verdict._median("innodb"))
    if against not in (None, "innodb"):
        theirs += f" ({against.removeprefix('innodb-')})"
    peers = [_format(results.median(goal.cell, peer, goal.figure)) if peer in CELLS[goal.cell].engines else ""
             for peer in ("null", "rocksdb", "mysql")]
    others = _disturbed(results, goal.cell)
    return (goal.cell, figure, _format(verdict.ours), theirs, f"{verdict.ratio:.2f}" if verdict.ratio is not None else "", verdict.text, verdict.state(),
            *peers, *((_pair(results, goal.cell, against, name) if main else "") for name in ("p99_ms", "written_per_tx", "log_wraps")),
            (f"{others:.2f}" + (" !" if others > OTHERS_MAX else "")) if main else "")


def heading(results, quick):
    """What the table is of."""
    days = sorted(line["at"][:10] for line in results.current()) or ["-"]
    versions = sorted({line.get("server", "") for line in results.current()})
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    sizes = " ".join(f"{name}={_size(value)}" for name, value in SIZES.items())
    return (f"`{'QUICK=1 ' if quick else ''}mariadb/goals` at commit {results.commit}, {days[0]}{' to ' + days[-1] if days[-1] != days[0] else ''}, MariaDB "
            f"{', '.join(versions)}, {os.cpu_count()} processors, {memory} GiB, Linux {os.uname().release}. Medians of the rounds; pairs are Seawall / InnoDB; "
            f"`!`: other programs took more than {OTHERS_MAX} of a processor. Sizes: `{sizes}`.")


def _size(value):
    for unit, name in ((1 << 30, "G"), (1 << 20, "M")):
        if value >= unit and value % unit == 0:
            return f"{value // unit}{name}"
    return str(value)


def markdown(verdicts, results):
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(line(verdict)) + " |" for verdict in verdicts]
    errors = []
    for cell in dict.fromkeys(verdict.goal.cell for verdict in verdicts):
        for engine in CELLS[cell].engines:
            error = results.error(cell, engine)
            if error and error != "not measured":
                errors.append(f"- `{cell}`, {engine}: {error}")
    if errors:
        lines += ["", "Not measured:", "", *dict.fromkeys(errors)]
    return "\n".join(lines)

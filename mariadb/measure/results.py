"""What was measured: a line of JSON for each engine, cell and round. The table is made from this file alone."""

import json
import statistics
import time

from .sizes import SIZES


def _disturbed(line):
    return line["figures"].get("others_cpu", float("inf"))


class Results:
    def __init__(self, path, commit, server=""):
        self.path, self.commit, self.server = path, commit, server
        self.lines = []
        if path.exists():
            self.lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]

    def current(self):
        """Those of this commit and server, with these sizes."""
        own = {"commit": self.commit, "server": self.server, "sizes": SIZES}
        return [line for line in self.lines if own.items() <= line.items()]

    def add(self, cell, engine, round_number, figures=None, error=None, retake=False):
        line = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "commit": self.commit, "server": self.server,
                "cell": cell, "engine": engine, "round": round_number,
                "figures": figures or {}, "error": error, "sizes": SIZES}
        if retake:
            line["retake"] = True
        self.lines.append(line)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")

    def of(self, cell, engine):
        """Of each round the last measurement. Of one that was disturbed and taken again, the one that was disturbed less."""
        rounds = {}
        for line in self.current():
            if line["cell"] == cell and line["engine"] == engine:
                before = rounds.get(line["round"])
                if line.get("retake") and before and not before["error"] and _disturbed(before) <= _disturbed(line):
                    continue
                rounds[line["round"]] = line
        return [rounds[number] for number in sorted(rounds)]

    def has(self, cell, engine, round_number):
        return any(line["round"] == round_number and not line["error"] for line in self.of(cell, engine))

    def values(self, cell, engine, figure):
        return [line["figures"][figure] for line in self.of(cell, engine) if not line["error"] and figure in line["figures"]]

    def median(self, cell, engine, figure):
        values = self.values(cell, engine, figure)
        return statistics.median(values) if values else None

    def error(self, cell, engine):
        """Why there is no figure, or None."""
        lines = self.of(cell, engine)
        if any(not line["error"] for line in lines):
            return None
        return lines[-1]["error"] if lines else "not measured"

    def forget(self, cells):
        """Measurements of these cells by this commit are made again."""
        current = [id(line) for line in self.current() if line["cell"] in cells]
        self.lines = [line for line in self.lines if id(line) not in current]
        if current:
            self.path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))

"""The goals as a picture: how many times better than InnoDB Seawall is, and how much is asked."""

import math
from xml.sax.saxutils import escape

from .table import FIGURES

LEFT, RIGHT, TOP, ROW = 330, 640, 34, 18
LEAST, MOST = 0.5, 8.0  # what lies beyond is drawn at the edge
MET, SHORT, TEXT, LINE = "#2a7f62", "#c0562f", "#222222", "#cccccc"


def _x(times):
    return LEFT + (RIGHT - LEFT) * math.log(min(max(times, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)


def _text(x, y, text, anchor="start", color=TEXT):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'


def svg(verdicts):
    """One bar a goal that compares with InnoDB, as text; a mark shows the goal. Figures of which less is better are turned over."""
    shown = [verdict for verdict in verdicts if verdict.counted and verdict.ratio]
    bottom = TOP + ROW * len(shown)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 {bottom + 30}" font-family="sans-serif" font-size="11">',
             f'<rect width="700" height="{bottom + 30}" fill="white"/>',
             _text(8, 16, "Seawall against InnoDB: times better (bar), and the goal (mark)")]
    for times in (0.5, 1, 2, 4, 8):
        lines.append(f'<line x1="{_x(times):.1f}" y1="{TOP - 8}" x2="{_x(times):.1f}" y2="{bottom}" stroke="{TEXT if times == 1 else LINE}"/>')
        lines.append(_text(_x(times), bottom + 16, f"{times:g} x", "middle"))
    for at, verdict in enumerate(shown):
        goal, y = verdict.goal, TOP + ROW * at
        less = goal.at_most is not None
        times = 1 / verdict.ratio if less else verdict.ratio
        asked = 1 / goal.at_most if less else goal.at_least
        color = MET if verdict.met else SHORT
        name = goal.cell if goal.figure == "tps" else f"{goal.cell}: {FIGURES[goal.figure]}"
        if goal.against not in (None, "innodb"):
            name += f" ({goal.against.removeprefix('innodb-')})"
        left, right = sorted((_x(1), _x(times)))
        lines.append(_text(LEFT - 8, y + 9, name[:58], "end"))
        lines.append(f'<rect x="{left:.1f}" y="{y}" width="{max(right - left, 1):.1f}" height="11" fill="{color}"/>')
        lines.append(f'<line x1="{_x(asked):.1f}" y1="{y - 3}" x2="{_x(asked):.1f}" y2="{y + 14}" stroke="{TEXT}" stroke-width="2"/>')
        lines.append(_text(RIGHT + 8, y + 9, f"{times:.2f}", color=color))
    return "\n".join([*lines, "</svg>"]) + "\n"

"""What kernels may contain, one program each; the table of docs/language.md is made of them.

Every body is that of `def program(a: int32[8], b: int32[8])`; it runs compiled and as Python, with the same results.
"""

from __future__ import annotations

CONSTRUCTS: dict[str, dict[str, str]] = {
    "Loops": {
        "for i in range(8):": "for i in range(8):\n    b[i] = a[i]",
        "for i in range(1, 8, 3):": "for i in range(1, 8, 3):\n    b[i] = a[i]",
        "for i in range(7, 0, -2):": "for i in range(7, 0, -2):\n    b[i] = a[i]",
        "for i in range(n):": "for i in range(a[1]):\n    b[i] = a[i]",
        "for j in range(i + 1):": "for i in range(8):\n    for j in range(i + 1):\n        b[i] += a[i - j]",
        "for i, j in allo.grid(4, 2):": "for i, j in allo.grid(4, 2):\n    b[i * 2 + j] = a[i + j]",
        "while condition:": "n: int32 = 0\nwhile a[n] < 5:\n    n += 1\nb[0] = n",
        "break": "for i in range(8):\n    if a[i] > 3:\n        break\n    b[i] = 1",
        "continue": "for i in range(8):\n    if a[i] % 2 == 0:\n        continue\n    b[i] = 1",
        "return": "for i in range(8):\n    if a[i] > 5:\n        return\n    b[i] = 1",
    },
    "Conditions": {
        "if, elif, else": "for i in range(8):\n    if a[i] < 3:\n        b[i] = 1\n"
        "    elif a[i] < 5:\n        b[i] = 2\n    else:\n        b[i] = 3",
        "x if condition else y": "for i in range(8):\n    b[i] = a[i] if a[i] > 4 else 0 - a[i]",
        "and, or, not": "for i in range(8):\n    if not a[i] > 4 or (a[i] > 6 and i > 0):\n        b[i] = 1",
        "2 < x <= 5": "for i in range(8):\n    if 2 < a[i] <= 5:\n        b[i] = 1",
        "x in (1, 3, 5)": "for i in range(8):\n    if a[i] in (1, 3, 5):\n        b[i] = 1",
    },
    "Values": {
        "x: int32 = 3": "x: int32 = 3\nb[0] = x",
        "x = y": "x = a[3]\nb[0] = x + 1",
        "x += y": "for i in range(8):\n    b[0] += a[i]",
        "x, y = y, x": "x = a[1]\ny = a[2]\nb[0], b[1] = y, x",
        "+ - * // %": "for i in range(1, 8):\n    b[i] = (a[i] * 7 + 3 - i) // 2 % 5",
        "& | ^ ~ << >>": "for i in range(8):\n    b[i] = ((a[i] & 6) | (i ^ 3)) + (~a[i]) + (a[i] << 2) + (a[i] >> 1)",
        "min(x, y), max(x, y), abs(x)": "for i in range(8):\n    b[i] = min(a[i], 4) + max(i, 3) + abs(a[i] - 5)",
        'p: Struct({"x": int32})': 'for i in range(8):\n    p: POINT = {"x": a[i], "y": 2}\n    p["y"] += i\n'
        '    p["x"] = p["x"] * p["y"]\n    b[i] = p["x"]',
        "weights[i] of a constant": "for i in range(8):\n    b[i] = WEIGHTS[i] * a[i]",
    },
    "Tiles": {
        "x: int32[4] = [0, 0, 0, 0]": "x: int32[4] = [0, 0, 0, 0]\nx[1] = a[1]\nfor i in range(4):\n    b[i] = x[i]",
        "x: int32[2, 4] = matrix": "x: int32[2, 4] = MATRIX\nfor i in range(4):\n    b[i] = x[1, i]",
        "b[:] = a": "b[:] = a",
        "b[0:4] = a[4:8]": "b[0:4] = a[4:8]",
        "b[0:8:2] = a[1:8:2]": "b[0:8:2] = a[1:8:2]",
        "b[:] = a * 2 + b": "b[:] = a * 2 + b",
        "b[:] = allo.add(a, b)": "b[:] = allo.add(a, b)",
    },
    "Functions": {
        "helper(x)": "for i in range(8):\n    b[i] = plus_one(a[i])",
        "helper(tile)": "fill(b, 7)",
        "def f(x: int32) -> int32: in a kernel": "def f(x: int32) -> int32:\n    return x * 2\n"
        "for i in range(8):\n    b[i] = f(a[i])",
    },
}  # fmt: skip


def table() -> str:
    """The table of the documentation."""
    rows = [f"| {group} | {', '.join(f'`{written}`' for written in group_)} |" for group, group_ in _rows()]
    return "\n".join(["| | written |", "|---|---|", *rows])


def _rows() -> list[tuple[str, list[str]]]:
    return [(group, [written.replace("|", "\\|") for written in programs]) for group, programs in CONSTRUCTS.items()]

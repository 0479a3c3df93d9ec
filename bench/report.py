"""Results in a form to read: a Markdown table, and the picture of throughput by block length."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ags1 import bench

BUSY = 0.5
"""A load average above this is somebody else's work."""

Figures = Sequence[Mapping[str, Any]]

_UNITS = {"speed": "x speed", "time": "x time", "ms": "ms more", "MiB": "MiB more"}


def figures_of(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All figures in pytest-benchmark's JSON, in the order in which they were measured."""
    return [entry for each in results["benchmarks"] for entry in each["extra_info"].get("figures", ())]


def by_machine(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Split results into those of each machine: first the one that measured last, whose `machine_info` it is.

    A machine is one CPU with one kernel, one OpenSSL and one Python: figures of two are never in one table.
    """
    found = [{**results, "benchmarks": []}]
    for each in results["benchmarks"]:
        machine = each["extra_info"].get("machine", results["machine_info"])
        for part in found:
            if not bench.differences(part["machine_info"], {**part["machine_info"], **machine}):
                part["benchmarks"].append(each)
                break
        else:
            found.append({**results, "machine_info": {**machine}, "benchmarks": [each]})
    return [found[0], *sorted(found[1:], key=lambda part: -len(part["benchmarks"]))]


def _origins(results: Mapping[str, Any]) -> list[str]:
    """Say of which commit, date and load the figures are: one line for each that differs."""
    counts: dict[tuple[str, str, str], int] = {}
    loads: dict[tuple[str, str, str], list[float]] = {}
    for each in results["benchmarks"]:
        info = each["extra_info"]
        load = info.get("load")
        busy = "unknown" if load is None else "busy" if load > BUSY else "idle"
        where = (info.get("commit", ""), info.get("date", "")[:10], busy)
        counts[where] = counts.get(where, 0) + len(info.get("figures", ()))
        loads.setdefault(where, []).append(load or 0.0)
    lines = []
    for where, count in sorted(counts.items(), key=lambda item: -item[1]):
        commit, date, busy = where
        at = f"commit {commit[:12]}{'+' * commit.endswith('+')}" if commit else "commit not recorded"
        said = "load not recorded" if busy == "unknown" else f"load average {max(loads[where]):.1f}"
        if busy == "busy":
            said += "; **the machine was busy: read the intervals**"
        lines.append(f"{count} figures: {at}, {date or 'date not recorded'}, {said}")
    return lines


def throughput_of(results: Mapping[str, Any]) -> dict[int, dict[str, list[tuple[int, float]]]]:
    """Throughput by threads, subject and block length: what the picture shows."""
    found: dict[int, dict[str, list[tuple[int, float]]]] = {}
    for each in results["benchmarks"]:
        info = each["extra_info"]
        if "gbps" in info:
            lines = found.setdefault(info["threads"], {})
            for name, gbps in info["gbps"].items():
                lines.setdefault(name, []).append((info["block_length"], gbps))
    for lines in found.values():
        for points in lines.values():
            points.sort()
    return found


def parquet_of(results: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Throughput on Parquet files by direction and subject: what the other picture shows."""
    found: dict[str, dict[str, float]] = {}
    for each in results["benchmarks"]:
        info = each["extra_info"].get("parquet")
        if info is not None:
            bars = found.setdefault(info["direction"], {})
            # A peer's own run measures ags1 again; the first one is that beside cp.
            for name, gbps in info["gbps"].items():
                bars.setdefault(name, gbps)
    return found


def _value(entry: Mapping[str, Any], name: str) -> str:
    places = 1 if entry["measure"] in ("ms", "MiB") else 2
    return f"{entry[name]:.{places}f}"


def _met(entry: Mapping[str, Any]) -> str:
    if entry["met"] is None:
        return ""
    return ("yes" if entry["met"] else "**no**") + ("" if entry["certain"] else ", within noise")


def table(figures: Figures) -> str:
    """Render figures as a Markdown table."""
    rows = [("question", "ags1", "floor or peer", "ratio [90% interval]", "target", "met")]
    for entry in figures:
        interval = ""
        if entry["low"] != entry["high"]:
            interval = f" [{_value(entry, 'low')}, {_value(entry, 'high')}]"
        target = "" if entry["target"] is None else f"{entry['bound']} {entry['target']:g}"
        rows.append(
            (
                entry["question"],
                entry["subject_text"],
                f"{entry['reference']}: {entry['reference_text']}",
                f"{_value(entry, 'value')} {_UNITS[entry['measure']]}{interval}",
                target,
                _met(entry),
            )
        )
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]) + "\n"


HEADLINES = (
    ("encrypt_into, 1 MiB blocks, 1 thread", "C loop"),
    ("encrypt_into, 4 KiB blocks, 2 threads", "cryptography"),
    ("ags1 encrypt of a * file, start-up included", "cp"),
    ("decrypt a * file, in process", "Iceberg Java"),
    ("encrypt a Parquet file of *, a key for each column", "parquet-java"),
    ("scan of an encrypted Iceberg table, * of Parquet: all rows and columns", "PyIceberg"),
)
"""Questions, of any size, and peers that README.md shows."""

_FIGURES = re.compile(r"(?<=<!-- figures -->\n).*?(?=<!-- end of figures -->)", re.DOTALL)


def headlines(results: Mapping[str, Any]) -> str:
    """Render the figures that README.md shows, as a Markdown table: of one machine, that which has most of them."""
    rows: list[str] = []
    machine = results["machine_info"]
    for part in by_machine(results):
        found = []
        for question, peer in HEADLINES:
            asked = (each for each in figures_of(part) if fnmatch.fnmatchcase(each["question"], question))
            # The first: of floors with two OpenSSLs, that with ours.
            entry = next((each for each in asked if each["reference"].startswith(peer)), None)
            if entry is not None:
                ratio = f"{_value(entry, 'value')} {_UNITS[entry['measure']]}"
                ours, theirs = (entry[name].partition(" ±")[0] for name in ("subject_text", "reference_text"))
                found.append(f"| {entry['question']} | {ours} | {entry['reference']}: {theirs} | {ratio} |")
        if len(found) > len(rows):
            rows, machine = found, part["machine_info"]
    first = (
        f"| {machine['cpu_model']} ({machine['aes_gcm']}), {machine['cores']} cores | ags1 | floor or peer | ratio |"
    )
    return "\n".join([first, "|---|---|---|---|", *rows]) + "\n"


def with_headlines(page: str, results: Mapping[str, Any]) -> str:
    """Return README.md with the figures of these results."""
    return _FIGURES.sub(lambda _: headlines(results), page)


def described(machine: Mapping[str, Any]) -> str:
    """A machine in a line."""
    python = machine.get("python") or f"Python {machine['python_version']}"
    return (
        f"{machine['cpu_model']}, {machine['cores']} cores, {machine['kernel']}, files on {machine['file_system']}; "
        f"{python}, {machine['openssl']} ({machine['linkage']}, {machine['aes_gcm']}); "
        f"cryptography {machine['cryptography']}"
    )


def _part(results: Mapping[str, Any]) -> list[str]:
    """What one machine measured."""
    figures = figures_of(results)
    judged = [entry for entry in figures if entry["met"] is not None]
    parts = [described(results["machine_info"]) + ".\n", "\n".join(f"- {line}." for line in _origins(results)) + "\n"]
    parts.append(f"{sum(entry['met'] for entry in judged)} of {len(judged)} targets met.\n")
    parts.append(table(figures))
    notes = dict.fromkeys(f"- {entry['question']}: {entry['note']}." for entry in figures if entry["note"])
    if notes:
        parts.append("Notes\n\n" + "\n".join(notes) + "\n")
    return parts


def markdown(results: Mapping[str, Any], *, quick: bool, picture: bool, parquet: bool = False) -> str:
    """The whole report: the machine that measured last, and what others measured apart from it."""
    parts = ["# Benchmarks of ags1\n"]
    if quick:
        parts.append(
            "> **Quick run**: small data and few rounds, to see that everything works. These figures prove nothing.\n"
        )
    parts.append(
        "A ratio is of medians of runs that took turns in one process; the interval is a bootstrap over rounds; ± is "
        'half the interquartile range. GB = 10⁹ bytes. "x speed": ags1 over the other, more is better; "x time": less '
        "is better.\n"
    )
    here, *others = by_machine(results)
    parts += _part(here)
    if picture:
        parts.append("![Throughput by block length](throughput.svg)\n")
    if parquet:
        parts.append("![Throughput on Parquet files](parquet.svg)\n")
    for number, other in enumerate(others, 1):
        parts.append(f"## Another machine{f' ({number})' if len(others) > 1 else ''}\n")
        different = bench.differences(other["machine_info"], here["machine_info"])
        parts.append(
            "Not measured where the figures above were, and not to be compared with them: "
            + "; ".join(different)
            + ".\n"
        )
        parts += _part(other)
    return "\n".join(parts)


_COLOURS = {"ags1": "#0b63b5", "C loop": "#8a8f98", "cryptography": "#d9730d"}
_LABELS = {"ags1": "ags1", "C loop": "C floor", "cryptography": "cryptography"}


_STYLE = {
    "font.size": 10.5,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa0a8",
    "axes.labelcolor": "#3c4149",
    "xtick.color": "#3c4149",
    "ytick.color": "#3c4149",
    "svg.fonttype": "path",
    # The same results make the same file.
    "svg.hashsalt": "ags1",
}


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _save(chart: Any, directory: Path, name: str) -> None:
    for suffix, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": 160})):
        chart.savefig(directory / f"{name}.{suffix}", facecolor="white", **options)


def draw(results: Mapping[str, Any], directory: Path) -> bool:
    """Draw throughput.svg and throughput.png of one machine; return whether there was anything to draw."""
    results = by_machine(results)[0]
    panels = throughput_of(results)
    if not panels:
        return False
    plt = _pyplot()
    with plt.rc_context(_STYLE):
        chart, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels) + 0.6, 4.6), sharey=True, squeeze=False)
        highest = max(gbps for lines in panels.values() for points in lines.values() for _, gbps in points)
        for axis, (threads, lines) in zip(axes[0], sorted(panels.items()), strict=True):
            _panel(axis, lines, highest)
            axis.set_title(f"{threads} thread{'s' * (threads > 1)}", loc="left", fontsize=11.5, color="#1f2329", pad=8)
            axis.set_xlabel("block length")
        axes[0][0].set_ylabel("GB/s of plaintext")
        machine = results["machine_info"]
        chart.suptitle(
            "AGS1 encryption in memory: throughput by block length", x=0.012, y=0.985, ha="left", fontsize=13.5,
            fontweight="bold", color="#1f2329",
        )  # fmt: skip
        chart.text(
            0.012,
            0.905,
            f"AES-256-GCM, {' '.join(machine['openssl'].split()[:2])} in ags1 and C, on "
            f"{machine['cores']} cores of {machine['cpu_model']}; medians of runs that took turns",
            ha="left",
            fontsize=9,
            color="#6b717a",
        )
        chart.subplots_adjust(left=0.062, right=0.985, top=0.8, bottom=0.13, wspace=0.09)
        _save(chart, directory, "throughput")
        plt.close(chart)
    return True


_BARS = {
    "cp": "#c3c8cf",
    "C loop": "#8a8f98",
    "ags1": _COLOURS["ags1"],
    "parquet-java": "#b5852b",
    "PyArrow": _COLOURS["cryptography"],
}
_DIRECTIONS = {"encrypt": "encrypt", "decrypt": "decrypt", "rekey": "re-key"}


def draw_parquet(results: Mapping[str, Any], directory: Path) -> bool:
    """Draw parquet.svg and parquet.png of one machine; return whether there was anything to draw."""
    results = by_machine(results)[0]
    found = parquet_of(results)
    if not found:
        return False
    plt = _pyplot()
    directions = [name for name in _DIRECTIONS if name in found]
    lines = sum(len(found[name]) for name in directions) + len(directions)
    with plt.rc_context(_STYLE):
        chart, axis = plt.subplots(figsize=(8.4, 1.1 + 0.27 * lines))
        highest = max(max(bars.values()) for bars in found.values())
        y, places = 0.0, []
        for direction in directions:
            bars = {name: found[direction][name] for name in _BARS if name in found[direction]}
            places.append(y + (len(bars) - 1) / 2)
            for name, gbps in bars.items():
                mine = name == "ags1"
                axis.barh(y, gbps, height=0.78, color=_BARS[name])
                axis.text(
                    gbps + highest * 0.008,
                    y,
                    f"{_LABELS.get(name, name)}  {gbps:.2f}",
                    va="center",
                    fontsize=9.5,
                    color=_BARS[name] if mine else "#3c4149",
                    fontweight="bold" if mine else "normal",
                )
                y += 1
            y += 0.8
        axis.set_yticks(places, [_DIRECTIONS[name] for name in directions], fontsize=11.5)
        axis.invert_yaxis()
        axis.set_xlim(0, highest * 1.2)
        axis.set_xlabel("GB/s of the file")
        axis.spines["left"].set_visible(False)
        axis.tick_params(length=0)
        machine = results["machine_info"]
        top = 1 - 0.62 / (1.1 + 0.27 * lines)
        chart.suptitle(
            "A Parquet file encrypted, decrypted, re-keyed", x=0.012, y=0.985, ha="left", fontsize=13.5,
            fontweight="bold", color="#1f2329",
        )  # fmt: skip
        chart.text(
            0.012,
            top + 0.02,
            f"AES-256-GCM on {machine['cores']} cores of {machine['cpu_model']}; medians of runs that took turns",
            ha="left",
            fontsize=9,
            color="#6b717a",
        )
        chart.subplots_adjust(left=0.105, right=0.985, top=top, bottom=0.5 / (1.1 + 0.27 * lines))
        _save(chart, directory, "parquet")
        plt.close(chart)
    return True


def _panel(axis: Any, lines: Mapping[str, Sequence[tuple[int, float]]], highest: float) -> None:
    lengths = [length for length, _ in next(iter(lines.values()))]
    for name in ("C loop", "cryptography", "ags1"):
        if name not in lines:
            continue
        x, y = zip(*lines[name], strict=True)
        axis.plot(
            x,
            y,
            color=_COLOURS[name],
            linewidth=5 if name == "C loop" else 2.2,
            alpha=0.45 if name == "C loop" else 1,
            marker="o" if name != "C loop" else None,
            markersize=4.5,
            solid_capstyle="round",
        )
    _label(axis, lines, highest)
    axis.set_xscale("log", base=2)
    axis.set_xticks(lengths, [_size(length) for length in lengths])
    axis.minorticks_off()
    axis.set_xlim(lengths[0] / 1.4, lengths[-1] * 1.6)
    axis.set_ylim(0, highest * 1.14)
    axis.grid(axis="y", color="#e4e7eb", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(length=0)


def _label(axis: Any, lines: Mapping[str, Sequence[tuple[int, float]]], highest: float) -> None:
    """Write each name on its line: the peer below its own, the floor and ags1 above theirs, apart from each other."""
    gap = highest * 0.045
    # The floor and ags1 lie on each other, so their names stand apart, above both.
    for name, place in (("C loop", 0.62), ("ags1", 0.34), ("cryptography", 0.5)):
        if name not in lines:
            continue
        points = lines[name]
        index = min(len(points) - 1, round(place * (len(points) - 1)))
        length, gbps = points[index]
        if name == "cryptography":
            y, vertical, horizontal = gbps - gap, "top", "left"
        else:
            # The name reaches to the left, over the point before.
            near = [gbps for each in lines.values() for _, gbps in each[max(0, index - 1) : index + 1]]
            y, vertical, horizontal = max(near) + gap, "bottom", "right"
        axis.text(
            length,
            y,
            _LABELS[name],
            color=_COLOURS[name] if name != "C loop" else "#6b717a",
            fontweight="bold",
            ha=horizontal,
            va=vertical,
        )


def _size(nbytes: int) -> str:
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= size:
            return f"{nbytes // size}\n{unit}"
    return f"{nbytes}\nB"


def write(results: Mapping[str, Any], directory: Path, *, quick: bool) -> list[Path]:
    """Write results.json, results.md and, where there is data for them, the pictures."""
    directory.mkdir(parents=True, exist_ok=True)
    picture, parquet = draw(results, directory), draw_parquet(results, directory)
    (directory / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (directory / "results.md").write_text(markdown(results, quick=quick, picture=picture, parquet=parquet))
    drawn = [*(["throughput"] if picture else []), *(["parquet"] if parquet else [])]
    names = ["results.json", "results.md", *(f"{name}.{suffix}" for name in drawn for suffix in ("svg", "png"))]
    return [directory / name for name in names]

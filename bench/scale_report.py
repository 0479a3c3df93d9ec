"""The tables and the picture of bench.scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import report
from bench.scale import (
    GIB,
    KIB,
    MIB,
    PIB,
    RESOURCES,
    S3,
    STORAGES,
    TIB,
    Cluster,
    Costs,
    Load,
    Prediction,
    Storage,
    is_possible,
    predict,
)

FILES = tuple(10**power for power in range(3, 9))
SIZES = (GIB, 32 * GIB, TIB, 32 * TIB, PIB, 10 * PIB)
EXECUTORS = (1, 10, 100, 1000)
_COLOURS = {
    "listing": "#c9a227",
    "planning": "#e8c468",
    "commit": "#d9730d",
    "uploads begun and ended": "#b3261e",
    "start of tasks": "#9aa0a8",
    "waits for each file": "#7b61a8",
    "bytes in tasks": "#0b63b5",
    "requests a second": "#2e8b57",
    "network": "#54a3c4",
    "start of the run": "#dfe3e8",
}


def bytes_text(count: float) -> str:
    """A number of bytes, short."""
    for unit, size in (("PiB", PIB), ("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def time_text(seconds: float) -> str:
    """A time, short."""
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def count_text(count: int) -> str:
    """A power of ten, or a number."""
    text = str(count)
    return f"10^{len(text) - 1}" if count >= 1000 and text.strip("0") == "1" else f"{count:,}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, *rows]
    text = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([text[0], "|" + "---|" * len(head), *text[1:]]) + "\n"


def _costs(costs: Costs) -> str:
    millis, micros = 1e3, 1e6
    rows = [
        ("a run, however little it does", f"{costs.run * millis:.0f} ms"),
        ("a wave (a Spark job), on the driver", f"{costs.wave * millis:.0f} ms"),
        ("a task, in its slot", f"{costs.task * millis:.1f} ms"),
        ("a file found in a local directory, on the driver", f"{costs.listed * micros:.1f} µs"),
        ("a file planned, packed, sealed and sent, on the driver", f"{costs.planned * micros:.1f} µs"),
        ("a file taken into the manifest and the result, on the driver", f"{costs.committed * micros:.1f} µs"),
        ("a file that is cut, begun and put together, on the driver", f"{costs.cut_file * micros:.0f} µs"),
        ("a small local file in a task: read, sealed, created, renamed", f"{costs.small_file * micros:.0f} µs"),
        ("bytes from file to file, a slot", f"{1 / costs.copied_byte / MIB:,.0f} MiB/s"),
        ("bytes sealed in memory, a slot", f"{1 / costs.sealed_byte / MIB:,.0f} MiB/s"),
        ("manifest, a file", f"{costs.manifest_bytes:.0f} bytes"),
        ("memory of the driver's Python, a unit under way", f"{costs.unit_bytes / KIB:.1f} KiB"),
        ("memory of the driver's Python before", f"{costs.driver_bytes / MIB:.0f} MiB"),
        ("memory of a worker, at most", f"{costs.worker_bytes / MIB:.0f} MiB"),
    ]
    return _table(("measured", "here"), rows)


def _checks(checks: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            each["master"],
            each["what"],
            f"{each['predicted']:.2f} s",
            f"{each['actual']:.2f} s ({min(each['all']):.2f} to {max(each['all']):.2f})",
            f"{each['ratio']:.2f}",
            f"{each['predicted'] / min(each['all']):.2f}",
            each["bottleneck"],
        )
        for each in checks
    ]
    head = ("Spark", "what", "predicted", "actual: median (range)", "ratio", "to the fastest", "held up by")
    return _table(head, rows)


def _grid(storage: Storage, executors: int, costs: Costs, show: Callable[[Prediction], str]) -> str:
    rows = []
    for files in FILES:
        cells = []
        for nbytes in SIZES:
            load = Load(files, nbytes)
            cells.append(show(predict(load, Cluster(executors), storage, costs)) if is_possible(load) else "")
        rows.append((count_text(files), *cells))
    return _table(("files", *(bytes_text(size) for size in SIZES)), rows)


def _details(costs: Costs) -> str:
    rows = []
    cases = (
        (4_000_000, 40 * TIB, 50),
        (4_000_000, 40 * TIB, 500),
        (10**6, 4 * GIB, 25),
        (10**8, 10 * TIB, 250),
        (1_000, 200 * TIB, 250),
        (10**7, 10 * PIB, 1000),
    )
    for files, nbytes, executors in cases:
        found = predict(Load(files, nbytes), Cluster(executors), S3, costs)
        alone = sorted(found.alone.items(), key=lambda item: -item[1])[:3]
        rows.append(
            (
                f"{files:,} files, {bytes_text(nbytes)}",
                f"{executors} x 4",
                time_text(found.seconds),
                f"{found.waves:,}",
                f"{found.tasks:,}",
                f"{found.gets:.2g} / {found.puts:.2g}",
                bytes_text(found.driver_memory),
                bytes_text(found.manifest),
                "; ".join(f"{name} {time_text(seconds)}" for name, seconds in alone),
            )
        )
    head = (
        "what",
        "slots",
        "time",
        "waves",
        "tasks",
        "GET / PUT",
        "driver's Python",
        "manifest",
        "alone it would take",
    )
    return _table(head, rows)


def markdown(found: Mapping[str, Any]) -> str:
    """The whole report."""
    costs = Costs(**found["costs"])
    machine = found["machine"]
    parts = [
        "# ags1.spark at scale: what a model says\n",
        (
            f"Measured: single runs of seconds, medians of three, on {machine['cores']} shared cores of "
            f"{machine['cpu_model']} (load average {found['load_average_at_start']} when it began, so other work was "
            f"on them), Python {machine['python_version']}, {found['date']}. "
            "Costs on files were four times as high in one run as in another. "
            "Everything beyond one machine is arithmetic on the assumptions below: the order of magnitude, "
            "and what holds a run up, are worth something; the digits are not.\n"
        ),
        _costs(costs),
        "Assumed, never measured here:\n",
        "\n".join(f"- **{each.name}**: {each.words}." for each in STORAGES)
        + "\n- Executors of 4 slots with a core each as fast as this one; all files of a load are of one size; no task "
        "fails; the JVM's own memory is not counted; a directory has 100 files.\n",
    ]
    if found.get("check"):
        ratios = [each["ratio"] for each in found["check"]]
        parts += [
            "## Against real runs\n",
            (
                f"Predicted time over actual time: {min(ratios):.2f} to {max(ratios):.2f} for the median of three. "
                "Below 1, it took longer than predicted. Costs of files and bytes were taken with nothing else of ours "
                "running; here the driver, its JVM and the workers share two cores, and a disk, with each other and "
                "with other work, which the model knows nothing of. Repeats of the same run differ by as much as the "
                "range says: where that is wide, the ratio says more of the machine than of the model.\n"
            ),
            _checks(found["check"]),
        ]
    parts += ["## Some cases, on S3\n", _details(costs)]
    for storage in STORAGES:
        for executors in EXECUTORS if storage is S3 else EXECUTORS[2:]:
            parts.append(f"## {storage.name}, {executors:,} executors of 4 slots: time, and what holds it up\n")
            show: Callable[[Prediction], str] = lambda each: f"{time_text(each.seconds)}, {each.bottleneck}"  # noqa: E731
            parts.append(_grid(storage, executors, costs, show))
    parts += [
        "An empty cell has files of less than a byte, or of more than 5 TiB.\n",
        "![Where the bottleneck moves](scale.svg)\n",
    ]
    return "\n".join(parts)


def draw(costs: Costs, directory: Path) -> None:
    """Draw scale.svg and scale.png: for each cluster, what holds up which load."""
    from matplotlib.patches import Patch

    plt = report._pyplot()
    seen: dict[str, None] = {}
    with plt.rc_context(report._STYLE):
        chart, axes = plt.subplots(1, len(EXECUTORS), figsize=(13.6, 4.9), sharey=True)
        for axis, executors in zip(axes, EXECUTORS, strict=True):
            for row, nbytes in enumerate(SIZES):
                for column, files in enumerate(FILES):
                    load = Load(files, nbytes)
                    if not is_possible(load):
                        continue
                    found = predict(load, Cluster(executors), S3, costs)
                    seen[found.bottleneck] = None
                    axis.add_patch(
                        plt.Rectangle((column - 0.48, row - 0.47), 0.96, 0.94, color=_COLOURS[found.bottleneck], lw=0)
                    )
                    axis.text(
                        column, row, time_text(found.seconds).replace(" ", "\n"), ha="center", va="center",
                        fontsize=7.6, color="#1f2329" if found.bottleneck == "start of the run" else "white",
                    )  # fmt: skip
            axis.set_xlim(-0.5, len(FILES) - 0.5)
            axis.set_ylim(-0.5, len(SIZES) - 0.5)
            axis.set_xticks(range(len(FILES)), [f"$10^{len(str(files)) - 1}$" for files in FILES])
            axis.set_yticks(range(len(SIZES)), [bytes_text(size) for size in SIZES])
            axis.tick_params(length=0)
            title = f"{executors:,} executor{'s' * (executors > 1)}"
            axis.set_title(title, loc="left", fontsize=11.5, color="#1f2329", pad=8)
            axis.set_xlabel("files")
            for spine in axis.spines.values():
                spine.set_visible(False)
        chart.suptitle(
            "Encrypting a tree on S3: how long, and what holds it up", x=0.012, y=0.985, ha="left", fontsize=13.5,
            fontweight="bold", color="#1f2329",
        )  # fmt: skip
        chart.text(
            0.012, 0.9,
            "4 slots an executor. A model: costs of tasks, files and bytes measured on two shared cores; S3 assumed: "
            "30 ms a request, 100 MB/s a connection, 5,500 GET/s and 3,500 PUT/s",
            ha="left", fontsize=9, color="#6b717a",
        )  # fmt: skip
        order = [kind for kinds in RESOURCES.values() for kind in kinds if kind in seen]
        patches = [Patch(color=_COLOURS[name], label=name) for name in order]
        chart.legend(handles=patches, loc="lower center", ncol=len(order), frameon=False, fontsize=9.5)
        chart.subplots_adjust(left=0.058, right=0.995, top=0.8, bottom=0.19, wspace=0.05)
        report._save(chart, directory, "scale")
        plt.close(chart)


def write(found: Mapping[str, Any], directory: Path) -> str:
    """Write scale.md and the picture; answer the text."""
    text = markdown(found)
    (directory / "scale.md").write_text(text)
    draw(Costs(**found["costs"]), directory)
    return text

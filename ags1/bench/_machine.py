"""What a figure was measured on. Without names of users, hosts or directories."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping

from ags1.core.backend import backend
from ags1.support.typing import Any
from ags1.version import version

# What two figures must share before anybody may compare them. Not the version of ags1: that is what is compared.
IDENTITY = ("cpu_model", "cpu_id", "cpu_features", "aes_gcm", "cores", "kernel", "openssl", "linkage", "python")


class OtherMachineError(ValueError):
    """Two figures are of machines that differ; the message says in what."""


def _cpu() -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                name, _, value = line.partition(":")
                found.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    if "model name" not in found and sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            found["model name"] = done.stdout.strip()
        except OSError:
            pass
    return found


def machine() -> dict[str, Any]:
    """Describe this machine and the libraries of this process.

    Returns
    -------
    dict
        ``cpu_model`` (text), ``cpu_id`` (text: vendor, family, model, stepping; many clouds call every CPU of a
        vendor by one name), ``cpu_features`` (list, those that OpenSSL has found for AES-GCM), ``aes_gcm`` (the code
        path that they select), ``cores`` (that this process may use), ``memory_gib``, ``kernel`` (name and first two
        numbers), ``transparent_hugepages``, ``openssl``, ``linkage``, ``python``, ``ags1``. Never a name of a host or
        a user.
    """
    native, cpu = backend(), _cpu()
    release = re.match(r"\d+(\.\d+)?", platform.release())
    parts = [cpu.get(name, "") for name in ("vendor_id", "cpu family", "model", "stepping")]
    return {
        "cpu_model": cpu.get("model name") or platform.processor() or platform.machine(),
        "cpu_id": "/".join(parts) if any(parts) else platform.machine(),
        "cpu_features": native["cpu_features"],
        "aes_gcm": native["aes_gcm"],
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)),
        "kernel": f"{platform.system()} {release[0] if release else platform.release()}",
        "transparent_hugepages": _first_line("/sys/kernel/mm/transparent_hugepage/enabled"),
        "openssl": native["openssl_version"],
        "linkage": native["linkage"],
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "ags1": version,
    }


def _first_line(path: str) -> str | None:
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return None


def load_average() -> float:
    """Processes that wanted a CPU in the last minute. Above 0.5, read the intervals before the figures."""
    return round(os.getloadavg()[0], 2)


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Say in words in what two machines differ that figures depend on; nothing, if they may be compared."""

    def shown(value: Any) -> str:
        return " ".join(value) if isinstance(value, list) else str(value)

    return [
        f"{name}: {shown(one.get(name))} there, {shown(other.get(name))} here"
        for name in IDENTITY
        if one.get(name) != other.get(name)
    ]


def require_same(baseline: Mapping[str, Any], here: Mapping[str, Any], *, what: str = "the baseline") -> None:
    """Refuse a baseline of another machine.

    Raises
    ------
    OtherMachineError
        The machines differ. The message says in what, and what to do.
    """
    if found := differences(baseline, here):
        raise OtherMachineError(f"{what} is of another machine ({'; '.join(found)}): measure a baseline on this one")

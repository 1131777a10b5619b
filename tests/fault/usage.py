"""The memory and time of a process, as Linux counts them."""

import os


def cpu_seconds(pid: int) -> float:
    """Return the processor time that it has used."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Return how much memory it has."""
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid: int) -> set[int]:
    """Return the file descriptors that it has open."""
    return {int(name) for name in os.listdir(f"/proc/{pid}/fd")}

"""C libraries that tests load into other processes by LD_PRELOAD, each with one number in a file that both sides map."""

import mmap
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_LONG = struct.Struct("l")


class Preloaded:
    """A library (a C source beside this module), compiled.

    Args:
        folder: for the library and its file.
        name: of the source.
        variable: that names the file to the library.
    """

    def __init__(self, folder: Path, name: str, variable: str) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler (cc) here: nothing can be loaded into other processes")
        folder.mkdir(parents=True, exist_ok=True)
        self._library, self._file, self._variable = folder / f"{name}.so", folder / f"{name}.number", variable
        source = Path(__file__).with_name(f"{name}.c")
        command = [compiler, "-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(self._library), str(source), "-ldl"]
        subprocess.run(command, check=True, timeout=60)
        self._file.write_bytes(_LONG.pack(0))
        with self._file.open("r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), _LONG.size)

    @property
    def number(self) -> int:
        """The number that both sides see."""
        (number,) = _LONG.unpack(self._mapped[:])
        return int(number)

    @number.setter
    def number(self, number: int) -> None:
        self._mapped[:] = _LONG.pack(number)

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Load it into every process that is started in the block."""
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("LD_PRELOAD", str(self._library))
            environment.setenv(self._variable, str(self._file))
            yield

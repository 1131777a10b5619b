"""A program with which a test talks in lines, over its standard input and output."""

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60.0


class LineProgram:
    """A running program, which ends with its input. Use as a context manager."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "it has ended"
        return line.rstrip("\n")

    def say(self, line: object) -> None:
        print(line, file=self._process.stdin, flush=True)

    def ask(self, line: object) -> str:
        self.say(line)
        return self.line()

    def end(self) -> str:
        """Close its input, wait until it has ended, and return what it still wrote."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        rest = self._process.stdout.read()  # `communicate` would leave out what came with an earlier line
        self._process.wait(DEADLINE_S)
        return rest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._process.poll() is None:
                self.end()
        finally:
            self._process.kill()

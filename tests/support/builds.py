"""Tests that only the sources can pass: they replace a function of a hot module, or inherit from one of its classes.

A compiled module calls its own functions directly, and takes no object of another class than it names. Nobody inherits from its
classes, or replaces a method of their objects. Such a test plants a fault, counts calls, or gives a recorded object. What
it watches over is tested on both builds where that is possible.
"""

from __future__ import annotations

import pytest

from headgate.compiled import Build, build_in_use

python_only = pytest.mark.skipif(build_in_use() is Build.COMPILED, reason="it reaches into a module that is compiled here")

"""The wheel of this checkout for the tests of this folder."""

from tests.support.checkout import wheel

__all__ = ["wheel"]  # a fixture

"""The cost of several workers, and the capacity model that follows from it."""

"""The cost of several workers, and how evenly they share one port."""

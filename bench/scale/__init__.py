"""What several workers cost, and how evenly they share one port."""

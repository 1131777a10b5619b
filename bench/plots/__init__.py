"""Pictures of the results, as SVG that a browser shows in light and in dark."""

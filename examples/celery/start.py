"""Starts a report for Ana, and waits for it."""

from tasks import report

print("pages:", report.delay("ana", 3).get(timeout=60))

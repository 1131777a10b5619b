"""Tools of the Makefile and the tests: find Chromium, generate the settings page."""

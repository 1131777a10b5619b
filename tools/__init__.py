"""What the Makefile and the tests need around the product: find Chromium, generate the settings page."""

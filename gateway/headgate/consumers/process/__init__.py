"""The process of `headgate consume`, with its file, consumers and health page."""

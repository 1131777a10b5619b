"""The process of `headgate consume`: its file, its consumers, its health page."""

"""The face for Flask applications: the extension, and the browser client's files."""

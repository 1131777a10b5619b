"""The Flask face: the extension, and the browser client's files."""

"""The Flask extension, and the files of the browser client."""

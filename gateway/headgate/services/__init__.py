"""What a Python service uses: publish, follow the log, and ask who is connected."""

"""The text that operators write (settings, options of consumers, addresses), parsed once into values."""

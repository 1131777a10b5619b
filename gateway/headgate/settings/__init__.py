"""What operators write: the settings, options of consumers, and addresses, parsed once into values."""

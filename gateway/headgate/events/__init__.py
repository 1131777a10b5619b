"""An event as everybody knows it: its topic, id, data and trace."""

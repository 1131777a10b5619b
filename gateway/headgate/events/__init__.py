"""An event as all parts see it: its topic, id, data and trace."""

"""An event as all parts see it: its topic, id, data and trace, and its form on the wire (wire/). No I/O."""

"""Events with their topics, ids, data and traces, and their form on the wire (wire/). No I/O."""

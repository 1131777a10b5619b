"""Any JSON from a client, with halves of surrogate pairs in its text: strategies for Hypothesis."""

from hypothesis import strategies as st

TEXT = (
    st.text(st.characters(), max_size=12) | st.text(st.characters(categories=["Cs"]), max_size=2) | st.sampled_from(["#", "a.*"])
)
SCALARS = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=True) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8)
FIELDS = ["pattern", "overflow", "since", "from", "to", "topic", "data", "id", "token", "ids", "offset", "time", "last"]
BODIES = VALUES | st.dictionaries(st.sampled_from(FIELDS) | TEXT, VALUES, max_size=5)

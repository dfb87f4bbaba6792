"""The verbs of `requite keys`."""

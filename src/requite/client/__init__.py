"""The user's call: `Client` in plain threads, `AsyncClient` on an event loop; the same verbs."""

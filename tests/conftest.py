"""Settings that every test shares."""

import os

from hypothesis import settings

# A shared or busy machine makes single examples slow without anything being wrong; pytest-timeout
# bounds the test as a whole.
settings.register_profile("default", deadline=None)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

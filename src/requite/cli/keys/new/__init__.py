"""`requite keys new`: one file per kind of key."""

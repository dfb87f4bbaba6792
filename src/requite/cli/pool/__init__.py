"""`requite pool`: one file per verb; which verbs there are is told by `requite.cli.verbs`."""

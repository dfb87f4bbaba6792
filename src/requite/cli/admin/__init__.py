"""`requite admin`: one file per verb; `requite.cli.verbs` lists the verbs."""

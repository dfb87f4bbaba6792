"""What `requite top` shows: readings of a broker, as rows of a table, in a terminal."""

"""What happened to requests, on disk: logs that a pipeline, or a person, reads afterwards.

    blocks.py    what one record of a log holds, column by column: data, for every decoder
    meaning.py   which events a row stands for
    strings.py   interned strings
    encode.py    rows to blocks

The bytes are specified in docs/protocols/log-format.md.
"""

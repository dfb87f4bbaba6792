"""The parts that engines of several protocols share. No I/O, no clock."""

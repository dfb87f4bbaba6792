"""What engines are made of: the parts that several protocols share. No I/O, no clock."""

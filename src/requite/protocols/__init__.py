"""Sans-I/O engines, one package per protocol; siblings never import each other."""

"""`requite pool poison`: requests that killed as many workers as allowed."""

"""`requite pool poison`: requests that reached the delivery limit."""

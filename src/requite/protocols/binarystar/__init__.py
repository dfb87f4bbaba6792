"""Binary Star: two servers of which one serves, and how they agree on which."""

"""Binary Star: two servers, one active, and how they agree on which."""

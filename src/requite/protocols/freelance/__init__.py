"""The Freelance pattern: clients of several equal servers, without a broker (10/FLP; the Guide)."""

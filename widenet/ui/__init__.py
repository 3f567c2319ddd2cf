"""Many runs in a browser: their table, curves, networks, plans and data, while they train."""

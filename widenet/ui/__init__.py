"""Many runs in a browser: their table, curves, networks and data, while they train."""

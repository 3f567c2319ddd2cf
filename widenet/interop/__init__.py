"""Other worlds: what their files hold, as ours, and the other way round."""

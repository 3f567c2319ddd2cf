"""Source formats: each file reads one into an SQL table; the table of formats names them."""

"""HTML reports: one page about a run, or a comparison of several, readable without a network connection.

`write_report` reads runs as subjects, samples recommendations, and joins the sections of a page.
"""

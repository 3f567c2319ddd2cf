"""The stylesheet and the scripts of the pages about runs."""

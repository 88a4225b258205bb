"""`sparktop report`: what a recording tells of a stretch of time, as one page for a colleague or a forum."""

"""The interactive session: reading, showing, slash commands. What is answered goes to stdout, everything else to
stderr.
"""

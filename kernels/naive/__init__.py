"""Every operation in numpy: slow, obviously right, and the oracle for the other implementations."""

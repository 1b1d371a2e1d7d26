"""What makes documents from the program: the reference, and pictures of real output."""

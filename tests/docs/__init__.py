"""Generates the reference from the program, and runs the commands of pages."""

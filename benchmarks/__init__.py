"""Measuring on emulated boards: instructions, memory and size, beside other engines."""

"""Media decoded and encoded: where Pillow and PyAV open files. Importing it loads neither."""

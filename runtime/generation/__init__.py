"""Text generation. Importing this loads no driver; the modules below do."""

"""C++ text: names, element types, expressions, streams, constants. Imports nothing else of this package."""

"""The C++ function of a task: its body, arrays, statements, tokens, pragmas. Imports `cpp`."""

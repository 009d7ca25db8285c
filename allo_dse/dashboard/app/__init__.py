"""The web app: layout, callbacks, and the server that runs it."""

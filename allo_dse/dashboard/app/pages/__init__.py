"""The pages and their callbacks. Imports `wiring` and the app's parts."""

"""Callbacks that pages share: gestures, plots, tables, the frame around the pages."""

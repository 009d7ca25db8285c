"""The pictures, as Plotly figures in plain data: the app and the report draw the same ones.

Imports: common, dashboard.data, drawing, eval, simulator, tune.
Imported by: dashboard, dashboard.app.
"""

"""The pictures, as Plotly figures in plain data: the app and the report draw the same ones."""

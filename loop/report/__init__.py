"""The means of a report: Markdown, tables, figures, HTML. What is said of a feature is in the feature's room."""

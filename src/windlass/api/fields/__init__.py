"""Names, fields and defaults of each family of job kinds, by their wire names."""

"""gq on a SQL database, through SQLAlchemy Core."""

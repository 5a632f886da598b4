"""`rowlock demo`: the verb (`command`), its jobs (`load`, `tasks`) and what it shows (`screen`)."""

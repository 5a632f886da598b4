"""`rowlock demo`: the verb (`command`), its jobs (`load`, `tasks`), what it shows (`screen`) and its end on a terminal
(`dashboard`)."""

"""Parts that an application may add: an answer cache, web addresses and their keys."""

"""Optional helpers for applications: a cache for answers of outside services, and keys for links and prices."""

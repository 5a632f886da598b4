"""The browser, the pages it opens, and the HTTP client."""

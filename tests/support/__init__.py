"""What the tests share: servers, proxies, small helpers. Imported as `support.…`."""

"""SQL beside the library: other drivers and ORMs, workers that speak SQL alone, rows and values that break things."""

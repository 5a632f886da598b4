"""Reading pages that strangers chose, without being led anywhere or filled up by them."""

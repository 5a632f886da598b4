"""How often and when outside sources may be asked, and what they answered."""

"""`python -m rowlock_apps.cronjobs`."""

from rowlock_apps.cronjobs.main import main

main()

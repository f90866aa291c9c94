"""What the machine has, and what is wanted of it: `hardware_detector` and `config`."""

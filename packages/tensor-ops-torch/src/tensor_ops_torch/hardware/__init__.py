"""What the machine has (`detector`), and the settings that say how it is used (`config`)."""

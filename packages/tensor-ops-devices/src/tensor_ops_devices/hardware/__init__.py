"""The hardware of the machine (`detector`), and the settings for its use (`config`)."""

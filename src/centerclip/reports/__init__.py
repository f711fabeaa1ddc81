"""Tables and figures: the paper's, and those beyond it."""

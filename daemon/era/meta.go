package era

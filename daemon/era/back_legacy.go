package era

type backLegacy struct{ Back }

func (backLegacy) Era() Era { return Legacy }

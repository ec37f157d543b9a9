package era

type frontLegacy struct{ Front }

func (frontLegacy) Era() Era { return Legacy }
